"""Parse text into forms with positions."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from nerve.lazy_dataclass import dataclass
from nerve.text.sexpr.forms import (
    MAX_FORMS,
    MAX_PROBLEMS,
    MAX_SEXPR_BYTES,
    MAX_SEXPR_DEPTH,
    AtomError,
    Form,
    Keyword,
    ListForm,
    MapForm,
    String,
    VectorForm,
    map_key_text,
    parse_atom,
    unescape_string,
)
from nerve.text.source import Diagnostics, InvalidDefinition, Position, Problem

TOKEN_PATTERN: Final = re.compile(
    r"""(?P<space>(?:[ \t\r\n]++|;[^\n]*+)++)
    |(?P<comment>\#\|)
    |(?P<open>[(\[{])
    |(?P<close>[)\]}])
    |(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
    |(?P<atom>[^\s()\[\]{}";]+)""",
    re.VERBOSE | re.DOTALL,
)
BOUNDARY: Final = frozenset(["", *" \t\r\n()[]{};"])
COMMENT_MARK_PATTERN: Final = re.compile(r"#\||\|#")
FORBIDDEN_CHARACTER: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
CLOSING_BRACKETS: Final = {"(": ")", "[": "]", "{": "}"}


def read_forms(text: str, file: str = "<text>", *, depth: int = MAX_SEXPR_DEPTH) -> list[Form]:
    """Return every form of a text; raises `InvalidDefinition` with the positions of the problems."""
    return SexprReader(text, file, depth).read_forms()


def read_single_form(text: str, file: str = "<text>") -> Form:
    """Return the only form of a text."""
    forms = read_forms(text, file)
    if len(forms) != 1:
        position = forms[1].position if forms else Position()
        raise InvalidDefinition([Problem(file, position, f"Expected one form, found {len(forms) or 'none'}")])
    return forms[0]


@dataclass(slots=True)
class OpenBracket:
    """An opening bracket without its closing bracket so far."""

    bracket: str
    position: Position
    starts_line: bool = False
    """Whether the bracket is the first character of its line."""
    items: list[Form] = field(default_factory=list)


class SexprReader(Diagnostics):
    """Parses a text in one pass, with an explicit stack of open brackets."""

    def __init__(self, text: str, file: str, depth: int) -> None:
        super().__init__(file, MAX_PROBLEMS)
        self.text, self.max_depth = text, depth
        self.line, self.line_start = 1, 0
        self.last_content_line = 0
        """The last line with a token before the current offset."""
        self.stack = [OpenBracket("", Position())]
        self.form_count = 0
        self.closed_at: Position | None = None
        # Likely causes of unbalanced brackets or quotes, guessed from line breaks and indentation.
        self.unclosed_bracket: OpenBracket | None = None
        """A bracket that is still open although a later line starts at its column or further left."""
        self.extra_closing: Position | None = None
        """The bracket that closed a top-level form although an indented form follows."""
        self.unclosed_string: Position | None = None
        """A multi-line string that is followed by text without a space."""

    def read_forms(self) -> list[Form]:
        # Reject texts that are too long or contain invalid characters, before parsing.
        if len(self.text) > MAX_SEXPR_BYTES or len(self.text.encode("utf-8", "replace")) > MAX_SEXPR_BYTES:
            self.fail(
                Position(),
                f"The text is longer than {MAX_SEXPR_BYTES // 1024} KiB",
                "Split it, or use prompt files.",
            )
        if self.text.startswith("```"):
            self.fail(Position(), "This is a block of Markdown", "Remove the lines with ```.")
        if self.text.startswith("\ufeff"):
            self.fail(Position(), "The text starts with a byte order mark", "Save it as UTF-8 without one.")
        if match := FORBIDDEN_CHARACTER.search(self.text):
            position = Position().at_offset(self.text, match.start())
            code = ord(match[0])
            self.fail(
                position, f"The character U+{code:04X} is not text", f"Is it UTF-8? Else write \\u{code:04x}."
            )
        offset = 0
        while offset < len(self.text):
            offset = self.read_token(offset)
        if len(self.stack) > 1:
            last = self.unclosed_bracket or self.stack[-1]
            self.fail(
                last.position,
                f"'{last.bracket}' is never closed",
                f"Add a '{CLOSING_BRACKETS[last.bracket]}'.",
            )
        if self.problems:
            raise InvalidDefinition(self.problems)
        return self.stack[0].items

    def read_token(self, offset: int) -> int:
        """Read the token at `offset` and return the offset after it."""
        token_match = TOKEN_PATTERN.match(self.text, offset)
        position = Position(self.line, offset - self.line_start + 1)
        if token_match is None:
            return self.report_unknown_character(offset, position)
        end, kind, token = token_match.end(), token_match.lastgroup, token_match[0]
        match kind:
            case "comment":
                end = self.skip_comment(offset, position)
            case "open":
                if len(self.stack) > self.max_depth:
                    self.fail(
                        position,
                        f"Brackets are nested more than {self.max_depth} deep",
                        "Use states or helpers.",
                    )
                first, around = position.line > self.last_content_line, self.stack[-1]
                is_below = first and around.starts_line and around.position.line < position.line
                if is_below and around.position.column >= position.column:
                    self.unclosed_bracket = self.unclosed_bracket or around
                if first and len(self.stack) == 1 and position.column > 1:
                    self.extra_closing = self.extra_closing or self.closed_at
                self.stack.append(OpenBracket(token, position, first))
            case "close":
                self.close_bracket(token, position)
            case "string" | "atom":
                is_string = kind == "string"
                try:
                    self.add_form(
                        String(unescape_string(token[1:-1]), position)
                        if is_string
                        else parse_atom(token, position)
                    )
                except AtomError as error:
                    self.add(position.at_offset(token, error.offset + is_string), error.message, error.fix)
        if kind in ("string", "atom") and self.text[end : end + 1] not in BOUNDARY:
            if token[0] == '"' and self.text[end] == ":":
                self.fail(position, "This is JSON syntax", "Write {:key value}, without commas.")
            if token[0] == '"' and "\n" in token:
                self.unclosed_string = self.unclosed_string or position
            self.add(position, f"Missing space after {token[:40]}", "Add one.")
        if kind in ("space", "comment", "string"):
            lines = self.text.count("\n", offset, end)
            if lines:
                self.line += lines
                self.line_start = self.text.rindex("\n", offset, end) + 1
        if kind != "space":
            self.last_content_line = self.line
        return end

    def skip_comment(self, offset: int, position: Position) -> int:
        """Skip a block comment, which may be nested, and return the offset after it."""
        level = 0
        for mark in COMMENT_MARK_PATTERN.finditer(self.text, offset):
            level += 1 if mark[0] == "#|" else -1
            if not level:
                return mark.end()
        return self.fail(position, "'#|' is never closed", "Add a '|#'.")

    def close_bracket(self, bracket: str, position: Position) -> None:
        opened = self.stack[-1]
        if not opened.bracket:
            self.fail(
                self.extra_closing or position,
                f"'{bracket}' has no matching opening bracket",
                "Remove it.",
            )
        if CLOSING_BRACKETS[opened.bracket] != bracket:
            at = f"{opened.position.line}:{opened.position.column}"
            expected = CLOSING_BRACKETS[opened.bracket]
            message = f"Expected '{expected}' for the '{opened.bracket}' at {at}, found '{bracket}'"
            self.fail(position, message, "Change it.")
        self.stack.pop()
        self.closed_at = position
        items, position = tuple(opened.items), opened.position
        match opened.bracket:
            case "(":
                self.add_form(ListForm(items, position))
            case "[":
                self.add_form(VectorForm(items, position))
            case _:
                self.add_form(self.build_map(items, position))

    def build_map(self, items: tuple[Form, ...], position: Position) -> MapForm:
        pairs: dict[str, tuple[Keyword | String, Form]] = {}
        for key, value in zip(items[::2], items[1::2], strict=False):
            if not isinstance(key, Keyword | String):
                self.add(key.position, "A map key must be a keyword or a string", 'Write :key or "key".')
            elif map_key_text(key) in pairs:
                self.add(key.position, f"The key '{map_key_text(key)[:40]}' is duplicated", "Remove one.")
            else:
                pairs[map_key_text(key)] = (key, value)
        if len(items) % 2:
            self.add(items[-1].position, "A key without a value", "Write a map as {:key value …}.")
        return MapForm(tuple(pairs.values()), position)

    def report_unknown_character(self, offset: int, position: Position) -> int:
        if self.text[offset] == '"':
            position = self.unclosed_string or position
            # Drop later problems, because strings and code are swapped after an unclosed string.
            self.problems = [problem for problem in self.problems if problem.position < position]
            self.fail(position, "The string is never closed", "Add a '\"'; write \\\" inside a string.")
        self.add(position, f"{self.text[offset]!r} is not a space", "Use plain spaces and line breaks.")
        return offset + 1

    def add_form(self, form: Form) -> None:
        self.form_count += 1
        if self.form_count > MAX_FORMS:
            self.fail(form.position, f"The text has more than {MAX_FORMS} forms", "Split it.")
        self.stack[-1].items.append(form)
