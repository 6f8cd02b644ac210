"""Blocks of the conversation as lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.strip import Strip

from nerve.commander.core.blocks import LINE, Block, Part
from nerve.commander.core.desk import Desk, RunCard
from nerve.commander.core.harmless import beginning, gist, harmless
from nerve.commander.core.lines import RUNS
from nerve.commander.core.lines import shown as value_text
from nerve.commander.tui.change import change, counted, file_of
from nerve.commander.tui.figures import brief, length
from nerve.commander.tui.paper import draw

if TYPE_CHECKING:
    from textual.app import App

GUTTER = 2
"""Columns before each line, for the mark of the chosen block."""
TREE = 16
"""Lines of a tree; of more, the last."""
PARTS = 24
"""Parts of a run that are shown without the details; of more, the last."""
TAIL = 6
"""Lines of plain output that are shown without the details: the last."""
CHANGED = 24
"""Lines of a diff that are shown without the details."""


@dataclass(slots=True)
class Look:
    """How blocks are looked at."""

    app: App[Any]
    width: int
    now: datetime
    details: bool = False
    """Whether nothing is folded."""


@dataclass(slots=True)
class Drawn:
    """One block as lines, and what makes drawing it again cheap."""

    number: int
    lines: list[Strip] = field(default_factory=list)
    width: int = 0
    details: bool = False
    opened: bool = False
    """Whether somebody opened this one."""
    parts: dict[int, PartDrawn] = field(default_factory=dict)

    def draw(self, look: Look, desk: Desk, block: Block) -> None:
        look.details = look.details or self.opened
        self.width, self.details = look.width, look.details
        match block.kind:
            case "run":
                self.lines = list(self._run(look, desk, block))
            case "input":
                self.lines = draw(look.app, typed(block), look.width, GUTTER)
            case "text":
                self.lines = self._prose(look, block)
            case "gate":
                self.lines = draw(look.app, asked(block), look.width, GUTTER)
            case _:
                self.lines = draw(look.app, sentence(block), look.width, GUTTER)

    def _prose(self, look: Look, block: Block) -> list[Strip]:
        """A text with its number at the end of its first line."""
        number = f"::{block.number}" if block.number else ""
        first, *rest = list(shown(look, block.text, look.width - 8)) or [Strip([])]
        space = " " * (look.width + GUTTER - first.cell_length - len(number))
        return [Strip([*first, Segment(space), Segment(number, Style(dim=True))]), *rest]

    # -- runs --------------------------------------------------------------------------------------------

    def _run(self, look: Look, desk: Desk, block: Block) -> Iterator[Strip]:
        card = desk.runs.get(block.run_id or "")
        yield from draw(look.app, heading(block, card, look), look.width, GUTTER)
        if card is not None and card.tree is not None and card.tree.branches:
            yield from draw(look.app, branches(card, look), look.width, GUTTER)
        shown = block.parts if look.details else block.parts[-PARTS:]
        if hidden := len(block.parts) - len(shown) + block.left_out:
            yield from draw(look.app, Text(f"  … {hidden} earlier parts", "dim"), look.width, GUTTER)
        yield from self._parts(look, shown)
        yield from self._end(look, block, card)

    def _parts(self, look: Look, parts: list[Part]) -> Iterator[Strip]:
        kept: dict[int, PartDrawn] = {}
        before = None
        for part in parts:
            told = self.parts.get(id(part)) or PartDrawn()
            kept[id(part)] = told
            lines = told.draw(look, part)
            if lines and part.name != before:
                yield Strip([])
                yield from draw(look.app, Text(f"  {harmless(part.name)}", "cyan"), look.width, GUTTER)
            elif lines and part.kind not in ("tool", "thought") and part.key != LINE:
                yield Strip([])
            before = part.name if lines else before
            yield from lines
        self.parts = kept

    def _end(self, look: Look, block: Block, card: RunCard | None) -> Iterator[Strip]:
        """What the run came to, unless its last words say it."""
        why = card.error if card is not None and card.state in ("failed", "cancelled") else None
        if why:
            style = "red" if card is not None and card.state == "failed" else "yellow"
            told = Text(harmless(beginning(why)[0]), style)
            yield from draw(look.app, Padding(told, (0, 0, 0, 2)), look.width, GUTTER)
        said = [part.text.strip() for part in block.parts if part.kind in ("text", "log")]
        if block.done and block.text.strip() and block.text.strip() not in said[-1:] and block.text != why:
            yield Strip([])
            yield from shown(look, block.text, look.width - 4)


def shown(look: Look, text: str, width: int) -> Iterator[Strip]:
    """A text, and how much more of it there is."""
    from nerve.commander.tui.growing import paragraphs

    text, more = beginning(text)
    yield from paragraphs(look.app, text, width, GUTTER + 2)
    if more:
        yield from draw(look.app, Text(f"  {more}", "dim"), look.width, GUTTER)


@dataclass(slots=True)
class PartDrawn:
    """One part of a run as lines; what is done is drawn once."""

    lines: list[Strip] = field(default_factory=list)
    drawn: tuple[int, bool, str] | None = None
    growing: Any = None

    def draw(self, look: Look, part: Part) -> list[Strip]:
        told = look.width, look.details, part.text
        if self.drawn != told:
            self.drawn = told
            self.lines = self._draw(look, part)
        return self.lines

    def _draw(self, look: Look, part: Part) -> list[Strip]:
        if part.kind == "text":
            from nerve.commander.tui.growing import Growing

            self.growing = self.growing or Growing()
            lines: list[Strip] = self.growing.drawn(look.app, part.text, look.width - 4, GUTTER + 4)
            return lines
        return draw(look.app, Padding(folded(part, look.details), (0, 0, 0, 4)), look.width, GUTTER)


def folded(part: Part, details: bool) -> RenderableType:
    """A part that is not prose, with what is folded away counted."""
    text = harmless(part.text.rstrip())
    first, _, rest = text.partition("\n")
    more = f"  +{rest.count(chr(10)) + 1} lines" if rest else ""
    match part.kind:
        case "diff":
            head = Text.assemble(("± ", "cyan"), (file_of(text), "bold"), (f"  {counted(text)}", "dim"))
            return Group(head, change(text, 0 if details else CHANGED))
        case "tool":
            head = Text(f"⚒ {first}", "dim", no_wrap=True, overflow="ellipsis")
            return (
                Group(head, Padding(Text(rest, "dim"), (0, 0, 0, 2)))
                if details and rest
                else one_line(head, more)
            )
        case "thought":
            head = Text(f"✻ {first}", "dim italic", no_wrap=True, overflow="ellipsis")
            return Text(f"✻ {text}", "dim italic") if details else one_line(head, more)
    lines = text.split("\n")
    if details or len(lines) <= TAIL:
        return Text(text)
    return Text.assemble((f"… {len(lines) - TAIL} lines above\n", "dim"), "\n".join(lines[-TAIL:]))


def one_line(text: Text, more: str) -> RenderableType:
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(text, Text(more, "dim"))
    return grid


def beside(body: RenderableType, block: Block) -> Table:
    """A block with its number, by which it is referred to."""
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(body, Text(f"::{block.number}", "dim"))
    return grid


def typed(block: Block) -> Table:
    return hanging("❯ ", "bold blue", Text(harmless(block.text), "bold"))


def hanging(mark: str, style: str, text: Text) -> Table:
    """A text whose further lines stand below its first."""
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column()
    grid.add_row(Text(mark, style), text)
    return grid


def sentence(block: Block) -> RenderableType:
    if block.kind == "error":
        return hanging("✗ ", "red", Text(harmless(block.text), "red"))
    return hanging("  ", "dim", Text(harmless(block.text), "dim"))


def asked(block: Block) -> RenderableType:
    """A gate in the conversation: a line that says that it waits, or what was answered."""
    first = gist(block.text)
    name = harmless(block.name)
    if block.done:
        said = f"  {harmless(value_text(block.value))}" if block.value is not None else "  not asked any more"
        text = Text.assemble(("✓ ", "green"), f"{name}", (said, "bold"), (f"  {first}", "dim"))
        text.no_wrap, text.overflow = True, "ellipsis"
        return text
    text = Text.assemble(
        ("⏸ ", "bold yellow"), (f"{name} ", "bold yellow"), first, no_wrap=True, overflow="ellipsis"
    )
    return one_line(text, "  F3 opens it")


def heading(block: Block, card: RunCard | None, look: Look) -> Table:
    """A run in one line: what, since when, and what it cost."""
    if card is None:
        return beside(Text(f"○ {harmless(block.name or block.run_id or '')}", "bold"), block)
    symbol, style = RUNS.get(card.state, ("●", "yellow"))
    text = Text.assemble(
        (f"{symbol} ", style), (harmless(card.workflow), "bold"), no_wrap=True, overflow="ellipsis"
    )
    if card.label:
        text.append(f"  {harmless(card.label)}", "italic")
    if card.state not in ("running", "completed"):
        text.append(f"  {card.state}", style)
    spent = brief(card.usage)
    figures = [each for each in (length(card.started_at, card.ended_at, look.now), spent) if each]
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(text, Text(" · ".join(figures), "dim"), Text(f"::{block.number}", "dim"))
    return grid


def branches(card: RunCard, look: Look) -> RenderableType:
    """The tree of a run without its root."""
    from nerve.commander.drawing import rows_of

    assert card.tree is not None
    root = card.tree.root
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True)
    rows = list(rows_of(card.tree, root, root.view.tree, "  ", look.now))
    shown = rows if look.details else rows[-TREE:]
    if len(rows) > len(shown):
        grid.add_row(Text(f"  … {len(rows) - len(shown)} steps above", "dim"), "")
    for row in shown:
        grid.add_row(*row)
    return grid
