"""The operators as functions of values."""

from __future__ import annotations

import operator
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
        total = left + right  # as a float beyond the exact range
        return total if -MAX_EXACT_INTEGER <= total <= MAX_EXACT_INTEGER else float(left) + float(right)
    left, right = to_primitive(frame, left), to_primitive(frame, right)
    if type(left) is str or type(right) is str:
        return utf16.join_pieces(frame, [to_string(frame, left), to_string(frame, right)])
    return numbers.int_if_safe(float(to_number(frame, left)) + float(to_number(frame, right)))


def numeric_operator(compute: Callable[[Number, Number], Number]) -> BinaryOperator:
    """Return the operator that computes a number from both operands as numbers."""
    return lambda frame, left, right: compute(to_number(frame, left), to_number(frame, right))


BINARY_OPERATORS: Final[dict[str, BinaryOperator]] = {
    "+": add_values,
    "-": numeric_operator(numbers.difference),
    "*": numeric_operator(numbers.product),
    "/": numeric_operator(numbers.quotient),
    "%": numeric_operator(numbers.remainder),
    "**": numeric_operator(numbers.raise_to_power),
    "===": strict_equal,
    "!==": lambda frame, left, right: not strict_equal(frame, left, right),
    "==": loosely_equal,
    "!=": lambda frame, left, right: not loosely_equal(frame, left, right),
    "<": partial(compare_values, compare=operator.lt),
    ">": partial(compare_values, compare=operator.gt),
    "<=": partial(compare_values, compare=operator.le),
    ">=": partial(compare_values, compare=operator.ge),
    "in": lambda frame, left, right: has_property(frame, right, left),
}


UNARY_OPERATORS: Final[dict[str, Callable[[Frame, Value], Value]]] = {
    "!": lambda frame, value: not is_truthy(value),
    "-": lambda frame, value: numbers.negate_number(to_number(frame, value)),
    "+": to_number,
    "typeof": lambda frame, value: typeof(value),
}
