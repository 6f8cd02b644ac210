"""What can be read from a value: the keys of its data, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from nerve.expr import numbers, reserved_names, utf16
from nerve.expr.coercion import array_elements, to_string
from nerve.expr.errors import EvaluationRefused
from nerve.expr.frame import Frame
from nerve.expr.values import (
    UNDEFINED,
    Value,
    array_index,
    describe_kind,
    keys_in_order,
    value_from_host,
    value_kind,
)


def read_property(frame: Frame, base: Value, key: str) -> Value:
    """The property `key`, or UNDEFINED."""
    if key in reserved_names.FORBIDDEN_PROPERTIES:
        raise EvaluationRefused(reserved_names.forbidden_property_message(key))
    kind = value_kind(base)
    if kind == "object":
        return value_from_host(base[key]) if key in base else missing_property(base, key)
    if kind == "null" or kind == "undefined":
        raise EvaluationRefused(f"cannot read `{key}` of {kind}; write `?.` where it may be missing")
    if kind == "array" or kind == "string":
        if key == "length":
            return value_length(frame, base)
        index = array_index(key)
        if index is not None:
            return element_at(frame, base, index)
    return missing_property(base, key)


def read_index(frame: Frame, base: Value, key: Value) -> Value:
    """What `base[key]` says."""
    if type(key) is int and type(base) is not dict:
        kind = value_kind(base)
        if kind == "array" or kind == "string":
            return element_at(frame, base, key) if key >= 0 else UNDEFINED
    if base is None or base is UNDEFINED:
        raise EvaluationRefused(
            f"cannot read a property of {value_kind(base)}; write `?.[` where it may be missing"
        )
    return read_property(frame, base, to_string(frame, key))


def value_length(frame: Frame, base: Value) -> int:
    return utf16.utf16_length(frame, base) if type(base) is str else len(base)


def element_at(frame: Frame, base: Value, index: int) -> Value:
    """The element of an array or the unit of a string, or UNDEFINED."""
    if type(base) is str:
        text = utf16.utf16_units(frame, base)
        return text[index] if index < len(text) else UNDEFINED
    return value_from_host(base[index]) if index < len(base) else UNDEFINED


def missing_property(base: Value, key: str) -> Value:
    """UNDEFINED, unless JavaScript would find something that is not data."""
    if key in (
        reserved_names.INHERITED_BY_OBJECTS
        if value_kind(base) == "object"
        else reserved_names.INHERITED_BY_OTHERS
    ):
        raise EvaluationRefused(f"{describe_kind(base)} has no key `{key}`; methods can only be called")
    return UNDEFINED


def has_property(frame: Frame, base: Value, key: Value) -> bool:
    """What `key in base` says."""
    kind = value_kind(base)
    if kind not in ("object", "array"):
        raise EvaluationRefused(f"`in` looks into objects and arrays, not into {describe_kind(base)}")
    name = to_string(frame, key)
    if has_own_property(frame, base, name):
        return True
    if name in reserved_names.FORBIDDEN_PROPERTIES:
        raise EvaluationRefused(reserved_names.forbidden_property_message(name))
    missing_property(base, name)
    return False


def has_own_property(frame: Frame, base: Value, name: str) -> bool:
    """Whether `name` is a key of the data itself."""
    kind = value_kind(base)
    if kind == "object":
        return name in base
    if kind in ("array", "string"):
        index = array_index(name)
        return name == "length" or (index is not None and index < value_length(frame, base))
    return False


def own_entries(frame: Frame, base: Value) -> Iterator[tuple[str, Value]]:
    """The keys and values that spreading, `Object.entries` and the like see, in JavaScript's order."""
    kind = value_kind(base)
    if kind == "object":
        frame.charge(4 + 2 * len(base))
        for key in keys_in_order(base):
            yield key, value_from_host(base[key])
    elif kind == "array":
        yield from indexed_entries(array_elements(frame, base))
    elif kind == "string":
        text = utf16.utf16_units(frame, base)
        frame.charge_items(len(text))
        yield from indexed_entries(list(text))


def indexed_entries(values: list[Value]) -> Iterator[tuple[str, Value]]:
    for index, item in enumerate(values):
        yield str(index), item


def spread_elements(frame: Frame, base: Value) -> list[Value]:
    """What `...base` in an array or a call gives."""
    kind = value_kind(base)
    if kind == "array":
        return array_elements(frame, base)
    if kind == "string":
        frame.charge_items(len(base))
        return list(base)
    raise EvaluationRefused(f"{describe_kind(base)} cannot be spread; arrays and strings can")


def clamp_index(position: numbers.Number, length: int) -> int:
    """An index that counts from the end when it is negative, kept within the length."""
    return int(max(length + position, 0)) if position < 0 else int(min(position, length))
