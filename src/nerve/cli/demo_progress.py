"""Progress of the demo run, as lines and as a panel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nerve.core.events import STEP_SETTLED_EVENTS, STEP_START_EVENTS, WorkflowEvent, WorkflowEventType
from nerve.core.run_view import RunView
from nerve.lazy_dataclass import dataclass
from nerve.ui.event_lines import STATE_SYMBOLS, event_duration_s
from nerve.ui.progress_tree import RunBranch, TreeRow, guides_of_row
from nerve.ui.tree_panel import (
    MAX_PANEL_WIDTH,
    add_rows,
    create_row_grid,
    render_progress_panel,
    render_root,
)

if TYPE_CHECKING:
    from rich.panel import Panel

STARTING_EVENTS = (*STEP_START_EVENTS, WorkflowEventType.NODE_RETRYING)
NOTE_COLUMN = 19
"""Column of the notes, so that they align at every depth."""


@dataclass
class ProgressLine:
    """One line of the tree: a step or gate with its path, or a round with its steps as children."""

    path: str = ""
    title: str = ""
    children: list[ProgressLine] = field(default_factory=list)


@dataclass
class DemoProgress:
    """Applies the events of a run and groups its steps by round."""

    branch: RunBranch = field(default_factory=lambda: RunBranch(""))
    lines: list[ProgressLine] = field(default_factory=list)
    reused_paths: set[str] = field(default_factory=set)
    """Paths of steps that completed or failed before this process started."""
    started_at: dict[str, datetime] = field(default_factory=dict)
    duration_s: dict[str, float] = field(default_factory=dict)
    """The time of the last attempt of each step, without the time between two processes."""
    printed_lines: int = 0
    """Number of lines in an earlier panel that is not redrawn."""

    @property
    def view(self) -> RunView:
        return self.branch.view

    def apply_events(self, events: Iterable[WorkflowEvent]) -> None:
        for event in events:
            known_nodes = len(self.view.tree)
            self.branch.apply_event(event)
            for node in self.view.tree[known_nodes:]:
                self._current_lines().append(ProgressLine(node.path))
            if event.is_a("outer_round"):
                self.lines.append(ProgressLine(title=f"round {event.data['round']}/{event.data['max']}"))
            elif event.event_type == WorkflowEventType.GATE_WAITING:
                self.lines.append(ProgressLine(event.path))
            elif event.event_type in STARTING_EVENTS:
                self.started_at[event.path] = event.timestamp
            elif event.event_type in STEP_SETTLED_EVENTS:
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

    def panel(self, width: int = MAX_PANEL_WIDTH, now: datetime | None = None) -> Panel:
        grid = create_row_grid()
        grid.add_row(render_root(self.view.workflow_id, self.view.state), "")
        rows = list(self._rows(self.lines[self.printed_lines :], "", now or datetime.now(UTC)))
        add_rows(grid, rows, note_column=NOTE_COLUMN)
        return render_progress_panel(grid, width)

    def _rows(self, lines: list[ProgressLine], indent: str, now: datetime) -> Iterator[TreeRow]:
        for line in lines:
            guide, inner_indent = guides_of_row(indent, is_last=line is lines[-1])
            yield self._row(line, guide, now)
            yield from self._rows(line.children, inner_indent, now)

    def _row(self, line: ProgressLine, guide: str, now: datetime) -> TreeRow:
        if line.title:
            return TreeRow(guide, "↻", "bold", line.title)
        symbol, style = STATE_SYMBOLS[self._state(line.path)]
        note, note_style = (
            self.branch.notes.get(line.path, ""),
            "dim" if line.path in self.reused_paths else "",
        )
        return TreeRow(
            guide, symbol, style, line.path[1:], note, self._format_time(line.path, now), note_style
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
