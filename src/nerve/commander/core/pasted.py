"""Long pastes: folded to a short mark in the input line, and whole again when it is entered."""

from __future__ import annotations

import re

LINES = 8
"""A paste of more lines is folded."""
LONG = 4000
"""And so is one of more characters."""
MARK = re.compile(r"\[Pasted text #(\d+) (?:\+\d+ lines|\d+ characters)\]")


class Pastes:
    """The pastes of one input line."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        self._count = 0

    def fold(self, text: str) -> str:
        """What is put into the line for a pasted text."""
        text = plain_ends(text)
        lines = text.rstrip("\n").count("\n") + 1
        if lines <= LINES and len(text) <= LONG:
            return text
        self._count += 1
        size = f"+{lines - 1} lines" if lines > 1 else f"{len(text)} characters"
        mark = f"[Pasted text #{self._count} {size}]"
        self._kept[mark] = text
        return mark

    def expand(self, line: str) -> str:
        """A line with its pastes as they were."""
        return MARK.sub(lambda found: self._kept.get(found[0], found[0]), line)

    def mark_of(self, text: str, line: str) -> str | None:
        """The mark of the same text in a line: who pastes it again wants to see it."""
        text = plain_ends(text)
        return next((mark for mark, kept in self._kept.items() if kept == text and mark in line), None)

    def clear(self) -> None:
        """Forget them: the line was entered or thrown away. Numbers go on."""
        self._kept.clear()


def plain_ends(text: str) -> str:
    """A text with one kind of line end; terminals paste several."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
