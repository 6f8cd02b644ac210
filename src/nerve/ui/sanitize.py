"""Sanitizing of untrusted text for terminals: control and bidirectional characters are escaped."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

MARKDOWN_MARKS = re.compile(r"\*\*(.+?)\*\*|`([^`]+)`|^#+ ")
"""Markdown marks that are removed in one-line previews."""
ALLOWED_CONTROLS = "\n\t"
HIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control, format and surrogate characters, and line and paragraph separators."""
MAX_SCREEN_CHARS = 20_000
"""Maximum characters of a text on a screen; an export contains all."""
INDENT = "  "
ZERO_WIDTH_JOINER = "\u200d"
"""Joins the parts of an emoji."""


def sanitize_text(text: str) -> str:
    """Escape control and invisible characters."""
    return "".join(map(escape_character, text)) if not text.isprintable() else text


def indent_lines(text: str) -> str:
    """Indent all lines after the first, so that untrusted text cannot imitate our own lines."""
    return text.replace("\n", f"\n{INDENT}")


def sanitize_line(text: str) -> str:
    """Like sanitize_text(), with line breaks escaped."""
    return sanitize_text(text).replace("\n", "\\x0a")


def dump_safe_json(value: Any, **options: Any) -> str:
    """Encode a value as JSON that is safe for terminals and decodes to the same value."""
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
    """Return the first line of a Markdown text without its marks."""
    first = sanitize_text(text.strip()).split("\n")[0]
    return MARKDOWN_MARKS.sub(lambda match: match[1] or match[2] or "", first)


def truncate_for_screen(text: str) -> tuple[str, str]:
    """Return the start of a text, and a notice about the hidden rest or ""."""
    hidden_chars = len(text) - MAX_SCREEN_CHARS
    notice = (
        f"… {hidden_chars:,} more characters; /export writes the complete text to a file"
        if hidden_chars > 0
        else ""
    )
    return text[:MAX_SCREEN_CHARS], notice


def fence_text(text: str, kind: str = "text") -> str:
    """Return a Markdown code block with a text that may itself have fences."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}"
