"""Requests: what an agent is asked, made of whatever flows into its node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nerve.core.values import decode, encode

KEYS = frozenset({"prompt", "resume", "model", "cwd", "artifacts"})


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt, and where and how it is to be answered."""

    prompt: str
    resume: str | None = None
    model: str | None = None
    cwd: str | None = None
    artifacts: str | None = None
    """A folder that must exist when the agent is asked."""

    @classmethod
    def of(cls, given: Any) -> Request:
        """A string is the prompt; an object of exactly our keys is a request; other values become text."""
        if is_request(given):
            return cls(**{key: as_text(value) for key, value in given.items() if value is not None})
        return cls(as_prompt(given))


def is_request(given: Any) -> bool:
    return isinstance(given, dict) and isinstance(given.get("prompt"), str) and given.keys() <= KEYS


def as_prompt(given: Any) -> str:
    """The text of any value; of an object its `input`, then the rest as JSON under the heading Context."""
    if not isinstance(given, Mapping) or "input" not in given:
        return as_text(given)
    rest = {key: value for key, value in given.items() if key != "input"}
    text = as_text(given["input"])
    return f"{text}\n\n## Context\n\n```json\n{as_text(rest)}\n```" if rest else text


def as_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(decode(encode(value)), indent=2, ensure_ascii=False)
