"""Progress: the view of a run as lines and as a panel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nerve.commander.core.lines import ROOTS, SYMBOLS, gist, seconds, shown
from nerve.core.view import RunView
from nerve.core.workflow import WorkflowEvent

SETTLES = ("node_completed", "node_error", "node_timeout")
BEGINS = ("node_started", "node_retrying")
WIDEST = 100
NAMES = 17
"""Where the notes begin, so that they stand below each other at every depth."""


@dataclass
class Line:
    """One line of the tree: a step or a gate by its path, or a round with its steps below."""

    path: str = ""
    title: str = ""
    below: list[Line] = field(default_factory=list)


@dataclass
class Progress:
    """Takes in the events of a run and keeps what a screen needs beside its view."""

    view: RunView = field(default_factory=RunView)
    lines: list[Line] = field(default_factory=list)
    reused: set[str] = field(default_factory=set)
    """Paths that were settled before this process began."""
    notes: dict[str, str] = field(default_factory=dict)
    """What every step gave back, and what every gate asked and was told."""
    began: dict[str, datetime] = field(default_factory=dict)
    took: dict[str, float] = field(default_factory=dict)
    told: int = 0
    """How many lines stand on the screen already, in a panel that is not drawn again."""

    def take(self, events: Iterable[WorkflowEvent]) -> None:
        for event in events:
            known = len(self.view.tree)
            self.view.apply(event)
            for node in self.view.tree[known:]:
                self._place().append(Line(node.path))
            if event.is_a("outer_round"):
                self.lines.append(Line(title=f"round {event.data['round']}/{event.data['max']}"))
            elif event.is_a("gate_waiting"):
                self.notes[event.path] = event.data["prompt"]
                self.lines.append(Line(event.path))
            elif event.is_a("gate_answered"):
                self.notes[event.path] = f"{shown(event.data['answer'])} ({self.notes[event.path]})"
            elif event.event_type in BEGINS:
                self.began[event.path] = event.timestamp
            elif event.event_type in SETTLES:
                self.notes[event.path] = gist(event)
                self.took[event.path] = seconds(event)

    def _place(self) -> list[Line]:
        """A step stands in the round it belongs to; what follows a gate stands for itself."""
        last = self.lines[-1] if self.lines else None
        return last.below if last is not None and last.title else self.lines

    def reuse(self) -> None:
        """What is settled by now was not done by this process."""
        self.reused = set(self.took)

    def tell(self) -> None:
        """A panel with everything but the open gates stays on the screen; go on below it."""
        self.told = len(self.lines) - len(self.view.gates)

    def panel(self, width: int = WIDEST, now: datetime | None = None) -> Panel:
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_column(justify="right", no_wrap=True)
        symbol, style = ROOTS.get(self.view.state, ("●", "yellow"))
        grid.add_row(Text(f"{symbol} {self.view.workflow_id}", f"bold {style}"), "")
        self._add(grid, self.lines[self.told :], "", now or datetime.now(UTC))
        return Panel(grid, title="Workflow Progress", border_style="blue", width=min(width, WIDEST))

    def _add(self, grid: Table, lines: list[Line], guide: str, now: datetime) -> None:
        for line in lines:
            last = line is lines[-1]
            text = Text(f"{guide}{'└─' if last else '├─'} ", "dim")
            text.append_text(self._label(line, NAMES - len(guide)))
            grid.add_row(text, Text(self._time(line.path, now), "dim"))
            self._add(grid, line.below, f"{guide}{'   ' if last else '│  '}", now)

    def _label(self, line: Line, width: int) -> Text:
        if line.title:
            return Text(f"↻ {line.title}", "bold")
        symbol, style = SYMBOLS[self._state(line.path)]
        label = Text(f"{symbol} {line.path[1:]}".ljust(width), style)
        return label.append(self.notes.get(line.path, ""), "dim" if line.path in self.reused else "default")

    def _state(self, path: str) -> str:
        if node := self.view.nodes.get(path):
            return node.state
        return "waiting" if path in self.view.gates else "completed"

    def _time(self, path: str, now: datetime) -> str:
        if path in self.reused:
            return "reused"
        if path not in self.began:
            return ""
        return f"({self.took.get(path, (now - self.began[path]).total_seconds()):.1f}s)"
