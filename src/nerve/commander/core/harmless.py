"""Text of others as a terminal may see it: what would move the cursor or turn a line round is written out."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

MARKED = re.compile(r"\*\*(.+?)\*\*|`([^`]+)`|^#+ ")
"""What Markdown marks, which a single line shows without the marks."""
KEPT = "\n\t"
HIDES = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control characters, those without a width, half pairs, and those that end lines."""
SHOWN = 20_000
"""Characters of a text that a screen shows: whoever needs more of it reads it elsewhere."""
INDENT = "  "
JOINER = "\u200d"
"""Joins the parts of an emoji."""


def harmless(text: str) -> str:
    return "".join(map(written, text)) if not text.isprintable() else text


def indent_lines(text: str) -> str:
    """Return foreign text with its further lines indented, so that none looks like a line of ours."""
    return text.replace("\n", f"\n{INDENT}")


def on_one_line(text: str) -> str:
    """The same, in which no end of a line of others begins one of ours."""
    return harmless(text).replace("\n", "\\x0a")


def in_json(value: Any, **options: Any) -> str:
    """A value as JSON that is harmless, and the same value for whoever reads it."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return text if text.isprintable() else "".join(map(escaped, text))


def escaped(character: str) -> str:
    return character if written(character) == character else json.dumps(character)[1:-1]


def written(character: str) -> str:
    if character in KEPT or character == JOINER or unicodedata.category(character) not in HIDES:
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"U+{number:04X}"


def gist(text: str) -> str:
    """The first line of a Markdown text, without its marks."""
    first = harmless(text.strip()).split("\n")[0]
    return MARKED.sub(lambda found: found[1] or found[2] or "", first)


def beginning(text: str) -> tuple[str, str]:
    """As much of a text as anybody reads on a screen, and what is said of the rest, if there is one."""
    left = len(text) - SHOWN
    told = f"… {left:,} more characters; /export writes all of them to a file" if left > 0 else ""
    return text[:SHOWN], told
