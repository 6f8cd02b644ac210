"""The methods of strings."""

from __future__ import annotations

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
    frame.make_text(bounded(missing + len(text)))
    return (unit * (int(missing) // len(unit) + 1))[: int(missing)]


def bounded(length: Number) -> int:
    """A length that may be infinite, as an integer that no limit allows."""
    return int(min(length, 2**53))


@STRINGS.add("repeat")
def repeat(frame: Frame, text: str, count: Value = UNDEFINED) -> str:
    times = to_integer(frame, count)
    if times < 0 or times > 2**53:
        raise Refused("`repeat` takes a count that is not negative and not infinite")
    frame.make_text(len(text) * bounded(times))
    return whole(text * int(times)) if text else ""


@STRINGS.add("replace")
def replace(frame: Frame, text: str, search: Value = UNDEFINED, by: Value = UNDEFINED) -> str:
    return replaced(frame, text, search, by, 1)


@STRINGS.add("replaceAll")
def replace_all(frame: Frame, text: str, search: Value = UNDEFINED, by: Value = UNDEFINED) -> str:
    return replaced(frame, text, search, by, None)


def replaced(frame: Frame, text: str, search: Value, by: Value, most: int | None) -> str:
    text, wanted = pattern(frame, text, search)
    new = units(frame, to_string(frame, by))
    pieces: list[str] = []
    done, place = 0, text.find(wanted)
    while place >= 0 and (most is None or len(pieces) < 2 * most):
        pieces += [text[done:place], substitution(new, text, wanted, place)]
        frame.make_text(len(pieces[-1]) + len(pieces[-2]))
        done = place + len(wanted)
        place = text.find(wanted, max(done, place + 1)) if place < len(text) else -1
    return utf16.joined(frame, [*pieces, text[done:]])


def substitution(new: str, text: str, wanted: str, place: int) -> str:
    """The replacement, with `$$`, `$&`, `` $` `` and `$'` filled in."""
    if "$" not in new:
        return new
    meaning = {"$": "$", "&": wanted, "`": text[:place], "'": text[place + len(wanted) :]}
    first, *rest = new.split("$")
    pieces, literal = [first], False
    for part in rest:
        if literal:
            pieces.append(part)
            literal = False
        elif not part:
            pieces.append("$")
            literal = True
        elif part[0] in meaning:
            pieces.append(meaning[part[0]] + part[1:])
        else:
            pieces.append("$" + part)
    return "".join(pieces)


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
        if character > "\x7f" and unicodedata.category(character) == "Cn":
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
