"""The progress tree: a run and the runs it calls, read from their events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nerve.api.models import EventTold, GateTold
from nerve.commander.core.lines import gist, internal, last_line, shown, tool_summary
from nerve.commander.core.waits import ENDS, STARTS, needs_somebody, note_wait
from nerve.core.event import WorkflowEvent
from nerve.core.limits import Usage
from nerve.core.steps import plain_name
from nerve.core.view import NodeView, RunView

TAIL_CHARS = 400
"""Characters of a step's output that are kept to show its last line."""


@dataclass(slots=True)
class Branch:
    """One run of the tree."""

    run_id: str
    prefix: str = ""
    """The path of the call that started it."""
    view: RunView = field(default_factory=RunView)
    waits: dict[str, WorkflowEvent] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    notes: dict[str, str] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    """Paths of calls that are the notation's own affair."""
    notes_progress: bool = False
    _tails: dict[str, str] = field(default_factory=dict)
    """The end of what a running step has printed or said."""

    def asks(self, path: str) -> bool:
        """Whether what runs at a path waits for somebody itself, as agents do."""
        return any(
            at.startswith(f"{path}/") and wait.event_type == "gate_waiting" for at, wait in self.waits.items()
        )

    def take(self, event: WorkflowEvent) -> None:
        self.view.apply(event)
        type, path, data = event.event_type, event.path, event.data
        note_wait(self.waits, event)
        if type in STARTS and not data.get("control"):
            self.running.add(path)
            if internal(data):
                self.hidden.add(path)
        elif type in ENDS:
            self.running.discard(path)
            self._tails.pop(path, None)
            self.notes[path] = gist(event)
        elif type == "gate_waiting":
            self.notes[place_of(path)] = str(data["prompt"])
        elif type == "gate_answered":
            self.notes[place_of(path)] = f"{shown(data['answer'])} ({self.notes.get(place_of(path), '')})"
        elif type in ("output_chunk", "tool_call") and self.notes_progress and path in self.running:
            self._note_progress(path, type, data)
        elif type == "provider_limited":
            self.notes[path] = str(data.get("message", ""))
        elif type == "provider_open":
            self.notes.pop(path, None)
        elif type == "path_reset":
            self.running = {each for each in self.running if not f"{each}/".startswith(f"{path}/")}

    def _note_progress(self, path: str, type: str, data: dict[str, Any]) -> None:
        """Show what a running step does: its last tool call, or the last line of its output."""
        if type == "tool_call":
            if "name" in data:
                self._tails.pop(path, None)
                self.notes[path] = tool_summary(data)
            return
        complete = data.get("stream") in ("assistant", "thought")
        before = "" if complete else self._tails.pop(path, "")
        tail = (before + str(data.get("text", "")))[-TAIL_CHARS:]
        self._tails[path] = "" if complete else tail
        self.notes[path] = last_line(tail) or self.notes.get(path, "")


@dataclass(slots=True)
class Tree:
    """A run, and below the calls that started them, its child runs."""

    branches: dict[str, Branch] = field(default_factory=dict)
    """By the paths of the calls; the run itself is at the empty path."""
    notes_progress: bool = False
    """Whether a running step is shown with what it does; a screen that shows its output does not need it."""

    @property
    def root(self) -> Branch:
        return self.branches[""]

    def take(self, prefix: str, event: WorkflowEvent) -> None:
        branch = self.branches.get(prefix)
        if branch is None:
            branch = Branch(event.run_id, prefix, notes_progress=self.notes_progress)
            self.branches[prefix] = branch
        branch.take(event)

    @property
    def gates(self) -> list[GateTold]:
        """The open gates of all the runs."""
        return [
            GateTold.model_validate({**gate, "run_id": each.run_id, "path": each.prefix + gate["path"]})
            for each in self.branches.values()
            if each.view.state not in ("completed", "failed", "cancelled")
            for gate in each.view.gates.values()
        ]

    @property
    def waits(self) -> list[dict[str, Any]]:
        """The signals and facts that are waited for, as their events say it."""
        each = [wait for branch in self.branches.values() for wait in branch.waits.values()]
        return [wait.data for wait in each if wait.event_type == "signal_waiting"]

    @property
    def stands(self) -> bool:
        """Whether nothing goes on unless somebody answers, or asserts a fact."""
        calls = {prefix for prefix in self.branches if prefix}
        busy = [
            path
            for each in self.branches.values()
            for path in each.running
            if each.prefix + path not in calls and not each.asks(path)
        ]
        waits = [wait for each in self.branches.values() for wait in each.waits.values()]
        lasting = (wait.event_type == "gate_waiting" or needs_somebody(wait.data) for wait in waits)
        return bool(waits) and not busy and all(lasting)

    @property
    def usage(self) -> Usage:
        total = Usage()
        for each in self.branches.values():
            total.spend(each.view.usage.to_dict())
        return total


def visible(branch: Branch, nodes: list[NodeView]) -> Iterator[NodeView]:
    """The nodes of a level; the children of one that is not shown stand in its place."""
    for node in nodes:
        if node.path in branch.hidden or (not node.children and node.name == "answer"):
            yield from visible(branch, node.children)
        else:
            yield node


def name_of(node: NodeView) -> str:
    """A step with its rounds and attempts."""
    rounds = f" [{node.iteration}{f'/{node.max_iterations}' if node.max_iterations else ''}]"
    again = f" ({node.attempts} attempts)" if node.attempts > 1 else ""
    return plain_name(node.name) + (rounds if node.iteration else "") + again


def place_of(path: str) -> str:
    """Where a gate stands in the tree."""
    return path.rpartition("/")[0] or path


def time(began: datetime | None, ended: datetime | None, now: datetime) -> str:
    return "" if began is None else f"({((ended or now) - began).total_seconds():.1f}s)"


def spent(usage: Usage) -> str:
    tokens = f"{usage.tokens:,} tokens" if usage.tokens else ""
    cost = f"${usage.cost:.2f}" if usage.cost else ""
    return " · ".join(part for part in (tokens, cost) if part)


def event_of(told: EventTold) -> WorkflowEvent:
    return WorkflowEvent(
        told.run_id,
        told.workflow_id,
        told.event_type,
        told.data,
        told.timestamp,
        seq=told.seq,
        path=told.path,
    )
