"""The conversation view: all blocks as lines; only visible lines are drawn."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from nerve.commander.core.blocks import Block
from nerve.commander.core.state import CommanderState
from nerve.commander.tui.block_rendering import GUTTER_COLUMNS, RenderedBlock, RenderOptions
from nerve.commander.tui.keymap import textual_bindings
from nerve.commander.tui.line_view import LineView, render_strips
from nerve.lazy_dataclass import dataclass
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from textual.events import Click, MouseScrollDown, MouseScrollUp, Resize

MAX_BLOCKS = 200
"""Number of blocks that are shown; scrolling to the top adds as many more."""
DRAW_SLICE_S = 0.012
"""Seconds per slice for drawing blocks that are not visible."""
SLOW_DRAW_S, SLOW_DRAW_REST_FACTOR = 0.02, 10
"""A block that takes longer to draw is redrawn only after this multiple of its drawing time."""
MAX_WELCOME_WORKFLOWS = 6
CURSOR_BAR = Segment("▌ ", Style(color="blue"))
BLANK_LINE = Strip([])


class ConversationView(LineView, can_focus=True):
    """All blocks; follows the end until the user scrolls up."""

    DEFAULT_CSS = """
    ConversationView { height: 1fr; width: 1fr; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    """
    BINDINGS = textual_bindings("stream")
    FOCUS_ON_CLICK = False

    @dataclass
    class Refer(Message):
        """The user inserts a reference to a block."""

        block: Block

    @dataclass
    class Open(Message):
        """The user opens the gate of a block."""

        block: Block

    def __init__(self, state: CommanderState, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(id="stream")
        self.state, self.clock = state, clock or (lambda: datetime.now(UTC))
        self.rendered_blocks: list[RenderedBlock] = []
        self.block_ends: list[int] = []
        self.hidden_above = 0
        """Number of older blocks that are not shown."""
        self.max_blocks = MAX_BLOCKS
        self.details = False
        self.cursor: int | None = None
        """Position of the selected block."""
        self.is_following = True
        self._due_at: dict[int, float] = {}
        self.postponed: set[int] = set()
        """Positions of changed blocks whose redraw was postponed."""
        self._known_width = 0

    # -- lines -------------------------------------------------------------------------------------------

    @property
    def height(self) -> int:
        return self.block_ends[-1] if self.block_ends else len(self.strips)

    def line(self, y: int) -> Strip:
        if not self.rendered_blocks:
            return self.strips[y]
        index = bisect_right(self.block_ends, y)
        within = y - (self.block_ends[index - 1] if index else 0)
        rendered = self.rendered_blocks[index]
        lines = rendered.lines
        if within >= len(lines):
            return BLANK_LINE
        return (
            lines[within]
            if rendered.number != self.cursor
            else Strip([CURSOR_BAR, *lines[within].crop(GUTTER_COLUMNS)])
        )

    def draw_changes(self, changed: Iterable[int], everything: bool = False) -> None:
        """Draw the changed blocks, or all."""
        if everything:
            self.rendered_blocks, self.hidden_above = [], 0
            self._due_at.clear()
            self.postponed.clear()
            self.measure_blocks()
        fresh = self._add_new_blocks()
        numbers = {*changed, *self._overdue_numbers()} - fresh
        for rendered in self._rendered_of(numbers):
            self._draw_block(rendered)
        if numbers:
            self.measure_blocks()
        if self.is_following and (long_listing := self._find_long_listing(fresh)) is not None:
            self.scroll_to_block(long_listing)

    def _find_long_listing(self, fresh: set[int]) -> int | None:
        """Return a new command listing that does not fit the screen, to show it from its start."""
        rendered = self.rendered_blocks[-1] if self.rendered_blocks else None
        if rendered is None or rendered.number not in fresh or not 0 < self.size.height < len(rendered.lines):
            return None
        return rendered.number if self.state.blocks[-1].name.startswith("/") else None

    def draw_overdue(self) -> None:
        """Draw postponed blocks that are due."""
        if self._overdue_numbers():
            self.draw_changes(())

    def _overdue_numbers(self) -> set[int]:
        now = perf_counter()
        return {number for number in self.postponed if self._due_at[number] <= now}

    def tick(self) -> None:
        """Redraw visible blocks that show elapsed time."""
        self._add_new_blocks()
        first = bisect_right(self.block_ends, self.scroll_y)
        last = bisect_right(self.block_ends, self.scroll_y + self.size.height)
        live_positions = []
        for rendered in self.rendered_blocks[first : last + 1]:
            block = self.state.blocks[rendered.number - 1]
            card = self.state.runs.get(block.run_id or "") if block.kind == "run" else None
            if card is not None and not card.has_ended:
                live_positions.append(block.position)
        if live_positions:
            self.draw_changes(live_positions)

    def _rendered_of(self, numbers: set[int]) -> Iterable[RenderedBlock]:
        return (
            self.rendered_blocks[n - 1 - self.hidden_above]
            for n in sorted(numbers)
            if self.hidden_above < n <= len(self.state.blocks)
        )

    def _add_new_blocks(self) -> set[int]:
        """Draw new blocks, drop the oldest beyond the limit, and return the new positions."""
        count = len(self.state.blocks)
        known = self.hidden_above + len(self.rendered_blocks)
        if known > count:
            self.rendered_blocks, self.hidden_above, known = [], 0, 0
        fresh = [RenderedBlock(number) for number in range(known + 1, count + 1)]
        self.rendered_blocks += fresh
        for rendered in fresh:
            self._draw_block(rendered)
        if (excess := len(self.rendered_blocks) - self.max_blocks) > 0 and self.is_following:
            del self.rendered_blocks[:excess]
            self.hidden_above += excess
            self.postponed = {number for number in self.postponed if number > self.hidden_above}
            self.measure_blocks()
        elif fresh:
            self.measure_blocks()
        return {rendered.number for rendered in fresh}

    def _draw_block(self, rendered: RenderedBlock) -> None:
        now, width = perf_counter(), self.block_width
        block = self.state.blocks[rendered.number - 1]
        if self._due_at.get(rendered.number, 0) > now and rendered.width == width and not block.done:
            self.postponed.add(rendered.number)
            return
        self._due_at.pop(rendered.number, None)
        self.postponed.discard(rendered.number)
        rendered.draw(RenderOptions(self.app, width, self.clock(), self.details), self.state, block)
        if (duration := perf_counter() - now) > SLOW_DRAW_S and not block.done:
            self._due_at[rendered.number] = now + SLOW_DRAW_REST_FACTOR * duration

    @property
    def block_width(self) -> int:
        """Maximum width of a block."""
        return max(20, self._known_width - GUTTER_COLUMNS - 2)

    def measure_blocks(self) -> None:
        """Recompute the line offsets of the blocks; without blocks, show the welcome text."""
        self.strips = (
            []
            if self.rendered_blocks
            else render_strips(self.app, render_welcome(self.state), self.block_width)
        )
        previous_height = self.height
        pairs = zip(self.rendered_blocks, [*self.rendered_blocks[1:], None], strict=False)
        self.block_ends = list(
            accumulate(len(current.lines) + self._gap_after(current, after) for current, after in pairs)
        )
        size = Size(self.size.width, self.height)
        self.virtual_size = size
        if self.is_following:
            self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)
        elif previous_height > self.height:
            self.scroll_to(y=min(self.scroll_y, self.max_scroll_y), animate=False, force=True)
        self.refresh()

    def _gap_after(self, rendered: RenderedBlock, after: RenderedBlock | None) -> int:
        if after is None:
            return 0
        kinds = {self.state.blocks[item.number - 1].kind for item in (rendered, after)}
        return 0 if kinds <= {"note", "gate"} else 1

    # -- size --------------------------------------------------------------------------------------------

    def on_resize(self, event: Resize) -> None:
        if self.size.width != self._known_width:
            self._known_width = self.size.width
            self._draw_visible()
            self._draw_rest()
        else:
            self.measure_blocks()

    def _draw_visible(self) -> None:
        """Draw the visible blocks, from the bottom."""
        lines = 0
        for rendered in reversed(self.rendered_blocks):
            self._draw_block(rendered)
            lines += len(rendered.lines)
            if lines > self.size.height + (0 if self.is_following else self.max_scroll_y - self.scroll_y):
                break
        self.measure_blocks()

    def _draw_rest(self) -> None:
        """Draw the other blocks in short slices, to keep the screen responsive."""
        started_at = perf_counter()
        for rendered in self.stale_blocks:
            self._draw_block(rendered)
            if perf_counter() - started_at > DRAW_SLICE_S:
                self.set_timer(0.001, self._draw_rest)
                break
        self.measure_blocks()

    @property
    def stale_blocks(self) -> list[RenderedBlock]:
        """Blocks drawn for another width or detail level, from the bottom."""
        return [
            rendered
            for rendered in reversed(self.rendered_blocks)
            if rendered.width != self.block_width or rendered.details != (self.details or rendered.is_opened)
        ]

    # -- scrolling ---------------------------------------------------------------------------------------

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value >= self.max_scroll_y:
            self.is_following = True

    def update_following(self) -> None:
        """Follow new output only if the view is at the end."""
        self.is_following = self.scroll_y >= self.max_scroll_y

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self.is_following = False
        self._show_older()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self.call_after_refresh(self.update_following)

    def _show_older(self) -> None:
        """Add older blocks when the view is at the top."""
        if self.hidden_above and self.scroll_y <= 1:
            added = min(MAX_BLOCKS, self.hidden_above)
            self.max_blocks += added
            self.hidden_above -= added
            older = [
                RenderedBlock(number)
                for number in range(self.hidden_above + 1, self.hidden_above + added + 1)
            ]
            previous_height = self.height
            self.rendered_blocks = older + self.rendered_blocks
            for rendered in older:
                self._draw_block(rendered)
            self.measure_blocks()
            self.scroll_to(y=self.scroll_y + self.height - previous_height, animate=False, force=True)

    def scroll_page(self, direction: int) -> None:
        self.is_following = False
        self._show_older()
        self.scroll_relative(y=direction * max(1, self.size.height - 2), animate=False, force=True)
        self.call_after_refresh(self.update_following)

    def scroll_to_end(self) -> None:
        self.is_following, self.max_blocks = True, MAX_BLOCKS
        self.measure_blocks()

    def scroll_to_block(self, number: int) -> None:
        """Scroll to a block."""
        index = number - 1 - self.hidden_above
        if not 0 <= index < len(self.rendered_blocks):
            return
        top, bottom = (self.block_ends[index - 1] if index else 0), self.block_ends[index]
        if top < self.scroll_y or bottom - top > self.size.height:
            self.is_following = False
            self.scroll_to(y=top, animate=False, force=True)
        elif bottom > self.scroll_y + self.size.height:
            self.scroll_to(y=bottom - self.size.height, animate=False, force=True)
        self.update_following()

    # -- the selected block ------------------------------------------------------------------------------

    @property
    def chosen_block(self) -> Block | None:
        return self.state.block_at(self.cursor) if self.cursor is not None else None

    def choose_block(self, number: int | None) -> None:
        self.cursor = number
        if number is not None:
            self.scroll_to_block(number)
        self.refresh()

    def on_focus(self) -> None:
        if self.cursor is None and self.state.blocks:
            self.choose_block(len(self.state.blocks))

    def on_blur(self) -> None:
        self.cursor = None
        self.refresh()

    def action_move(self, by: int) -> None:
        count = len(self.state.blocks)
        if count:
            self.choose_block(max(self.hidden_above + 1, min(count, (self.cursor or count + 1) + by)))

    def action_first(self) -> None:
        self.choose_block(self.hidden_above + 1)

    def action_last(self) -> None:
        self.choose_block(len(self.state.blocks))
        self.scroll_to_end()

    def action_unfold(self) -> None:
        if (block := self.chosen_block) is None:
            return
        if block.kind == "gate" and not block.done:
            self.post_message(self.Open(block))
            return
        for rendered in self._rendered_of({block.position}):
            rendered.is_opened = not rendered.is_opened
            self._draw_block(rendered)
        self.measure_blocks()
        self.scroll_to_block(block.position)

    def action_refer(self) -> None:
        if (block := self.chosen_block) is not None:
            self.post_message(self.Refer(block))

    def action_copy(self) -> None:
        if (block := self.chosen_block) is not None:
            for rendered in self._rendered_of({block.position}):
                text = block.text or "\n".join(line.text.rstrip() for line in rendered.lines)
                self.app.copy_to_clipboard(text)
                self.app.notify(f"Copied ::{block.number}." if block.number else "Copied.", timeout=2)

    def show_details(self, details: bool) -> None:
        self.details = details
        self._draw_rest()

    def on_click(self, event: Click) -> None:
        if event.chain > 1:
            event.prevent_default()
        y = event.y + round(self.scroll_y)
        if event.chain == 2 and self.rendered_blocks and 0 <= y < self.height:
            index = bisect_right(self.block_ends, y)
            self.choose_block(self.rendered_blocks[index].number)
            self.action_unfold()


def render_welcome(state: CommanderState) -> RenderableType:
    title = Text.assemble(("nerve", "bold"), ("  ", ""), (sanitize_text(state.project), "dim"))
    rows: list[tuple[str, str]] = [
        (f"%{workflow.id}", workflow.description.split("\n")[0] or "a workflow")
        for workflow in state.workflows[:MAX_WELCOME_WORKFLOWS]
    ]
    if len(state.workflows) > MAX_WELCOME_WORKFLOWS:
        rows.append(("/workflows", f"{len(state.workflows) - MAX_WELCOME_WORKFLOWS} more"))
    if state.is_connected and not rows:
        rows.append(("/import FILE", "define your first workflow from a file"))
    rows += [("", ""), ("/", "commands"), ("@", "nodes, and files as @./path"), ("?", "keys")]
    grid = Table.grid(expand=True, padding=(0, 3))
    grid.add_column(no_wrap=True, style="cyan")
    grid.add_column(style="dim", ratio=1, no_wrap=True, overflow="ellipsis")
    for name, description in rows:
        grid.add_row(sanitize_text(name), sanitize_text(description))
    return Padding(Group(title, Text(), grid), (1, 2))
