"""The methods of numbers and booleans, and the functions that convert to them."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from urllib.parse import quote

from nerve.expr import numbers, utf16
from nerve.expr.convert import to_integer, to_number, to_string
from nerve.expr.errors import Refused
from nerve.expr.frame import Frame
from nerve.expr.library.table import functions, methods
from nerve.expr.numbers import NAN, Number, settled
from nerve.expr.values import LARGEST, UNDEFINED, Value, truthy

NUMBERS = methods()
BOOLEANS = methods()
SCALAR = functions()
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
EXACT = Context(prec=500, rounding=ROUND_HALF_UP)
FLOAT_PREFIX = re.compile(r"[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)", re.ASCII)
UNESCAPED = "-_.!~*'()"
CONSTANTS: dict[str, Number] = {
    "Number.EPSILON": 2.0**-52,
    "Number.MAX_SAFE_INTEGER": LARGEST - 1,
    "Number.MIN_SAFE_INTEGER": 1 - LARGEST,
    "Math.E": math.e,
    "Math.PI": math.pi,
}


@NUMBERS.add("toFixed")
def to_fixed(frame: Frame, number: Number, digits: Value = UNDEFINED) -> str:
    places = to_integer(frame, digits)
    if not 0 <= places <= 100:
        raise Refused("`toFixed` takes 0 to 100 digits")
    if not abs(number) < 1e21:
        return numbers.written(number)
    frame.make_text(200)
    rounded = EXACT.quantize(Decimal(abs(number)), Decimal(1).scaleb(-int(places)))
    return f"{'-' if number < 0 else ''}{rounded:f}"


@NUMBERS.add("toString")
def number_text(frame: Frame, number: Number, radix: Value = UNDEFINED) -> str:
    base = 10 if radix is UNDEFINED else to_integer(frame, radix)
    if not 2 <= base <= 36:
        raise Refused("`toString` takes a base from 2 to 36")
    if base == 10 or number != number or math.isinf(number):
        return numbers.written(number)
    if not float(number).is_integer() or abs(number) > LARGEST:
        raise Refused("only integers up to 2^53 are written in another base than 10")
    return in_base(int(number), int(base))


def in_base(number: int, base: int) -> str:
    rest, found = abs(number), ""
    while rest or not found:
        rest, digit = divmod(rest, base)
        found = DIGITS[digit] + found
    return f"{'-' if number < 0 else ''}{found}"


@BOOLEANS.add("toString")
def boolean_text(frame: Frame, value: bool) -> str:
    return "true" if value else "false"


@SCALAR.add("Boolean")
def boolean(frame: Frame, value: Value = UNDEFINED) -> bool:
    return truthy(value)


@SCALAR.add("Number")
def number(frame: Frame, *value: Value) -> Number:
    return to_number(frame, value[0]) if value else 0


@SCALAR.add("String")
def string(frame: Frame, *value: Value) -> str:
    return to_string(frame, value[0]) if value else ""


@SCALAR.add("isFinite")
def is_finite(frame: Frame, value: Value = UNDEFINED) -> bool:
    return math.isfinite(to_number(frame, value))


@SCALAR.add("isNaN")
def is_nan(frame: Frame, value: Value = UNDEFINED) -> bool:
    return math.isnan(to_number(frame, value))


@SCALAR.add("Number.isFinite")
def is_finite_number(frame: Frame, value: Value = UNDEFINED) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


@SCALAR.add("Number.isInteger")
def is_integer(frame: Frame, value: Value = UNDEFINED) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


@SCALAR.add("Number.isNaN")
def is_nan_number(frame: Frame, value: Value = UNDEFINED) -> bool:
    return type(value) is float and math.isnan(value)


@SCALAR.add("Number.isSafeInteger")
def is_safe_integer(frame: Frame, value: Value = UNDEFINED) -> bool:
    return is_integer(frame, value) and abs(value) < LARGEST


@SCALAR.add("Number.parseFloat")
@SCALAR.add("parseFloat")
def parse_float(frame: Frame, value: Value = UNDEFINED) -> Number:
    text = to_string(frame, value)
    frame.make_text(len(text))
    found = FLOAT_PREFIX.match(text.lstrip(numbers.SPACE))
    return settled(float(found[0])) if found else NAN


@SCALAR.add("Number.parseInt")
@SCALAR.add("parseInt")
def parse_int(frame: Frame, value: Value = UNDEFINED, radix: Value = UNDEFINED) -> Number:
    text = to_string(frame, value)
    frame.make_text(len(text))
    text = text.strip(numbers.SPACE)
    sign = -1.0 if text[:1] == "-" else 1.0
    text = text[text[:1] in ("-", "+") and text != "" :]
    base = wrapped(to_number(frame, radix))
    if base in (0, 16) and text[:2].lower() == "0x":
        text, base = text[2:], 16
    base = base or 10
    if not 2 <= base <= 36:
        return NAN
    found = re.match(f"[{DIGITS[:base]}]*", text, re.IGNORECASE | re.ASCII)
    digits = found[0] if found else ""
    return settled(sign * magnitude(digits, base)) if digits else NAN


def wrapped(value: Number) -> int:
    """A number as a signed integer of 32 bits."""
    if not math.isfinite(value):
        return 0
    rest = int(value) % 2**32
    return rest - 2**32 if rest >= 2**31 else rest


def magnitude(digits: str, base: int) -> float:
    if base == 10:
        return float(digits)
    found = int(digits, base) if len(digits) < 1_000 else 2**1024
    if found > LARGEST:
        raise Refused("a number beyond 2^53 in another base than 10")
    return float(found)


@SCALAR.add("encodeURIComponent")
def encode_uri_component(frame: Frame, value: Value = UNDEFINED) -> str:
    text = to_string(frame, value)
    frame.make_text(9 * len(text))
    return quote(utf16.checked(text), safe=UNESCAPED)
