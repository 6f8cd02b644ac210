"""Requests: what an agent is asked, made of whatever flows into its node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any

from nerve.core.values import decode, encode

TEXTS = ("prompt", "resume", "model", "cwd", "artifacts", "fallback")
REST: Mapping[str, type | UnionType] = {
    "schema": dict | None,
    "permissions": dict | None,
    "tools": list | None,
    "max_turns": int | None,
}
KEYS = frozenset({*TEXTS, *REST})


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt, and where and how it is to be answered."""

    prompt: str
    resume: str | None = None
    model: str | None = None
    cwd: str | None = None
    artifacts: str | None = None
    """A folder that must exist when the agent is asked."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the answer."""
    permissions: Mapping[str, Any] | None = None
    tools: Sequence[str] | None = None
    """The tools that may be used without asking."""
    max_turns: int | None = None
    fallback: str | None = None
    """The provider to ask while the first is limited."""
    explicit: bool = False
    """Whether it says itself which conversation to go on with, if any."""

    @classmethod
    def of(cls, given: Any) -> Request:
        """A string is the prompt; an object of exactly our keys is a request; other values become text."""
        if is_request(given):
            texts: Any = {key: as_text(given[key]) for key in TEXTS if given.get(key) is not None}
            return cls(**texts, **{key: given.get(key) for key in REST}, explicit=True)
        return cls(as_prompt(given))


def is_request(given: Any) -> bool:
    if not isinstance(given, dict) or not isinstance(given.get("prompt"), str) or not given.keys() <= KEYS:
        return False
    return all(isinstance(given.get(key), kind) for key, kind in REST.items())


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
