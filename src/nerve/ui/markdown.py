"""Markdown rendering for conversations, and coloured diffs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.markdown import CodeBlock, Heading, Markdown, TableElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
MAX_MARKDOWN_CHARS = 50_000
"""Maximum characters rendered as Markdown; parsing is slow and blocks the event loop."""
LEADING_BLANK_LINES = re.compile(r"\A(?:[ \t]*\n)+")
DIFF_HEADER_PREFIXES = ("--- ", "+++ ", "diff ", "index ")


class LeftHeading(Heading):
    """A left-aligned heading."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield self.text


class ConversationCodeBlock(CodeBlock):
    """A code block in the colours of the terminal."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = LEADING_BLANK_LINES.sub("", str(self.text)).rstrip()
        if self.lexer_name == "diff":
            yield Padding(render_diff(code), (0, 0, 0, 2))
        else:
            syntax = Syntax(code, self.lexer_name, theme="ansi_dark", word_wrap=True)
            yield Padding(syntax, (0, 0, 0, 2))


class CompactTable(TableElement):
    """A table without surrounding blank lines."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for renderable in super().__rich_console__(console, options):
            if isinstance(renderable, Table):
                renderable.show_edge = False
            yield renderable


class ConversationMarkdown(Markdown):
    """Sanitized Markdown."""

    elements = Markdown.elements | {
        "heading_open": LeftHeading,
        "fence": ConversationCodeBlock,
        "code_block": ConversationCodeBlock,
        "table_open": CompactTable,
    }

    def __init__(self, text: str) -> None:
        super().__init__(sanitize_text(text), code_theme="ansi_dark", hyperlinks=False)
        # An empty code block would render as several blank lines.
        self.parsed = [
            token
            for token in self.parsed
            if token.type not in ("fence", "code_block") or token.content.strip()
        ]
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":  # in a conversation, a newline is intentional
                    child.type = "hardbreak"


def render_markdown(text: str) -> RenderableType:
    """Render a text as Markdown; very long texts are shown unformatted."""
    return ConversationMarkdown(text) if len(text) <= MAX_MARKDOWN_CHARS else Text(sanitize_text(text))


def render_diff(diff: str) -> Text:
    """Render a unified diff with colours for added and removed lines."""
    lines = [
        Text(
            sanitize_text(line),
            "bold" if line.startswith(DIFF_HEADER_PREFIXES) else DIFF_STYLES.get(line[:1], "dim"),
        )
        for line in diff.splitlines()
    ]
    return Text("\n").join(lines)
