"""Answers in a given form: a JSON Schema, checked by us, whatever the provider promises."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n```", re.DOTALL)
TRIES = 3
"""How often an agent is asked for an answer in the right form, in all."""


def problem_of(value: Any, schema: Mapping[str, Any]) -> str:
    """What is wrong with a value, or nothing."""
    from jsonschema import Draft202012Validator

    errors = sorted(Draft202012Validator(dict(schema)).iter_errors(value), key=lambda error: list(error.path))
    if not errors:
        return ""
    first = errors[0]
    place = "".join(f"[{step!r}]" for step in first.path)
    return f"{first.message[:300]}{' at ' + place if place else ''}"


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise ValueError for a schema that is none."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        raise ValueError(f"output_schema is no JSON Schema: {error.message}") from None


def read_answer(text: str) -> tuple[Any, str]:
    """The JSON in an answer, alone or in a fenced block, and what is wrong if there is none."""
    candidates = [text.strip(), *(found.strip() for found in reversed(FENCED.findall(text)))]
    for candidate in candidates:
        try:
            return json.loads(candidate), ""
        except ValueError:
            continue
    return None, "the answer is not JSON"


def with_schema(prompt: str, schema: Mapping[str, Any]) -> str:
    return f"{prompt}\n\nAnswer with JSON only, that fits this JSON Schema:\n{json.dumps(dict(schema))}"


def once_more(problem: str, schema: Mapping[str, Any]) -> str:
    return with_schema(f"Your answer does not fit: {problem}. Answer again.", schema)
