"""Answers in a given form: a JSON Schema, checked by us, whatever the provider promises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

TRIES = 3
"""How often an agent is asked for an answer in the right form, in all."""


def with_schema(prompt: str, schema: Mapping[str, Any]) -> str:
    return f"{prompt}\n\nAnswer with JSON only, that fits this JSON Schema:\n{json.dumps(dict(schema))}"


def once_more(problem: str, schema: Mapping[str, Any]) -> str:
    return with_schema(f"Your answer does not fit: {problem}. Answer again.", schema)
