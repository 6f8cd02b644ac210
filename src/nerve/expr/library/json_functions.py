"""The functions of `JSON`."""

from __future__ import annotations

import json
import math
from typing import NoReturn

from nerve.expr import numbers, reserved_names, utf16
from nerve.expr.coercion import array_elements, to_integer, to_string
from nerve.expr.errors import EvaluationRefused
from nerve.expr.frame import Frame
from nerve.expr.library.table import new_function_table
from nerve.expr.numbers import Number
from nerve.expr.property_access import own_entries
from nerve.expr.values import UNDEFINED, ArrayValue, ObjectValue, Value, value_kind

JSON_FUNCTIONS = new_function_table()
PARSED_CHARS_PER_STEP = 4
"""Characters of JSON parsed per step: a short text can create a large value."""


@JSON_FUNCTIONS.add("JSON.stringify")
def json_stringify(
    frame: Frame, value: Value = UNDEFINED, replacer: Value = UNDEFINED, space: Value = UNDEFINED
) -> Value:
    if replacer is not UNDEFINED and replacer is not None:
        raise EvaluationRefused("The second argument of `JSON.stringify` must be `null`")
    if value is UNDEFINED:
        return UNDEFINED
    pieces: list[str] = []
    JsonWriter(frame, json_indent(frame, space), pieces).write(value, 0)
    return utf16.join_pieces(frame, pieces)


def json_indent(frame: Frame, space: Value) -> str:
    kind = value_kind(space)
    if kind == "number":
        return " " * int(max(0, min(10, to_integer(frame, space))))
    return utf16.utf16_units(frame, space)[:10] if kind == "string" else ""


class JsonWriter:
    """Write a value as pieces of JSON text."""

    def __init__(self, frame: Frame, indent: str, pieces: list[str]) -> None:
        self.frame, self.indent, self.pieces = frame, indent, pieces

    def add(self, text: str) -> None:
        self.frame.charge_text(len(text))
        self.pieces.append(text)

    def write(self, value: Value, depth: int) -> None:
        self.frame.charge_visit(depth)
        match value_kind(value):
            case "string":
                self.add(quote_json_string(self.frame, value))
            case "number":
                self.add(numbers.number_to_text(value) if math.isfinite(value) else "null")
            case "boolean":
                self.add("true" if value else "false")
            case "array":
                values = array_elements(self.frame, value)
                self.add("[")
                for index, item in enumerate(values):
                    self.write_separator(index, depth)
                    self.write(item, depth + 1)
                self.close_bracket("]", len(values), depth)
            case "object":
                self.write_object(value, depth)
            case _:
                self.add("null")

    def write_object(self, value: Value, depth: int) -> None:
        self.add("{")
        count = 0
        for key, item in own_entries(self.frame, value):
            if item is UNDEFINED:
                continue
            self.write_separator(count, depth)
            self.add(quote_json_string(self.frame, key) + (": " if self.indent else ":"))
            self.write(item, depth + 1)
            count += 1
        self.close_bracket("}", count, depth)

    def write_separator(self, index: int, depth: int) -> None:
        line = "\n" + self.indent * (depth + 1) if self.indent else ""
        if index or line:
            self.add(("," if index else "") + line)

    def close_bracket(self, bracket: str, count: int, depth: int) -> None:
        self.add(("\n" + self.indent * depth if self.indent and count else "") + bracket)


def quote_json_string(frame: Frame, text: str) -> str:
    frame.charge_text(len(text))
    json_text = json.dumps(text, ensure_ascii=False)
    return (
        json_text
        if text.isascii()
        else utf16.SURROGATE_PATTERN.sub(lambda half: f"\\u{ord(half[0]):04x}", json_text)
    )


@JSON_FUNCTIONS.add("JSON.parse")
def json_parse(frame: Frame, text: Value = UNDEFINED) -> Value:
    text = to_string(frame, text)
    frame.charge(1 + len(text) // PARSED_CHARS_PER_STEP)
    if utf16.has_surrogates(text):
        raise EvaluationRefused("The text contains an unpaired surrogate")
    try:
        value = json.loads(
            text,
            parse_int=parse_json_number,
            parse_float=parse_json_number,
            parse_constant=refuse_json_constant,
            object_pairs_hook=object_from_pairs,
        )
    except ValueError as error:
        raise EvaluationRefused(f"Invalid JSON: {error}") from None
    except RecursionError:
        raise EvaluationRefused("The JSON is nested too deeply") from None
    return to_evaluated_value(frame, value, 0)


def parse_json_number(text: str) -> Number:
    return numbers.int_if_safe(float(text))


def refuse_json_constant(text: str) -> NoReturn:
    raise ValueError(f"`{text}` is not a JSON value")


def object_from_pairs(key_values: list[tuple[str, Value]]) -> ObjectValue:
    result = ObjectValue(key_values)
    if "__proto__" in result:
        raise EvaluationRefused(reserved_names.forbidden_property_message("__proto__"))
    return result


def to_evaluated_value(frame: Frame, value: Value, depth: int) -> Value:
    """Convert parsed JSON to values of an evaluation."""
    frame.charge_visit(depth)
    if type(value) is list:
        return ArrayValue([to_evaluated_value(frame, item, depth + 1) for item in value])
    if type(value) is ObjectValue:
        for key, item in value.items():
            value[key] = to_evaluated_value(frame, item, depth + 1)
    return value
