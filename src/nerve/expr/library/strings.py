"""The methods of strings."""

from __future__ import annotations

import re
import unicodedata

from nerve.expr import utf16
from nerve.expr.access import relative
from nerve.expr.convert import to_integer, to_number, to_string
from nerve.expr.errors import Refused
from nerve.expr.frame import Frame
from nerve.expr.library.table import methods
from nerve.expr.numbers import NAN, SPACE, Number, whole_number
from nerve.expr.utf16 import units, whole
from nerve.expr.values import UNDEFINED, Array, Value

STRINGS = methods()
MARKS = re.compile(r"(\$[$&`'])")
NEWLY_CASED = "\u019b\u0264\ua7d3\ua7d5"
"""Old letters that were given a capital only in Unicode 16 and 17."""


def made(frame: Frame, text: str) -> str:
    """A part of a string, with its pairs of surrogates put together."""
    frame.make_text(len(text))
    return whole(text)


def pattern(frame: Frame, text: str, search: Value) -> tuple[str, str]:
    """A string and what is looked for in it, both in units; looking is charged."""
    wanted = units(frame, to_string(frame, search))
    frame.read_text(len(text))
    return units(frame, text), wanted


def clamped(position: Number, length: int) -> int:
    return int(min(max(position, 0), length))


@STRINGS.add("at")
def at(frame: Frame, text: str, index: Value = UNDEFINED) -> Value:
    text = units(frame, text)
    place = to_integer(frame, index)
    place = place + len(text) if place < 0 else place
    return text[int(place)] if 0 <= place < len(text) else UNDEFINED


@STRINGS.add("charAt")
def char_at(frame: Frame, text: str, index: Value = UNDEFINED) -> str:
    text = units(frame, text)
    place = to_integer(frame, index)
    return text[int(place)] if 0 <= place < len(text) else ""


@STRINGS.add("charCodeAt")
def char_code_at(frame: Frame, text: str, index: Value = UNDEFINED) -> Number:
    unit = char_at(frame, text, index)
    return ord(unit) if unit else NAN


@STRINGS.add("codePointAt")
def code_point_at(frame: Frame, text: str, index: Value = UNDEFINED) -> Value:
    text = units(frame, text)
    place = to_integer(frame, index)
    return ord(whole(text[int(place) : int(place) + 2])[0]) if 0 <= place < len(text) else UNDEFINED


@STRINGS.add("concat")
def concat(frame: Frame, text: str, *others: Value) -> str:
    return utf16.joined(frame, [text, *(to_string(frame, other) for other in others)])


@STRINGS.add("endsWith")
def ends_with(frame: Frame, text: str, search: Value = UNDEFINED, end: Value = UNDEFINED) -> bool:
    text, wanted = pattern(frame, text, search)
    stop = len(text) if end is UNDEFINED else clamped(to_integer(frame, end), len(text))
    return text.endswith(wanted, 0, stop)


@STRINGS.add("includes")
def includes(frame: Frame, text: str, search: Value = UNDEFINED, start: Value = UNDEFINED) -> bool:
    text, wanted = pattern(frame, text, search)
    return text.find(wanted, clamped(to_integer(frame, start), len(text))) >= 0


@STRINGS.add("indexOf")
def index_of(frame: Frame, text: str, search: Value = UNDEFINED, start: Value = UNDEFINED) -> int:
    text, wanted = pattern(frame, text, search)
    return text.find(wanted, clamped(to_integer(frame, start), len(text)))


@STRINGS.add("lastIndexOf")
def last_index_of(frame: Frame, text: str, search: Value = UNDEFINED, start: Value = UNDEFINED) -> int:
    text, wanted = pattern(frame, text, search)
    position = to_number(frame, start)
    last = len(text) if position != position else clamped(whole_number(position), len(text))
    return text.rfind(wanted, 0, last + len(wanted))


@STRINGS.add("padEnd")
def pad_end(frame: Frame, text: str, width: Value = UNDEFINED, fill: Value = UNDEFINED) -> str:
    return whole(text + padding(frame, text, width, fill))


@STRINGS.add("padStart")
def pad_start(frame: Frame, text: str, width: Value = UNDEFINED, fill: Value = UNDEFINED) -> str:
    return whole(padding(frame, text, width, fill) + text)


def padding(frame: Frame, text: str, width: Value, fill: Value) -> str:
    missing = to_integer(frame, width) - utf16.length(frame, text)
    unit = " " if fill is UNDEFINED else units(frame, to_string(frame, fill))
    if missing <= 0 or not unit:
        return ""
    width = bounded(missing)
    frame.make_text(len(text))
    return utf16.repeated(frame, unit, width // len(unit) + 1)[:width]


def bounded(length: Number) -> int:
    """A length that may be infinite, as an integer that no limit allows."""
    return int(min(length, 2**53))


@STRINGS.add("repeat")
def repeat(frame: Frame, text: str, count: Value = UNDEFINED) -> str:
    times = to_integer(frame, count)
    if times < 0 or times > 2**53:
        raise Refused("`repeat` takes a count that is not negative and not infinite")
    return whole(utf16.repeated(frame, text, int(times))) if text else ""


@STRINGS.add("replace")
def replace(frame: Frame, text: str, search: Value = UNDEFINED, by: Value = UNDEFINED) -> str:
    return replaced(frame, text, search, by, 1)


@STRINGS.add("replaceAll")
def replace_all(frame: Frame, text: str, search: Value = UNDEFINED, by: Value = UNDEFINED) -> str:
    return replaced(frame, text, search, by, None)


def replaced(frame: Frame, text: str, search: Value, by: Value, most: int | None) -> str:
    text, wanted = pattern(frame, text, search)
    parts = replacement(units(frame, to_string(frame, by)))
    pieces: list[str] = []
    done, place, count = 0, text.find(wanted), 0
    while place >= 0 and count != most:
        frame.make_text(place - done)
        pieces.append(text[done:place])
        done = place + len(wanted)
        meaning = {"$&": slice(place, done), "$`": slice(place), "$'": slice(done, None)}
        for part in parts:
            cut = meaning.get(part)
            frame.make_text(len(part) if cut is None else len(range(*cut.indices(len(text)))))
            pieces.append(part if cut is None else text[cut])
        place, count = (text.find(wanted, max(done, place + 1)) if place < len(text) else -1), count + 1
    return utf16.joined(frame, [*pieces, text[done:]])


def replacement(new: str) -> list[str]:
    """The parts of a replacement: texts, and the marks `$&`, `` $` `` and `$'` for parts of the string."""
    if "$" not in new:
        return [new]
    return ["$" if part == "$$" else part for part in MARKS.split(new) if part]


@STRINGS.add("slice")
def slice_(frame: Frame, text: str, start: Value = UNDEFINED, end: Value = UNDEFINED) -> str:
    text = units(frame, text)
    first = relative(to_integer(frame, start), len(text))
    last = len(text) if end is UNDEFINED else relative(to_integer(frame, end), len(text))
    return made(frame, text[first:last])


@STRINGS.add("split")
def split(frame: Frame, text: str, separator: Value = UNDEFINED, limit: Value = UNDEFINED) -> Array:
    most = 2**32 - 1 if limit is UNDEFINED else unsigned(to_number(frame, limit))
    wanted = UNDEFINED if separator is UNDEFINED else units(frame, to_string(frame, separator))
    if most == 0:
        return Array()
    if wanted is UNDEFINED:
        return Array([text])
    text = units(frame, text)
    frame.make_text(len(text))
    frame.make_items(text.count(wanted) + 1 if wanted else len(text))
    parts = text.split(wanted) if wanted else list(text)
    return Array(whole(part) for part in parts[:most])


def unsigned(number: Number) -> int:
    whole_part = whole_number(number)
    return int(whole_part) % 2**32 if abs(whole_part) < float("inf") else 0


@STRINGS.add("startsWith")
def starts_with(frame: Frame, text: str, search: Value = UNDEFINED, start: Value = UNDEFINED) -> bool:
    text, wanted = pattern(frame, text, search)
    return text.startswith(wanted, clamped(to_integer(frame, start), len(text)))


@STRINGS.add("substring")
def substring(frame: Frame, text: str, start: Value = UNDEFINED, end: Value = UNDEFINED) -> str:
    text = units(frame, text)
    first = clamped(to_integer(frame, start), len(text))
    last = len(text) if end is UNDEFINED else clamped(to_integer(frame, end), len(text))
    return made(frame, text[min(first, last) : max(first, last)])


@STRINGS.add("toLowerCase")
def to_lower_case(frame: Frame, text: str) -> str:
    check_letters(frame, text)
    return text.lower()


@STRINGS.add("toUpperCase")
def to_upper_case(frame: Frame, text: str) -> str:
    check_letters(frame, text)
    return text.upper()


def check_letters(frame: Frame, text: str) -> None:
    """Refuse characters this Python does not know: another one may know their other case."""
    frame.make_text(len(text))
    if text.isascii():
        return
    frame.spend(len(text))
    for character in text:
        if character > "\x7f" and (character in NEWLY_CASED or unicodedata.category(character) == "Cn"):
            raise Refused(f"the case of the character U+{ord(character):04X} is not known")


@STRINGS.add("toString")
def to_text(frame: Frame, text: str) -> str:
    return text


@STRINGS.add("trim")
def trim(frame: Frame, text: str) -> str:
    return made(frame, text.strip(SPACE))


@STRINGS.add("trimEnd")
def trim_end(frame: Frame, text: str) -> str:
    return made(frame, text.rstrip(SPACE))


@STRINGS.add("trimStart")
def trim_start(frame: Frame, text: str) -> str:
    return made(frame, text.lstrip(SPACE))
