"""Prose: Markdown as rich draws it in a conversation, and changes to files in their colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markdown import CodeBlock, Heading, Markdown, TableElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from nerve.commander.core.harmless import harmless

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

SIGNS = {"+": "green", "-": "red", "@": "cyan"}
LONGEST = 50_000
"""Characters that are read as Markdown: it takes its time, and nothing else is done meanwhile."""
HEADS = ("--- ", "+++ ", "diff ", "index ")


class Title(Heading):
    """A heading that stands where the text stands."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield self.text


class Code(CodeBlock):
    """Code in the terminal's own colours."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        if self.lexer_name == "diff":
            yield Padding(coloured(code), (0, 0, 0, 2))
        else:
            syntax = Syntax(code, self.lexer_name, theme="ansi_dark", word_wrap=True)
            yield Padding(syntax, (0, 0, 0, 2))


class Grid(TableElement):
    """A table without empty lines around it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for each in super().__rich_console__(console, options):
            if isinstance(each, Table):
                each.show_edge = False
            yield each


class Prose(Markdown):
    """A text of others, as Markdown."""

    elements = Markdown.elements | {
        "heading_open": Title,
        "fence": Code,
        "code_block": Code,
        "table_open": Grid,
    }

    def __init__(self, text: str) -> None:
        super().__init__(harmless(text), code_theme="ansi_dark", hyperlinks=False)
        for part in self.parsed:
            for piece in part.children or ():
                if piece.type == "softbreak":  # who writes a new line in a conversation means one
                    piece.type = "hardbreak"


def prose(text: str) -> RenderableType:
    """A text as Markdown; one that nobody has written as such, by its length, as it is."""
    return Prose(text) if len(text) <= LONGEST else Text(harmless(text))


def coloured(diff: str) -> Text:
    """A unified diff, a colour for what comes and one for what goes."""
    lines = [
        Text(harmless(line), "bold" if line.startswith(HEADS) else SIGNS.get(line[:1], "dim"))
        for line in diff.splitlines()
    ]
    return Text("\n").join(lines)
