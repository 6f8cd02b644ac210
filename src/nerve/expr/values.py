"""The values: JSON's and `undefined`; what comes from the host is looked at when it is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from nerve.expr.errors import EvaluationRefused

Value: TypeAlias = Any
"""A JSON value or UNDEFINED; a callback among the arguments of a method that takes one."""

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
    """An array made by an evaluation; what the host gave stays a plain list."""

    __slots__ = ()


class ObjectValue(dict[str, Any]):
    """An object made by an evaluation; what the host gave stays a plain dictionary."""

    __slots__ = ()


PASS_THROUGH_TYPES: Final = frozenset(
    {Undefined, type(None), bool, float, str, list, dict, ArrayValue, ObjectValue}
)
"""Types whose values may be used as they are; an int must be looked at."""

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
    """Which of the seven kinds a value is."""
    kind = KIND_BY_TYPE.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, list | tuple):
        return "array"
    raise EvaluationRefused(f"a Python {type(value).__name__} is not a JSON value")


def value_from_host(value: Value) -> Value:
    """A value of the host, or the reason why it cannot be used."""
    kind = type(value)
    if kind in PASS_THROUGH_TYPES:
        return value
    if kind is int:
        if -MAX_EXACT_INTEGER <= value <= MAX_EXACT_INTEGER:
            return value
        raise EvaluationRefused(f"the integer {format_integer(value)} is beyond ±2^53; pass it as a string")
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return value_from_host(int.__index__(value))
    if isinstance(value, float):
        return float.__float__(value)
    value_kind(value)
    return value


def format_integer(value: int) -> str:
    return str(value) if value.bit_length() < 128 else "of more than 128 bits"


def typeof(value: Value) -> str:
    """What JavaScript's `typeof` says."""
    kind = value_kind(value)
    return "object" if kind in ("null", "array") else kind


def is_truthy(value: Value) -> bool:
    """Whether a condition holds."""
    kind = type(value)
    if kind is bool:
        return bool(value)
    if kind is str or kind is int:
        return bool(value)
    if kind is float:
        return bool(value == value and value)
    return value is not None and value is not UNDEFINED


def describe_kind(value: Value) -> str:
    """A value's kind with an article, for messages."""
    kind = value_kind(value)
    if kind in ("null", "undefined"):
        return kind
    return f"an {kind}" if kind in ("array", "object") else f"a {kind}"


INDEX_PATTERN = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


def array_index(key: str) -> int | None:
    """The index a property name stands for, if it is one."""
    if not INDEX_PATTERN.fullmatch(key):
        return None
    index = int(key)
    return index if index < 2**32 - 1 else None


def keys_in_order(keys: Iterable[Any]) -> list[str]:
    """Property names as JavaScript orders them: indices first, by size."""
    names = list(keys)
    for name in names:
        if type(name) is not str:
            raise EvaluationRefused(f"the key {name!r} of an object is not a string")
    indices = {name: index for name in names if (index := array_index(name)) is not None}
    if not indices:
        return names
    return sorted(indices, key=indices.__getitem__) + [name for name in names if name not in indices]
