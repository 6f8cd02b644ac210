"""Text that grows: Markdown drawn again and again while it is written, only where it may still change."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual.strip import Strip

from nerve.commander.tui.line_view import render_strips
from nerve.ui.markdown import render_markdown as as_markdown
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.app import App

PARAGRAPH_BREAK = re.compile(r"\n\n(?=[^\s\-*+>0-9|])")
"""Where one part of a text may end for good: the next line begins neither a list, a quote nor a table."""
MARKDOWN_CHARS = re.compile(r"[`*_#>|\[\]~<&\\]|^\s*([-+]|\d+[.)])\s|^(\t|    )", re.MULTILINE)
"""What may be more than plain text."""
CODE_FENCE = re.compile(r"^(```|~~~)", re.MULTILINE)


def render_markdown_if_marked(text: str) -> RenderableType:
    """A text as Markdown; one that has nothing of it needs no parser."""
    return as_markdown(text) if MARKDOWN_CHARS.search(text) else Text(sanitize_text(text))


@dataclass(slots=True)
class IncrementalMarkdown:
    """The lines of a text that grows: what can no longer change is drawn once."""

    width: int = 0
    text: str = ""
    final_chars: int = 0
    """Characters whose lines are final."""
    final_lines: list[Strip] = field(default_factory=list)
    indent: int = 0

    def render(self, app: App[Any], text: str, width: int, indent: int = 0) -> list[Strip]:
        self.indent = indent
        if width != self.width or text[: self.final_chars] != self.text[: self.final_chars]:
            self.width, self.final_chars, self.final_lines = width, 0, []
        self.text = text
        if (until := find_last_break(text, self.final_chars)) > self.final_chars:
            self.final_lines = self.final_lines + self._render_chunk(app, text[self.final_chars : until])
            self.final_chars = until
        return self.final_lines + self._render_chunk(app, text[self.final_chars :])

    def _render_chunk(self, app: App[Any], text: str) -> list[Strip]:
        lines = render_paragraphs(app, text, self.width, self.indent)
        return [Strip([]), *lines] if lines and self.final_lines else lines


def render_paragraphs(app: App[Any], text: str, width: int, indent: int = 0) -> list[Strip]:
    """The lines of a Markdown text, without empty ones around it."""
    if not text.strip():
        return []
    lines = render_strips(app, render_markdown_if_marked(text.strip("\n")), width, indent)
    full = [index for index, line in enumerate(lines) if line.text.strip()]
    return lines[full[0] : full[-1] + 1] if full else []


def find_last_break(text: str, start: int) -> int:
    """Where the last part of a text begins that may still change; parts end outside of code."""
    break_end = start
    fences, at = 0, start
    for match in PARAGRAPH_BREAK.finditer(text, start):
        fences += len(CODE_FENCE.findall(text, at, match.start()))
        at = match.end()
        if fences % 2 == 0:
            break_end = match.end()
    return break_end
