"""JSON values in the one form in which equal ones are written alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.core.json_codec import MAX_EXACT_INT, check_safe_integers, encode_json
from nerve.errors import NotJson

Json = Any
MAX_DEPTH = 64
"""How deep a value may be nested."""


def normalize_json(value: Json, depth: int = 0) -> Json:
    """A copy made of plain JSON types, with `1.0` as `1` and half characters replaced."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, int):
        return normalize_integer(value)
    if isinstance(value, float):
        return normalize_number(value)
    if depth >= MAX_DEPTH:
        raise NotJson(f"a value nested more than {MAX_DEPTH} deep is refused; make it flatter")
    if isinstance(value, list | tuple):
        return [normalize_json(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {normalize_key(key): normalize_json(item, depth + 1) for key, item in value.items()}
    raise NotJson(f"a value of type {type(value).__name__} cannot be written as JSON; use plain data instead")


def normalize_integer(value: int) -> int:
    check_safe_integers(value)
    return int(value)


def normalize_number(value: float) -> float | int:
    if value - value != 0:
        raise NotJson(f"the number {value} cannot be written as JSON")
    return int(value) if value.is_integer() and abs(value) <= MAX_EXACT_INT else float(value)


def replace_lone_surrogates(text: str) -> str:
    """The text without lone surrogates, which neither UTF-8 nor a store can carry."""
    if text.isascii():
        return str(text)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def normalize_key(key: Any) -> str:
    if not isinstance(key, str):
        raise NotJson(f"the key {key!r} of an object must be text")
    return replace_lone_surrogates(key)


def encode_canonical(value: Json) -> str:
    """The text by which plain values are compared."""
    return encode_json(value, canonical=True)
