"""The functions of `JSON`."""

from __future__ import annotations

import json
import math
from typing import NoReturn

from nerve.expr import numbers, utf16, words
from nerve.expr.access import own_entries
from nerve.expr.convert import elements, to_integer, to_string
from nerve.expr.errors import Refused
from nerve.expr.frame import Frame
from nerve.expr.library.table import functions
from nerve.expr.numbers import Number
from nerve.expr.values import UNDEFINED, Array, Object, Value, kind_of

JSON = functions()
PARSED = 4
"""Characters of JSON read for one step: a short text can make a large value."""


@JSON.add("JSON.stringify")
def stringify(
    frame: Frame, value: Value = UNDEFINED, replacer: Value = UNDEFINED, space: Value = UNDEFINED
) -> Value:
    if replacer is not UNDEFINED and replacer is not None:
        raise Refused("`JSON.stringify` takes `null` in the second place")
    if value is UNDEFINED:
        return UNDEFINED
    pieces: list[str] = []
    Writer(frame, indent(frame, space), pieces).write(value, 0)
    return utf16.joined(frame, pieces)


def indent(frame: Frame, space: Value) -> str:
    kind = kind_of(space)
    if kind == "number":
        return " " * int(max(0, min(10, to_integer(frame, space))))
    return utf16.units(frame, space)[:10] if kind == "string" else ""


class Writer:
    """Writes a value into pieces of JSON text."""

    def __init__(self, frame: Frame, indent: str, pieces: list[str]) -> None:
        self.frame, self.indent, self.pieces = frame, indent, pieces

    def add(self, text: str) -> None:
        self.frame.make_text(len(text))
        self.pieces.append(text)

    def write(self, value: Value, depth: int) -> None:
        self.frame.visit(depth)
        match kind_of(value):
            case "string":
                self.add(quoted(self.frame, value))
            case "number":
                self.add(numbers.written(value) if math.isfinite(value) else "null")
            case "boolean":
                self.add("true" if value else "false")
            case "array":
                self.write_array(elements(self.frame, value), depth)
            case "object":
                self.write_object(value, depth)
            case _:
                self.add("null")

    def write_array(self, values: list[Value], depth: int) -> None:
        self.add("[")
        for index, item in enumerate(values):
            self.separate(index, depth)
            self.write(item, depth + 1)
        self.close("]", len(values), depth)

    def write_object(self, value: Value, depth: int) -> None:
        self.add("{")
        count = 0
        for key, item in own_entries(self.frame, value):
            if item is UNDEFINED:
                continue
            self.separate(count, depth)
            self.add(quoted(self.frame, key) + (": " if self.indent else ":"))
            self.write(item, depth + 1)
            count += 1
        self.close("}", count, depth)

    def separate(self, index: int, depth: int) -> None:
        line = "\n" + self.indent * (depth + 1) if self.indent else ""
        if index or line:
            self.add(("," if index else "") + line)

    def close(self, bracket: str, count: int, depth: int) -> None:
        self.add(("\n" + self.indent * depth if self.indent and count else "") + bracket)


def quoted(frame: Frame, text: str) -> str:
    frame.make_text(len(text))
    written = json.dumps(text, ensure_ascii=False)
    return written if text.isascii() else utf16.HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", written)


@JSON.add("JSON.parse")
def parse(frame: Frame, text: Value = UNDEFINED) -> Value:
    text = to_string(frame, text)
    frame.spend(1 + len(text) // PARSED)
    if utf16.has_halves(text):
        raise Refused("the text holds half of a character")
    try:
        value = json.loads(
            text, parse_int=number, parse_float=number, parse_constant=unknown, object_pairs_hook=pairs
        )
    except ValueError as error:
        raise Refused(f"this is not JSON: {error}") from None
    except RecursionError:
        raise Refused("the JSON is nested too deeply") from None
    return rebuilt(frame, value, 0)


def number(text: str) -> Number:
    return numbers.settled(float(text))


def unknown(text: str) -> NoReturn:
    raise ValueError(f"`{text}` is no JSON value")


def pairs(found: list[tuple[str, Value]]) -> Object:
    made = Object(found)
    if "__proto__" in made:
        raise Refused(words.no_property("__proto__"))
    return made


def rebuilt(frame: Frame, value: Value, depth: int) -> Value:
    """The value as one that an evaluation has made."""
    frame.visit(depth)
    if type(value) is list:
        return Array([rebuilt(frame, item, depth + 1) for item in value])
    if type(value) is Object:
        for key, item in value.items():
            value[key] = rebuilt(frame, item, depth + 1)
    return value
