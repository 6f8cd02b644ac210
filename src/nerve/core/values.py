"""Values as the journal keeps them: JSON text, read back the same way every time."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from nerve.errors import NotJson

_plain = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_sorted = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode
_SCALARS = frozenset({str, int, bool, type(None)})


def encode(value: Any, canonical: bool = False) -> str:
    """JSON text of a value; with `canonical`, the keys of objects are sorted."""
    try:
        text = (_sorted if canonical else _plain)(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(_explain(value, error)) from None
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text


def decode(text: str) -> Any:
    return json.loads(text)


def recorded(value: Any, text: str) -> Any:
    """The value as it will be read back from its JSON `text`."""
    return value if type(value) in _SCALARS and text.isascii() else json.loads(text)


def digest(text: str) -> str:
    """A short hash of a canonical text, for comparing inputs."""
    return sha256(text.encode()).hexdigest()[:32]


def _explain(value: Any, error: Exception) -> str:
    found = _offender(value, "")
    if found is None:
        return f"value cannot be written as JSON: {error}"
    place, kind = found
    return f"{kind}{' at ' + place if place else ''} cannot be written as JSON; return plain data instead"


def _offender(value: Any, place: str, depth: int = 0) -> tuple[str, str] | None:
    if depth > 64:
        return place, "a value nested more than 64 deep"
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str | int | float | bool | None):
                return place, f"a key of type {type(key).__name__}"
            if found := _offender(item, f"{place}.{key}" if place else str(key), depth + 1):
                return found
        return None
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            if found := _offender(item, f"{place}[{index}]", depth + 1):
                return found
        return None
    if isinstance(value, float) and value - value != 0:
        return place, f"the number {value}"
    if value is None or isinstance(value, str | int | float):
        return None
    return place, f"a value of type {type(value).__name__}"
