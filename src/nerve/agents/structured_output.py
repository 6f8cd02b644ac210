"""Answers in a given form: a JSON Schema, checked by us, whatever the provider promises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_ANSWER_ATTEMPTS = 3
"""How often an agent is asked for an answer in the right form, in all."""


def prompt_with_schema(prompt: str, schema: Mapping[str, Any]) -> str:
    return f"{prompt}\n\nAnswer with JSON only, that fits this JSON Schema:\n{json.dumps(dict(schema))}"


def retry_prompt(problem: str, schema: Mapping[str, Any]) -> str:
    return prompt_with_schema(f"Your answer does not fit: {problem}. Answer again.", schema)
