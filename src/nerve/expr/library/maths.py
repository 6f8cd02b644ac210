"""The functions of `Math` whose results are the same everywhere."""

from __future__ import annotations

import math

from nerve.expr import numbers
from nerve.expr.convert import to_number
from nerve.expr.frame import Frame
from nerve.expr.library.table import functions
from nerve.expr.numbers import INFINITY, NAN, Number, settled
from nerve.expr.values import UNDEFINED, Value

MATH = functions()


@MATH.add("Math.abs")
def absolute(frame: Frame, value: Value = UNDEFINED) -> Number:
    return abs(to_number(frame, value))


def signed(result: float, like: Number) -> Number:
    """A rounded number; zero keeps the sign of what was rounded."""
    return settled(float(result) or math.copysign(0.0, like))


@MATH.add("Math.ceil")
def ceil(frame: Frame, value: Value = UNDEFINED) -> Number:
    number = to_number(frame, value)
    return signed(math.ceil(number), number) if math.isfinite(number) else number


@MATH.add("Math.floor")
def floor(frame: Frame, value: Value = UNDEFINED) -> Number:
    number = to_number(frame, value)
    return signed(math.floor(number), number) if math.isfinite(number) else number


@MATH.add("Math.round")
def round_(frame: Frame, value: Value = UNDEFINED) -> Number:
    number = to_number(frame, value)
    if not math.isfinite(number):
        return number
    below = math.floor(number)
    return signed(below + (number - below >= 0.5), number)


@MATH.add("Math.trunc")
def trunc(frame: Frame, value: Value = UNDEFINED) -> Number:
    number = to_number(frame, value)
    return signed(math.trunc(number), number) if math.isfinite(number) else number


@MATH.add("Math.sign")
def sign(frame: Frame, value: Value = UNDEFINED) -> Number:
    number = to_number(frame, value)
    return settled(math.copysign(1.0, number)) if number and number == number else number


@MATH.add("Math.sqrt")
def sqrt(frame: Frame, value: Value = UNDEFINED) -> Number:
    number = to_number(frame, value)
    return settled(math.sqrt(number)) if number >= 0 else NAN


@MATH.add("Math.pow")
def pow_(frame: Frame, base: Value = UNDEFINED, exponent: Value = UNDEFINED) -> Number:
    return numbers.power(to_number(frame, base), to_number(frame, exponent))


@MATH.add("Math.max")
def max_(frame: Frame, *values: Value) -> Number:
    return extreme(frame, values, 1)


@MATH.add("Math.min")
def min_(frame: Frame, *values: Value) -> Number:
    return extreme(frame, values, -1)


def extreme(frame: Frame, values: tuple[Value, ...], direction: int) -> Number:
    """The largest or smallest; NaN wins, and 0 is larger than -0."""
    frame.spend(1 + len(values))
    found = [to_number(frame, value) for value in values]
    if any(number != number for number in found):
        return NAN
    return max(found, key=lambda number: rank(number, direction), default=-INFINITY * direction)


def rank(number: Number, direction: int) -> tuple[Number, float]:
    return number * direction, direction * math.copysign(1, number) * (number == 0)
