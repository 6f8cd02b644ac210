"""The operators as functions of values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from nerve.expr import numbers, utf16
from nerve.expr.coercion import (
    compare_values,
    loosely_equal,
    strict_equal,
    to_number,
    to_primitive,
    to_string,
)
from nerve.expr.frame import Frame
from nerve.expr.numbers import Number
from nerve.expr.property_access import has_property
from nerve.expr.values import MAX_EXACT_INTEGER, Value, is_truthy, typeof

BinaryOperator = Callable[[Frame, Value, Value], Value]


def add_values(frame: Frame, left: Value, right: Value) -> Value:
    """Return the sum, or the concatenation if one operand is a string."""
    if type(left) is int and type(right) is int:
        return exact_sum(left + right, left, right)
    left, right = to_primitive(frame, left), to_primitive(frame, right)
    if type(left) is str or type(right) is str:
        return utf16.join_pieces(frame, [to_string(frame, left), to_string(frame, right)])
    return numbers.int_if_safe(float(to_number(frame, left)) + float(to_number(frame, right)))


def exact_sum(result: int, left: int, right: int) -> Number:
    """Return the sum of integers, as a float beyond the exact range."""
    return result if -MAX_EXACT_INTEGER <= result <= MAX_EXACT_INTEGER else float(left) + float(right)


def subtract_values(frame: Frame, left: Value, right: Value) -> Number:
    first, second = to_number(frame, left), to_number(frame, right)
    return numbers.int_if_safe(float(first) - float(second))


def multiply_values(frame: Frame, left: Value, right: Value) -> Number:
    return numbers.product(to_number(frame, left), to_number(frame, right))


def divide_values(frame: Frame, left: Value, right: Value) -> Number:
    return numbers.quotient(to_number(frame, left), to_number(frame, right))


def modulo_values(frame: Frame, left: Value, right: Value) -> Number:
    return numbers.remainder(to_number(frame, left), to_number(frame, right))


def power_values(frame: Frame, left: Value, right: Value) -> Number:
    return numbers.raise_to_power(to_number(frame, left), to_number(frame, right))


def is_strictly_different(frame: Frame, left: Value, right: Value) -> bool:
    return not strict_equal(frame, left, right)


def is_loosely_different(frame: Frame, left: Value, right: Value) -> bool:
    return not loosely_equal(frame, left, right)


def is_key_in(frame: Frame, left: Value, right: Value) -> bool:
    return has_property(frame, right, left)


BINARY_OPERATORS: Final[dict[str, BinaryOperator]] = {
    "+": add_values,
    "-": subtract_values,
    "*": multiply_values,
    "/": divide_values,
    "%": modulo_values,
    "**": power_values,
    "===": strict_equal,
    "!==": is_strictly_different,
    "==": loosely_equal,
    "!=": is_loosely_different,
    "<": partial(compare_values, operator="<"),
    ">": partial(compare_values, operator=">"),
    "<=": partial(compare_values, operator="<="),
    ">=": partial(compare_values, operator=">="),
    "in": is_key_in,
}


def negate_value(frame: Frame, value: Value) -> Number:
    return numbers.negate_number(to_number(frame, value))


UNARY_OPERATORS: Final[dict[str, Callable[[Frame, Value], Value]]] = {
    "!": lambda frame, value: not is_truthy(value),
    "-": negate_value,
    "+": to_number,
    "typeof": lambda frame, value: typeof(value),
}
