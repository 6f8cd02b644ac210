"""The deterministic functions of `Math`."""

from __future__ import annotations

import math
from collections.abc import Callable

from nerve.expr import numbers
from nerve.expr.coercion import to_number
from nerve.expr.frame import Frame
from nerve.expr.library.table import new_function_table
from nerve.expr.numbers import INFINITY, NAN, Number, int_if_safe
from nerve.expr.values import UNDEFINED, Value

MATH_FUNCTIONS = new_function_table()


def rounded_by(round_number: Callable[[Number], int]) -> Callable[..., Number]:
    """Return a function that rounds a finite number; zero keeps the sign of the original."""

    def round_value(frame: Frame, value: Value = UNDEFINED) -> Number:
        number = to_number(frame, value)
        if not math.isfinite(number):
            return number
        return int_if_safe(float(round_number(number)) or math.copysign(0.0, number))

    return round_value


def round_half_up(number: Number) -> int:
    below = math.floor(number)
    return below + (number - below >= 0.5)


def number_function(compute: Callable[[Number], Number]) -> Callable[..., Number]:
    return lambda frame, value=UNDEFINED: compute(to_number(frame, value))


def extreme_number(frame: Frame, values: tuple[Value, ...], direction: int) -> Number:
    """Return the largest or smallest number; NaN wins, and 0 is larger than -0."""
    frame.charge(1 + len(values))
    operands = [to_number(frame, value) for value in values]
    if any(number != number for number in operands):
        return NAN

    def rank(number: Number) -> tuple[Number, float]:
        return number * direction, direction * math.copysign(1, number) * (number == 0)

    return max(operands, key=rank, default=-INFINITY * direction)


MATH_FUNCTIONS.add_all(
    {
        "Math.abs": number_function(abs),
        "Math.ceil": rounded_by(math.ceil),
        "Math.floor": rounded_by(math.floor),
        "Math.round": rounded_by(round_half_up),
        "Math.trunc": rounded_by(math.trunc),
        "Math.sign": number_function(
            lambda number: int_if_safe(math.copysign(1.0, number)) if number and number == number else number
        ),
        "Math.sqrt": number_function(lambda number: int_if_safe(math.sqrt(number)) if number >= 0 else NAN),
        "Math.pow": lambda frame, base=UNDEFINED, exponent=UNDEFINED: numbers.raise_to_power(
            to_number(frame, base), to_number(frame, exponent)
        ),
        "Math.max": lambda frame, *values: extreme_number(frame, values, 1),
        "Math.min": lambda frame, *values: extreme_number(frame, values, -1),
    }
)
