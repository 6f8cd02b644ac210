"""JSON with places: text read into maps and lists that know where every key and value stands."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from nerve.spec.source import Map, Place, Problem, Seq, Unreadable

SIZE = 1 << 20
"""Bytes of a text."""
DEPTH = 64
"""How deep objects and arrays may be nested."""
VALUES = 100_000
"""Values in a text; so many take half a second."""
EXACT = 1 << 53
"""Integers beyond it are not the same number everywhere."""
DIGITS = 64
"""Characters of a number."""
TOLD = 20
"""Problems that are collected before reading stops."""

GAP = re.compile(r"[ \t\r\n]*")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
WORD = re.compile(r"-?[A-Za-z_$][\w$]*")
SURROGATE = re.compile("[\ud800-\udfff]")
LITERALS = {"true": True, "false": False, "null": None}
NOT_FINITE = {"NaN", "Infinity", "-Infinity"}
HALF = ("half of a surrogate pair is no character", "Write the whole character.")
WRITTEN_OTHERWISE = {"True": "true", "False": "false", "None": "null", "undefined": "null"}


def read_json(text: str, file: str = "<text>") -> Any:
    """The value of a JSON text; objects are `Map`s and arrays `Seq`s with the places of what is in them.

    Raises `Unreadable`, which names the place, for anything that is not exact JSON: also for repeated keys,
    numbers that are not finite or not exact, characters that are no text, and texts that are too large.
    """
    return Reader(text, file).document()


class Stop(Exception):
    """Reading cannot go on; the problem is collected already."""


class Reader:
    """One reading of one text."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file, self.end = text, file, len(text)
        self.problems: list[Problem] = []
        self.lines: list[int] = []
        self.starts: dict[str, Callable[[int, int], tuple[Any, int]]] = {
            "{": self.object,
            "[": self.array,
            '"': self.string,
            **dict.fromkeys("-0123456789", self.number),
        }

    def document(self) -> Any:
        value = None
        try:
            self.look_over()
            value, at = self.value(self.gap(0), 1)
            if self.gap(at) < self.end:
                raise self.stop(self.gap(at), "something stands behind the end of the value", "Remove it.")
        except Stop:
            pass
        if self.problems:
            raise Unreadable(self.problems)
        return value

    def look_over(self) -> None:
        """Refuse what no value of the text has to be looked at for."""
        text = self.text
        size = self.end if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if size > SIZE:
            raise self.stop(0, f"the text is larger than {SIZE // 1024} KiB", "Split the workflow.")
        if text.startswith("\ufeff"):
            raise self.stop(0, "the text starts with a byte order mark", "Save it as UTF-8 without one.")
        if (at := text.find("\0")) >= 0:
            raise self.stop(at, "a NUL character", "Save the file as UTF-8 text.")
        if not text.isascii() and (found := SURROGATE.search(text)):
            raise self.stop(found.start(), *HALF)
        if marks(text) > VALUES and marks(STRING.sub("", text)) > VALUES:
            raise self.stop(0, f"more than {VALUES:,} values", "Split the workflow.")

    # -- values --------------------------------------------------------------------------------

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        """The value that starts at `at`, and where the text goes on."""
        return self.starts.get(self.text[at : at + 1], self.word)(at, depth)

    def object(self, at: int, depth: int) -> tuple[Map, int]:
        made = Map((), self.place(self.nested(at, depth)))
        text, keys_at, values_at = self.text, made.keys_at, made.values_at
        at = self.gap(at + 1)
        if text[at : at + 1] == "}":
            return made, at + 1
        while True:
            key, after = self.key(at)
            place = self.place(at)
            if key in made:
                first = keys_at[key]
                self.tell(
                    place, f"the key {key!r} is here twice; it is also in line {first.line}", "Keep one."
                )
            after = self.gap(after)
            if text[after : after + 1] != ":":
                raise self.stop(after, f"expected ':' after the key {key!r}", 'Write "key": value.')
            start = self.gap(after + 1)
            made[key], after = self.value(start, depth + 1)
            keys_at[key], values_at[key] = place, self.place(start)
            after = self.gap(after)
            if text[after : after + 1] == "}":
                return made, after + 1
            at = self.comma(after, made, "{}")

    def array(self, at: int, depth: int) -> tuple[Seq, int]:
        made = Seq((), self.place(self.nested(at, depth)))
        text, values_at = self.text, made.values_at
        at = self.gap(at + 1)
        if text[at : at + 1] == "]":
            return made, at + 1
        while True:
            values_at[len(made)] = self.place(at)
            value, after = self.value(at, depth + 1)
            made.append(value)
            after = self.gap(after)
            if text[after : after + 1] == "]":
                return made, after + 1
            at = self.comma(after, made, "[]")

    def nested(self, at: int, depth: int) -> int:
        if depth > DEPTH:
            raise self.stop(at, f"nested deeper than {DEPTH} levels", "Split the workflow.")
        return at

    def comma(self, at: int, opened: Map | Seq, brackets: str) -> int:
        """Where the next item starts, after a comma."""
        close = brackets[1]
        if self.text[at : at + 1] != ",":
            raise self.no_comma(at, opened.place or Place(), brackets)
        following = self.gap(at + 1)
        if self.text[following : following + 1] == close:
            raise self.stop(at, f"a comma before '{close}'", "Take it away.")
        return following

    def no_comma(self, at: int, opened: Place, brackets: str) -> Stop:
        """What is said of something behind an item that neither goes on nor ends."""
        open, close = brackets[0], brackets[1]
        if at >= self.end:
            self.tell(opened, f"this '{open}' is never closed", f"Add a '{close}'.")
            return Stop()
        found = self.text[at]
        if found in "]}":
            where = f"{opened.line}:{opened.column}"
            return self.stop(
                at, f"expected '{close}' for the '{open}' at {where}, found '{found}'", "Change it."
            )
        if found in '"[{' or found.isalnum():
            return self.stop(at, "a comma is missing before this", "Put a ',' behind what stands before it.")
        return self.unexpected(at, f"expected ',' or '{close}'")

    def key(self, at: int) -> tuple[str, int]:
        if word := WORD.match(self.text, at):
            raise self.stop(at, f"the key {word[0][:40]} is not in double quotes", f'Write "{word[0][:40]}".')
        if self.text[at : at + 1] != '"':
            raise self.unexpected(at, "expected a key in double quotes")
        return self.string(at, 0)

    def string(self, at: int, depth: int) -> tuple[str, int]:
        try:
            value, after = scanstring(self.text, at + 1, True)
        except JSONDecodeError as error:
            raise self.bad_string(at, error) from None
        if not value.isascii() and SURROGATE.search(value):
            self.tell(self.place(at), *HALF)
        if "\0" in value:
            self.tell(self.place(at), "a NUL character in a string", "Take it away.")
        return value, after

    def bad_string(self, at: int, error: JSONDecodeError) -> Stop:
        if self.text[error.pos : error.pos + 1] in ("\n", "\r"):
            return self.stop(at, "the string does not end in its line", "Add a '\"', or write \\n inside it.")
        if error.msg.startswith("Invalid control"):
            return self.stop(error.pos, "a control character in a string", "Write a tab as \\t.")
        if error.msg.startswith("Unterminated"):
            return self.stop(at, "the string does not end", "Add a '\"'.")
        return self.stop(error.pos, "JSON does not have this escape", "A backslash is written as two.")

    def number(self, at: int, depth: int) -> tuple[int | float | None, int]:
        found = NUMBER.match(self.text, at)
        if found is None:
            return self.word(at, depth)
        after = found.end()
        if self.text[after : after + 1].isalnum() or self.text[after : after + 1] in ("_", "."):
            raise self.stop(at, "this is no number", "Numbers are written like 12, -3.5 or 1e6.")
        if after - at > DIGITS:
            self.tell(self.place(at), f"a number of more than {DIGITS} characters", "Write it shorter.")
            return None, after
        if found[1] is None and found[2] is None:
            whole = int(found[0])
            if abs(whole) > EXACT:
                self.tell(self.place(at), f"{whole} is beyond ±2^53", 'Write it as a string: "…".')
            return whole, after
        value = float(found[0])
        if value in (float("inf"), float("-inf")):
            self.tell(self.place(at), f"{found[0]} is too large for a number", 'Write it as a string: "…".')
        return value, after

    def word(self, at: int, depth: int) -> tuple[Any, int]:
        found = WORD.match(self.text, at)
        if found is None:
            raise self.unexpected(at, "expected a value")
        if (word := found[0]) in LITERALS:
            return LITERALS[word], found.end()
        if word in NOT_FINITE:
            self.tell(self.place(at), f"{word} is no number in JSON", "Use null.")
            return None, found.end()
        otherwise = WRITTEN_OTHERWISE.get(word)
        fix = f"Write {otherwise}." if otherwise else "Text stands in double quotes."
        raise self.stop(at, f"'{word[:40]}' is no JSON value", fix)

    # -- places and problems -------------------------------------------------------------------

    def gap(self, at: int) -> int:
        """Where what follows the white space starts."""
        return GAP.match(self.text, at).end()  # type: ignore[union-attr]

    def place(self, at: int) -> Place:
        if not self.lines:
            self.lines = [0, *(found.end() for found in re.finditer("\n", self.text))]
        line = bisect_right(self.lines, at)
        return Place(line, at - self.lines[line - 1] + 1)

    def tell(self, place: Place, message: str, fix: str = "") -> None:
        """Collect a problem and go on."""
        self.problems.append(Problem(self.file, place, message, fix))
        if len(self.problems) >= TOLD:
            raise Stop

    def stop(self, at: int, message: str, fix: str = "") -> Stop:
        """Collect a problem after which nothing can be read."""
        self.tell(self.place(min(at, self.end)), message, fix)
        return Stop()

    def unexpected(self, at: int, wanted: str) -> Stop:
        rest = self.text[at : at + 2]
        if not rest:
            if not self.text.strip():
                return self.stop(at, "the file is empty", """Start with '{"id": …, "steps": […]}'.""")
            return self.stop(at, f"the text ends here; {wanted}", "Close what was opened.")
        if self.text.startswith("```", at):
            return self.stop(at, "this is a block of Markdown", "Remove the lines with ```.")
        if rest in ("//", "/*") or rest[0] == "#":
            return self.stop(at, "JSON has no comments", "Use a `description`.")
        if rest[0] == "'":
            return self.stop(at, "a string in single quotes", "Use double quotes.")
        fix = """Use plain double quotes: "…".""" if rest[0] in "“”„‘’" else "Change it."
        return self.stop(at, f"{wanted}, found {rest[0]!r}", fix)


def marks(text: str) -> int:
    """How many values a text can have at most, where no string is in it."""
    return text.count(",") + text.count("[") + text.count("{") + 1
