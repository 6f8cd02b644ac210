"""The methods of numbers and booleans, and the functions that convert to them."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from urllib.parse import quote

from nerve.expr import numbers, utf16
from nerve.expr.coercion import to_integer, to_number, to_string
from nerve.expr.errors import EvaluationRefused
from nerve.expr.frame import Frame
from nerve.expr.library.table import new_function_table, new_method_table
from nerve.expr.numbers import NAN, Number, int_if_safe
from nerve.expr.values import MAX_EXACT_INTEGER, UNDEFINED, Value, is_truthy

NUMBER_METHODS = new_method_table()
BOOLEAN_METHODS = new_method_table()
SCALAR_FUNCTIONS = new_function_table()
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
EXACT_DECIMAL_CONTEXT = Context(prec=500, rounding=ROUND_HALF_UP)
FLOAT_PREFIX = re.compile(r"[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)", re.ASCII)
URI_UNESCAPED_CHARS = "-_.!~*'()"
CONSTANTS: dict[str, Number] = {
    "Number.EPSILON": 2.0**-52,
    "Number.MAX_SAFE_INTEGER": MAX_EXACT_INTEGER - 1,
    "Number.MIN_SAFE_INTEGER": 1 - MAX_EXACT_INTEGER,
    "Math.E": math.e,
    "Math.PI": math.pi,
}


@NUMBER_METHODS.add("toFixed")
def number_to_fixed(frame: Frame, number: Number, digits: Value = UNDEFINED) -> str:
    places = to_integer(frame, digits)
    if not 0 <= places <= 100:
        raise EvaluationRefused("`toFixed` takes 0 to 100 digits")
    if not abs(number) < 1e21:
        return numbers.number_to_text(number)
    frame.charge_text(200)
    rounded = EXACT_DECIMAL_CONTEXT.quantize(Decimal(abs(number)), Decimal(1).scaleb(-int(places)))
    return f"{'-' if number < 0 else ''}{rounded:f}"


@NUMBER_METHODS.add("toString")
def number_to_string(frame: Frame, number: Number, radix: Value = UNDEFINED) -> str:
    base = 10 if radix is UNDEFINED else to_integer(frame, radix)
    if not 2 <= base <= 36:
        raise EvaluationRefused("`toString` takes a base from 2 to 36")
    if base == 10 or number != number or math.isinf(number):
        return numbers.number_to_text(number)
    if not float(number).is_integer() or abs(number) > MAX_EXACT_INTEGER:
        raise EvaluationRefused("Only integers up to 2^53 can be written in a base other than 10")
    return format_in_base(int(number), int(base))


def format_in_base(number: int, base: int) -> str:
    rest, digits = abs(number), ""
    while rest or not digits:
        rest, digit = divmod(rest, base)
        digits = DIGITS[digit] + digits
    return f"{'-' if number < 0 else ''}{digits}"


def is_integer(value: Value) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


BOOLEAN_METHODS.add_all({"toString": lambda frame, value: "true" if value else "false"})
SCALAR_FUNCTIONS.add_all(
    {
        "Boolean": lambda frame, value=UNDEFINED: is_truthy(value),
        "Number": lambda frame, *value: to_number(frame, value[0]) if value else 0,
        "String": lambda frame, *value: to_string(frame, value[0]) if value else "",
        "isFinite": lambda frame, value=UNDEFINED: math.isfinite(to_number(frame, value)),
        "isNaN": lambda frame, value=UNDEFINED: math.isnan(to_number(frame, value)),
        "Number.isFinite": lambda frame, value=UNDEFINED: (
            type(value) in (int, float) and math.isfinite(value)
        ),
        "Number.isInteger": lambda frame, value=UNDEFINED: is_integer(value),
        "Number.isNaN": lambda frame, value=UNDEFINED: type(value) is float and math.isnan(value),
        "Number.isSafeInteger": lambda frame, value=UNDEFINED: (
            is_integer(value) and abs(value) < MAX_EXACT_INTEGER
        ),
    }
)


@SCALAR_FUNCTIONS.add("Number.parseFloat")
@SCALAR_FUNCTIONS.add("parseFloat")
def parse_float(frame: Frame, value: Value = UNDEFINED) -> Number:
    text = to_string(frame, value)
    frame.charge_text(len(text))
    match = FLOAT_PREFIX.match(text.lstrip(numbers.WHITESPACE_CHARS))
    return int_if_safe(float(match[0])) if match else NAN


@SCALAR_FUNCTIONS.add("Number.parseInt")
@SCALAR_FUNCTIONS.add("parseInt")
def parse_int(frame: Frame, value: Value = UNDEFINED, radix: Value = UNDEFINED) -> Number:
    text = to_string(frame, value)
    frame.charge_text(len(text))
    text = text.strip(numbers.WHITESPACE_CHARS)
    sign = -1.0 if text[:1] == "-" else 1.0
    text = text[text[:1] in ("-", "+") and text != "" :]
    base = to_int32(to_number(frame, radix))
    if base in (0, 16) and text[:2].lower() == "0x":
        text, base = text[2:], 16
    base = base or 10
    if not 2 <= base <= 36:
        return NAN
    match = re.match(f"[{DIGITS[:base]}]*", text, re.IGNORECASE | re.ASCII)
    digits = match[0] if match else ""
    return int_if_safe(sign * parse_magnitude(digits, base)) if digits else NAN


def to_int32(value: Number) -> int:
    """Convert a number to a signed 32-bit integer."""
    if not math.isfinite(value):
        return 0
    rest = int(value) % 2**32
    return rest - 2**32 if rest >= 2**31 else rest


def parse_magnitude(digits: str, base: int) -> float:
    if base == 10:
        return float(digits)
    number = int(digits, base) if len(digits) < 1_000 else 2**1024
    if number > MAX_EXACT_INTEGER:
        raise EvaluationRefused("A number above 2^53 can only be parsed in base 10")
    return float(number)


@SCALAR_FUNCTIONS.add("encodeURIComponent")
def encode_uri_component(frame: Frame, value: Value = UNDEFINED) -> str:
    text = to_string(frame, value)
    frame.charge_text(9 * len(text))
    return quote(utf16.require_whole_characters(text), safe=URI_UNESCAPED_CHARS)
