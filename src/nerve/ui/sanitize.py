"""Text of others as a terminal may see it: what would move the cursor or turn a line round is written out."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

MARKDOWN_MARKS = re.compile(r"\*\*(.+?)\*\*|`([^`]+)`|^#+ ")
"""What Markdown marks, which a single line shows without the marks."""
ALLOWED_CONTROLS = "\n\t"
HIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control characters, those without a width, half pairs, and those that end lines."""
MAX_SCREEN_CHARS = 20_000
"""Characters of a text that a screen shows: whoever needs more of it reads it elsewhere."""
INDENT = "  "
ZERO_WIDTH_JOINER = "\u200d"
"""Joins the parts of an emoji."""


def sanitize_text(text: str) -> str:
    return "".join(map(escape_character, text)) if not text.isprintable() else text


def indent_lines(text: str) -> str:
    """Return foreign text with its further lines indented, so that none looks like a line of ours."""
    return text.replace("\n", f"\n{INDENT}")


def sanitize_line(text: str) -> str:
    """The same, in which no end of a line of others begins one of ours."""
    return sanitize_text(text).replace("\n", "\\x0a")


def dump_safe_json(value: Any, **options: Any) -> str:
    """A value as JSON that is harmless, and the same value for whoever reads it."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return text if text.isprintable() else "".join(map(escape_json_character, text))


def escape_json_character(character: str) -> str:
    return character if escape_character(character) == character else json.dumps(character)[1:-1]


def escape_character(character: str) -> str:
    if (
        character in ALLOWED_CONTROLS
        or character == ZERO_WIDTH_JOINER
        or unicodedata.category(character) not in HIDDEN_CATEGORIES
    ):
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"U+{number:04X}"


def markdown_first_line(text: str) -> str:
    """The first line of a Markdown text, without its marks."""
    first = sanitize_text(text.strip()).split("\n")[0]
    return MARKDOWN_MARKS.sub(lambda match: match[1] or match[2] or "", first)


def truncate_for_screen(text: str) -> tuple[str, str]:
    """As much of a text as anybody reads on a screen, and what is said of the rest, if there is one."""
    hidden_chars = len(text) - MAX_SCREEN_CHARS
    notice = (
        f"… {hidden_chars:,} more characters; /export writes all of them to a file"
        if hidden_chars > 0
        else ""
    )
    return text[:MAX_SCREEN_CHARS], notice
