"""Answers in a given form: a JSON Schema, checked by us, whatever the provider promises."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from nerve.core.values import read_json

FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n```", re.DOTALL)
TRIES = 3
"""How often an agent is asked for an answer in the right form, in all."""


def read_answer(text: str) -> tuple[Any, str]:
    """The JSON in an answer, alone or in a fenced block, and what is wrong if there is none."""
    candidates = [text.strip(), *(found.strip() for found in reversed(FENCED.findall(text)))]
    problem = "the answer is not JSON"
    for candidate in candidates:
        try:
            return read_json(candidate), ""
        except json.JSONDecodeError:
            continue
        except ValueError as error:
            problem = f"the answer cannot be kept: {error}"
    return None, problem


def with_schema(prompt: str, schema: Mapping[str, Any]) -> str:
    return f"{prompt}\n\nAnswer with JSON only, that fits this JSON Schema:\n{json.dumps(dict(schema))}"


def once_more(problem: str, schema: Mapping[str, Any]) -> str:
    return with_schema(f"Your answer does not fit: {problem}. Answer again.", schema)
