"""Prose: Markdown as rich draws it in a conversation, and changes to files in their colours."""

from __future__ import annotations

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
"""Characters that are read as Markdown: it takes its time, and nothing else is done meanwhile."""
DIFF_HEADER_PREFIXES = ("--- ", "+++ ", "diff ", "index ")


class LeftHeading(Heading):
    """A heading that stands where the text stands."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield self.text


class ConversationCodeBlock(CodeBlock):
    """Code in the terminal's own colours."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        if self.lexer_name == "diff":
            yield Padding(render_diff(code), (0, 0, 0, 2))
        else:
            syntax = Syntax(code, self.lexer_name, theme="ansi_dark", word_wrap=True)
            yield Padding(syntax, (0, 0, 0, 2))


class CompactTable(TableElement):
    """A table without empty lines around it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for renderable in super().__rich_console__(console, options):
            if isinstance(renderable, Table):
                renderable.show_edge = False
            yield renderable


class ConversationMarkdown(Markdown):
    """A text of others, as Markdown."""

    elements = Markdown.elements | {
        "heading_open": LeftHeading,
        "fence": ConversationCodeBlock,
        "code_block": ConversationCodeBlock,
        "table_open": CompactTable,
    }

    def __init__(self, text: str) -> None:
        super().__init__(sanitize_text(text), code_theme="ansi_dark", hyperlinks=False)
        for part in self.parsed:
            for piece in part.children or ():
                if piece.type == "softbreak":  # who writes a new line in a conversation means one
                    piece.type = "hardbreak"


def render_markdown(text: str) -> RenderableType:
    """A text as Markdown; one that nobody has written as such, by its length, as it is."""
    return ConversationMarkdown(text) if len(text) <= MAX_MARKDOWN_CHARS else Text(sanitize_text(text))


def render_diff(diff: str) -> Text:
    """A unified diff, a colour for what comes and one for what goes."""
    lines = [
        Text(
            sanitize_text(line),
            "bold" if line.startswith(DIFF_HEADER_PREFIXES) else DIFF_STYLES.get(line[:1], "dim"),
        )
        for line in diff.splitlines()
    ]
    return Text("\n").join(lines)
