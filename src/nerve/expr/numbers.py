"""Number parsing, formatting and arithmetic as in JavaScript."""

from __future__ import annotations

import math
import re

from nerve.expr.values import MAX_EXACT_INTEGER

Number = int | float

NAN, INFINITY = math.nan, math.inf
WHITESPACE_CHARS = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
DECIMAL_PATTERN = re.compile(r"[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)", re.ASCII)
PREFIXED_PATTERN = re.compile(r"0(?:[xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)", re.ASCII)
BASE_BY_PREFIX = {"x": 16, "o": 8, "b": 2}


def number_to_text(number: Number) -> str:
    """Return `String(number)`."""
    if type(number) is int:
        return str(number)
    if number != number:
        return "NaN"
    if number in (INFINITY, -INFINITY):
        return "Infinity" if number > 0 else "-Infinity"
    if number == int(number) and abs(number) <= MAX_EXACT_INTEGER:
        return str(int(number))
    sign, digits, point = decimal_digits(repr(number))
    return sign + place_decimal_point(digits, point)


def decimal_digits(shortest: str) -> tuple[str, str, int]:
    """Return the sign, the digits, and the position of the decimal point."""
    sign = "-" if shortest[0] == "-" else ""
    mantissa, _, exponent = shortest.lstrip("-").partition("e")
    before, _, after = mantissa.partition(".")
    point = len(before) + int(exponent or 0)
    digits = before + after
    stripped = digits.lstrip("0")
    return sign, stripped.rstrip("0"), point - (len(digits) - len(stripped))


def place_decimal_point(digits: str, point: int) -> str:
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    exponent = f"e{point - 1:+d}"
    return (digits if count == 1 else f"{digits[0]}.{digits[1:]}") + exponent


def parse_number(text: str) -> Number:
    """Return `Number(text)`."""
    text = text.strip(WHITESPACE_CHARS)
    if not text:
        return 0
    if PREFIXED_PATTERN.fullmatch(text):
        try:
            return int_if_safe(float(int(text[2:], BASE_BY_PREFIX[text[1].lower()])))
        except OverflowError:
            return INFINITY
    if DECIMAL_PATTERN.fullmatch(text):
        return int_if_safe(float(text))
    return NAN


def int_if_safe(number: float) -> Number:
    """Return an int if the number is a safe integer and not negative zero."""
    if (
        number.is_integer()
        and -MAX_EXACT_INTEGER <= number <= MAX_EXACT_INTEGER
        and (number or math.copysign(1, number) > 0)
    ):
        return int(number)
    return number


def remainder(left: Number, right: Number) -> Number:
    if not right or math.isnan(left) or math.isnan(right) or math.isinf(left):
        return NAN
    return int_if_safe(math.fmod(left, right))


def quotient(left: Number, right: Number) -> Number:
    if right:
        return int_if_safe(left / right)
    if not left or left != left:
        return NAN
    return math.copysign(INFINITY, math.copysign(1, left) * math.copysign(1, right))


def difference(left: Number, right: Number) -> Number:
    return int_if_safe(float(left) - float(right))


def product(left: Number, right: Number) -> Number:
    return int_if_safe(float(left) * float(right))


def raise_to_power(base: Number, exponent: Number) -> Number:
    if exponent != exponent or (abs(base) == 1 and math.isinf(exponent)):
        return NAN
    try:
        return int_if_safe(math.pow(base, exponent))
    except OverflowError:
        return -INFINITY if base < 0 and is_odd(exponent) else INFINITY
    except ValueError:
        if base:
            return NAN
        return -INFINITY if math.copysign(1, base) < 0 and is_odd(exponent) else INFINITY


def is_odd(number: Number) -> bool:
    return math.fmod(number, 2) in (1, -1)


def negate_number(number: Number) -> Number:
    return -number if number else -float(number)


def integer_part(number: Number) -> Number:
    """Return the value of an index argument: the integer part, 0 for NaN, infinities unchanged."""
    if type(number) is int:
        return number
    if number != number:
        return 0
    return number if math.isinf(number) else int(number)
