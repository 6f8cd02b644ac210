"""The deterministic functions of `Math`."""

from __future__ import annotations

import math

from nerve.expr import numbers
from nerve.expr.coercion import to_number
from nerve.expr.frame import Frame
from nerve.expr.library.table import new_function_table
from nerve.expr.numbers import INFINITY, NAN, Number, int_if_safe
from nerve.expr.values import UNDEFINED, Value

MATH_FUNCTIONS = new_function_table()


@MATH_FUNCTIONS.add("Math.abs")
def math_abs(frame: Frame, value: Value = UNDEFINED) -> Number:
    return abs(to_number(frame, value))


def keep_zero_sign(result: float, like: Number) -> Number:
    """Return a rounded number; zero keeps the sign of the original."""
    return int_if_safe(float(result) or math.copysign(0.0, like))


@MATH_FUNCTIONS.add("Math.ceil")
def math_ceil(frame: Frame, value: Value = UNDEFINED) -> Number:
    number = to_number(frame, value)
    return keep_zero_sign(math.ceil(number), number) if math.isfinite(number) else number


@MATH_FUNCTIONS.add("Math.floor")
def math_floor(frame: Frame, value: Value = UNDEFINED) -> Number:
    number = to_number(frame, value)
    return keep_zero_sign(math.floor(number), number) if math.isfinite(number) else number


@MATH_FUNCTIONS.add("Math.round")
def math_round(frame: Frame, value: Value = UNDEFINED) -> Number:
    number = to_number(frame, value)
    if not math.isfinite(number):
        return number
    below = math.floor(number)
    return keep_zero_sign(below + (number - below >= 0.5), number)


@MATH_FUNCTIONS.add("Math.trunc")
def math_trunc(frame: Frame, value: Value = UNDEFINED) -> Number:
    number = to_number(frame, value)
    return keep_zero_sign(math.trunc(number), number) if math.isfinite(number) else number


@MATH_FUNCTIONS.add("Math.sign")
def math_sign(frame: Frame, value: Value = UNDEFINED) -> Number:
    number = to_number(frame, value)
    return int_if_safe(math.copysign(1.0, number)) if number and number == number else number


@MATH_FUNCTIONS.add("Math.sqrt")
def math_sqrt(frame: Frame, value: Value = UNDEFINED) -> Number:
    number = to_number(frame, value)
    return int_if_safe(math.sqrt(number)) if number >= 0 else NAN


@MATH_FUNCTIONS.add("Math.pow")
def math_pow(frame: Frame, base: Value = UNDEFINED, exponent: Value = UNDEFINED) -> Number:
    return numbers.raise_to_power(to_number(frame, base), to_number(frame, exponent))


@MATH_FUNCTIONS.add("Math.max")
def math_max(frame: Frame, *values: Value) -> Number:
    return extreme_number(frame, values, 1)


@MATH_FUNCTIONS.add("Math.min")
def math_min(frame: Frame, *values: Value) -> Number:
    return extreme_number(frame, values, -1)


def extreme_number(frame: Frame, values: tuple[Value, ...], direction: int) -> Number:
    """Return the largest or smallest number; NaN wins, and 0 is larger than -0."""
    frame.charge(1 + len(values))
    operands = [to_number(frame, value) for value in values]
    if any(number != number for number in operands):
        return NAN
    return max(operands, key=lambda number: number_rank(number, direction), default=-INFINITY * direction)


def number_rank(number: Number, direction: int) -> tuple[Number, float]:
    return number * direction, direction * math.copysign(1, number) * (number == 0)
