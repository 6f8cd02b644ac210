"""Long pastes: folded to a short mark in the input line and expanded when it is submitted."""

from __future__ import annotations

import re

MAX_PASTE_LINES = 8
"""Pastes with more lines are folded."""
MAX_PASTE_CHARS = 4000
"""Pastes with more characters are folded."""
PASTE_MARK = re.compile(r"\[Pasted text #(\d+) (?:\+\d+ lines|\d+ characters)\]")


class Pastes:
    """The pastes of one input line."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._count = 0

    def fold(self, text: str) -> str:
        """Return the text to insert for a paste: the text, or a mark for a long one."""
        text = normalize_paste_newlines(text)
        lines = text.rstrip("\n").count("\n") + 1
        if lines <= MAX_PASTE_LINES and len(text) <= MAX_PASTE_CHARS:
            return text
        self._count += 1
        size = f"+{lines - 1} lines" if lines > 1 else f"{len(text)} characters"
        mark = f"[Pasted text #{self._count} {size}]"
        self._texts[mark] = text
        return mark

    def expand(self, line: str) -> str:
        """Return the line with its pastes expanded."""
        return PASTE_MARK.sub(lambda match: self._texts.get(match[0], match[0]), line)

    def find_mark(self, text: str, line: str) -> str | None:
        """Return the mark of the same text in a line; pasting a text twice expands it."""
        text = normalize_paste_newlines(text)
        return next(
            (mark for mark, pasted_text in self._texts.items() if pasted_text == text and mark in line), None
        )

    def clear(self) -> None:
        """Drop the stored pastes after the line was submitted or discarded; numbering continues."""
        self._texts.clear()


def normalize_paste_newlines(text: str) -> str:
    """Convert all line endings to LF; terminals paste several kinds."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
