"""Parse JSON into maps and lists that record the position of every key and value."""

from __future__ import annotations

import re
from collections.abc import Callable
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NoReturn

from nerve.text.source import InvalidDefinition, LocatedList, LocatedMap, Position, TextDiagnostics

MAX_JSON_BYTES = 1 << 20
"""Maximum size of a document in bytes."""
MAX_JSON_DEPTH = 64
"""Maximum nesting of objects and arrays."""
MAX_JSON_VALUES = 100_000
"""Maximum number of values in a document; parsing this many takes half a second."""
MAX_EXACT_INTEGER = 1 << 53
"""Larger integers lose precision in readers that use doubles."""
MAX_NUMBER_CHARS = 64
"""Maximum length of a number in characters."""
MAX_JSON_PROBLEMS = 20
"""Parsing stops after this many problems."""

WHITESPACE_PATTERN = re.compile(r"[ \t\r\n]*")
NUMBER_PATTERN = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
STRING_PATTERN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
WORD_PATTERN = re.compile(r"-?[A-Za-z_$][\w$]*")
SURROGATE_PATTERN = re.compile("[\ud800-\udfff]")
LITERALS = {"true": True, "false": False, "null": None}
NOT_FINITE = {"NaN", "Infinity", "-Infinity"}
HALF_SURROGATE_PROBLEM = ("Unpaired surrogate", "Write the complete character.")
FOREIGN_LITERALS = {"True": "true", "False": "false", "None": "null", "undefined": "null"}


def parse_located_json(text: str, file: str = "<text>") -> Any:
    """Return the value of a JSON document, with objects as `LocatedMap` and arrays as `LocatedList`.

    Raises `InvalidDefinition` with positions for anything that is not strict JSON, and also for duplicate
    keys, non-finite or inexact numbers, invalid characters, and documents that are too large.
    """
    return JsonReader(text, file).read_document()


class JsonReader(TextDiagnostics):
    """Parser for one document."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text, file, MAX_JSON_PROBLEMS)
        self.end = len(text)
        self.readers_by_character: dict[str, Callable[[int, int], tuple[Any, int]]] = {
            "{": self.read_object,
            "[": self.read_array,
            '"': self.read_string,
            **dict.fromkeys("-0123456789", self.read_number),
        }

    def read_document(self) -> Any:
        self.check_text()
        value, at = self.read_value(self.skip_space(0), 1)
        if self.skip_space(at) < self.end:
            self.fail_at(self.skip_space(at), "Unexpected text after the end of the JSON value", "Remove it.")
        if self.problems:
            raise InvalidDefinition(self.problems)
        return value

    def check_text(self) -> None:
        """Reject problems that can be detected without parsing any value."""
        text = self.text
        size = self.end if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if size > MAX_JSON_BYTES:
            self.fail_at(0, f"The file is larger than {MAX_JSON_BYTES // 1024} KiB", "Split the workflow.")
        if text.startswith("\ufeff"):
            self.fail_at(0, "The text starts with a byte order mark", "Save it as UTF-8 without one.")
        if (at := text.find("\0")) >= 0:
            self.fail_at(at, "A NUL character", "Save the file as UTF-8 text.")
        if not text.isascii() and (match := SURROGATE_PATTERN.search(text)):
            self.fail_at(match.start(), *HALF_SURROGATE_PROBLEM)
        if (
            max_value_count(text) > MAX_JSON_VALUES
            and max_value_count(STRING_PATTERN.sub("", text)) > MAX_JSON_VALUES
        ):
            self.fail_at(0, f"More than {MAX_JSON_VALUES:,} values", "Split the workflow.")

    # -- values --------------------------------------------------------------------------------

    def read_value(self, at: int, depth: int) -> tuple[Any, int]:
        """Return the value that starts at `at` and the offset after it."""
        return self.readers_by_character.get(self.text[at : at + 1], self.read_word)(at, depth)

    def read_object(self, at: int, depth: int) -> tuple[LocatedMap, int]:
        result = LocatedMap((), self.position_at(self.check_depth(at, depth)))
        text, keys_at, values_at = self.text, result.key_positions, result.value_positions
        at = self.skip_space(at + 1)
        if text[at : at + 1] == "}":
            return result, at + 1
        while True:
            if word := WORD_PATTERN.match(self.text, at):
                self.fail_at(
                    at, f"The key {word[0][:40]} is not in double quotes", f'Write "{word[0][:40]}".'
                )
            if self.text[at : at + 1] != '"':
                self.fail_unexpected(at, "expected a key in double quotes")
            key, after = self.read_string(at, 0)
            position = self.position_at(at)
            if key in result:
                first = keys_at[key]
                self.add(
                    position, f"The key {key!r} is duplicated; it is also on line {first.line}", "Keep one."
                )
            after = self.skip_space(after)
            if text[after : after + 1] != ":":
                self.fail_at(after, f"Expected ':' after the key {key!r}", 'Write "key": value.')
            start = self.skip_space(after + 1)
            result[key], after = self.read_value(start, depth + 1)
            keys_at[key], values_at[key] = position, self.position_at(start)
            after = self.skip_space(after)
            if text[after : after + 1] == "}":
                return result, after + 1
            at = self.skip_comma(after, result, "{}")

    def read_array(self, at: int, depth: int) -> tuple[LocatedList, int]:
        result = LocatedList((), self.position_at(self.check_depth(at, depth)))
        text, values_at = self.text, result.value_positions
        at = self.skip_space(at + 1)
        if text[at : at + 1] == "]":
            return result, at + 1
        while True:
            values_at[len(result)] = self.position_at(at)
            value, after = self.read_value(at, depth + 1)
            result.append(value)
            after = self.skip_space(after)
            if text[after : after + 1] == "]":
                return result, after + 1
            at = self.skip_comma(after, result, "[]")

    def check_depth(self, at: int, depth: int) -> int:
        if depth > MAX_JSON_DEPTH:
            self.fail_at(at, f"Nested deeper than {MAX_JSON_DEPTH} levels", "Split the workflow.")
        return at

    def skip_comma(self, at: int, opened: LocatedMap | LocatedList, brackets: str) -> int:
        """Skip the comma and return the offset of the next item."""
        close = brackets[1]
        if self.text[at : at + 1] != ",":
            self.fail_comma(at, opened.position or Position(), brackets)
        following = self.skip_space(at + 1)
        if self.text[following : following + 1] == close:
            self.fail_at(at, f"A comma before '{close}'", "Remove it.")
        return following

    def fail_comma(self, at: int, opened: Position, brackets: str) -> NoReturn:
        """Report an item that neither a comma nor a closing bracket follows."""
        open, close = brackets[0], brackets[1]
        if at >= self.end:
            self.fail(opened, f"This '{open}' is never closed", f"Add a '{close}'.")
        character = self.text[at]
        if character in "]}":
            opened_at = f"{opened.line}:{opened.column}"
            self.fail_at(
                at, f"Expected '{close}' for the '{open}' at {opened_at}, found '{character}'", "Change it."
            )
        if character in '"[{' or character.isalnum():
            self.fail_at(at, "A comma is missing before this", "Put a ',' after the previous item.")
        self.fail_unexpected(at, f"expected ',' or '{close}'")

    def read_string(self, at: int, depth: int) -> tuple[str, int]:
        try:
            value, after = scanstring(self.text, at + 1, True)
        except JSONDecodeError as error:
            if self.text[error.pos : error.pos + 1] in ("\n", "\r"):
                self.fail_at(at, "The string does not end on its line", "Add a '\"', or write \\n inside it.")
            if error.msg.startswith("Invalid control"):
                self.fail_at(error.pos, "A control character in a string", "Write a tab as \\t.")
            if error.msg.startswith("Unterminated"):
                self.fail_at(at, "The string does not end", "Add a '\"'.")
            self.fail_at(error.pos, "Invalid escape in a JSON string", "Write a backslash as \\\\.")
        if not value.isascii() and SURROGATE_PATTERN.search(value):
            self.add_at(at, *HALF_SURROGATE_PROBLEM)
        if "\0" in value:
            self.add_at(at, "A NUL character in a string", "Remove it.")
        return value, after

    def read_number(self, at: int, depth: int) -> tuple[int | float | None, int]:
        match = NUMBER_PATTERN.match(self.text, at)
        if match is None:
            return self.read_word(at, depth)
        after = match.end()
        if self.text[after : after + 1].isalnum() or self.text[after : after + 1] in ("_", "."):
            self.fail_at(at, "Invalid number", "Write numbers like 12, -3.5 or 1e6.")
        if after - at > MAX_NUMBER_CHARS:
            self.add_at(at, f"A number of more than {MAX_NUMBER_CHARS} characters", "Write it shorter.")
            return None, after
        if match[1] is None and match[2] is None:
            integer = int(match[0])
            if abs(integer) > MAX_EXACT_INTEGER:
                self.add_at(at, f"{integer} is beyond ±2^53", 'Write it as a string: "…".')
            return integer, after
        value = float(match[0])
        if value in (float("inf"), float("-inf")):
            self.add_at(at, f"{match[0]} is too large for a number", 'Write it as a string: "…".')
        return value, after

    def read_word(self, at: int, depth: int) -> tuple[Any, int]:
        match = WORD_PATTERN.match(self.text, at)
        if match is None:
            self.fail_unexpected(at, "expected a value")
        if (word := match[0]) in LITERALS:
            return LITERALS[word], match.end()
        if word in NOT_FINITE:
            self.add_at(at, f"{word} is not a number in JSON", "Use null.")
            return None, match.end()
        literal = FOREIGN_LITERALS.get(word)
        fix = f"Write {literal}." if literal else "Put strings in double quotes."
        return self.fail_at(at, f"'{word[:40]}' is not a JSON value", fix)

    # -- positions and problems -----------------------------------------------------------------

    def skip_space(self, at: int) -> int:
        """Return the offset of the first character after the whitespace."""
        return WHITESPACE_PATTERN.match(self.text, at).end()  # type: ignore[union-attr]

    def add_at(self, at: int, message: str, fix: str) -> None:
        self.add(self.position_at(at), message, fix)

    def fail_at(self, at: int, message: str, fix: str = "") -> NoReturn:
        self.fail(self.position_at(min(at, self.end)), message, fix)

    def fail_unexpected(self, at: int, expectation: str) -> NoReturn:
        rest = self.text[at : at + 2]
        if not rest:
            if not self.text.strip():
                self.fail_at(at, "The file is empty", """Start with '{"id": …, "steps": […]}'.""")
            self.fail_at(at, f"The text ends here; {expectation}", "Close the open brackets.")
        if self.text.startswith("```", at):
            self.fail_at(at, "This is a block of Markdown", "Remove the lines with ```.")
        if rest in ("//", "/*") or rest[0] == "#":
            self.fail_at(at, "JSON has no comments", "Use a `description`.")
        if rest[0] == "'":
            self.fail_at(at, "A string in single quotes", "Use double quotes.")
        fix = """Use plain double quotes: "…".""" if rest[0] in "“”„‘’" else "Change it."
        self.fail_at(at, f"{expectation.capitalize()}, found {rest[0]!r}", fix)


def max_value_count(text: str) -> int:
    """Return an upper bound for the number of values in a text without strings."""
    return text.count(",") + text.count("[") + text.count("{") + 1
