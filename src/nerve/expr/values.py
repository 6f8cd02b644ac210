"""Values of expressions: JSON and `undefined`. Host values are checked when they are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from nerve.expr.errors import EvaluationRefused

Value: TypeAlias = Any
"""A JSON value or UNDEFINED; as an argument of some methods, a callback."""

Kind = Literal["undefined", "null", "boolean", "number", "string", "array", "object"]

MAX_EXACT_INTEGER: Final = 2**53
"""Integers up to here are exact in JavaScript."""


class Undefined:
    """The type of UNDEFINED."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED: Final = Undefined()


class ArrayValue(list[Any]):
    """An array created by an evaluation; arrays of the host are plain lists."""

    __slots__ = ()


class ObjectValue(dict[str, Any]):
    """An object created by an evaluation; objects of the host are plain dictionaries."""

    __slots__ = ()


PASS_THROUGH_TYPES: Final = frozenset(
    {Undefined, type(None), bool, float, str, list, dict, ArrayValue, ObjectValue}
)
"""Types whose values need no check; an int must be in the exact range."""

KIND_BY_TYPE: Final[dict[type, Kind]] = {
    Undefined: "undefined",
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    tuple: "array",
    ArrayValue: "array",
    dict: "object",
    ObjectValue: "object",
}


def value_kind(value: Value) -> Kind:
    """Return the kind of a value."""
    kind = KIND_BY_TYPE.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, list | tuple):
        return "array"
    raise EvaluationRefused(f"A Python {type(value).__name__} is not a JSON value")


def value_from_host(value: Value) -> Value:
    """Return a host value as a value of the language, or raise EvaluationRefused."""
    kind = type(value)
    if kind in PASS_THROUGH_TYPES:
        return value
    if kind is int:
        if -MAX_EXACT_INTEGER <= value <= MAX_EXACT_INTEGER:
            return value
        number = value if value.bit_length() < 128 else "of more than 128 bits"
        raise EvaluationRefused(f"The integer {number} is beyond ±2^53; pass it as a string")
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return value_from_host(int.__index__(value))
    if isinstance(value, float):
        return float.__float__(value)
    value_kind(value)
    return value


def typeof(value: Value) -> str:
    """Return the result of `typeof`."""
    kind = value_kind(value)
    return "object" if kind in ("null", "array") else kind


def is_truthy(value: Value) -> bool:
    """Whether a value is truthy."""
    kind = type(value)
    if kind is bool:
        return bool(value)
    if kind is str or kind is int:
        return bool(value)
    if kind is float:
        return bool(value == value and value)
    return value is not None and value is not UNDEFINED


def describe_kind(value: Value) -> str:
    """Return the kind of a value with an article, for messages."""
    kind = value_kind(value)
    if kind in ("null", "undefined"):
        return kind
    return f"an {kind}" if kind in ("array", "object") else f"a {kind}"


INDEX_PATTERN = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


def array_index(key: str) -> int | None:
    """Return the array index that a property name represents, or None."""
    if not INDEX_PATTERN.fullmatch(key):
        return None
    index = int(key)
    return index if index < 2**32 - 1 else None


def keys_in_order(keys: Iterable[Any]) -> list[str]:
    """Return property names in the order of JavaScript: indices first, ascending."""
    names = list(keys)
    for name in names:
        if type(name) is not str:
            raise EvaluationRefused(f"Object keys must be strings, got {name!r}")
    indices = {name: index for name in names if (index := array_index(name)) is not None}
    if not indices:
        return names
    return sorted(indices, key=indices.__getitem__) + [name for name in names if name not in indices]
