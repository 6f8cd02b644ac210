"""RunView: the state of a run for display, folded from its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from nerve.core.events import WorkflowEvent, is_reserved_event
from nerve.core.limits import RunUsage
from nerve.core.nodes.attempt import is_same_or_below
from nerve.core.nodes.context import next_child_path
from nerve.core.usage_ledger import UsageLedger

ACTIVE_RUN_STATES = frozenset({"running", "waiting", "pausing", "paused"})
BUSY_NODE_STATES = ("running", "waiting", "retrying")
"""States of steps that have started and not ended."""


@dataclass(slots=True)
class NodeView:
    """A node of the progress tree."""

    path: str
    name: str
    state: str = "pending"
    """pending, running, waiting, retrying, completed, failed, skipped or cancelled."""
    is_control: bool = False
    has_own_events: bool = False
    """Whether the journal has events of this node; otherwise its state is derived from its children."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    iteration: int | None = None
    max_iterations: int | None = None
    attempts: int = 1
    error: str | None = None
    held: str | None = None
    """Why the running step waits: its provider is rate-limited, and until when."""
    thread_running: bool = False
    """Whether a sync function still runs in its thread although its step has ended."""
    children: list[NodeView] = field(default_factory=list)

    @property
    def seconds(self) -> float | None:
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


@dataclass(slots=True)
class RunView:
    """State, tree, open gates and usage of a run; any prefix of its events gives a valid view."""

    run_id: str = ""
    workflow_id: str = ""
    state: str = "pending"
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: Any = None
    error: str | None = None
    held: dict[str, Any] | None = None
    tree: list[NodeView] = field(default_factory=list)
    nodes: dict[str, NodeView] = field(default_factory=dict)
    gates: dict[str, dict[str, Any]] = field(default_factory=dict)
    usage: RunUsage = field(default_factory=RunUsage)
    ledger: UsageLedger = field(default_factory=UsageLedger)
    """Usage of agents by step and model."""
    last_seq: int = 0
    _open_waits: set[str] = field(default_factory=set)
    _running_leaves: set[str] = field(default_factory=set)
    _resting_leaves: set[str] = field(default_factory=set)
    """Leaves that start no further attempt while the run is paused."""
    _is_paused: bool = False
    _visit_counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """How often each state machine has entered each of its states."""
    _current_states: dict[str, str] = field(default_factory=dict)
    """The path of the current state of each state machine."""
    _states_before_end: dict[str, str] = field(default_factory=dict)
    """The states of steps without own events at the end of the run, to restore if it resumes."""
    _copied_events: int = -1
    """The number of events copied from the forked run; their usage counts there, not here."""

    @property
    def limited_steps(self) -> dict[str, str]:
        """The steps that wait for a rate-limited provider, and until when, by path."""
        if self.state not in ACTIVE_RUN_STATES:
            return {}
        return {path: node.held for path, node in self.nodes.items() if node.held}

    def apply(self, event: WorkflowEvent) -> RunView:
        """Update the view with the next event and return it."""
        self.last_seq = event.seq
        family, _, what = (
            event.event_type.partition("_") if is_reserved_event(event.event_type) else ("", "", "")
        )
        if family == "workflow":
            self._apply_run_event(event, what)
        elif family in ("node", "step"):
            self._apply_call(event, what)
        elif family in ("gate", "timer", "signal"):
            self._apply_wait(event, family, what)
        elif event.event_type == "loop_iteration":
            self.usage.iterations += 1
            if event.path:
                loop_node = self._get_or_add_node(event.path, event.path.rsplit("/", 1)[-1])
                loop_node.iteration = (int_or_none(event.data.get("iteration")) or 0) + 1
                loop_node.max_iterations = int_or_none(event.data.get("max"))
                self._mark_decided(loop_node, event)
        elif event.event_type == "state_entered":
            self._enter_state(event)
        elif event.event_type == "branch_taken":
            self._apply_branch(event)
        elif event.event_type in ("provider_limited", "provider_open"):
            if (node := self.nodes.get(event.path)) is not None:
                node.held = str_or_none(event.data.get("message"))
        elif event.event_type == "usage":
            # The forked run has already been charged for copied events.
            if event.seq > self._copied_events:
                self.ledger.add_turn(event.path, event.data)
        elif event.event_type == "skipped":
            self._apply_skip(event)
        elif event.event_type == "log" and "thread" in event.data and event.path in self.nodes:
            self.nodes[event.path].thread_running = event.data["thread"] == "running"
        elif event.event_type == "path_reset":
            self._reset_path(event.path)
        elif event.event_type == "child_stopped" and event.seq > self._copied_events:
            self.usage.spend(event.data["usage"])
            self.ledger.settle_step(event.path, event.data)
        self._update_state()
        return self

    def _apply_skip(self, event: WorkflowEvent) -> None:
        """Mark the step that emitted the event, or a step below it, as skipped."""
        path = event.data.get("path")
        if isinstance(path, str) and path.startswith("/") and f"{path}/".startswith(f"{event.path}/"):
            self._get_or_add_node(
                path, str_or_none(event.data.get("step_id")) or path.rsplit("/", 1)[-1]
            ).state = "skipped"

    def _apply_run_event(self, event: WorkflowEvent, what: str) -> None:
        data = event.data
        if what == "started":
            self.run_id, self.workflow_id = event.run_id, event.workflow_id
            self.started_at, self.state = event.timestamp, "running"
            self._copied_events = (data.get("forked_from") or {}).get("copied", -1)
            for step in data.get("steps", []):
                self._get_or_add_node(f"/{step}", step)
        elif what in ("completed", "failed", "cancelled"):
            self.state, self.ended_at = what, event.timestamp
            self.result, self.error = data.get("result"), data.get("error") or data.get("reason") or None
            self.gates.clear()
            self._end_all(event.timestamp, what)
        elif what == "paused":
            self._is_paused = True
            self._resting_leaves = set(data.get("resting", ()))
        elif what == "held":
            self.held, self.state = data, "held"
        elif what == "resumed":
            self._is_paused, self.held, self.state = False, None, "running"
            self._resting_leaves.clear()
            for path, state in self._states_before_end.items():
                self.nodes[path].state, self.nodes[path].ended_at = state, None
            self._states_before_end.clear()

    def _end_all(self, at: datetime, what: str) -> None:
        """Settle all nodes at the end of the run: busy ones are cancelled, pending ones skipped."""
        current = set(self._current_states.values())
        last = max((n for n, node in enumerate(self.tree) if node.state != "pending"), default=-1)
        passed = {id(node) for n, node in enumerate(self.tree) if n < last or what == "completed"}
        for node in self.nodes.values():
            if not node.has_own_events and node.state in ("pending", "running"):
                self._states_before_end[node.path] = node.state
            if node.state in BUSY_NODE_STATES:
                working = any(part.state in BUSY_NODE_STATES for part in node.children)
                node.state = (
                    what if node.path in current and not node.has_own_events and not working else "cancelled"
                )
                node.ended_at, node.held = at, None
            elif node.state == "pending":
                # Without a state machine, steps run in order. A step that only computes a value has no
                # events, so it is complete if a later step has started.
                computed = id(node) in passed and "" not in self._current_states
                node.state = "completed" if computed else "skipped"

    # -- nodes without own events --------------------------------------------------------------

    def _enter_state(self, event: WorkflowEvent) -> None:
        """Settle the previous state of a state machine and start the next one."""
        name, machine = str_or_none(event.data.get("state")), event.path
        if not name or self._is_leaf(machine):
            return
        if (previous_path := self._current_states.get(machine)) is not None:
            self._leave_state(self.nodes[previous_path], event, event.data.get("previous"))
        path = self._current_states[machine] = next_child_path(
            machine, self._visit_counts.setdefault(machine, {}), name
        )
        node = self._get_or_add_node(path, path.rsplit("/", 1)[-1])
        node.state, node.started_at, node.ended_at = "running", event.timestamp, None
        self._update_ancestors(replace(event, path=path))

    def _leave_state(self, node: NodeView, event: WorkflowEvent, previous_outcome: object) -> None:
        for machine, state in list(self._current_states.items()):
            if machine and is_same_or_below(machine, node.path):
                del self._current_states[machine]
                self._leave_state(self.nodes[state], event, previous_outcome)
        if not node.has_own_events and (
            node.state == "running" or previous_outcome in ("completed", "failed")
        ):
            node.state = "failed" if previous_outcome == "failed" else "completed"
            node.ended_at = event.timestamp

    def _apply_branch(self, event: WorkflowEvent) -> None:
        """Mark a branch as decided; it may contain no steps with events."""
        name = str_or_none(event.data.get("branch"))
        if self._is_leaf(event.path):
            return
        if event.path:
            self._mark_decided(self._get_or_add_node(event.path, event.path.rsplit("/", 1)[-1]), event)
        if name:
            path = next_child_path(event.path, {}, name)
            self._mark_decided(self._get_or_add_node(path, path.rsplit("/", 1)[-1]), event)

    def _mark_decided(self, node: NodeView, event: WorkflowEvent) -> None:
        """Complete a node that only decides; the steps in it have their own events."""
        if not node.has_own_events and node.state == "pending":
            node.state, node.started_at, node.ended_at = "completed", event.timestamp, event.timestamp
            self._update_ancestors(replace(event, path=node.path))

    def _is_leaf(self, path: str) -> bool:
        node = self.nodes.get(path)
        return node is not None and node.has_own_events and not node.is_control

    def _apply_call(self, event: WorkflowEvent, what: str) -> None:
        data = event.data
        node = self._get_or_add_node(event.path, event.path.rsplit("/", 1)[-1])
        if what == "started":
            node.state, node.started_at, node.is_control = (
                "running",
                event.timestamp,
                bool(data.get("control")),
            )
            node.has_own_events, node.ended_at = True, None
            if not node.is_control:
                self.usage.steps += 1
            if not node.is_control and "child" not in data:
                self._running_leaves.add(event.path)
        elif what == "retrying":
            node.state, node.attempts = "retrying", int(data.get("attempt", 1)) + (not data.get("recovered"))
            if self._is_paused:
                self._resting_leaves.add(event.path)
        else:
            self._settle_node(node, data, event, what)
        self._update_ancestors(event)

    def _update_ancestors(self, event: WorkflowEvent) -> None:
        """Derive the states of the ancestors without own events from their children."""
        path = event.path
        while path := path.rpartition("/")[0]:
            node = self.nodes[path]
            if node.has_own_events:
                return
            node.started_at = node.started_at or event.timestamp
            busy = [part.state for part in node.children if part.state in BUSY_NODE_STATES]
            last = next(
                (part.state for part in reversed(node.children) if part.state != "pending"), "pending"
            )
            if not busy and path in self._current_states.values():
                busy = ["running"]
            node.state, node.ended_at = (busy[0], None) if busy else (last, event.timestamp)

    def _settle_node(self, node: NodeView, data: dict[str, Any], event: WorkflowEvent, what: str) -> None:
        self._running_leaves.discard(event.path)
        success = data.get("success", False)
        node.state = "cancelled" if what == "cancelled" else "completed" if success else "failed"
        node.ended_at, node.error, node.held = event.timestamp, data.get("error"), None
        if node.is_control:
            return
        if not success and what != "cancelled":
            self.usage.errors += 1
        result = data.get("result")
        if isinstance(result, dict) and event.seq > self._copied_events:
            attributes = result.get("attributes") or {}
            self.usage.spend(attributes.get("usage"))
            self.ledger.settle_step(event.path, attributes)

    def _apply_wait(self, event: WorkflowEvent, family: str, what: str) -> None:
        opened = what in ("waiting", "started")
        if opened and not event.data.get("guard"):
            self._open_waits.add(event.path)
        elif not opened:
            self._open_waits.discard(event.path)
        if not event.data.get("guard") and (node_path := self._waiting_path(event)):
            self._update_waiting(
                self._get_or_add_node(node_path, node_path.rsplit("/", 1)[-1]), event, opened
            )
        if family == "gate" and opened:
            self.gates[event.path] = {**event.data, "path": event.path}
        else:
            self.gates.pop(event.path, None)

    def _waiting_path(self, event: WorkflowEvent) -> str:
        """Return the path of the waiting node; a gate that is the whole run is at its own name."""
        node_id = event.data.get("node_id") or self.gates.get(event.path, {}).get("node_id")
        return event.path.rpartition("/")[0] or (f"/{node_id}" if node_id else "")

    def _update_waiting(self, node: NodeView, event: WorkflowEvent, opened: bool) -> None:
        """Update a node without own events and children from its wait."""
        if node.has_own_events or node.children:
            return
        node.started_at = node.started_at or event.timestamp
        if opened:
            node.state, node.ended_at = "waiting", None
        else:
            kind = event.event_type.rpartition("_")[2]
            if kind == "timeout" and event.data.get("timeout") == 0:
                kind = "received"  # a timeout of 0 polls, so its expiry is the answer
            node.state = {"timeout": "failed", "cancelled": "cancelled"}.get(kind, "completed")
            node.ended_at = event.timestamp
        self._update_ancestors(replace(event, path=node.path))

    def _reset_path(self, path: str) -> None:
        for node_path in [p for p in self.nodes if p == path or p.startswith(path + "/")]:
            self.nodes[node_path].state = "pending"
        prefix = f"{path}/"
        self._running_leaves = {p for p in self._running_leaves if not f"{p}/".startswith(prefix)}
        self._open_waits = {p for p in self._open_waits if not f"{p}/".startswith(prefix)}
        self.gates = {p: gate for p, gate in self.gates.items() if not f"{p}/".startswith(prefix)}

    def _update_state(self) -> None:
        if self.state not in ACTIVE_RUN_STATES:
            return
        if self._is_paused:
            self.state = "pausing" if self._running_leaves - self._resting_leaves else "paused"
        else:
            self.state = "waiting" if self._open_waits else "running"

    def _get_or_add_node(self, path: str, name: str) -> NodeView:
        node = self.nodes.get(path)
        if node is None:
            node = self.nodes[path] = NodeView(path, name)
            parent = path.rpartition("/")[0]
            if not parent:
                self.tree.append(node)
            else:
                self._get_or_add_node(parent, parent.rsplit("/", 1)[-1]).children.append(node)
        return node


def int_or_none(value: Any) -> int | None:
    """Return an integer of event data; None for any other value. Users can emit any data."""
    return value if isinstance(value, int) else None


def str_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def fold_events(events: Iterable[WorkflowEvent]) -> RunView:
    """Return the view after these events."""
    view = RunView()
    for event in events:
        view.apply(event)
    return view
