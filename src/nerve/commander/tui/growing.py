"""Text that grows: Markdown drawn again and again while it is written, only where it may still change."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual.strip import Strip

from nerve.commander.core.harmless import harmless
from nerve.commander.prose import prose as as_markdown
from nerve.commander.tui.paper import draw

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.app import App

BREAK = re.compile(r"\n\n(?=[^\s\-*+>0-9|])")
"""Where one part of a text may end for good: the next line begins neither a list, a quote nor a table."""
MARKED = re.compile(r"[`*_#>|\[\]~<&\\]|^\s*([-+]|\d+[.)])\s|^(\t|    )", re.MULTILINE)
"""What may be more than plain text."""
FENCE = re.compile(r"^(```|~~~)", re.MULTILINE)


def prose(text: str) -> RenderableType:
    """A text as Markdown; one that has nothing of it needs no parser."""
    return as_markdown(text) if MARKED.search(text) else Text(harmless(text))


@dataclass(slots=True)
class Growing:
    """The lines of a text that grows: what can no longer change is drawn once."""

    width: int = 0
    text: str = ""
    settled: int = 0
    """Characters whose lines are final."""
    lines: list[Strip] = field(default_factory=list)
    left: int = 0

    def drawn(self, app: App[Any], text: str, width: int, left: int = 0) -> list[Strip]:
        self.left = left
        if width != self.width or text[: self.settled] != self.text[: self.settled]:
            self.width, self.settled, self.lines = width, 0, []
        self.text = text
        if (until := last_break(text, self.settled)) > self.settled:
            self.lines = self.lines + self._joined(app, text[self.settled : until])
            self.settled = until
        return self.lines + self._joined(app, text[self.settled :])

    def _joined(self, app: App[Any], text: str) -> list[Strip]:
        lines = paragraphs(app, text, self.width, self.left)
        return [Strip([]), *lines] if lines and self.lines else lines


def paragraphs(app: App[Any], text: str, width: int, left: int = 0) -> list[Strip]:
    """The lines of a Markdown text, without empty ones around it."""
    if not text.strip():
        return []
    lines = draw(app, prose(text.strip("\n")), width, left)
    full = [index for index, line in enumerate(lines) if line.text.strip()]
    return lines[full[0] : full[-1] + 1] if full else []


def last_break(text: str, start: int) -> int:
    """Where the last part of a text begins that may still change; parts end outside of code."""
    found = start
    fences, at = 0, start
    for match in BREAK.finditer(text, start):
        fences += len(FENCE.findall(text, at, match.start()))
        at = match.end()
        if fences % 2 == 0:
            found = match.end()
    return found
