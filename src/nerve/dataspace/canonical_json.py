"""Canonical JSON: equal values have equal text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.core.json_codec import MAX_EXACT_INT, check_safe_integers, encode_json
from nerve.errors import NotJson

Json = Any
MAX_DEPTH = 64
"""The maximum nesting depth of a value."""


def normalize_json(value: Json, depth: int = 0) -> Json:
    """Return a copy of plain JSON types, with `1.0` as `1` and unpaired surrogates replaced."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, int):
        check_safe_integers(value)
        return int(value)
    if isinstance(value, float):
        if value - value != 0:
            raise NotJson(f"The number {value} cannot be encoded as JSON")
        return int(value) if value.is_integer() and abs(value) <= MAX_EXACT_INT else float(value)
    if depth >= MAX_DEPTH:
        raise NotJson(f"The value is nested more than {MAX_DEPTH} levels deep; make it flatter")
    if isinstance(value, list | tuple):
        return [normalize_json(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {normalize_key(key): normalize_json(item, depth + 1) for key, item in value.items()}
    raise NotJson(f"A value of type {type(value).__name__} cannot be encoded as JSON; use plain data instead")


def replace_lone_surrogates(text: str) -> str:
    """Replace unpaired surrogates, which neither UTF-8 nor a store can encode."""
    if text.isascii():
        return str(text)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def normalize_key(key: Any) -> str:
    if not isinstance(key, str):
        raise NotJson(f"Object keys must be strings, got {key!r}")
    return replace_lone_surrogates(key)


def encode_canonical(value: Json) -> str:
    """Return the canonical JSON text of a plain value."""
    return encode_json(value, canonical=True)
