"""Long pastes: folded to a short mark in the input line, and whole again when it is entered."""

from __future__ import annotations

import re

MAX_PASTE_LINES = 8
"""A paste of more lines is folded."""
MAX_PASTE_CHARS = 4000
"""And so is one of more characters."""
PASTE_MARK = re.compile(r"\[Pasted text #(\d+) (?:\+\d+ lines|\d+ characters)\]")


class Pastes:
    """The pastes of one input line."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._count = 0

    def fold(self, text: str) -> str:
        """What is put into the line for a pasted text."""
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
        """A line with its pastes as they were."""
        return PASTE_MARK.sub(lambda match: self._texts.get(match[0], match[0]), line)

    def find_mark(self, text: str, line: str) -> str | None:
        """The mark of the same text in a line: who pastes it again wants to see it."""
        text = normalize_paste_newlines(text)
        return next(
            (mark for mark, pasted_text in self._texts.items() if pasted_text == text and mark in line), None
        )

    def clear(self) -> None:
        """Forget them: the line was entered or thrown away. Numbers go on."""
        self._texts.clear()


def normalize_paste_newlines(text: str) -> str:
    """A text with one kind of line end; terminals paste several."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
