"""The forms of an S-expression, the limits of a text, and the syntax of atoms. Equality ignores positions."""

from __future__ import annotations

import math
import re
from dataclasses import field
from typing import Final, TypeAlias

from nerve.lazy_dataclass import dataclass
from nerve.text.source import Position

# -- limits --------------------------------------------------------------------------------------


MAX_SEXPR_BYTES: Final = 256 * 1024
"""Maximum size of a text in bytes."""
MAX_SEXPR_DEPTH: Final = 64
"""Maximum nesting of brackets."""
MAX_FORMS: Final = 50_000
"""Maximum number of forms in a text."""
MAX_SYMBOL_CHARS: Final = 256
"""Maximum length of a symbol or keyword in characters."""
MAX_INTEGER: Final = 2**53
"""Larger integers lose precision in readers that use doubles."""
MAX_PROBLEMS: Final = 20
"""Parsing stops after this many problems."""


# -- forms ---------------------------------------------------------------------------------------


DEFAULT_POSITION = Position()


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name: `planner`, `plan/ready`, `@workflow-id`, `?x`."""

    name: str
    position: Position = field(default=DEFAULT_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class Keyword:
    """`:name`; the colon is not part of the name."""

    name: str
    position: Position = field(default=DEFAULT_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class String:
    """A string with its escapes resolved."""

    value: str
    position: Position = field(default=DEFAULT_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class Number:
    """An integer within ±2^53, or a finite float."""

    value: int | float
    position: Position = field(default=DEFAULT_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class Constant:
    """`true`, `false` or `nil`."""

    value: bool | None
    position: Position = field(default=DEFAULT_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class ListForm:
    """`(a b c)`."""

    items: tuple[Form, ...]
    position: Position = field(default=DEFAULT_POSITION, compare=False)

    @property
    def head(self) -> str:
        """The name of the first symbol, or an empty string."""
        first = self.items[0] if self.items else None
        return first.name if isinstance(first, Symbol) else ""


@dataclass(frozen=True, slots=True)
class VectorForm:
    """`[a b c]`."""

    items: tuple[Form, ...]
    position: Position = field(default=DEFAULT_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class MapForm:
    """`{:a 1 "b c" 2}`, in source order, with unique keys."""

    items: tuple[tuple[Keyword | String, Form], ...]
    position: Position = field(default=DEFAULT_POSITION, compare=False)


Form: TypeAlias = Symbol | Keyword | String | Number | Constant | ListForm | VectorForm | MapForm


def map_key_text(key: Keyword | String) -> str:
    """Return the text of a map key: `:a` and `"a"` are the same key."""
    return key.name if isinstance(key, Keyword) else key.value


# -- atoms ---------------------------------------------------------------------------------------


SYMBOL_PATTERN: Final = re.compile(r"[\w@+*/<>=!?%&$.-][\w@+*/<>=!?%&$.:-]*")
NUMBER_PATTERN: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
NUMBER_LIKE_PATTERN: Final = re.compile(r"[+-]?\.?[0-9]", re.ASCII)
CONSTANTS: Final[dict[str, bool | None]] = {"true": True, "false": False, "nil": None}

ESCAPE_PATTERN: Final = re.compile(
    r"\\(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL
)
ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


TEXT_FIX: Final = "Put strings in double quotes."
CHARACTER_FIXES: Final = {"#": "Start a comment with ';'.", ",": "Remove the comma: spaces separate items."}


class AtomError(ValueError):
    """An invalid atom: the problem, the fix, and the offset in the token."""

    def __init__(self, message: str, fix: str = "", offset: int = 0) -> None:
        super().__init__(message)
        self.message, self.fix, self.offset = message, fix, offset


def parse_atom(token: str, position: Position) -> Form:
    """Return the form of a token."""
    if token in CONSTANTS:
        return Constant(CONSTANTS[token], position)
    if NUMBER_LIKE_PATTERN.match(token):
        return Number(parse_atom_number(token), position)
    if token[0] == ":":
        return Keyword(parse_atom_name(token, 1), position)
    return Symbol(parse_atom_name(token, 0), position)


def parse_atom_name(token: str, start: int) -> str:
    if len(token) - start > MAX_SYMBOL_CHARS:
        raise AtomError(
            f"A name of {len(token) - start} characters", f"A name has at most {MAX_SYMBOL_CHARS}."
        )
    match = SYMBOL_PATTERN.match(token, start)
    if match is None or match.end() < len(token):
        at = match.end() if match else start
        if at == len(token):
            raise AtomError("A colon without a name", "Write :name.")
        raise AtomError(
            f"{token[at]!r} is not allowed in a name", CHARACTER_FIXES.get(token[at], TEXT_FIX), at
        )
    return token[start:]


def parse_atom_number(token: str) -> int | float:
    match = NUMBER_PATTERN.fullmatch(token)
    if match is None:
        raise AtomError(f"'{token[:40]}' is not a number", CHARACTER_FIXES.get(token[-1], TEXT_FIX))
    if match[2] or match[3]:
        value = float(token)
        if math.isfinite(value):
            return value
    elif len(token) < 20 and abs(int(token)) <= MAX_INTEGER:
        return int(token)
    raise AtomError(f"The number {token[:40]} is too large", "Put numbers beyond ±2^53 in double quotes.")


def unescape_string(text: str) -> str:
    """Return the value of the inside of a string literal."""
    return ESCAPE_PATTERN.sub(resolve_escape, text) if "\\" in text else text


def resolve_escape(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 6:
        return chr(0x10000 + ((int(escape[1:5], 16) & 0x3FF) << 10) + (int(escape[7:], 16) & 0x3FF))
    if len(escape) > 1:
        code = int(escape[1:], 16)
        if 0xD800 <= code < 0xE000:
            raise AtomError(
                f"\\{escape} is an unpaired surrogate", "Write the second half after it.", match.start()
            )
        return chr(code)
    if escape not in ESCAPES:
        fix = "Escapes: " + " ".join(f"\\{known}" for known in ESCAPES) + " \\uXXXX."
        raise AtomError(f"Unknown escape \\{escape}", fix, match.start())
    return ESCAPES[escape]
