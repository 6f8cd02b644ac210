"""The progress tree: a run and its child runs, derived from their events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nerve.api.models import EventResponse, GateResponse
from nerve.core.events import WorkflowEvent
from nerve.core.limits import RunUsage
from nerve.core.run_view import NodeView, RunView
from nerve.core.step_names import plain_path_part
from nerve.ui.event_lines import (
    format_event_value,
    is_internal_call,
    last_nonempty_line,
    summarize_result,
    summarize_tool_call,
)
from nerve.ui.open_waits import STEP_END_EVENTS, STEP_START_EVENTS, has_no_deadline, update_open_waits

TAIL_CHARS = 400
"""Characters of a step's output kept to show its last line."""


@dataclass(slots=True)
class RunBranch:
    """One run in the tree."""

    run_id: str
    prefix: str = ""
    """The path of the call that started the run."""
    view: RunView = field(default_factory=RunView)
    waits: dict[str, WorkflowEvent] = field(default_factory=dict)
    running_paths: set[str] = field(default_factory=set)
    notes: dict[str, str] = field(default_factory=dict)
    hidden_paths: set[str] = field(default_factory=set)
    """Paths of calls that are internal to the notation."""
    shows_progress: bool = False
    _output_tails: dict[str, str] = field(default_factory=dict)
    """The end of the output of running steps, by path."""

    def is_waiting_for_answer(self, path: str) -> bool:
        """Return whether the step at a path has its own open gate, as agents do."""
        return any(
            wait_path.startswith(f"{path}/") and wait.event_type == "gate_waiting"
            for wait_path, wait in self.waits.items()
        )

    def apply_event(self, event: WorkflowEvent) -> None:
        self.view.apply(event)
        type, path, data = event.event_type, event.path, event.data
        update_open_waits(self.waits, event)
        if type in STEP_START_EVENTS and not data.get("control"):
            self.running_paths.add(path)
            if is_internal_call(data):
                self.hidden_paths.add(path)
        elif type in STEP_END_EVENTS:
            self.running_paths.discard(path)
            self._output_tails.pop(path, None)
            self.notes[path] = summarize_result(event)
        elif type == "gate_waiting":
            self.notes[gate_parent_path(path)] = str(data["prompt"])
        elif type == "gate_answered":
            self.notes[gate_parent_path(path)] = (
                f"{format_event_value(data['answer'])} ({self.notes.get(gate_parent_path(path), '')})"
            )
        elif type in ("output_chunk", "tool_call") and self.shows_progress and path in self.running_paths:
            self._note_progress(path, type, data)
        elif type == "provider_limited":
            self.notes[path] = str(data.get("message", ""))
        elif type == "provider_open":
            self.notes.pop(path, None)
        elif type == "path_reset":
            self.running_paths = {
                running_path
                for running_path in self.running_paths
                if not f"{running_path}/".startswith(f"{path}/")
            }

    def _note_progress(self, path: str, type: str, data: dict[str, Any]) -> None:
        """Note the activity of a running step: its last tool call, or the last line of its output."""
        if type == "tool_call":
            if "name" in data:
                self._output_tails.pop(path, None)
                self.notes[path] = summarize_tool_call(data)
            return
        is_complete = data.get("stream") in ("assistant", "thought")
        previous_tail = "" if is_complete else self._output_tails.pop(path, "")
        tail = (previous_tail + str(data.get("text", "")))[-TAIL_CHARS:]
        self._output_tails[path] = "" if is_complete else tail
        self.notes[path] = last_nonempty_line(tail) or self.notes.get(path, "")


@dataclass(slots=True)
class ProgressTree:
    """A run and its child runs, each below the call that started it."""

    branches: dict[str, RunBranch] = field(default_factory=dict)
    """Branches by call path; the root run has the empty path."""
    shows_progress: bool = False
    """Whether running steps show their activity; not needed on screens that show the output."""

    @property
    def root(self) -> RunBranch:
        return self.branches[""]

    def apply_event(self, prefix: str, event: WorkflowEvent) -> None:
        branch = self.branches.get(prefix)
        if branch is None:
            branch = RunBranch(event.run_id, prefix, shows_progress=self.shows_progress)
            self.branches[prefix] = branch
        branch.apply_event(event)

    @property
    def gates(self) -> list[GateResponse]:
        """The open gates of all runs in the tree."""
        return [
            GateResponse.model_validate(
                {**gate, "run_id": branch.run_id, "path": branch.prefix + gate["path"]}
            )
            for branch in self.branches.values()
            if branch.view.state not in ("completed", "failed", "cancelled")
            for gate in branch.view.gates.values()
        ]

    @property
    def waits(self) -> list[dict[str, Any]]:
        """The event data of the open waits for signals and facts."""
        open_waits = [wait for branch in self.branches.values() for wait in branch.waits.values()]
        return [wait.data for wait in open_waits if wait.event_type == "signal_waiting"]

    @property
    def is_idle(self) -> bool:
        """Whether the tree makes no progress without an answer, a signal or a fact."""
        calls = {prefix for prefix in self.branches if prefix}
        busy = [
            path
            for branch in self.branches.values()
            for path in branch.running_paths
            if branch.prefix + path not in calls and not branch.is_waiting_for_answer(path)
        ]
        waits = [wait for branch in self.branches.values() for wait in branch.waits.values()]
        is_external = (wait.event_type == "gate_waiting" or has_no_deadline(wait.data) for wait in waits)
        return bool(waits) and not busy and all(is_external)

    @property
    def usage(self) -> RunUsage:
        total = RunUsage()
        for branch in self.branches.values():
            total.spend(branch.view.usage.to_dict())
        return total


def visible_nodes(branch: RunBranch, nodes: list[NodeView]) -> Iterator[NodeView]:
    """Yield the visible nodes of a level; a hidden node is replaced by its children."""
    for node in nodes:
        if node.path in branch.hidden_paths or (not node.children and node.name == "answer"):
            yield from visible_nodes(branch, node.children)
        else:
            yield node


def format_step_name(node: NodeView) -> str:
    """Format the name of a step with its iteration and attempts."""
    iteration = f" [{node.iteration}{f'/{node.max_iterations}' if node.max_iterations else ''}]"
    attempts = f" ({node.attempts} attempts)" if node.attempts > 1 else ""
    return plain_path_part(node.name) + (iteration if node.iteration else "") + attempts


def gate_parent_path(path: str) -> str:
    """Return the path of the step that a gate belongs to."""
    return path.rpartition("/")[0] or path


def format_elapsed(started_at: datetime | None, ended_at: datetime | None, now: datetime) -> str:
    return "" if started_at is None else f"({((ended_at or now) - started_at).total_seconds():.1f}s)"


def format_tokens_and_cost(usage: RunUsage) -> str:
    tokens = f"{usage.tokens:,} tokens" if usage.tokens else ""
    cost = f"${usage.cost:.2f}" if usage.cost else ""
    return " · ".join(part for part in (tokens, cost) if part)


def to_workflow_event(event: EventResponse) -> WorkflowEvent:
    return WorkflowEvent(
        event.run_id,
        event.workflow_id,
        event.event_type,
        event.data,
        event.timestamp,
        seq=event.seq,
        path=event.path,
    )
