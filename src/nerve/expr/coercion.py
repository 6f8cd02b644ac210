"""Conversions between kinds of values, and equality and comparison as in JavaScript."""

from __future__ import annotations

from collections.abc import Callable

from nerve.expr import numbers, utf16
from nerve.expr.errors import EvaluationRefused
from nerve.expr.frame import Frame
from nerve.expr.numbers import NAN, Number
from nerve.expr.values import PASS_THROUGH_TYPES, UNDEFINED, Value, value_from_host, value_kind

STRING_CONVERSION_KEYS = ("toString", "valueOf")
"""Keys that would break the string conversion of an object in JavaScript."""


def to_string(frame: Frame, value: Value) -> str:
    """Return `String(value)`."""
    if type(value) is str:
        return value
    match value_kind(value):
        case "string":
            return str(value)
        case "number":
            frame.charge(2)
            return numbers.number_to_text(value)
        case "boolean":
            return "true" if value else "false"
        case "array":
            return join_elements(frame, array_elements(frame, value), ",")
        case "object":
            for name in STRING_CONVERSION_KEYS:
                if name in value:
                    raise EvaluationRefused(
                        f"An object with the key `{name}` cannot be converted to a string"
                    )
            return "[object Object]"
        case kind:
            return kind


def join_elements(frame: Frame, values: list[Value], separator: str) -> str:
    """Join the elements of an array; null and undefined are empty, nested arrays are joined by commas."""
    pieces: list[str] = []
    pending = [(values, 0)]
    while pending:
        values, index = pending.pop()
        between = "," if pending else separator
        while index < len(values):
            item = values[index]
            if index:
                frame.charge_text(len(between))
                pieces.append(between)
            index += 1
            if value_kind(item) == "array":
                frame.charge_visit(len(pending))
                pending += [(values, index), (array_elements(frame, item), 0)]
                break
            if item is not None and item is not UNDEFINED:
                pieces.append(to_string(frame, item))
    return utf16.join_pieces(frame, pieces)


def array_elements(frame: Frame, array: Value) -> list[Value]:
    """Return the elements of an array, converted from host values."""
    frame.charge(1 + len(array))
    return [item if type(item) in PASS_THROUGH_TYPES else value_from_host(item) for item in array]


def to_primitive(frame: Frame, value: Value) -> Value:
    return to_string(frame, value) if value_kind(value) in ("array", "object") else value


def to_number(frame: Frame, value: Value) -> Number:
    """Return `Number(value)`."""
    if type(value) is int or type(value) is float:
        return value
    match value_kind(value):
        case "boolean":
            return 1 if value else 0
        case "null":
            return 0
        case "undefined":
            return NAN
        case "string":
            frame.charge_text(len(value))
            return numbers.parse_number(value)
        case _:
            return to_number(frame, to_string(frame, value))


def to_integer(frame: Frame, value: Value) -> Number:
    """Return an index argument: an integer, or an infinity."""
    return numbers.integer_part(to_number(frame, value))


def strict_equal(frame: Frame, left: Value, right: Value) -> bool:
    """Return `left === right`."""
    first, second = type(left), type(right)
    if first is str and second is str:
        if len(left) != len(right):
            return False
        frame.charge_scan(len(left))
        return bool(left == right)
    if first is bool or second is bool:
        return left is right
    if (first is int or first is float) and (second is int or second is float):
        return bool(left == right)
    return left is right


def same_value(frame: Frame, left: Value, right: Value) -> bool:
    """Like `===`, but NaN equals NaN."""
    if type(left) is float and type(right) is float and left != left:
        return bool(right != right)
    return strict_equal(frame, left, right)


def loosely_equal(frame: Frame, left: Value, right: Value) -> bool:
    """Return `left == right`."""
    first, second = value_kind(left), value_kind(right)
    if first == second:
        return strict_equal(frame, left, right)
    empty = ("null", "undefined")
    if first in empty or second in empty:
        return first in empty and second in empty
    compound = ("array", "object")
    if first in compound and second in compound:
        return False
    if first == "boolean" or second == "boolean" or {first, second} == {"number", "string"}:
        if first in compound or second in compound:
            return loosely_equal(
                frame, to_comparable_primitive(frame, left), to_comparable_primitive(frame, right)
            )
        return to_number(frame, left) == to_number(frame, right)
    return loosely_equal(frame, to_primitive(frame, left), to_primitive(frame, right))


def to_comparable_primitive(frame: Frame, value: Value) -> Value:
    """Convert a boolean to a number, and an array or object to a string."""
    return to_number(frame, value) if type(value) is bool else to_primitive(frame, value)


def compare_values(frame: Frame, left: Value, right: Value, compare: Callable[[Value, Value], bool]) -> bool:
    """Return the result of a comparison; strings are compared by UTF-16 units."""
    left, right = to_primitive(frame, left), to_primitive(frame, right)
    if type(left) is str and type(right) is str:
        if left.isascii() and right.isascii():
            frame.charge_scan(min(len(left), len(right)))
            return compare(left, right)
        return compare(utf16.utf16_sort_key(frame, left), utf16.utf16_sort_key(frame, right))
    return compare(to_number(frame, left), to_number(frame, right))
