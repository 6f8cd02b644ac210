"""The operators, each as a function of two values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from nerve.expr import numbers, utf16
from nerve.expr.access import has
from nerve.expr.convert import less, loosely_equal, strict_equal, to_number, to_primitive, to_string
from nerve.expr.frame import Frame
from nerve.expr.numbers import Number
from nerve.expr.values import LARGEST, Value, truthy, typeof

Operator = Callable[[Frame, Value, Value], Value]


def add(frame: Frame, left: Value, right: Value) -> Value:
    """`+`: a sum, or one string after the other."""
    if type(left) is int and type(right) is int:
        return exact(left + right, left, right)
    left, right = to_primitive(frame, left), to_primitive(frame, right)
    if type(left) is str or type(right) is str:
        return utf16.joined(frame, [to_string(frame, left), to_string(frame, right)])
    return numbers.settled(float(to_number(frame, left)) + float(to_number(frame, right)))


def exact(result: int, left: int, right: int) -> Number:
    """The sum of integers as a float where it is not exact any more."""
    return result if -LARGEST <= result <= LARGEST else float(left) + float(right)


def subtract(frame: Frame, left: Value, right: Value) -> Number:
    first, second = to_number(frame, left), to_number(frame, right)
    return numbers.settled(float(first) - float(second))


def multiply(frame: Frame, left: Value, right: Value) -> Number:
    return numbers.product(to_number(frame, left), to_number(frame, right))


def divide(frame: Frame, left: Value, right: Value) -> Number:
    return numbers.quotient(to_number(frame, left), to_number(frame, right))


def modulo(frame: Frame, left: Value, right: Value) -> Number:
    return numbers.remainder(to_number(frame, left), to_number(frame, right))


def power(frame: Frame, left: Value, right: Value) -> Number:
    return numbers.power(to_number(frame, left), to_number(frame, right))


def strictly_different(frame: Frame, left: Value, right: Value) -> bool:
    return not strict_equal(frame, left, right)


def loosely_different(frame: Frame, left: Value, right: Value) -> bool:
    return not loosely_equal(frame, left, right)


def is_in(frame: Frame, left: Value, right: Value) -> bool:
    return has(frame, right, left)


BINARY: Final[dict[str, Operator]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": modulo,
    "**": power,
    "===": strict_equal,
    "!==": strictly_different,
    "==": loosely_equal,
    "!=": loosely_different,
    "<": partial(less, operator="<"),
    ">": partial(less, operator=">"),
    "<=": partial(less, operator="<="),
    ">=": partial(less, operator=">="),
    "in": is_in,
}


def negate(frame: Frame, value: Value) -> Number:
    return numbers.negative(to_number(frame, value))


UNARY: Final[dict[str, Callable[[Frame, Value], Value]]] = {
    "!": lambda frame, value: not truthy(value),
    "-": negate,
    "+": to_number,
    "typeof": lambda frame, value: typeof(value),
}
