"""Property access: only the keys of data can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nerve.expr import numbers, reserved_names, utf16
from nerve.expr.coercion import array_elements, to_integer, to_string
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
    """Return the property `key`, or UNDEFINED."""
    if key in reserved_names.FORBIDDEN_PROPERTIES:
        raise EvaluationRefused(reserved_names.forbidden_property_message(key))
    kind = value_kind(base)
    if kind == "object":
        return value_from_host(base[key]) if key in base else missing_property(base, key)
    if kind == "null" or kind == "undefined":
        raise EvaluationRefused(f"Cannot read `{key}` of {kind}; write `?.` if it may be missing")
    if kind == "array" or kind == "string":
        if key == "length":
            return value_length(frame, base)
        index = array_index(key)
        if index is not None:
            return element_at(frame, base, index)
    return missing_property(base, key)


def read_index(frame: Frame, base: Value, key: Value) -> Value:
    """Return `base[key]`."""
    if type(key) is int and type(base) is not dict:
        kind = value_kind(base)
        if kind == "array" or kind == "string":
            return element_at(frame, base, key) if key >= 0 else UNDEFINED
    if base is None or base is UNDEFINED:
        raise EvaluationRefused(
            f"Cannot read a property of {value_kind(base)}; write `?.[` if it may be missing"
        )
    return read_property(frame, base, to_string(frame, key))


def value_length(frame: Frame, base: Value) -> int:
    return utf16.utf16_length(frame, base) if type(base) is str else len(base)


def element_at(frame: Frame, base: Value, index: int) -> Value:
    """Return the element of an array or the UTF-16 unit of a string, or UNDEFINED."""
    if type(base) is str:
        text = utf16.utf16_units(frame, base)
        return text[index] if index < len(text) else UNDEFINED
    return value_from_host(base[index]) if index < len(base) else UNDEFINED


def missing_property(base: Value, key: str) -> Value:
    """Return UNDEFINED; raise if JavaScript would return an inherited member."""
    if key in (
        reserved_names.INHERITED_BY_OBJECTS
        if value_kind(base) == "object"
        else reserved_names.INHERITED_BY_OTHERS
    ):
        raise EvaluationRefused(f"Cannot read `{key}` of {describe_kind(base)}; methods can only be called")
    return UNDEFINED


def has_property(frame: Frame, base: Value, key: Value) -> bool:
    """Return `key in base`."""
    kind = value_kind(base)
    if kind not in ("object", "array"):
        raise EvaluationRefused(f"`in` needs an object or an array on its right, got {describe_kind(base)}")
    name = to_string(frame, key)
    if has_own_property(frame, base, name):
        return True
    if name in reserved_names.FORBIDDEN_PROPERTIES:
        raise EvaluationRefused(reserved_names.forbidden_property_message(name))
    missing_property(base, name)
    return False


def has_own_property(frame: Frame, base: Value, name: str) -> bool:
    """Whether `name` is an own key of the data."""
    kind = value_kind(base)
    if kind == "object":
        return name in base
    if kind in ("array", "string"):
        index = array_index(name)
        return name == "length" or (index is not None and index < value_length(frame, base))
    return False


def own_entries(frame: Frame, base: Value) -> Iterator[tuple[str, Value]]:
    """Yield the own keys and values in the order of JavaScript."""
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
    """Return the elements that `...base` adds to an array or a call."""
    kind = value_kind(base)
    if kind == "array":
        return array_elements(frame, base)
    if kind == "string":
        frame.charge_items(len(base))
        return list(base)
    raise EvaluationRefused(f"Cannot spread {describe_kind(base)}; only arrays and strings can be spread")


def clamp_index(position: numbers.Number, length: int) -> int:
    """Return an index within the length; a negative one counts from the end."""
    return int(max(length + position, 0)) if position < 0 else int(min(position, length))


def slice_bounds(
    frame: Frame, start: Value, end: Value, length: int, clamp: Callable[[numbers.Number, int], int]
) -> tuple[int, int]:
    """Return the first and the last index of a part; without an end, it goes up to the length."""
    first = clamp(to_integer(frame, start), length)
    return first, length if end is UNDEFINED else clamp(to_integer(frame, end), length)
