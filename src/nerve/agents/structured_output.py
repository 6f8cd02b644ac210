"""Structured answers: the engine validates them against a JSON Schema, whatever the provider promises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_ANSWER_ATTEMPTS = 3
"""Maximum number of turns to get an answer that matches the schema."""


def prompt_with_schema(prompt: str, schema: Mapping[str, Any]) -> str:
    return f"{prompt}\n\nAnswer with JSON only. It must match this JSON Schema:\n{json.dumps(dict(schema))}"


def retry_prompt(problem: str, schema: Mapping[str, Any]) -> str:
    return prompt_with_schema(f"Your answer does not match the schema: {problem}. Answer again.", schema)
