"""Safe YAML with places: text to plain data, and nothing that could surprise.

Scalars follow the core schema of YAML 1.2, so `on`, `yes` and `1:30` are texts. Anchors, aliases, merge keys,
tags, directives and a second document are refused: they make small files huge or say more than data.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NoReturn

import yaml

from nerve.notations.yaml_syntax import MEND, explained
from nerve.spec.source import Map, Place, Problem, Seq, Unreadable

try:
    from yaml import CBaseLoader as _Loader
except ImportError:  # PyYAML without its C library: slower, and the same events
    from yaml import BaseLoader as _Loader  # type: ignore[assignment]

MAX_SIZE = 256 * 1024
MAX_DEPTH = 64
MAX_VALUES = 10_000
MAX_PROBLEMS = 20
MAX_INTEGER = 2**53

_UNWANTED = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_DIRECTIVE = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*%")
_REST = re.compile(r"(?:\.\.\.(?=\s|$))?(?:\s|#[^\n]*)*")

_NULL = frozenset(["", "~", "null", "Null", "NULL"])
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def load(text: str, file: str = "<text>") -> Any:
    """The value a YAML text stands for; `Unreadable` says everything that is wrong with it."""
    refuse_characters(text, file, MAX_SIZE, "YAML")
    return _Composer(text, file).compose()


def refuse_characters(text: str, file: str, limit: int, what: str) -> None:
    """Refuse a text that is too long, or has characters that no editor shows."""
    if len(text) > limit or len(text.encode("utf-8", "surrogatepass")) > limit:
        message = f"the file has more than {limit // 1024} KiB, too much for a workflow in {what}"
        fix = "Split it, or move long texts to files of their own."
        raise Unreadable([Problem(file, Place(), message, fix)])
    if found := _UNWANTED.search(text):
        place = Place().after(text, found.start())
        raise Unreadable([Problem(file, place, *_unwanted(text, found.start()))])


def _unwanted(text: str, at: int) -> tuple[str, str]:
    if text[at] == "\ufeff" and at == 0:
        return "the file starts with a byte order mark", "Save it as UTF-8 without a byte order mark."
    if text[at] == "\0" and at < 4:
        return "this is not UTF-8 text (it looks like UTF-16)", "Save the file as UTF-8."
    return f"the character U+{ord(text[at]):04X} is not allowed", "Remove it, or escape it in quotes."


def scalar(text: str) -> Any:
    """What a plain scalar stands for in the core schema; `ValueError` for a number JSON cannot carry."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        if math.isinf(number := float(text)):
            raise ValueError(text)
        return number
    if _NO_NUMBER.fullmatch(text):
        raise ValueError(text)
    return text


def _integer(text: str) -> int:
    if len(text) < 16 and text.isdecimal():
        return int(text)
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    digits = text[2:] if base != 10 else text
    # As long as no whole number is: int() would take quadratic time, or refuse with its own words.
    if len(digits.lstrip("+-0")) > 20 or abs(number := int(digits, base)) > MAX_INTEGER:
        raise ValueError(text)
    return number


class _Composer:
    """Builds located values from the events of a YAML parser, without recursion into the parser's stack."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.problems: list[Problem] = []
        self.values = 0
        self.lines = [0, *(found.end() for found in re.finditer("\n", text))]

    def compose(self) -> Any:
        if found := _DIRECTIVE.match(self.text):
            self.stop(found.end() - 1, "a YAML directive is not allowed", "Remove the line.")
        try:
            events = yaml.parse(self.text, Loader=_Loader)
            value = self.document(events)
        except yaml.MarkedYAMLError as error:
            raise Unreadable([*self.problems, self.syntax(error)]) from None
        except yaml.YAMLError as error:
            problem = Problem(self.file, Place(), f"this is not YAML: {error}", MEND)
            raise Unreadable([*self.problems, problem]) from None
        if self.problems:
            raise Unreadable(self.problems)
        return value

    def document(self, events: Iterator[yaml.Event]) -> Any:
        value = None
        for event in events:
            if isinstance(event, yaml.DocumentEndEvent):
                # Before the parser sees it: what follows may be made to keep it busy.
                rest = _REST.match(self.text, index(event))
                if rest and rest.end() < len(self.text):
                    self.stop(rest.end(), "a second document is not allowed", "Keep one workflow in a file.")
                return value
            if not isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent | yaml.StreamEndEvent):
                value = self.value(event, events, 1)
        return value

    def value(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Any:
        self.look(event, depth)
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(event, events, depth)
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(event, events, depth)
        return None

    def look(self, event: yaml.Event, depth: int) -> None:
        """Refuse what is more than plain data."""
        self.values += 1
        if self.values > MAX_VALUES:
            self.stop(event, f"more than {MAX_VALUES} values are too many", "Split the workflow.")
        if depth > MAX_DEPTH and not isinstance(event, yaml.ScalarEvent):
            self.stop(event, f"nested deeper than {MAX_DEPTH} levels", "Split the workflow.")
        if isinstance(event, yaml.AliasEvent):
            self.tell(event, f"the alias *{event.anchor} is not allowed", "Write the value out.")
        elif isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self.tell(event, f"the anchor &{event.anchor} is not allowed", "Write the value out.")
        tag = getattr(event, "tag", None)
        if tag is not None:
            self.tell(event, f"the tag {tag} is not allowed", "Remove it; put quotes around a text.")

    def scalar(self, event: yaml.ScalarEvent) -> Any:
        if event.style:
            return event.value
        try:
            return scalar(event.value)
        except ValueError:
            shown = event.value if len(event.value) <= 30 else event.value[:27] + "..."
            fix = "Put quotes around it if it is a text."
            self.tell(event, f"the number {shown} cannot be kept exactly", fix)
            return None

    def sequence(self, start: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Seq:
        found = Seq((), self.place(start))
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            found.push(self.value(event, events, depth + 1), self.begin(event))
        return found

    def mapping(self, start: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Map:
        found = Map((), self.place(start))
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self.key(event, events, depth)
            following = next(events)
            value = self.value(following, events, depth + 1)
            if key is None:
                continue
            if key in found:
                line = found.keys_at[key].line
                self.tell(event, f"the key '{key}' is here a second time (first in line {line})", "Keep one.")
                continue
            found.put(key, value, self.begin(following)).keys_at[key] = self.place(event)
        return found

    def key(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> str | None:
        """A key as it is written: `on`, `1` and `true` are texts here."""
        if not isinstance(event, yaml.ScalarEvent):
            self.value(event, events, depth + 1)
            self.tell(event, "a key must be a text", "Put quotes around '{{ … }}' and around braces.")
            return None
        self.look(event, depth)
        if not event.style and event.value.startswith("\xa0"):
            self.tell(event, "a no-break space (U+00A0) in the indentation", "Indent with plain spaces.")
            return None
        if not event.style and event.value == "<<":
            self.tell(event, "the merge key << is not allowed", "Write the keys out.")
            return None
        if not event.style and not event.value:
            self.tell(event, "a key is missing before ':'", "Write 'key: value'.")
            return None
        return event.value

    def place(self, event: yaml.Event | int) -> Place:
        at = event if isinstance(event, int) else index(event)
        line = bisect_right(self.lines, at)
        return Place(line, at - self.lines[line - 1] + 1)

    def begin(self, event: yaml.Event) -> Place:
        """Where the text of a scalar begins: behind its quote, or in the line below `|`."""
        at = index(event)
        if not isinstance(event, yaml.ScalarEvent) or not event.style:
            return self.place(at)
        style = event.style
        if style in ("'", '"'):
            return self.place(at + 1)
        if style in ("|", ">") and (below := re.compile(r"[^\n]*\n *").match(self.text, at)):
            return self.place(min(below.end(), len(self.text)))
        return self.place(at)

    def tell(self, event: yaml.Event | int, message: str, fix: str) -> None:
        self.problems.append(Problem(self.file, self.place(event), message, fix))
        if len(self.problems) >= MAX_PROBLEMS:
            raise Unreadable(self.problems)

    def stop(self, event: yaml.Event | int, message: str, fix: str) -> NoReturn:
        raise Unreadable([*self.problems, Problem(self.file, self.place(event), message, fix)])

    def syntax(self, error: yaml.MarkedYAMLError) -> Problem:
        at, message, fix = explained(self.text, error)
        return Problem(self.file, self.place(min(at, len(self.text))), f"this is not YAML: {message}", fix)


def index(event: yaml.Event) -> int:
    return event.start_mark.index if event.start_mark else 0
