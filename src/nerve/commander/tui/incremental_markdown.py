"""Incremental Markdown: while a text grows, only the part that may still change is rendered again."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual.strip import Strip

from nerve.commander.tui.line_view import render_strips
from nerve.lazy_dataclass import dataclass
from nerve.ui.markdown import render_markdown
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.app import App

PARAGRAPH_BREAK = re.compile(r"\n\n(?=[^\s\-*+>0-9|])")
"""Where a chunk may become final: the next line does not start a list, a quote or a table."""
MARKDOWN_CHARS = re.compile(r"[`*_#>|\[\]~<&\\]|^\s*([-+]|\d+[.)])\s|^(\t|    )", re.MULTILINE)
"""Characters that may be Markdown syntax."""
BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")
"""More than one blank line, which Markdown draws as one."""
FENCE_LINE = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$", re.MULTILINE)
"""A line that may open or close fenced code: indentation, fence and info string."""


def render_markdown_if_marked(text: str) -> RenderableType:
    """Render Markdown; skip the parser for text without Markdown syntax."""
    if MARKDOWN_CHARS.search(text):
        return render_markdown(text)
    return Text(sanitize_text(BLANK_LINES.sub("\n\n", text)))


@dataclass(slots=True)
class IncrementalMarkdown:
    """The lines of a growing text; final chunks are rendered once."""

    width: int = 0
    text: str = ""
    final_chars: int = 0
    """Number of characters whose lines are final."""
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
    """Render Markdown to lines, without surrounding blank lines."""
    if not text.strip():
        return []
    lines = render_strips(app, render_markdown_if_marked(text.strip("\n")), width, indent)
    nonblank = [index for index, line in enumerate(lines) if line.text.strip()]
    return lines[nonblank[0] : nonblank[-1] + 1] if nonblank else []


def find_last_break(text: str, start: int) -> int:
    """Return the start of the part that may still change; chunks end outside of fenced code."""
    break_end = start
    fence, position = "", start
    for match in PARAGRAPH_BREAK.finditer(text, start):
        for line in FENCE_LINE.finditer(text, position, match.start()):
            fence = update_open_fence(fence, *line.groups())
        position = match.end()
        if not fence:
            break_end = match.end()
    return break_end


def update_open_fence(fence: str, indent: str, marks: str, info: str) -> str:
    """Return the open fence after a fence line, "" outside of code, by the rules of CommonMark.

    A closing fence has the same character, at least the same length and no info string; other lines are code.
    An indented fence belongs to a list item, which ends at the next break, so it does not open a fence here.
    """
    if fence:
        is_closed = marks.startswith(fence) and not info.strip()
        return "" if is_closed else fence
    is_opened = not indent and not (marks[0] == "`" and "`" in info)
    return marks if is_opened else ""
