"""Progress of the demo run, as lines and as a panel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nerve.core.run_view import RunView
from nerve.core.workflow import WorkflowEvent
from nerve.ui.event_lines import (
    ROOT_SYMBOLS,
    STATE_SYMBOLS,
    event_duration_s,
    format_event_value,
    summarize_result,
)

SETTLING_EVENTS = ("node_completed", "node_error", "node_timeout")
STARTING_EVENTS = ("node_started", "node_retrying")
MAX_PANEL_COLUMNS = 100
NAME_COLUMNS = 17
"""Column of the notes, so that they align at every depth."""


@dataclass
class ProgressLine:
    """One line of the tree: a step or gate with its path, or a round with its steps as children."""

    path: str = ""
    title: str = ""
    children: list[ProgressLine] = field(default_factory=list)


@dataclass
class DemoProgress:
    """Applies the events of a run and keeps display data that the run view does not have."""

    view: RunView = field(default_factory=RunView)
    lines: list[ProgressLine] = field(default_factory=list)
    reused_paths: set[str] = field(default_factory=set)
    """Paths of steps that completed or failed before this process started."""
    notes: dict[str, str] = field(default_factory=dict)
    """The result of each step, and the prompt and answer of each gate, by path."""
    started_at: dict[str, datetime] = field(default_factory=dict)
    duration_s: dict[str, float] = field(default_factory=dict)
    printed_lines: int = 0
    """Number of lines in an earlier panel that is not redrawn."""

    def apply_events(self, events: Iterable[WorkflowEvent]) -> None:
        for event in events:
            known_nodes = len(self.view.tree)
            self.view.apply(event)
            for node in self.view.tree[known_nodes:]:
                self._current_lines().append(ProgressLine(node.path))
            if event.is_a("outer_round"):
                self.lines.append(ProgressLine(title=f"round {event.data['round']}/{event.data['max']}"))
            elif event.is_a("gate_waiting"):
                self.notes[event.path] = event.data["prompt"]
                self.lines.append(ProgressLine(event.path))
            elif event.is_a("gate_answered"):
                self.notes[event.path] = (
                    f"{format_event_value(event.data['answer'])} ({self.notes[event.path]})"
                )
            elif event.event_type in STARTING_EVENTS:
                self.started_at[event.path] = event.timestamp
            elif event.event_type in SETTLING_EVENTS:
                self.notes[event.path] = summarize_result(event)
                self.duration_s[event.path] = event_duration_s(event)

    def _current_lines(self) -> list[ProgressLine]:
        """Return the list that a new step belongs to: its round, or the top level after a gate."""
        last = self.lines[-1] if self.lines else None
        return last.children if last is not None and last.title else self.lines

    def mark_reused(self) -> None:
        """Mark all steps finished so far as reused from the journal."""
        self.reused_paths = set(self.duration_s)

    def mark_printed(self) -> None:
        """Leave everything but the open gates in the current panel and start a new one below."""
        self.printed_lines = len(self.lines) - len(self.view.gates)

    def panel(self, width: int = MAX_PANEL_COLUMNS, now: datetime | None = None) -> Panel:
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_column(justify="right", no_wrap=True)
        symbol, style = ROOT_SYMBOLS.get(self.view.state, ("●", "yellow"))
        grid.add_row(Text(f"{symbol} {self.view.workflow_id}", f"bold {style}"), "")
        self._add_rows(grid, self.lines[self.printed_lines :], "", now or datetime.now(UTC))
        return Panel(
            grid, title="Workflow Progress", border_style="blue", width=min(width, MAX_PANEL_COLUMNS)
        )

    def _add_rows(self, grid: Table, lines: list[ProgressLine], guide: str, now: datetime) -> None:
        for line in lines:
            last = line is lines[-1]
            text = Text(f"{guide}{'└─' if last else '├─'} ", "dim")
            text.append_text(self._label(line, NAME_COLUMNS - len(guide)))
            grid.add_row(text, Text(self._format_time(line.path, now), "dim"))
            self._add_rows(grid, line.children, f"{guide}{'   ' if last else '│  '}", now)

    def _label(self, line: ProgressLine, width: int) -> Text:
        if line.title:
            return Text(f"↻ {line.title}", "bold")
        symbol, style = STATE_SYMBOLS[self._state(line.path)]
        label = Text(f"{symbol} {line.path[1:]}".ljust(width), style)
        return label.append(
            self.notes.get(line.path, ""), "dim" if line.path in self.reused_paths else "default"
        )

    def _state(self, path: str) -> str:
        if node := self.view.nodes.get(path):
            return node.state
        return "waiting" if path in self.view.gates else "completed"

    def _format_time(self, path: str, now: datetime) -> str:
        if path in self.reused_paths:
            return "reused"
        if path not in self.started_at:
            return ""
        return f"({self.duration_s.get(path, (now - self.started_at[path]).total_seconds()):.1f}s)"
