"""Rows: a run of any workflow as a panel, one line a step, in the order in which they are begun."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nerve.cli.follow import Followed
from nerve.cli.progress import WIDEST
from nerve.commander.core.lines import ROOTS, SYMBOLS, gist, internal
from nerve.commander.core.waits import ENDS, STARTS
from nerve.core.view import RunView
from nerve.core.workflow import WorkflowEvent

NAMES = 24
MOST = 30
"""Rows that are shown; of more, the last."""
STATES = {"node_cancelled": "cancelled"}


@dataclass(slots=True)
class Row:
    """One step or gate."""

    label: str
    state: str = "pending"
    note: str = ""
    began: datetime | None = None
    ended: datetime | None = None
    reused: bool = False
    """Whether it was over before this process began."""

    def time(self, now: datetime) -> str:
        if self.began is None or self.reused:
            return "reused" if self.reused else ""
        return f"({((self.ended or now) - self.began).total_seconds():.1f}s)"


@dataclass(slots=True)
class Rows:
    """What a screen shows of a run and its children."""

    view: RunView = field(default_factory=RunView)
    rows: dict[str, Row] = field(default_factory=dict)

    def take(self, followed: Followed, event: WorkflowEvent) -> None:
        if not followed.prefix:
            self.view.apply(event)
        data, type = event.data, event.event_type
        if type == "workflow_started" and not followed.prefix:
            self.rows = {step: Row(step) for step in data.get("steps", [])}
        elif type in STARTS and not (data.get("control") or internal(data)):
            self._row(followed, event, "running")
        elif type == "gate_waiting":
            self._row(followed, event, "waiting").note = data["prompt"]
        elif (row := self.rows.get(label(followed, event))) is None:
            return
        elif type in ENDS:
            row.state = STATES.get(type) or ("completed" if data.get("success") else "failed")
            row.note, row.ended = gist(event), event.timestamp
        elif type == "node_retrying":
            row.state = "retrying"
        elif type == "gate_answered":
            row.state, row.ended, row.note = "completed", event.timestamp, f"{data['answer']} ({row.note})"
        elif type in ("gate_timeout", "gate_cancelled"):
            row.state, row.ended = "failed", event.timestamp

    def _row(self, followed: Followed, event: WorkflowEvent, state: str) -> Row:
        """The row of a step that begins; it stands where the workflow said that it would."""
        name = label(followed, event)
        if name not in self.rows:
            first = name.split("/")[0]
            planned = self.rows.get(first)
            if planned is not None and planned.state == "pending":
                self.rows = {name if key == first else key: row for key, row in self.rows.items()}
            else:
                self._insert(name, first)
        row = self.rows[name] = Row(name, state, began=event.timestamp)
        return row

    def _insert(self, name: str, first: str) -> None:
        """Put a row behind the last one of the same step."""
        keys = list(self.rows)
        same = [n for n, key in enumerate(keys) if bare(key.split("/")[0]) == bare(first)]
        keys.insert(same[-1] + 1 if same else len(keys), name)
        self.rows = {key: self.rows.get(key, Row(key)) for key in keys}

    def reuse(self) -> None:
        """What is over by now was not done by this process."""
        for row in self.rows.values():
            row.reused = row.ended is not None

    def panel(self, width: int = WIDEST, now: datetime | None = None) -> Panel:
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_column(justify="right", no_wrap=True)
        symbol, style = ROOTS.get(self.view.state, ("●", "yellow"))
        grid.add_row(Text(f"{symbol} {self.view.workflow_id}", f"bold {style}"), "")
        rows = list(self.rows.values())
        if len(rows) > MOST:
            grid.add_row(Text(f"   … {len(rows) - MOST} more above", "dim"), "")
        for row in rows[-MOST:]:
            symbol, style = SYMBOLS[row.state]
            text = Text("└─ " if row is rows[-1] else "├─ ", "dim")
            text.append(f"{symbol} {row.label}".ljust(NAMES), style).append(" " + row.note.split("\n")[0])
            grid.add_row(text, Text(row.time(now or datetime.now(UTC)), "dim"))
        return Panel(grid, title="Workflow Progress", border_style="blue", width=min(width, WIDEST))


def label(followed: Followed, event: WorkflowEvent) -> str:
    """How a person sees a path: without the slash before it, and a gate without its `answer`."""
    path = event.path.removesuffix("/answer") if event.event_type.startswith("gate_") else event.path
    return (followed.prefix + path).lstrip("/")


def bare(name: str) -> str:
    return re.sub(r"\[\d+\]$", "", name)
