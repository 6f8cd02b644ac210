"""The reader: text to forms, every one with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NoReturn

from nerve.notations.sexpr.atoms import Wrong, atom, unescaped
from nerve.notations.sexpr.forms import Form, Keyword, ListForm, MapForm, String, VectorForm, key_text
from nerve.notations.sexpr.limits import DEPTH, FORMS, PROBLEMS, SIZE
from nerve.spec.source import Place, Problem, Unreadable

TOKEN: Final = re.compile(
    r"""(?P<space>(?:[ \t\r\n]++|;[^\n]*+)++)
    |(?P<comment>\#\|)
    |(?P<open>[(\[{])
    |(?P<close>[)\]}])
    |(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
    |(?P<atom>[^\s()\[\]{}";]+)""",
    re.VERBOSE | re.DOTALL,
)
BOUNDARY: Final = frozenset(["", *" \t\r\n()[]{};"])
COMMENT: Final = re.compile(r"#\||\|#")
FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
CLOSES: Final = {"(": ")", "[": "]", "{": "}"}


def read_all(text: str, file: str = "<text>", *, depth: int = DEPTH) -> list[Form]:
    """Every form of a text; raises `Unreadable` with the places of what is wrong."""
    return Reader(text, file, depth).read()


def read_one(text: str, file: str = "<text>", *, depth: int = DEPTH) -> Form:
    """The only form of a text."""
    forms = read_all(text, file, depth=depth)
    if len(forms) != 1:
        place = forms[1].place if forms else Place()
        raise Unreadable([Problem(file, place, f"expected one form, found {len(forms) or 'none'}")])
    return forms[0]


@dataclass(slots=True)
class Open:
    """A bracket that is not closed yet."""

    bracket: str
    place: Place
    first: bool = False
    """Whether its line begins with it."""
    items: list[Form] = field(default_factory=list)

    def before(self, place: Place) -> bool:
        """Whether a line that begins there shows by its indentation that this was to be closed."""
        return self.first and self.place.line < place.line and self.place.column >= place.column


@dataclass(slots=True)
class Blamed:
    """What is likely wrong if the brackets or quotes do not come out even, by the lines and indentation."""

    opened: Open | None = None
    """A bracket that is open although a line begins as far to the left as it does, or farther."""
    closing: Place | None = None
    """What ended a form although an indented one follows."""
    string: Place | None = None
    """A text of several lines that something follows without a blank."""


class Reader:
    """One pass over a text, with the open brackets on a stack of its own."""

    def __init__(self, text: str, file: str, depth: int) -> None:
        self.text, self.file, self.depth = text, file, depth
        self.problems: list[Problem] = []
        self.line, self.line_start = 1, 0
        self.written = 0
        """The last line on which something stands before the place that is read."""
        self.stack = [Open("", Place())]
        self.count = 0
        self.blamed = Blamed()
        self.closed_at: Place | None = None

    def read(self) -> list[Form]:
        self.refuse_bytes()
        offset = 0
        while offset < len(self.text):
            offset = self.token(offset)
        if len(self.stack) > 1:
            last = self.blamed.opened or self.stack[-1]
            self.stop(last.place, f"'{last.bracket}' is never closed", f"Add a '{CLOSES[last.bracket]}'.")
        if self.problems:
            raise Unreadable(self.problems)
        return self.stack[0].items

    def refuse_bytes(self) -> None:
        """Refuse what no text of ours has, before looking at any of it."""
        if len(self.text) > SIZE or len(self.text.encode("utf-8", "replace")) > SIZE:
            self.stop(
                Place(), f"the text is longer than {SIZE // 1024} KiB", "Split it, or use prompt files."
            )
        if self.text.startswith("```"):
            self.stop(Place(), "this is a block of Markdown", "Remove the lines with ```.")
        if self.text.startswith("\ufeff"):
            self.stop(Place(), "the text starts with a byte order mark", "Save it as UTF-8 without one.")
        if found := FORBIDDEN.search(self.text):
            place = Place().after(self.text, found.start())
            code = ord(found[0])
            self.stop(
                place, f"the character U+{code:04X} is not text", f"Is it UTF-8? Else write \\u{code:04x}."
            )

    def token(self, offset: int) -> int:
        """Read the token at `offset`; gives the offset behind it."""
        found = TOKEN.match(self.text, offset)
        place = Place(self.line, offset - self.line_start + 1)
        if found is None:
            return self.unknown(offset, place)
        end, kind, token = found.end(), found.lastgroup, found[0]
        match kind:
            case "comment":
                end = self.comment(offset, place)
            case "open":
                self.open(token, place)
            case "close":
                self.close(token, place)
            case "string":
                self.string(token, place)
            case "atom":
                self.atom(token, place)
        if kind in ("string", "atom") and self.text[end : end + 1] not in BOUNDARY:
            self.glued(token, place, end)
        if kind in ("space", "comment", "string"):
            self.count_lines(offset, end)
        if kind != "space":
            self.written = self.line
        return end

    def glued(self, token: str, place: Place, end: int) -> None:
        if token[0] == '"' and self.text[end] == ":":
            self.stop(place, "this is written as in JSON", "Write {:key value}, without commas.")
        if token[0] == '"' and "\n" in token:
            self.blamed.string = self.blamed.string or place
        self.problem(place, f"no space behind {token[:40]}", "Add one.")

    def count_lines(self, start: int, end: int) -> None:
        lines = self.text.count("\n", start, end)
        if lines:
            self.line += lines
            self.line_start = self.text.rindex("\n", start, end) + 1

    def comment(self, offset: int, place: Place) -> int:
        """Skip a block comment; they nest."""
        level = 0
        for mark in COMMENT.finditer(self.text, offset):
            level += 1 if mark[0] == "#|" else -1
            if not level:
                return mark.end()
        return self.stop(place, "'#|' is never closed", "Add a '|#'.")

    def open(self, bracket: str, place: Place) -> None:
        if len(self.stack) > self.depth:
            self.stop(place, f"brackets are nested more than {self.depth} deep", "Use states or helpers.")
        first = place.line > self.written
        if first and self.stack[-1].before(place):
            self.blamed.opened = self.blamed.opened or self.stack[-1]
        if first and len(self.stack) == 1 and place.column > 1:
            self.blamed.closing = self.blamed.closing or self.closed_at
        self.stack.append(Open(bracket, place, first))

    def close(self, bracket: str, place: Place) -> None:
        opened = self.stack[-1]
        if not opened.bracket:
            self.stop(self.blamed.closing or place, f"'{bracket}' is one too many", "Remove it.")
        if CLOSES[opened.bracket] != bracket:
            at = f"{opened.place.line}:{opened.place.column}"
            expected = CLOSES[opened.bracket]
            message = f"expected '{expected}' for the '{opened.bracket}' at {at}, found '{bracket}'"
            self.stop(place, message, "Change it.")
        self.stack.pop()
        self.closed_at = place
        self.add(self.closed(opened))

    def closed(self, opened: Open) -> Form:
        items, place = tuple(opened.items), opened.place
        if opened.bracket == "(":
            return ListForm(items, place)
        return VectorForm(items, place) if opened.bracket == "[" else self.map(items, place)

    def map(self, items: tuple[Form, ...], place: Place) -> MapForm:
        pairs: dict[str, tuple[Keyword | String, Form]] = {}
        for key, value in zip(items[::2], items[1::2], strict=False):
            if not isinstance(key, Keyword | String):
                self.problem(key.place, "a key of a map is a keyword or a string", 'Write :key or "key".')
            elif key_text(key) in pairs:
                self.problem(key.place, f"the key '{key_text(key)[:40]}' is there twice", "Remove one.")
            else:
                pairs[key_text(key)] = (key, value)
        if len(items) % 2:
            self.problem(items[-1].place, "a key without a value", "A map is written {:key value …}.")
        return MapForm(tuple(pairs.values()), place)

    def string(self, token: str, place: Place) -> None:
        try:
            self.add(String(unescaped(token[1:-1]), place))
        except Wrong as wrong:
            self.problem(place.after(token, wrong.offset + 1), wrong.message, wrong.fix)

    def atom(self, token: str, place: Place) -> None:
        try:
            self.add(atom(token, place))
        except Wrong as wrong:
            self.problem(place.after(token, wrong.offset), wrong.message, wrong.fix)

    def unknown(self, offset: int, place: Place) -> int:
        if self.text[offset] == '"':
            self.unclosed(self.blamed.string or place)
        self.problem(place, f"{self.text[offset]!r} is no space here", "Use plain spaces and line ends.")
        return offset + 1

    def unclosed(self, place: Place) -> NoReturn:
        """Behind a string that is not closed, texts and what is between them have changed places."""
        self.problems = [problem for problem in self.problems if problem.place < place]
        self.stop(place, "the string is never closed", "Add a '\"'; inside a string it is written \\\".")

    def add(self, form: Form) -> None:
        self.count += 1
        if self.count > FORMS:
            self.stop(form.place, f"the text has more than {FORMS} forms", "Split it.")
        self.stack[-1].items.append(form)

    def problem(self, place: Place, message: str, fix: str = "") -> None:
        self.problems.append(Problem(self.file, place, message, fix))
        if len(self.problems) >= PROBLEMS:
            raise Unreadable(self.problems)

    def stop(self, place: Place, message: str, fix: str = "") -> NoReturn:
        raise Unreadable([*self.problems, Problem(self.file, place, message, fix)])
