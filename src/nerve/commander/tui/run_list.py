"""The run list beside the conversation, and its one-line form for narrow screens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text
from textual.message import Message
from textual.widgets import Static

from nerve.commander.core.run_cards import RunCard
from nerve.commander.core.state import CommanderState
from nerve.commander.tui.keymap import textual_bindings
from nerve.commander.tui.line_view import LineView, render_text_strip
from nerve.lazy_dataclass import dataclass
from nerve.text import clip_text
from nerve.ui.event_lines import RUN_LIST_SYMBOLS
from nerve.ui.formatting import count_noun, format_cost, format_short_duration
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from textual.events import Click
    from textual.strip import Strip

RunRow = tuple[str, int]
"""A run id and the line of the run; an empty id is a heading."""
EARLIER_HEADING, BLANK_ROW = -1, -2
MIN_SUBJECT_CHARS = 12
"""Characters that what a run waits for leaves to the subject of the run."""


class RunList(LineView, can_focus=True):
    """All runs, open ones first; lines are drawn when they become visible."""

    DEFAULT_CSS = """
    RunList { width: 34; height: 1fr; border-right: vkey $primary 50%;
              scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    RunList:ansi { border-right: vkey ansi_bright_black; }
    RunList:focus { border-right: vkey $primary; }
    """
    FOCUS_ON_CLICK = True
    ALLOW_SELECT = False
    BINDINGS = textual_bindings("runs")

    @dataclass
    class Looked(Message):
        """The user selected a run."""

        run_id: str

    @dataclass
    class Asked(Message):
        """The user requested an action on a run."""

        run_id: str
        action: str

    def __init__(self, state: CommanderState, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(id="runs")
        self.state, self.clock = state, clock or (lambda: datetime.now(UTC))
        self.rows: list[RunRow] = []
        self.run_ids: list[str] = []
        self.last_snapshot: list[tuple[object, ...]] = []
        self.cursor_run_id: str | None = None
        """The run under the cursor."""

    # -- rows --------------------------------------------------------------------------------------------

    @property
    def height(self) -> int:
        return len(self.rows)

    def is_stale(self) -> bool:
        """Return whether anything but times and costs changed."""
        return self.last_snapshot != self.snapshot()

    def snapshot(self) -> list[tuple[object, ...]]:
        return [
            (card.run_id, card.state, card.waiting_for, len(card.gates), card.label, card.input_preview)
            for card in self.listed_cards()
        ]

    def listed_cards(self) -> list[RunCard]:
        return [
            card
            for card in self.state.runs.values()
            if card.parent is None or card.run_id == self.state.focused_run_id
        ]

    def reload_runs(self) -> None:
        """Rebuild the rows from the state."""
        cards = self.listed_cards()
        open_cards, ended_cards = [c for c in cards if not c.has_ended], [c for c in cards if c.has_ended]
        self.rows = [("", len(open_cards))] + [(card.run_id, line) for card in open_cards for line in (0, 1)]
        if ended_cards:
            self.rows += [("", BLANK_ROW), ("", EARLIER_HEADING)] + [(card.run_id, 0) for card in ended_cards]
        self.run_ids = [card.run_id for card in (*open_cards, *ended_cards)]
        self.last_snapshot = self.snapshot()
        if self.cursor_run_id not in self.state.runs:
            self.cursor_run_id = self.state.focused_run_id or (self.run_ids[0] if self.run_ids else None)
        self.update_virtual_size()

    def line(self, y: int) -> Strip:
        run_id, row_number = self.rows[y]
        width = self.size.width - 2
        if not run_id:
            title = "Earlier" if row_number == EARLIER_HEADING else ("Runs" if row_number else "No open runs")
            return render_text_strip(self.app, Text(f" {title}" if row_number != BLANK_ROW else "", "dim"))
        card = self.state.runs.get(run_id)
        text = (
            Text()
            if card is None
            else render_first_row(card, width, self.clock())
            if row_number == 0
            else render_second_row(card, width)
        )
        if card is not None and self.has_focus and run_id == self.cursor_run_id:
            text = Text(text.plain, "reverse")
        elif card is not None and run_id == self.state.focused_run_id and row_number == 0:
            text.stylize("bold")
            text = Text.assemble(("▌", "blue"), text[1:])
        return render_text_strip(self.app, text)

    def tick(self) -> None:
        if any(not card.has_ended for card in self.state.runs.values()):
            self.refresh()

    # -- moving ------------------------------------------------------------------------------------------

    def on_focus(self) -> None:
        if self.state.focused_run_id in self.run_ids:
            self.cursor_run_id = self.state.focused_run_id
        self.refresh()

    def action_move(self, by: int) -> None:
        if not self.run_ids:
            return
        index = self.run_ids.index(self.cursor_run_id) if self.cursor_run_id in self.run_ids else -1
        self.cursor_run_id = self.run_ids[max(0, min(len(self.run_ids) - 1, index + by))]
        y = self.rows.index((self.cursor_run_id, 0))
        if y - 1 < self.scroll_y:
            self.scroll_to(y=y - 1, animate=False)
        elif y + 2 > self.scroll_y + self.size.height:
            self.scroll_to(y=y + 2 - self.size.height, animate=False)
        self.refresh()

    def action_look(self) -> None:
        if self.cursor_run_id is not None:
            self.post_message(self.Looked(self.cursor_run_id))

    def action_do(self, action: str) -> None:
        if self.cursor_run_id is not None:
            self.post_message(self.Asked(self.cursor_run_id, action))

    def action_stop(self) -> None:
        self.action_do("stop")

    def on_click(self, event: Click) -> None:
        y = round(event.y + self.scroll_y)
        if 0 <= y < len(self.rows) and self.rows[y][0]:
            self.cursor_run_id = self.rows[y][0]
            self.action_look()
        event.prevent_default()


def render_first_row(card: RunCard, width: int, now: datetime) -> Text:
    """Render state, workflow, short id and duration; for an ended run also its subject."""
    symbol, style = RUN_LIST_SYMBOLS.get(card.state, ("●", "yellow"))
    duration = format_short_duration(card.started_at, card.ended_at, now)
    cost = format_cost(card.usage.cost) if card.has_ended else ""
    right = "  ".join(part for part in (cost, duration) if part)
    room = max(4, width - 4 - cell_len(right))
    name = sanitize_text(card.workflow)
    subject = f" {run_subject(card)}" if card.has_ended else ""
    text = Text.assemble(
        " ", (symbol, style), " ", name, (f" {card.short_id}", "dim"), (subject, "dim italic")
    )
    text.truncate(room + 3, overflow="ellipsis", pad=True)
    text.append(f" {right}", "dim")
    return text


def render_second_row(card: RunCard, width: int) -> Text:
    """Render the subject, cost and waiting state of an open run."""
    badge = Text("" if card.state == "running" else waiting_badge(card, width), "yellow")
    if gates := format_gate_count(card):
        badge = Text(f"⏸ {gates}", "bold yellow")
    right = Text("  ").join(part for part in (Text(format_cost(card.usage.cost), "dim"), badge) if part)
    room = max(4, width - 1 - right.cell_len)
    text = Text(f"   {run_subject(card)}", "dim italic" if card.label else "dim")
    text.truncate(room, overflow="ellipsis", pad=True)
    return Text.assemble(text, " ", right)


def waiting_badge(card: RunCard, width: int) -> str:
    """Return the state of a run that is not running, with what it waits for."""
    text = sanitize_text(card.waiting_for or card.state)
    room = max(len(card.state), width - MIN_SUBJECT_CHARS)
    return clip_text(text, room)


def run_subject(card: RunCard) -> str:
    """Return the label of a run, or the first words of its input."""
    return sanitize_text(card.label or card.input_preview)


def format_gate_count(card: RunCard) -> str:
    """Return the number of open gates; empty if the run is paused or held instead."""
    if not card.gates or card.state not in ("running", "waiting"):
        return ""
    return count_noun(len(card.gates), "gate")


class RunLine(Static):
    """The runs in one line, for narrow screens."""

    DEFAULT_CSS = """
    RunLine { height: 1; width: 1fr; padding: 0 1; display: none; }
    """
    ALLOW_SELECT = False

    def __init__(self, state: CommanderState, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(id="runline", markup=False)
        self.auto_links = False
        self.state, self.clock = state, clock or (lambda: datetime.now(UTC))

    def redraw(self) -> None:
        cards = sorted(
            (card for card in self.state.runs.values() if card.parent is None),
            key=lambda card: card.has_ended,
        )
        room = max(10, self.app.size.width - 2)
        text = Text(no_wrap=True)
        if self.state.is_connected and not cards:
            text.append("No runs yet", "dim")
        for index, card in enumerate(cards):
            card_text = self.render_card(card)
            remaining = len(cards) - index
            if text.cell_len + card_text.cell_len + 6 > room and index:
                text.append(f"  +{remaining}", "dim")
                break
            text = Text.assemble(text, "   " if index else "", card_text, no_wrap=True)
        text.truncate(room, overflow="ellipsis")
        self.update(text, layout=False)

    def has_namesake(self, card: RunCard) -> bool:
        """Return whether another open run has the same name."""
        return sum(other.name == card.name and not other.has_ended for other in self.state.runs.values()) > 1

    def render_card(self, card: RunCard) -> Text:
        symbol, style = RUN_LIST_SYMBOLS.get(card.state, ("●", "yellow"))
        text = Text.assemble(
            (symbol, style), f" {set_cell_size(sanitize_text(card.name), min(18, cell_len(card.name)))}"
        )
        if self.has_namesake(card):
            text.append(f" {card.short_id}", "dim")
        if gates := format_gate_count(card):
            text.append(f" {gates}", "bold yellow")
        elif card.gates:
            text.append(f" {card.state}", "yellow")
        else:
            text.append(f" {format_short_duration(card.started_at, card.ended_at, self.clock())}", "dim")
        if card.run_id == self.state.focused_run_id:
            text.stylize("bold underline", 2, 2 + len(card.name[:18]))
        text.stylize(Style(meta={"@click": f"app.look({card.run_id!r})"}))
        return text


__all__ = ["RunLine", "RunList"]
