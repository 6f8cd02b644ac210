"""Parse a safe subset of YAML into plain data with positions.

Scalars follow the core schema of YAML 1.2, so `on`, `yes` and `1:30` are strings. Anchors, aliases, merge
keys, tags, directives and a second document are rejected: they can expand small files or express more than
plain data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from nerve.text.source import InvalidDefinition, LocatedList, LocatedMap, Position, TextDiagnostics

try:
    from yaml import CBaseLoader as _Loader
except ImportError:  # PyYAML without its C library: slower, but it emits the same events
    from yaml import BaseLoader as _Loader  # type: ignore[assignment]

MAX_YAML_BYTES = 256 * 1024
MAX_DEPTH = 64
MAX_VALUES = 10_000
MAX_PROBLEMS = 20
MAX_INTEGER = 2**53

# As ranges of the few forbidden characters: `re` takes five times as long to compile the allowed ones.
_FORBIDDEN_CHARACTER = re.compile(
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]"
)
_DIRECTIVE = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*%")
_DOCUMENT_REST = re.compile(r"(?:\.\.\.(?=\s|$))?(?:\s|#[^\n]*)*")

_NULL = frozenset(["", "~", "null", "Null", "NULL"])
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NON_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def load_yaml(text: str, file: str = "<text>") -> Any:
    """Return the value of a YAML document; raises `InvalidDefinition` with every problem in it."""
    return _YamlComposer(text, file, MAX_PROBLEMS).compose()


def parse_scalar(text: str) -> Any:
    """Return the value of a plain scalar in the core schema; `ValueError` for a number not valid in JSON."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INTEGER.fullmatch(text):
        return _parse_integer(text)
    if _FLOAT.fullmatch(text):
        if math.isinf(number := float(text)):
            raise ValueError(text)
        return number
    if _NON_FINITE.fullmatch(text):
        raise ValueError(text)
    return text


def _parse_integer(text: str) -> int:
    if len(text) < 16 and text.isdecimal():
        return int(text)
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    digits = text[2:] if base != 10 else text
    # Too long for a valid integer. int() would take quadratic time, or raise its own message.
    if len(digits.lstrip("+-0")) > 20 or abs(number := int(digits, base)) > MAX_INTEGER:
        raise ValueError(text)
    return number


def _explain_forbidden_character(text: str, at: int) -> tuple[str, str]:
    if text[at] == "\ufeff" and at == 0:
        return "The file starts with a byte order mark", "Save it as UTF-8 without a byte order mark."
    if text[at] == "\0" and at < 4:
        return "This is not UTF-8 text (it looks like UTF-16)", "Save the file as UTF-8."
    return f"The character U+{ord(text[at]):04X} is not allowed", "Remove it, or escape it in quotes."


class _YamlComposer(TextDiagnostics):
    """Builds located values from the events of a YAML parser.

    `yaml.compose` would build the nodes itself, but its C code recurses without a limit: a text of brackets
    or dashes ends the process.
    """

    value_count = 0

    def compose(self) -> Any:
        self.check_text()
        try:
            value = self.compose_document(yaml.parse(self.text, Loader=_Loader))
        except yaml.MarkedYAMLError as error:
            at, message, fix = explain_yaml_syntax_error(self.text, error)
            self.fail(self.position_at(min(at, len(self.text))), f"This is not YAML: {message}", fix)
        except yaml.YAMLError as error:
            self.fail(None, f"This is not YAML: {error}", DEFAULT_FIX)
        if self.problems:
            raise InvalidDefinition(self.problems)
        return value

    def check_text(self) -> None:
        """Reject a text that is too long, contains control characters or starts with a directive."""
        text = self.text
        if max(len(text), len(text.encode("utf-8", "surrogatepass"))) > MAX_YAML_BYTES:
            message = f"The file has more than {MAX_YAML_BYTES // 1024} KiB, the limit for a workflow in YAML"
            self.fail(None, message, "Split it, or move long texts to separate files.")
        if match := _FORBIDDEN_CHARACTER.search(text):
            at = match.start()
            self.fail(self.position_at(at), *_explain_forbidden_character(text, at))
        if match := _DIRECTIVE.match(text):
            position = self.position_at(match.end() - 1)
            self.fail(position, "A YAML directive is not allowed", "Remove the line.")

    def compose_document(self, events: Iterator[yaml.Event]) -> Any:
        value = None
        for event in events:
            if isinstance(event, yaml.DocumentEndEvent):
                # Checked before the parser sees it: a hostile second document could keep the parser busy.
                rest = _DOCUMENT_REST.match(self.text, event_index(event))
                if rest and rest.end() < len(self.text):
                    position = self.position_at(rest.end())
                    self.fail(position, "A second document is not allowed", "Keep one workflow in a file.")
                return value
            if not isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent | yaml.StreamEndEvent):
                value = self.compose_value(event, events, 1)
        return value

    def compose_value(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Any:
        self.check_event(event, depth)
        if isinstance(event, yaml.ScalarEvent):
            if event.style:
                return event.value
            try:
                return parse_scalar(event.value)
            except ValueError:
                excerpt = event.value if len(event.value) <= 30 else event.value[:27] + "..."
                fix = "Put quotes around it if it is a string."
                self.add_at(event, f"The number {excerpt} cannot be represented exactly", fix)
                return None
        if isinstance(event, yaml.SequenceStartEvent):
            result = LocatedList((), self.start_of(event))
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                result.append_at(self.compose_value(item, events, depth + 1), self.content_position(item))
            return result
        if isinstance(event, yaml.MappingStartEvent):
            return self.compose_mapping(event, events, depth)
        return None

    def check_event(self, event: yaml.Event, depth: int) -> None:
        """Reject everything that is not plain data."""
        self.value_count += 1
        if self.value_count > MAX_VALUES:
            self.fail(self.start_of(event), f"More than {MAX_VALUES} values", "Split the workflow.")
        if depth > MAX_DEPTH and not isinstance(event, yaml.ScalarEvent):
            self.fail(self.start_of(event), f"Nested deeper than {MAX_DEPTH} levels", "Split the workflow.")
        if isinstance(event, yaml.AliasEvent):
            self.add_at(event, f"The alias *{event.anchor} is not allowed", "Write the value out.")
        elif isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self.add_at(event, f"The anchor &{event.anchor} is not allowed", "Write the value out.")
        tag = getattr(event, "tag", None)
        if tag is not None:
            self.add_at(event, f"The tag {tag} is not allowed", "Remove it; put quotes around a string.")

    def compose_mapping(self, start: yaml.Event, events: Iterator[yaml.Event], depth: int) -> LocatedMap:
        result = LocatedMap((), self.start_of(start))
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = self.compose_key(event, events, depth)
            following = next(events)
            value = self.compose_value(following, events, depth + 1)
            if key is None:
                continue
            if key in result:
                line = result.key_positions[key].line
                self.add_at(event, f"The key '{key}' is duplicated (first on line {line})", "Keep one.")
                continue
            result.set_at(key, value, self.content_position(following)).key_positions[key] = self.start_of(
                event
            )
        return result

    def compose_key(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> str | None:
        """Return a key as written: `on`, `1` and `true` are strings here."""
        if not isinstance(event, yaml.ScalarEvent):
            self.compose_value(event, events, depth + 1)
            self.add_at(event, "A key must be a string", "Put quotes around '{{ … }}' and around braces.")
            return None
        self.check_event(event, depth)
        if not event.style and event.value.startswith("\xa0"):
            self.add_at(event, "A no-break space (U+00A0) in the indentation", "Indent with plain spaces.")
            return None
        if not event.style and event.value == "<<":
            self.add_at(event, "The merge key << is not allowed", "Write the keys out.")
            return None
        if not event.style and not event.value:
            self.add_at(event, "A key is missing before ':'", "Write 'key: value'.")
            return None
        return event.value

    def start_of(self, event: yaml.Event) -> Position:
        return self.position_at(event_index(event))

    def add_at(self, event: yaml.Event, message: str, fix: str) -> None:
        self.add(self.start_of(event), message, fix)

    def content_position(self, event: yaml.Event) -> Position:
        """Return where the text of a scalar starts: after its quote, or on the line below `|`."""
        at = event_index(event)
        if not isinstance(event, yaml.ScalarEvent) or not event.style:
            return self.position_at(at)
        style = event.style
        if style in ("'", '"'):
            return self.position_at(at + 1)
        if style in ("|", ">") and (below := re.compile(r"[^\n]*\n *").match(self.text, at)):
            return self.position_at(min(below.end(), len(self.text)))
        return self.position_at(at)


def event_index(event: yaml.Event) -> int:
    return event.start_mark.index if event.start_mark else 0


# -- syntax errors ---------------------------------------------------------------------------------


SYNTAX_ERRORS = [
    ("tab character", "a tab in the indentation", "Indent with spaces, not tabs."),
    ("cannot start any token", "a tab in the indentation", "Indent with spaces, not tabs."),
    (
        "expected alphabetic",
        "a string cannot start with * or &",
        "Put quotes around it; aliases and anchors are not allowed.",
    ),
    (
        "comment or line break",
        "unexpected text after the | or > of a block scalar",
        "Start the text on the next line, indented.",
    ),
    ("expected node content", "a value is missing here", "Write one, or close the bracket."),
    (
        "mapping values are not allowed",
        "a ': ' where a key is not allowed",
        "Put quotes around a string that contains ': ', or fix the indentation.",
    ),
    ("unexpected end of stream", "unclosed quote", "Close the quote."),
    (
        "did not find expected ',' or",
        "unclosed bracket",
        "Close the bracket, or put quotes around the string.",
    ),
    ("'-' indicator", "inconsistent indentation", "Indent the line like the other lines of its block."),
    (
        "expected key",
        "expected a key here",
        "Check the indentation, and put quotes around a string that contains quotes.",
    ),
    (
        "expected ':'",
        "a key without ':'",
        "Write 'key: value', with a space after the colon, and indent the lines of a block scalar.",
    ),
    ("unknown escape", "unknown escape sequence", "Use single quotes around a string with backslashes."),
]
"""Part of the parser's message, the message shown instead, and the fix."""
HIDDEN_LINE_BREAK = re.compile("[\x85\u2028\u2029]")
"""Characters that end a line in YAML, although most editors do not show a line break."""
UNCLOSED_MESSAGES = ("unexpected end of stream", "did not find expected ',' or")
MISSING_BLANK = re.compile(r"[ -]*[A-Za-z_][\w-]*(?=:[^\s/:][^:\n]*$)", re.MULTILINE)
"""A key whose colon is not followed by a space, up to the colon."""
DEFAULT_FIX = "Fix this line or the line above it."


def explain_yaml_syntax_error(text: str, error: yaml.MarkedYAMLError) -> tuple[int, str, str]:
    """Return the offset of the error, a message and the fix."""
    parser_message = ", ".join(part for part in (error.context, error.problem) if part)
    at = syntax_error_offset(error, parser_message)
    if text.startswith("```"):
        return at, "this is a block of Markdown", "Remove the lines with ```."
    if (match := HIDDEN_LINE_BREAK.search(text, 0, at)) is not None:
        return (
            match.start(),
            f"the character U+{ord(match[0]):04X} ends a line",
            "Write a line break or a space.",
        )
    if "mapping values" in parser_message and (
        key := MISSING_BLANK.match(text, text.rfind("\n", 0, max(text.rfind("\n", 0, at), 0)) + 1)
    ):
        return key.end(), "missing space after the colon of a key", "Write 'key: value'."
    if "cannot start any token" in parser_message and text[at : at + 1] != "\t":
        return at, f"a string cannot start with {text[at : at + 1]}", "Put quotes around it."
    return next(
        ((at, words, fix) for part, words, fix in SYNTAX_ERRORS if part in parser_message),
        (at, parser_message, DEFAULT_FIX),
    )


def syntax_error_offset(error: yaml.MarkedYAMLError, parser_message: str) -> int:
    """Return the offset the parser reports, or that of the opening character of an unclosed construct."""
    opened, noticed = error.context_mark, error.problem_mark or error.context_mark
    if (
        opened
        and noticed
        and opened.line < noticed.line
        and any(part in parser_message for part in UNCLOSED_MESSAGES)
    ):
        return opened.index
    return noticed.index if noticed else 0
