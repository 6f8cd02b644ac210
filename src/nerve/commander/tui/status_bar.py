"""The status bar: current activity, waiting gates, and key hints for the focused widget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import Literal, NamedTuple

from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from nerve.commander.core.run_cards import RunCard
from nerve.commander.core.state import CommanderState
from nerve.commander.tui.keymap import KEYS, key_for_action
from nerve.ui.event_lines import RUN_LIST_SYMBOLS
from nerve.ui.formatting import format_duration_between, format_usage
from nerve.ui.sanitize import sanitize_text

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
HINT_GAP = "  "
COUNTED_STATES = ("running", "waiting", "paused", "held")
"""States of open runs that are counted."""

QUESTION_TIMEOUT_S = 3.0
"""Seconds until a question expires."""


class PendingQuestion(NamedTuple):
    """A question that the next key answers."""

    kind: Literal["stop", "clear", "leave"]
    text: str
    run_id: str | None
    expires_at: float


class StatusBar(Static):
    """A one-line status bar; a pending question replaces everything else."""

    DEFAULT_CSS = "StatusBar { height: 1; width: 1fr; padding: 0 1; }"
    ALLOW_SELECT = False

    def __init__(self, state: CommanderState, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(id="status", markup=False)
        self.auto_links = False
        self.state, self.clock = state, clock or (lambda: datetime.now(UTC))
        self.keymap: Mapping[str, str] = {}
        self.scope = "prompt"
        self.question: PendingQuestion | None = None
        self.hint = ""
        """The keys of the prompt, if they differ from the defaults."""

    @property
    def is_animated(self) -> bool:
        """Whether the bar shows a spinner for the focused run."""
        card = self.state.focused_run
        return card is not None and card.is_active

    def ask(self, kind: Literal["stop", "clear", "leave"] | None, run_id: str | None = None) -> None:
        """Ask a question that the next key answers, for a short time; None withdraws it."""
        card = self.state.runs.get(run_id or "")
        name = f"{card.name} {card.short_id}" if card is not None else ""
        texts = {
            "stop": f"Stop {name}? Enter stops it · Esc keeps it",
            "clear": "Press Esc again to clear the text",
            "leave": "Press Ctrl-C again to quit; runs continue",
        }
        expires_at = monotonic() + QUESTION_TIMEOUT_S
        self.question = PendingQuestion(kind, texts[kind], run_id, expires_at) if kind is not None else None
        self.redraw()

    def tick(self) -> None:
        """Advance the spinner, or withdraw an expired question."""
        if self.question is not None or self.is_animated or not self.state.is_connected:
            self.redraw()

    def redraw(self) -> None:
        room = max(10, self.app.size.width - 2)
        if self.question is not None and self.question.expires_at < monotonic():
            self.question = None
        if self.question is not None:
            text = Text(self.question.text, "bold yellow", no_wrap=True)
            text.truncate(room, overflow="ellipsis")
            self.update(text, layout=False)
            return
        activity, right = self.render_activity(), self.render_gate_badge()
        for hint in self.render_key_hints():
            longer = Text.assemble(right, HINT_GAP if right else "", hint)
            if activity.cell_len + longer.cell_len + 2 > room:
                break
            right = longer
        activity.truncate(max(0, room - right.cell_len - 1), overflow="ellipsis")
        gap = " " * max(1, room - activity.cell_len - right.cell_len)
        self.update(Text.assemble(activity, gap, right, no_wrap=True), layout=False)

    def render_activity(self) -> Text:
        """Render the connection state, or the activity of the focused run."""
        if self.state.is_project_missing:
            return Text("no project here: nerve init", "yellow")
        if not self.state.is_connected:
            return Text(f"{self.spinner_frame} connecting to the server", "yellow")
        card = self.state.focused_run
        if card is None:
            return self.render_counts()
        if card.is_active:
            return Text.assemble(
                (f"{self.spinner_frame} ", "blue"),
                sanitize_text(card.name),
                (self.format_figures(card), "dim"),
            )
        return Text.assemble(sanitize_text(card.name), (f" {card.state}{self.format_figures(card)}", "dim"))

    def render_counts(self) -> Text:
        """Render the number of runs by state; the gate badge counts runs that wait for an answer."""
        states = Counter("running" if card.is_active else card.state for card in self.state.runs.values())
        states["waiting"] -= sum(
            card.state == "waiting" and bool(card.gates) for card in self.state.runs.values()
        )
        state_counts = [
            Text(f"{states[state]} {state}", RUN_LIST_SYMBOLS[state][1])
            for state in COUNTED_STATES
            if states[state] > 0
        ]
        return Text(" · ", "dim").join(state_counts)

    def format_figures(self, card: RunCard) -> str:
        parts = (
            format_duration_between(card.started_at, card.ended_at, self.clock()),
            format_usage(card.usage),
        )
        return "".join(f" · {part}" for part in parts if part)

    @property
    def spinner_frame(self) -> str:
        return SPINNER[int(self.clock().timestamp() * 10) % len(SPINNER)]

    def render_gate_badge(self) -> Text:
        if not self.state.gates:
            return Text()
        key = key_for_action("app.gates", self.keymap)
        text = Text.assemble((f"⏸ {len(self.state.gates)} waiting", "bold yellow"), (f" {key}", "yellow"))
        text.stylize(Style(meta={"@click": "app.gates"}))
        return text

    def render_key_hints(self) -> list[Text]:
        """Return the key hints for the focused widget, most useful first."""
        if self.scope == "prompt":
            words = [self.hint] if self.hint else ["Enter send", "/ commands", "? keys"]
            return [Text(word, "dim") for word in words]
        keys = [key for key in KEYS if key.scope == self.scope and key.footer]
        key_hints = [Text(f"{key_for_action(key.id, self.keymap)} {key.footer}", "dim") for key in keys]
        return [*key_hints, Text("Esc back", "dim")]
