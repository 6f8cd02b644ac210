"""The last line: what goes on, what waits, and which keys do something where the focus is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from nerve.commander.core.desk import Desk, RunCard
from nerve.commander.core.harmless import harmless
from nerve.commander.core.lines import RUNS
from nerve.commander.tui.figures import brief, length
from nerve.commander.tui.keys import KEYS, key_of

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
GAP = "  "
COUNTED = ("running", "waiting", "paused", "held")
"""States of runs that are not over."""


class Status(Static):
    """One line. A question stands before everything else."""

    DEFAULT_CSS = "Status { height: 1; width: 1fr; padding: 0 1; }"
    ALLOW_SELECT = False

    def __init__(self, desk: Desk, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(id="status", markup=False)
        self.auto_links = False
        self.desk, self.clock = desk, clock or (lambda: datetime.now(UTC))
        self.keymap: Mapping[str, str] = {}
        self.scope = "prompt"
        self.question = ""
        self.hint = ""
        """What the keys of the prompt do now, where they do something else than usual."""

    @property
    def moves(self) -> bool:
        """Whether there is something that changes with the time."""
        card = self.desk.focused
        return card is not None and card.moves

    def tick(self) -> None:
        """Turn the spinner."""
        if self.moves or not self.desk.connected:
            self.redraw()

    def redraw(self) -> None:
        room = max(10, self.app.size.width - 2)
        if self.question:
            text = Text(self.question, "bold yellow", no_wrap=True)
            text.truncate(room, overflow="ellipsis")
            self.update(text, layout=False)
            return
        left, right = self.left(), self.badge()
        for hint in self.hints():
            longer = Text.assemble(right, GAP if right else "", hint)
            if left.cell_len + longer.cell_len + 2 > room:
                break
            right = longer
        left.truncate(max(0, room - right.cell_len - 1), overflow="ellipsis")
        between = " " * max(1, room - left.cell_len - right.cell_len)
        self.update(Text.assemble(left, between, right, no_wrap=True), layout=False)

    def left(self) -> Text:
        """What goes on where somebody looks."""
        if self.desk.empty:
            return Text("no project here: nerve init", "yellow")
        if not self.desk.connected:
            return Text(f"{self.spin} connecting to the server", "yellow")
        card = self.desk.focused
        if card is None:
            return self.counts()
        if card.moves:
            return Text.assemble((f"{self.spin} ", "blue"), harmless(card.name), (self.figures(card), "dim"))
        return Text.assemble(harmless(card.name), (f" {card.state}{self.figures(card)}", "dim"))

    def counts(self) -> Text:
        """How many runs there are in each state; those that wait for an answer are in the badge."""
        states = Counter("running" if card.moves else card.state for card in self.desk.runs.values())
        states["waiting"] -= sum(
            card.state == "waiting" and bool(card.gates) for card in self.desk.runs.values()
        )
        each = [Text(f"{states[state]} {state}", RUNS[state][1]) for state in COUNTED if states[state] > 0]
        return Text(" · ", "dim").join(each)

    def figures(self, card: RunCard) -> str:
        each = (length(card.started_at, card.ended_at, self.clock()), brief(card.usage))
        return "".join(f" · {part}" for part in each if part)

    @property
    def spin(self) -> str:
        return SPINNER[int(self.clock().timestamp() * 10) % len(SPINNER)]

    def badge(self) -> Text:
        if not self.desk.gates:
            return Text()
        key = key_of("app.gates", self.keymap)
        text = Text.assemble((f"⏸ {len(self.desk.gates)} waiting", "bold yellow"), (f" {key}", "yellow"))
        text.stylize(Style(meta={"@click": "app.gates"}))
        return text

    def hints(self) -> list[Text]:
        """Keys that do something here, the most useful first."""
        if self.scope == "prompt":
            words = [self.hint] if self.hint else ["Enter send", "/ commands", "? keys"]
            return [Text(word, "dim") for word in words]
        keys = [key for key in KEYS if key.scope == self.scope and key.footer]
        told = [Text(f"{key_of(key.id, self.keymap)} {key.footer}", "dim") for key in keys]
        return [*told, Text("Esc back", "dim")]
