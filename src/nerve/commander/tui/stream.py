"""The conversation: blocks as lines on one long paper, of which only what is seen is drawn each time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from nerve.commander.core.blocks import Block
from nerve.commander.core.desk import Desk
from nerve.commander.tui.blocks import GUTTER, Drawn, Look
from nerve.commander.tui.keys import bindings
from nerve.commander.tui.paper import Paper, draw
from nerve.commander.tui.welcome import welcome

if TYPE_CHECKING:
    from textual.events import Click, MouseScrollDown, MouseScrollUp, Resize

MOST = 200
"""Blocks that are shown; who goes above them sees as many more."""
SLICE = 0.012
"""Seconds that are spent at a time on lines nobody sees yet."""
SLOW, REST = 0.02, 10
"""A block that takes so many seconds to draw is drawn seldom: it rests this many times as long."""
BAR = Segment("▌ ", Style(color="blue"))
BLANK = Strip([])


class Stream(Paper, can_focus=True):
    """All blocks. It stays at the end while they come, until somebody scrolls up."""

    DEFAULT_CSS = """
    Stream { height: 1fr; width: 1fr; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    """
    BINDINGS = bindings("stream")
    FOCUS_ON_CLICK = False

    class Refer(Message):
        """Somebody wants to refer to a block."""

        def __init__(self, block: Block) -> None:
            super().__init__()
            self.block = block

    class Open(Message):
        """Somebody opens a block that is about a run or a gate."""

        def __init__(self, block: Block) -> None:
            super().__init__()
            self.block = block

    def __init__(self, desk: Desk, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(id="stream")
        self.desk, self.clock = desk, clock or (lambda: datetime.now(UTC))
        self.drawn: list[Drawn] = []
        self.starts: list[int] = []
        self.above = 0
        """Blocks that are not shown because they are old."""
        self.most = MOST
        self.details = False
        self.cursor: int | None = None
        """The number of the block that is chosen."""
        self.following = True
        self._due: dict[int, float] = {}
        self.late: set[int] = set()
        """Blocks that have changed and were left for later."""
        self._wide = 0

    # -- lines -------------------------------------------------------------------------------------------

    @property
    def height(self) -> int:
        return self.starts[-1] if self.starts else len(self.strips)

    def line(self, y: int) -> Strip:
        if not self.drawn:
            return self.strips[y]
        index = bisect_right(self.starts, y)
        within = y - (self.starts[index - 1] if index else 0)
        drawn = self.drawn[index]
        lines = drawn.lines
        if within >= len(lines):
            return BLANK
        return lines[within] if drawn.number != self.cursor else Strip([BAR, *lines[within].crop(GUTTER)])

    def take(self, changed: Iterable[int], everything: bool = False) -> None:
        """Draw what has changed."""
        if everything:
            self.drawn, self.above = [], 0
            self._due.clear()
            self.late.clear()
            self.measure()
        fresh = self._adopt()
        numbers = {*changed, *self._overdue()} - fresh
        for drawn in self._of(numbers):
            self._draw(drawn)
        if numbers:
            self.measure()
        if self.following and (listed := self._listed(fresh)) is not None:
            self.show(listed)

    def _listed(self, fresh: set[int]) -> int | None:
        """The new block, if it is what a command lists and does not fit: it is read from its beginning."""
        drawn = self.drawn[-1] if self.drawn else None
        if drawn is None or drawn.number not in fresh or not 0 < self.size.height < len(drawn.lines):
            return None
        return drawn.number if self.desk.blocks[-1].name.startswith("/") else None

    def catch_up(self) -> None:
        """Draw what was left for later and is due, though nothing else has changed."""
        if self._overdue():
            self.take(())

    def _overdue(self) -> set[int]:
        now = perf_counter()
        return {number for number in self.late if self._due[number] <= now}

    def tick(self) -> None:
        """Draw again what shows the time, where it is seen."""
        self._adopt()
        first = bisect_right(self.starts, self.scroll_y)
        last = bisect_right(self.starts, self.scroll_y + self.size.height)
        seen = [self.desk.blocks[drawn.number - 1] for drawn in self.drawn[first : last + 1]]
        if going := [block.place for block in seen if self._goes(block)]:
            self.take(going)

    def _goes(self, block: Block) -> bool:
        card = self.desk.runs.get(block.run_id or "") if block.kind == "run" else None
        return card is not None and not card.ended

    def _of(self, numbers: set[int]) -> Iterable[Drawn]:
        return (
            self.drawn[n - 1 - self.above] for n in sorted(numbers) if self.above < n <= len(self.desk.blocks)
        )

    def _adopt(self) -> set[int]:
        """Draw the blocks that are new, and keep as many as are shown; the numbers of the new ones."""
        count = len(self.desk.blocks)
        known = self.above + len(self.drawn)
        if known > count:
            self.drawn, self.above, known = [], 0, 0
        fresh = [Drawn(number) for number in range(known + 1, count + 1)]
        self.drawn += fresh
        for drawn in fresh:
            self._draw(drawn)
        if (excess := len(self.drawn) - self.most) > 0 and self.following:
            del self.drawn[:excess]
            self.above += excess
            self.late = {number for number in self.late if number > self.above}
            self.measure()
        elif fresh:
            self.measure()
        return {drawn.number for drawn in fresh}

    def _draw(self, drawn: Drawn) -> None:
        now, width = perf_counter(), self.paper
        block = self.desk.blocks[drawn.number - 1]
        if self._due.get(drawn.number, 0) > now and drawn.width == width and not block.done:
            self.late.add(drawn.number)
            return
        self._due.pop(drawn.number, None)
        self.late.discard(drawn.number)
        drawn.draw(Look(self.app, width, self.clock(), self.details), self.desk, block)
        if (took := perf_counter() - now) > SLOW and not block.done:
            self._due[drawn.number] = now + REST * took

    @property
    def paper(self) -> int:
        """How wide a block may be."""
        return max(20, self._wide - GUTTER - 2)

    def measure(self) -> None:
        """Find where each block begins; before there is any, show what can be done."""
        self.strips = [] if self.drawn else draw(self.app, welcome(self.desk), self.paper)
        before = self.height
        pairs = zip(self.drawn, [*self.drawn[1:], None], strict=False)
        self.starts = list(accumulate(len(each.lines) + self._gap(each, after) for each, after in pairs))
        size = Size(self.size.width, self.height)
        self.virtual_size = size
        if self.following:
            self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)
        elif before > self.height:
            self.scroll_to(y=min(self.scroll_y, self.max_scroll_y), animate=False, force=True)
        self.refresh()

    def _gap(self, drawn: Drawn, after: Drawn | None) -> int:
        if after is None:
            return 0
        kinds = {self.desk.blocks[each.number - 1].kind for each in (drawn, after)}
        return 0 if kinds <= {"note", "gate"} else 1

    # -- size --------------------------------------------------------------------------------------------

    def on_resize(self, event: Resize) -> None:
        if self.size.width != self._wide:
            self._wide = self.size.width
            self._draw_seen()
            self._draw_rest()
        else:
            self.measure()

    def _draw_seen(self) -> None:
        """Draw what is on the screen, from below."""
        lines = 0
        for drawn in reversed(self.drawn):
            self._draw(drawn)
            lines += len(drawn.lines)
            if lines > self.size.height + (0 if self.following else self.max_scroll_y - self.scroll_y):
                break
        self.measure()

    def _draw_rest(self) -> None:
        """Draw the others a few at a time, so that nobody waits for them."""
        began = perf_counter()
        for drawn in self.stale:
            self._draw(drawn)
            if perf_counter() - began > SLICE:
                self.set_timer(0.001, self._draw_rest)
                break
        self.measure()

    @property
    def stale(self) -> list[Drawn]:
        """What was drawn for another width, or with other details; from below."""
        return [
            drawn
            for drawn in reversed(self.drawn)
            if drawn.width != self.paper or drawn.details != (self.details or drawn.opened)
        ]

    # -- moving ------------------------------------------------------------------------------------------

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value >= self.max_scroll_y:
            self.following = True

    def stay(self) -> None:
        """Let the lines stand still although more come, unless they are at the end."""
        self.following = self.scroll_y >= self.max_scroll_y

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self.following = False
        self._more()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self.call_after_refresh(self.stay)

    def _more(self) -> None:
        """Show older blocks when the top is reached."""
        if self.above and self.scroll_y <= 1:
            added = min(MOST, self.above)
            self.most += added
            self.above -= added
            older = [Drawn(number) for number in range(self.above + 1, self.above + added + 1)]
            before = self.height
            self.drawn = older + self.drawn
            for drawn in older:
                self._draw(drawn)
            self.measure()
            self.scroll_to(y=self.scroll_y + self.height - before, animate=False, force=True)

    def page(self, direction: int) -> None:
        self.following = False
        self._more()
        self.scroll_relative(y=direction * max(1, self.size.height - 2), animate=False, force=True)
        self.call_after_refresh(self.stay)

    def to_end(self) -> None:
        self.following, self.most = True, MOST
        self.measure()

    def show(self, number: int) -> None:
        """Scroll to a block."""
        index = number - 1 - self.above
        if not 0 <= index < len(self.drawn):
            return
        top, bottom = (self.starts[index - 1] if index else 0), self.starts[index]
        if top < self.scroll_y or bottom - top > self.size.height:
            self.following = False
            self.scroll_to(y=top, animate=False, force=True)
        elif bottom > self.scroll_y + self.size.height:
            self.scroll_to(y=bottom - self.size.height, animate=False, force=True)
        self.stay()

    # -- the chosen block --------------------------------------------------------------------------------

    @property
    def chosen(self) -> Block | None:
        return self.desk.block(self.cursor) if self.cursor is not None else None

    def choose(self, number: int | None) -> None:
        self.cursor = number
        if number is not None:
            self.show(number)
        self.refresh()

    def on_focus(self) -> None:
        if self.cursor is None and self.desk.blocks:
            self.choose(len(self.desk.blocks))

    def on_blur(self) -> None:
        self.cursor = None
        self.refresh()

    def action_move(self, by: int) -> None:
        count = len(self.desk.blocks)
        if count:
            self.choose(max(self.above + 1, min(count, (self.cursor or count + 1) + by)))

    def action_first(self) -> None:
        self.choose(self.above + 1)

    def action_last(self) -> None:
        self.choose(len(self.desk.blocks))
        self.to_end()

    def action_unfold(self) -> None:
        if (block := self.chosen) is None:
            return
        if block.kind == "gate" and not block.done:
            self.post_message(self.Open(block))
            return
        for drawn in self._of({block.place}):
            drawn.opened = not drawn.opened
            self._draw(drawn)
        self.measure()
        self.show(block.place)

    def action_refer(self) -> None:
        if (block := self.chosen) is not None:
            self.post_message(self.Refer(block))

    def action_copy(self) -> None:
        if (block := self.chosen) is not None:
            for drawn in self._of({block.place}):
                said = block.text or "\n".join(line.text.rstrip() for line in drawn.lines)
                self.app.copy_to_clipboard(said)
                self.app.notify(f"Copied ::{block.number}." if block.number else "Copied.", timeout=2)

    def show_details(self, details: bool) -> None:
        self.details = details
        self._draw_rest()

    def on_click(self, event: Click) -> None:
        if event.chain > 1:
            event.prevent_default()
        y = event.y + round(self.scroll_y)
        if event.chain == 2 and self.drawn and 0 <= y < self.height:
            index = bisect_right(self.starts, y)
            self.choose(self.drawn[index].number)
            self.action_unfold()
