"""The methods of strings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from nerve.expr import utf16
from nerve.expr.coercion import to_integer, to_number, to_string
from nerve.expr.errors import EvaluationRefused
from nerve.expr.frame import Frame
from nerve.expr.library.table import new_method_table
from nerve.expr.numbers import NAN, WHITESPACE_CHARS, Number, integer_part
from nerve.expr.property_access import clamp_index, slice_bounds
from nerve.expr.utf16 import join_surrogates, utf16_units
from nerve.expr.values import UNDEFINED, ArrayValue, Value

STRING_METHODS = new_method_table()
REPLACEMENT_MARK_PATTERN = re.compile(r"(\$[$&`'])")
NEWLY_CASED_LETTERS = "\u019b\u0264\ua7d3\ua7d5"
"""Letters that got a capital form only in Unicode 16 and 17."""


def join_units(frame: Frame, text: str) -> str:
    """Return a part of a string with its surrogate pairs joined."""
    frame.charge_text(len(text))
    return join_surrogates(text)


def search_units(frame: Frame, text: str, search: Value) -> tuple[str, str]:
    """Return a string and a search string in UTF-16 units; the search is charged."""
    needle = utf16_units(frame, to_string(frame, search))
    frame.charge_scan(len(text))
    return utf16_units(frame, text), needle


def clamp_position(position: Number, length: int) -> int:
    return int(min(max(position, 0), length))


def units_at(frame: Frame, text: str, index: Value, count: int = 1, from_end: bool = False) -> str:
    """Return the UTF-16 units at an index; empty if there is none."""
    text = utf16_units(frame, text)
    position = to_integer(frame, index)
    position = position + len(text) if position < 0 and from_end else position
    return text[int(position) : int(position) + count] if 0 <= position < len(text) else ""


def code_at(frame: Frame, text: str, index: Value, count: int, missing: Value) -> Value:
    units = units_at(frame, text, index, count)
    return ord(join_surrogates(units)[0]) if units else missing


def find_text(frame: Frame, text: str, search: Value, start: Value) -> int:
    text, needle = search_units(frame, text, search)
    return text.find(needle, clamp_position(to_integer(frame, start), len(text)))


@STRING_METHODS.add("endsWith")
def ends_with(frame: Frame, text: str, search: Value = UNDEFINED, end: Value = UNDEFINED) -> bool:
    text, needle = search_units(frame, text, search)
    stop = len(text) if end is UNDEFINED else clamp_position(to_integer(frame, end), len(text))
    return text.endswith(needle, 0, stop)


@STRING_METHODS.add("lastIndexOf")
def string_last_index_of(frame: Frame, text: str, search: Value = UNDEFINED, start: Value = UNDEFINED) -> int:
    text, needle = search_units(frame, text, search)
    position = to_number(frame, start)
    last = len(text) if position != position else clamp_position(integer_part(position), len(text))
    return text.rfind(needle, 0, last + len(needle))


def make_padding(frame: Frame, text: str, width: Value, fill: Value) -> str:
    missing = to_integer(frame, width) - utf16.utf16_length(frame, text)
    unit = " " if fill is UNDEFINED else utf16_units(frame, to_string(frame, fill))
    if missing <= 0 or not unit:
        return ""
    width = int(min(missing, 2**53))
    frame.charge_text(len(text))
    return utf16.repeat_text(frame, unit, width // len(unit) + 1)[:width]


@STRING_METHODS.add("repeat")
def string_repeat(frame: Frame, text: str, count: Value = UNDEFINED) -> str:
    times = to_integer(frame, count)
    if times < 0 or times > 2**53:
        raise EvaluationRefused("`repeat` takes a finite, non-negative count")
    return join_surrogates(utf16.repeat_text(frame, text, int(times))) if text else ""


def replace_matches(frame: Frame, text: str, search: Value, by: Value, max_count: int | None) -> str:
    text, needle = search_units(frame, text, search)
    new = utf16_units(frame, to_string(frame, by))
    # The literals of the replacement, and its marks `$&`, `` $` `` and `$'`.
    parts = [new]
    if "$" in new:
        parts = ["$" if part == "$$" else part for part in REPLACEMENT_MARK_PATTERN.split(new) if part]
    pieces: list[str] = []
    done, position, count = 0, text.find(needle), 0
    while position >= 0 and count != max_count:
        frame.charge_text(position - done)
        pieces.append(text[done:position])
        done = position + len(needle)
        meaning = {"$&": slice(position, done), "$`": slice(position), "$'": slice(done, None)}
        for part in parts:
            cut = meaning.get(part)
            frame.charge_text(len(part) if cut is None else len(range(*cut.indices(len(text)))))
            pieces.append(part if cut is None else text[cut])
        position, count = (
            (text.find(needle, max(done, position + 1)) if position < len(text) else -1),
            count + 1,
        )
    return utf16.join_pieces(frame, [*pieces, text[done:]])


@STRING_METHODS.add("slice")
def string_slice(frame: Frame, text: str, start: Value = UNDEFINED, end: Value = UNDEFINED) -> str:
    text = utf16_units(frame, text)
    return join_units(frame, text[slice(*slice_bounds(frame, start, end, len(text), clamp_index))])


@STRING_METHODS.add("split")
def string_split(
    frame: Frame, text: str, separator: Value = UNDEFINED, limit: Value = UNDEFINED
) -> ArrayValue:
    whole_part = integer_part(2**32 - 1 if limit is UNDEFINED else to_number(frame, limit))
    max_parts = int(whole_part) % 2**32 if abs(whole_part) < float("inf") else 0  # as an unsigned integer
    needle = UNDEFINED if separator is UNDEFINED else utf16_units(frame, to_string(frame, separator))
    if max_parts == 0:
        return ArrayValue()
    if needle is UNDEFINED:
        return ArrayValue([text])
    text = utf16_units(frame, text)
    frame.charge_text(len(text))
    frame.charge_items(text.count(needle) + 1 if needle else len(text))
    parts = text.split(needle) if needle else list(text)
    return ArrayValue(join_surrogates(part) for part in parts[:max_parts])


@STRING_METHODS.add("startsWith")
def starts_with(frame: Frame, text: str, search: Value = UNDEFINED, start: Value = UNDEFINED) -> bool:
    text, needle = search_units(frame, text, search)
    return text.startswith(needle, clamp_position(to_integer(frame, start), len(text)))


@STRING_METHODS.add("substring")
def string_substring(frame: Frame, text: str, start: Value = UNDEFINED, end: Value = UNDEFINED) -> str:
    text = utf16_units(frame, text)
    bounds = slice_bounds(frame, start, end, len(text), clamp_position)
    return join_units(frame, text[min(bounds) : max(bounds)])


def change_case(frame: Frame, text: str, change: Callable[[str], str]) -> str:
    """Reject characters that this Python does not know: a newer one may map their case."""
    frame.charge_text(len(text))
    if text.isascii():
        return change(text)
    frame.charge(len(text))
    for character in text:
        if character > "\x7f" and (
            character in NEWLY_CASED_LETTERS or unicodedata.category(character) == "Cn"
        ):
            raise EvaluationRefused(f"The letter case of the character U+{ord(character):04X} is not known")
    return change(text)


STRING_METHODS.add_all(
    {
        "at": lambda frame, text, index=UNDEFINED: units_at(frame, text, index, from_end=True) or UNDEFINED,
        "charAt": lambda frame, text, index=UNDEFINED: units_at(frame, text, index),
        "charCodeAt": lambda frame, text, index=UNDEFINED: code_at(frame, text, index, 1, NAN),
        "codePointAt": lambda frame, text, index=UNDEFINED: code_at(frame, text, index, 2, UNDEFINED),
        "concat": lambda frame, text, *others: utf16.join_pieces(
            frame, [text, *(to_string(frame, other) for other in others)]
        ),
        "includes": lambda frame, text, search=UNDEFINED, start=UNDEFINED: (
            find_text(frame, text, search, start) >= 0
        ),
        "indexOf": lambda frame, text, search=UNDEFINED, start=UNDEFINED: find_text(
            frame, text, search, start
        ),
        "padEnd": lambda frame, text, width=UNDEFINED, fill=UNDEFINED: join_surrogates(
            text + make_padding(frame, text, width, fill)
        ),
        "padStart": lambda frame, text, width=UNDEFINED, fill=UNDEFINED: join_surrogates(
            make_padding(frame, text, width, fill) + text
        ),
        "replace": lambda frame, text, search=UNDEFINED, by=UNDEFINED: replace_matches(
            frame, text, search, by, 1
        ),
        "replaceAll": lambda frame, text, search=UNDEFINED, by=UNDEFINED: replace_matches(
            frame, text, search, by, None
        ),
        "toLowerCase": lambda frame, text: change_case(frame, text, str.lower),
        "toUpperCase": lambda frame, text: change_case(frame, text, str.upper),
        "toString": lambda frame, text: text,
        "trim": lambda frame, text: join_units(frame, text.strip(WHITESPACE_CHARS)),
        "trimEnd": lambda frame, text: join_units(frame, text.rstrip(WHITESPACE_CHARS)),
        "trimStart": lambda frame, text: join_units(frame, text.lstrip(WHITESPACE_CHARS)),
    }
)
