"""The progress tree: a run and its child runs, derived from their events, as rows for any screen.

Every display of a run tree starts here: `nerve run`, `nerve watch`, `nerve status`, the demo, and both modes
of the Commander. `tree_panel` draws the rows with rich.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from datetime import datetime
from typing import Any

from nerve.api.models import GateResponse
from nerve.core.events import (
    GATE_END_EVENTS,
    LONG_TEXT_EVENTS,
    RUN_END_EVENTS,
    STEP_END_EVENTS,
    STEP_START_EVENTS,
    WorkflowEvent,
    WorkflowEventType,
)
from nerve.core.limits import RunUsage
from nerve.core.run_view import NodeView, RunView
from nerve.core.step_names import is_internal_path, plain_path_part
from nerve.journal.events import MessageWaiting, SignalWaiting, TimerStarted, WaitOpened
from nerve.journal.run_view import RunViewBuilder
from nerve.journal.waiting import describe_waits
from nerve.lazy_dataclass import dataclass
from nerve.ui.event_lines import (
    STATE_SYMBOLS,
    is_internal_call,
    is_round_event,
    last_nonempty_line,
    summarize_result,
    summarize_tool_call,
)
from nerve.ui.formatting import format_elapsed, format_value
from nerve.ui.sanitize import markdown_first_line, sanitize_text

GATE_END_STATES: dict[str, str] = {
    WorkflowEventType.GATE_ANSWERED: "completed",
    WorkflowEventType.GATE_TIMEOUT: "failed",
    WorkflowEventType.GATE_CANCELLED: "cancelled",
}
TAIL_CHARS = 400
"""Characters of a step's output kept to show its last line."""


@dataclass(slots=True)
class RunBranch:
    """One run in the tree."""

    run_id: str
    prefix: str = ""
    """The path of the call that started the run."""
    view_builder: RunViewBuilder = field(default_factory=RunViewBuilder)
    notes: dict[str, str] = field(default_factory=dict)
    hidden_paths: set[str] = field(default_factory=set)
    """Paths of calls that are internal to the notation."""
    shows_progress: bool = False
    shown_nodes: list[NodeView] = field(default_factory=list)
    """The top level: the steps, below the rounds that the workflow announces, and the gates of its code."""
    _own_gates: dict[str, NodeView] = field(default_factory=dict)
    """The gates that no step has opened, by path."""
    output_tails: dict[str, str] = field(default_factory=dict)
    """The end of the output of running steps, by path."""

    @property
    def view(self) -> RunView:
        return self.view_builder.view

    def is_waiting_for_answer(self, path: str) -> bool:
        """Return whether the step at a path has its own open gate, as agents do."""
        return any(gate_path.startswith(f"{path}/") for gate_path in self.view.gates)

    def apply_event(self, event: WorkflowEvent) -> None:
        known_nodes = len(self.view.tree)
        self.view_builder.add_event(event)
        for node in self.view.tree[known_nodes:]:
            last = self.shown_nodes[-1] if self.shown_nodes else None
            (last.children if last is not None and last.state == "round" else self.shown_nodes).append(node)
        type, path, data = event.event_type, event.path, event.data
        if is_round_event(event):
            title = f"round {data['round']}/{data['max']}"
            self.shown_nodes.append(NodeView("", title, "round"))
        elif type in STEP_START_EVENTS:
            if is_internal_call(data) and not data.get("control"):
                self.hidden_paths.add(path)
        elif type in STEP_END_EVENTS:
            self.output_tails.pop(path, None)
            self.notes[path] = summarize_result(event)
        elif type == WorkflowEventType.GATE_WAITING:
            self.notes[gate_parent_path(path)] = str(data["prompt"])
            if gate_parent_path(path) == path and not data.get("node_id"):
                self._open_own_gate(path)
        elif type in GATE_END_EVENTS:
            if type == WorkflowEventType.GATE_ANSWERED:
                self.notes[gate_parent_path(path)] = (
                    f"{format_value(data['answer'])} ({self.notes.get(gate_parent_path(path), '')})"
                )
            if path in self._own_gates:
                self._own_gates[path].state = GATE_END_STATES[type]
        elif type in RUN_END_EVENTS:
            for gate in self._own_gates.values():
                gate.state = "cancelled" if gate.state == "waiting" else gate.state
        elif type in LONG_TEXT_EVENTS and self.shows_progress and path in self.view_builder.running_calls:
            self._note_progress(path, type, data)
        elif type == WorkflowEventType.LOG and path in self.view_builder.running_calls:
            self.notes[path] = str(data.get("message") or "")
        elif type == WorkflowEventType.PROVIDER_LIMITED:
            self.notes[path] = str(data.get("message", ""))
        elif type == WorkflowEventType.PROVIDER_OPEN:
            self.notes.pop(path, None)

    def _open_own_gate(self, path: str) -> None:
        if path not in self._own_gates:
            self._own_gates[path] = NodeView(path, path[1:])
            self.shown_nodes.append(self._own_gates[path])
        self._own_gates[path].state = "waiting"

    def _note_progress(self, path: str, type: str, data: dict[str, Any]) -> None:
        """Note the activity of a running step: its last tool call, or the last line of its output."""
        if type == WorkflowEventType.TOOL_CALL:
            if "name" in data:
                self.output_tails.pop(path, None)
                self.notes[path] = summarize_tool_call(data)
            return
        is_complete = data.get("stream") in ("assistant", "thought")
        previous_tail = "" if is_complete else self.output_tails.pop(path, "")
        tail = (previous_tail + str(data.get("text", "")))[-TAIL_CHARS:]
        self.output_tails[path] = "" if is_complete else tail
        self.notes[path] = last_nonempty_line(tail) or self.notes.get(path, "")


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One row of a tree; its texts are safe for a terminal."""

    guide: str
    """The lines that connect the row with those above."""
    symbol: str
    style: str
    """The style of the symbol and the name."""
    name: str
    note: str = ""
    """What the step does now, or its result."""
    time: str = ""
    note_style: str = ""
    is_growing: bool = False
    """Whether the note is the text that the step is writing: if it is too long, its end is shown."""

    @property
    def label(self) -> str:
        return f"{self.symbol} {self.name}"


@dataclass(slots=True)
class ProgressTree:
    """A run and its child runs, each below the call that started it."""

    branches: dict[str, RunBranch] = field(default_factory=dict)
    """Branches by call path; the root run has the empty path."""
    shows_progress: bool = False
    """Whether running steps show their activity; not needed on screens that show the output."""
    reused_before: datetime | None = None
    """Steps that ended before this time are marked as reused from the journal."""

    @property
    def root(self) -> RunBranch:
        return self.branches[""]

    def apply_event(self, prefix: str, event: WorkflowEvent) -> None:
        branch = self.branches.get(prefix)
        if branch is not None and branch.run_id != event.run_id:
            # Another attempt at a child run, or the next run of a chain: its tree starts again.
            inner = [each for each in self.branches if each.startswith(f"{prefix}/")]
            for replaced in (prefix, *inner):
                del self.branches[replaced]
            branch = None
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
        return [wait.to_data() for wait in self._open_waits() if isinstance(wait, SignalWaiting)]

    @property
    def message_waits(self) -> list[tuple[str, str]]:
        """The runs whose functions wait for a message, each with the channel."""
        return [
            (branch.run_id, wait.channel)
            for branch in self.branches.values()
            for wait in branch.view_builder.open_waits.values()
            if isinstance(wait, MessageWaiting) and not wait.background
        ]

    @property
    def waiting_for(self) -> str | None:
        """What the root run waits for, or the child runs that it called."""
        waits = {
            branch.run_id: list(branch.view_builder.open_waits.values())
            for branch in self.branches.values()
            if branch.view.state == "waiting"
        }
        own_waits = waits.pop(self.root.run_id, [])
        return describe_waits(own_waits, {run_id: describe_waits(each) for run_id, each in waits.items()})

    def _open_waits(self) -> list[WaitOpened]:
        builders = (branch.view_builder for branch in self.branches.values())
        return [wait for builder in builders for wait in builder.open_waits.values()]

    @property
    def is_idle(self) -> bool:
        """Whether the tree makes no progress without an answer, a signal or a fact."""
        calls = {prefix for prefix in self.branches if prefix}
        busy = [
            path
            for branch in self.branches.values()
            for path in branch.view_builder.running_calls
            if branch.prefix + path not in calls and not branch.is_waiting_for_answer(path)
        ]
        waits = self._open_waits()
        ends_alone = any(
            isinstance(wait, TimerStarted | SignalWaiting) and wait.deadline is not None for wait in waits
        )
        return bool(waits) and not busy and not ends_alone

    @property
    def usage(self) -> RunUsage:
        total = RunUsage()
        for branch in self.branches.values():
            total.spend(branch.view.usage.to_dict())
        return total

    def rows(self, now: datetime, indent: str = "") -> Iterator[TreeRow]:
        """Yield a row for each visible step below the root, child runs below the calls that started them."""
        return self._branch_rows(self.root, self.root.shown_nodes, indent, now)

    def _branch_rows(
        self, branch: RunBranch, nodes: list[NodeView], indent: str, now: datetime
    ) -> Iterator[TreeRow]:
        shown_nodes = list(visible_nodes(branch, nodes))
        for node in shown_nodes:
            is_last = node is shown_nodes[-1]
            inner_indent = indent + ("   " if is_last else "│  ")
            symbol, style = STATE_SYMBOLS.get(node.state, ("●", "yellow"))
            is_reused = (
                self.reused_before is not None
                and node.ended_at is not None
                and node.ended_at < self.reused_before
            )
            yield TreeRow(
                f"{indent}{'└─' if is_last else '├─'} ",
                symbol,
                style,
                sanitize_text(format_step_name(node)),
                markdown_first_line(branch.notes.get(node.path, "")),
                "reused" if is_reused else format_elapsed(node.started_at, node.ended_at, now),
                "dim" if is_reused else "",
                bool(branch.output_tails.get(node.path)),
            )
            yield from self._branch_rows(branch, node.children, inner_indent, now)
            child_branch = self.branches.get(branch.prefix + node.path)
            if child_branch is not None and child_branch is not branch:
                yield from self._branch_rows(child_branch, child_branch.shown_nodes, inner_indent, now)


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
    """Return the path of the step that a gate belongs to; one beside a step is a row of its own."""
    return path if is_internal_path(path) else path.rpartition("/")[0] or path
