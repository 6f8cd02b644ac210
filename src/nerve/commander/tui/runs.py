"""The runs: a list beside the conversation, or one line above it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text
from textual.message import Message
from textual.widgets import Static

from nerve.commander.core.desk import Desk, RunCard
from nerve.commander.core.harmless import harmless
from nerve.commander.core.lines import RUNS
from nerve.commander.tui.figures import money, short
from nerve.commander.tui.keys import bindings
from nerve.commander.tui.paper import Paper, strip_of

if TYPE_CHECKING:
    from textual.events import Click
    from textual.strip import Strip

Row = tuple[str, int]
"""A run's id and which of its lines; an empty id is a heading."""
EARLIER, BLANK = -1, -2


class RunList(Paper, can_focus=True):
    """Every run, those that are not over first; a line is drawn when it is seen."""

    DEFAULT_CSS = """
    RunList { width: 34; height: 1fr; border-right: vkey $primary 50%;
              scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    RunList:ansi { border-right: vkey ansi_bright_black; }
    RunList:focus { border-right: vkey $primary; }
    """
    FOCUS_ON_CLICK = True
    ALLOW_SELECT = False
    BINDINGS = bindings("runs")

    class Looked(Message):
        """Somebody wants to look at a run."""

        def __init__(self, run_id: str) -> None:
            super().__init__()
            self.run_id = run_id

    class Asked(Message):
        """Somebody wants something done with a run."""

        def __init__(self, run_id: str, what: str) -> None:
            super().__init__()
            self.run_id, self.what = run_id, what

    def __init__(self, desk: Desk, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(id="runs")
        self.desk, self.clock = desk, clock or (lambda: datetime.now(UTC))
        self.rows: list[Row] = []
        self.order: list[str] = []
        self.shown: list[tuple[object, ...]] = []
        self.at: str | None = None
        """The run under the cursor."""

    # -- rows --------------------------------------------------------------------------------------------

    @property
    def height(self) -> int:
        return len(self.rows)

    def is_stale(self) -> bool:
        """Whether more than times and costs are different now."""
        return self.shown != self.signs()

    def signs(self) -> list[tuple[object, ...]]:
        return [(card.run_id, card.state, len(card.gates), card.label, card.about) for card in self.cards()]

    def cards(self) -> list[RunCard]:
        return [
            card for card in self.desk.runs.values() if card.parent is None or card.run_id == self.desk.focus
        ]

    def take(self) -> None:
        """Read the runs again."""
        cards = self.cards()
        going, over = [c for c in cards if not c.ended], [c for c in cards if c.ended]
        self.rows = [("", len(going))] + [(card.run_id, line) for card in going for line in (0, 1)]
        if over:
            self.rows += [("", BLANK), ("", EARLIER)] + [(card.run_id, 0) for card in over]
        self.order = [card.run_id for card in (*going, *over)]
        self.shown = self.signs()
        if self.at not in self.desk.runs:
            self.at = self.desk.focus or (self.order[0] if self.order else None)
        self.resized()

    def line(self, y: int) -> Strip:
        run_id, which = self.rows[y]
        width = self.size.width - 2
        if not run_id:
            title = "Earlier" if which == EARLIER else ("Runs" if which else "No open run")
            return strip_of(self.app, Text(f" {title}" if which != BLANK else "", "dim"))
        card = self.desk.runs.get(run_id)
        text = (
            Text()
            if card is None
            else first(card, width, self.clock())
            if which == 0
            else second(card, width)
        )
        if card is not None and self.has_focus and run_id == self.at:
            text = Text(text.plain, "reverse")
        elif card is not None and run_id == self.desk.focus and which == 0:
            text.stylize("bold")
            text = Text.assemble(("▌", "blue"), text[1:])
        return strip_of(self.app, text)

    def tick(self) -> None:
        if any(not card.ended for card in self.desk.runs.values()):
            self.refresh()

    # -- moving ------------------------------------------------------------------------------------------

    def on_focus(self) -> None:
        if self.desk.focus in self.order:
            self.at = self.desk.focus
        self.refresh()

    def action_move(self, by: int) -> None:
        if not self.order:
            return
        now = self.order.index(self.at) if self.at in self.order else -1
        self.at = self.order[max(0, min(len(self.order) - 1, now + by))]
        y = self.rows.index((self.at, 0))
        if y - 1 < self.scroll_y:
            self.scroll_to(y=y - 1, animate=False)
        elif y + 2 > self.scroll_y + self.size.height:
            self.scroll_to(y=y + 2 - self.size.height, animate=False)
        self.refresh()

    def action_look(self) -> None:
        if self.at is not None:
            self.post_message(self.Looked(self.at))

    def action_do(self, what: str) -> None:
        if self.at is not None:
            self.post_message(self.Asked(self.at, what))

    def action_stop(self) -> None:
        self.action_do("stop")

    def on_click(self, event: Click) -> None:
        y = round(event.y + self.scroll_y)
        if 0 <= y < len(self.rows) and self.rows[y][0]:
            self.at = self.rows[y][0]
            self.action_look()
        event.prevent_default()


def first(card: RunCard, width: int, now: datetime) -> Text:
    """State, workflow, the end of the id, and how long it takes; of a run that has ended what it is about."""
    symbol, style = RUNS.get(card.state, ("●", "yellow"))
    took = short(card.started_at, card.ended_at, now)
    cost = money(card.usage.cost) if card.ended else ""
    right = "  ".join(each for each in (cost, took) if each)
    room = max(4, width - 4 - cell_len(right))
    name = harmless(card.workflow)
    about = f" {about_of(card)}" if card.ended else ""
    text = Text.assemble(" ", (symbol, style), " ", name, (f" {card.short_id}", "dim"), (about, "dim italic"))
    text.truncate(room + 3, overflow="ellipsis", pad=True)
    text.append(f" {right}", "dim")
    return text


def second(card: RunCard, width: int) -> Text:
    """What a run that is not over is about, its cost, and whether it waits for an answer."""
    badge = Text("" if card.state == "running" else card.state, "yellow")
    if asked := asks(card):
        badge = Text(f"⏸ {asked}", "bold yellow")
    right = Text("  ").join(each for each in (Text(money(card.usage.cost), "dim"), badge) if each)
    room = max(4, width - 1 - right.cell_len)
    text = Text(f"   {about_of(card)}", "dim italic" if card.label else "dim")
    text.truncate(room, overflow="ellipsis", pad=True)
    return Text.assemble(text, " ", right)


def about_of(card: RunCard) -> str:
    """The label of a run, or the first words of its input."""
    return harmless(card.label or card.about)


def asks(card: RunCard) -> str:
    """How many answers a run waits for; one that stands still for another reason says that instead."""
    return f"{len(card.gates)} waiting" if card.gates and card.state in ("running", "waiting") else ""


class RunLine(Static):
    """The runs in one line, for screens that have no room for a list."""

    DEFAULT_CSS = """
    RunLine { height: 1; width: 1fr; padding: 0 1; display: none; }
    """
    ALLOW_SELECT = False

    def __init__(self, desk: Desk, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(id="runline", markup=False)
        self.auto_links = False
        self.desk, self.clock = desk, clock or (lambda: datetime.now(UTC))

    def take(self) -> None:
        cards = sorted(
            (card for card in self.desk.runs.values() if card.parent is None), key=lambda card: card.ended
        )
        room = max(10, self.app.size.width - 2)
        text = Text(no_wrap=True)
        if self.desk.connected and not cards:
            text.append("No runs yet", "dim")
        for index, card in enumerate(cards):
            piece = self.piece(card)
            left = len(cards) - index
            if text.cell_len + piece.cell_len + 6 > room and index:
                text.append(f"  +{left}", "dim")
                break
            text = Text.assemble(text, "   " if index else "", piece, no_wrap=True)
        text.truncate(room, overflow="ellipsis")
        self.update(text, layout=False)

    def is_like_another(self, card: RunCard) -> bool:
        """Whether another open run goes by the same name."""
        return sum(each.name == card.name and not each.ended for each in self.desk.runs.values()) > 1

    def piece(self, card: RunCard) -> Text:
        symbol, style = RUNS.get(card.state, ("●", "yellow"))
        text = Text.assemble(
            (symbol, style), f" {set_cell_size(harmless(card.name), min(18, cell_len(card.name)))}"
        )
        if self.is_like_another(card):
            text.append(f" {card.short_id}", "dim")
        if asked := asks(card):
            text.append(f" {asked}", "bold yellow")
        elif card.gates:
            text.append(f" {card.state}", "yellow")
        else:
            text.append(f" {short(card.started_at, card.ended_at, self.clock())}", "dim")
        if card.run_id == self.desk.focus:
            text.stylize("bold underline", 2, 2 + len(card.name[:18]))
        text.stylize(Style(meta={"@click": f"app.look({card.run_id!r})"}))
        return text


__all__ = ["RunLine", "RunList"]
