"""Atoms: what stands between spaces and brackets, and strings."""

from __future__ import annotations

import math
import re
from typing import Final

from nerve.notations.sexpr.forms import Constant, Form, Keyword, Number, Symbol
from nerve.notations.sexpr.limits import LARGEST, NAME
from nerve.spec.source import Place

SYMBOL: Final = re.compile(r"[\w@+*/<>=!?%&$.-][\w@+*/<>=!?%&$.:-]*")
NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
NUMBER_LIKE: Final = re.compile(r"[+-]?\.?[0-9]", re.ASCII)
CONSTANTS: Final[dict[str, bool | None]] = {"true": True, "false": False, "nil": None}

ESCAPE: Final = re.compile(
    r"\\(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL
)
ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


TEXT: Final = "Text belongs in double quotes."
FIXES: Final = {"#": "A comment begins with ';'.", ",": "Leave the comma out: blanks are enough."}


class Wrong(ValueError):
    """What is wrong with an atom, and how to mend it."""

    def __init__(self, message: str, fix: str = "", offset: int = 0) -> None:
        super().__init__(message)
        self.message, self.fix, self.offset = message, fix, offset


def atom(token: str, place: Place) -> Form:
    """The form a token stands for."""
    if token in CONSTANTS:
        return Constant(CONSTANTS[token], place)
    if NUMBER_LIKE.match(token):
        return Number(number(token), place)
    if token[0] == ":":
        return Keyword(name(token, 1), place)
    return Symbol(name(token, 0), place)


def name(token: str, start: int) -> str:
    if len(token) - start > NAME:
        raise Wrong(f"a name of {len(token) - start} characters", f"A name has at most {NAME}.")
    found = SYMBOL.match(token, start)
    if found is None or found.end() < len(token):
        at = found.end() if found else start
        if at == len(token):
            raise Wrong("a colon without a name", "Write :name.")
        raise Wrong(f"{token[at]!r} cannot stand in a name", FIXES.get(token[at], TEXT), at)
    return token[start:]


def number(token: str) -> int | float:
    found = NUMBER.fullmatch(token)
    if found is None:
        raise Wrong(f"'{token[:40]}' is not a number", FIXES.get(token[-1], TEXT))
    if found[2] or found[3]:
        value = float(token)
        if math.isfinite(value):
            return value
    elif len(token) < 20 and abs(int(token)) <= LARGEST:
        return int(token)
    raise Wrong(f"the number {token[:40]} is too large", "Numbers beyond ±2^53 belong in double quotes.")


def unescaped(text: str) -> str:
    """What the inside of a string literal stands for."""
    return ESCAPE.sub(unescape, text) if "\\" in text else text


def unescape(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) > 6:
        return chr(0x10000 + ((int(escape[1:5], 16) & 0x3FF) << 10) + (int(escape[7:], 16) & 0x3FF))
    if len(escape) > 1:
        code = int(escape[1:], 16)
        if 0xD800 <= code < 0xE000:
            raise Wrong(f"\\{escape} is half a character", "Write the other half behind it.", found.start())
        return chr(code)
    if escape not in ESCAPES:
        fix = "Escapes: " + " ".join(f"\\{known}" for known in ESCAPES) + " \\uXXXX."
        raise Wrong(f"unknown escape \\{escape}", fix, found.start())
    return ESCAPES[escape]
