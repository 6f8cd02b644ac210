"""JSON values in the one form in which equal ones are written alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.core.values import EXACT, check_exact, encode
from nerve.errors import NotJson

Json = Any
DEEP = 64
"""How deep a value may be nested."""


def plain(value: Json, depth: int = 0) -> Json:
    """A copy made of plain JSON types, with `1.0` as `1` and half characters replaced."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, int):
        return integer(value)
    if isinstance(value, float):
        return number(value)
    if depth >= DEEP:
        raise NotJson(f"a value nested more than {DEEP} deep is refused; make it flatter")
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {key_of(key): plain(item, depth + 1) for key, item in value.items()}
    raise NotJson(f"a value of type {type(value).__name__} cannot be written as JSON; use plain data instead")


def integer(value: int) -> int:
    check_exact(value)
    return int(value)


def number(value: float) -> float | int:
    if value - value != 0:
        raise NotJson(f"the number {value} cannot be written as JSON")
    return int(value) if value.is_integer() and abs(value) <= EXACT else float(value)


def whole(text: str) -> str:
    """The text without lone surrogates, which neither UTF-8 nor a store can carry."""
    if text.isascii():
        return str(text)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def key_of(key: Any) -> str:
    if not isinstance(key, str):
        raise NotJson(f"the key {key!r} of an object must be text")
    return whole(key)


def canonical(value: Json) -> str:
    """The text by which plain values are compared."""
    return encode(value, canonical=True)
