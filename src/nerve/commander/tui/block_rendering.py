"""Renders blocks of the conversation as lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.strip import Strip

from nerve.commander.core.blocks import LINE_PART_KEY, Block, BlockPart
from nerve.commander.core.run_cards import RunCard
from nerve.commander.core.state import CommanderState
from nerve.commander.tui.line_view import render_strips
from nerve.lazy_dataclass import dataclass
from nerve.ui.diffs import FILE_HEADER_PREFIXES, diff_file_name, format_diff_counts
from nerve.ui.event_lines import RUN_LIST_SYMBOLS
from nerve.ui.formatting import format_duration_between, format_usage, format_value
from nerve.ui.sanitize import markdown_first_line, sanitize_text, truncate_for_screen

if TYPE_CHECKING:
    from textual.app import App

GUTTER_COLUMNS = 2
"""Columns before each line, for the mark of the selected block."""
MAX_TREE_LINES = 16
"""Maximum lines of a tree; only the last are shown."""
FOLDED_PARTS = 24
"""Parts of a folded run; only the last are shown."""
FOLDED_LOG_LINES = 6
"""Lines of folded plain output; only the last are shown."""
FOLDED_DIFF_LINES = 24
"""Lines of a folded diff."""


@dataclass(slots=True)
class RenderOptions:
    """Options for rendering blocks."""

    app: App[Any]
    width: int
    now: datetime
    details: bool = False
    """Whether everything is unfolded."""

    def render(self, renderable: RenderableType) -> list[Strip]:
        """Render to lines that leave room for the gutter."""
        return render_strips(self.app, renderable, self.width, GUTTER_COLUMNS)


@dataclass(slots=True)
class RenderedBlock:
    """The lines of one block, with caches for redrawing."""

    number: int
    lines: list[Strip] = field(default_factory=list)
    width: int = 0
    details: bool = False
    is_opened: bool = False
    """Whether the user unfolded this block."""
    parts: dict[int, RenderedPart] = field(default_factory=dict)

    def draw(self, options: RenderOptions, state: CommanderState, block: Block) -> None:
        options.details = options.details or self.is_opened
        self.width, self.details = options.width, options.details
        match block.kind:
            case "run":
                self.lines = list(self._render_run(options, state, block))
            case "input":
                text = Text(sanitize_text(block.text), "bold")
                self.lines = options.render(render_hanging_text("❯ ", "bold blue", text))
            case "text":
                self.lines = self._render_text(options, block)
            case "gate":
                self.lines = options.render(render_gate_block(block))
            case kind:
                mark, style = ("✗ ", "red") if kind == "error" else ("  ", "dim")
                note = Text(sanitize_text(block.text), style)
                self.lines = options.render(render_hanging_text(mark, style, note))

    def _render_text(self, options: RenderOptions, block: Block) -> list[Strip]:
        """Render a text with its number at the end of the first line."""
        number = f"::{block.number}" if block.number else ""
        first, *rest = list(render_shortened_text(options, block.text, options.width - 8)) or [Strip([])]
        space = " " * (options.width + GUTTER_COLUMNS - first.cell_length - len(number))
        return [Strip([*first, Segment(space), Segment(number, Style(dim=True))]), *rest]

    # -- runs --------------------------------------------------------------------------------------------

    def _render_run(self, options: RenderOptions, state: CommanderState, block: Block) -> Iterator[Strip]:
        card = state.runs.get(block.run_id or "")
        yield from options.render(render_run_heading(block, card, options))
        if card is not None and card.tree is not None and card.tree.branches:
            yield from options.render(render_run_branches(card, options))
        parts = block.parts if options.details else block.parts[-FOLDED_PARTS:]
        if hidden := len(block.parts) - len(parts) + block.dropped_parts:
            yield from options.render(Text(f"  … {hidden} earlier parts", "dim"))
        yield from self._render_parts(options, parts)
        yield from self._render_outcome(options, block, card)

    def _render_parts(self, options: RenderOptions, parts: list[BlockPart]) -> Iterator[Strip]:
        rendered_parts: dict[int, RenderedPart] = {}
        previous_name = None
        for part in parts:
            rendered = self.parts.get(id(part)) or RenderedPart()
            rendered_parts[id(part)] = rendered
            lines = rendered.draw(options, part)
            if lines and part.name != previous_name:
                yield Strip([])
                yield from options.render(Text(f"  {sanitize_text(part.name)}", "cyan"))
            elif lines and part.kind not in ("tool", "thought") and part.key != LINE_PART_KEY:
                yield Strip([])
            previous_name = part.name if lines else previous_name
            yield from lines
        self.parts = rendered_parts

    def _render_outcome(self, options: RenderOptions, block: Block, card: RunCard | None) -> Iterator[Strip]:
        """Render the error or result, unless the last part already shows it."""
        error = card.failure_text if card is not None and card.state in ("failed", "cancelled") else None
        if error:
            style = "red" if card is not None and card.state == "failed" else "yellow"
            error_text = Text(sanitize_text(truncate_for_screen(error)[0]), style)
            yield from options.render(Padding(error_text, (0, 0, 0, 2)))
        part_texts = [part.text.strip() for part in block.parts if part.kind in ("text", "log")]
        if (
            block.done
            and block.text.strip()
            and block.text.strip() not in part_texts[-1:]
            and block.text != error
        ):
            yield Strip([])
            yield from render_shortened_text(options, block.text, options.width - 4)


def render_shortened_text(options: RenderOptions, text: str, width: int) -> Iterator[Strip]:
    """Render a text, truncated with a note about the hidden rest."""
    from nerve.commander.tui.incremental_markdown import render_paragraphs

    text, more = truncate_for_screen(text)
    yield from render_paragraphs(options.app, text, width, GUTTER_COLUMNS + 2)
    if more:
        yield from options.render(Text(f"  {more}", "dim"))


@dataclass(slots=True)
class RenderedPart:
    """The lines of one part; unchanged parts are not drawn again."""

    lines: list[Strip] = field(default_factory=list)
    cache_key: tuple[int, bool, str] | None = None
    incremental: Any = None

    def draw(self, options: RenderOptions, part: BlockPart) -> list[Strip]:
        cache_key = options.width, options.details, part.text
        if self.cache_key != cache_key:
            self.cache_key = cache_key
            self.lines = self._draw(options, part)
        return self.lines

    def _draw(self, options: RenderOptions, part: BlockPart) -> list[Strip]:
        if part.kind == "text":
            from nerve.commander.tui.incremental_markdown import IncrementalMarkdown

            self.incremental = self.incremental or IncrementalMarkdown()
            lines: list[Strip] = self.incremental.render(
                options.app, part.text, options.width - 4, GUTTER_COLUMNS + 4
            )
            return lines
        return options.render(Padding(render_folded_part(part, options.details), (0, 0, 0, 4)))


def render_folded_part(part: BlockPart, details: bool) -> RenderableType:
    """Render a part that is not prose, with a count of the folded lines."""
    text = sanitize_text(part.text.rstrip())
    first, _, rest = text.partition("\n")
    more = f"  +{rest.count(chr(10)) + 1} lines" if rest else ""
    match part.kind:
        case "diff":
            head = Text.assemble(
                ("± ", "cyan"), (diff_file_name(text), "bold"), (f"  {format_diff_counts(text)}", "dim")
            )
            return Group(head, render_diff_excerpt(text, 0 if details else FOLDED_DIFF_LINES))
        case "tool":
            head = Text(f"⚒ {first}", "dim", no_wrap=True, overflow="ellipsis")
            return (
                Group(head, Padding(Text(rest, "dim"), (0, 0, 0, 2)))
                if details and rest
                else render_one_line(head, more)
            )
        case "thought":
            head = Text(f"✻ {first}", "dim italic", no_wrap=True, overflow="ellipsis")
            return Text(f"✻ {text}", "dim italic") if details else render_one_line(head, more)
        case "traceback":
            head = Text(first, "red", no_wrap=True, overflow="ellipsis")
            return Group(head, Text(rest, "dim")) if details else render_one_line(head, more)
    lines = text.split("\n")
    if details or len(lines) <= FOLDED_LOG_LINES:
        return Text(text)
    return Text.assemble(
        (f"… {len(lines) - FOLDED_LOG_LINES} lines above\n", "dim"), "\n".join(lines[-FOLDED_LOG_LINES:])
    )


def render_one_line(text: Text, more: str) -> RenderableType:
    from nerve.ui.tree_panel import create_row_grid

    grid = create_row_grid(gap=0)
    grid.add_row(text, Text(more, "dim"))
    return grid


def render_with_number(body: RenderableType, block: Block) -> Table:
    """Render a block with its reference number."""
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(body, Text(f"::{block.number}", "dim"))
    return grid


def render_hanging_text(mark: str, style: str, text: Text) -> Table:
    """Render a text with a mark and a hanging indent."""
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column()
    grid.add_row(Text(mark, style), text)
    return grid


def render_gate_block(block: Block) -> RenderableType:
    """Render a gate as one line: waiting, or with its answer."""
    first = markdown_first_line(block.text)
    name = sanitize_text(block.name)
    if block.done:
        answer = f"  {sanitize_text(format_value(block.value))}" if block.value is not None else "  closed"
        text = Text.assemble(("✓ ", "green"), f"{name}", (answer, "bold"), (f"  {first}", "dim"))
        text.no_wrap, text.overflow = True, "ellipsis"
        return text
    text = Text.assemble(
        ("⏸ ", "bold yellow"), (f"{name} ", "bold yellow"), first, no_wrap=True, overflow="ellipsis"
    )
    return render_one_line(text, "  F3 opens it")


def render_run_heading(block: Block, card: RunCard | None, options: RenderOptions) -> Table:
    """Render the heading of a run: workflow, state, duration and usage."""
    if card is None:
        return render_with_number(Text(f"○ {sanitize_text(block.name or block.run_id or '')}", "bold"), block)
    symbol, style = RUN_LIST_SYMBOLS.get(card.state, ("●", "yellow"))
    text = Text.assemble(
        (f"{symbol} ", style), (sanitize_text(card.workflow), "bold"), no_wrap=True, overflow="ellipsis"
    )
    if card.label:
        text.append(f"  {sanitize_text(card.label)}", "italic")
    if card.state not in ("running", "completed"):
        text.append(f"  {card.state}", style)
    usage_text = format_usage(card.usage)
    figures = [
        figure
        for figure in (format_duration_between(card.started_at, card.ended_at, options.now), usage_text)
        if figure
    ]
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(text, Text(" · ".join(figures), "dim"), Text(f"::{block.number}", "dim"))
    return grid


def render_run_branches(card: RunCard, options: RenderOptions) -> RenderableType:
    """Render the tree of a run without its root."""
    from nerve.ui.tree_panel import add_rows, create_row_grid  # not needed for the first prompt

    assert card.tree is not None
    grid = create_row_grid()
    rows = list(card.tree.rows(options.now, indent="  "))
    add_rows(grid, rows, None if options.details else MAX_TREE_LINES, "  … {} steps above")
    return grid


# -- diffs ---------------------------------------------------------------------------------------------


def render_diff_excerpt(text: str, max_lines: int = 0) -> Text:
    """Render a coloured diff without file headers; 0 `max_lines` means all."""
    from nerve.ui.markdown import render_diff  # imports the slow Markdown parser

    lines = [line for line in text.splitlines() if not line.startswith(FILE_HEADER_PREFIXES)]
    shown_lines = lines[:max_lines] if max_lines else lines
    rendered: Text = render_diff("\n".join(shown_lines))
    if len(lines) > len(shown_lines):
        rendered.append(f"\n… {len(lines) - len(shown_lines)} more lines", "dim")
    return rendered
