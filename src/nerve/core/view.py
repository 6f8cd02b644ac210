"""The view: what every screen shows of a run, read from its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from nerve.core.event import WorkflowEvent, is_reserved
from nerve.core.ledger import Ledger
from nerve.core.limits import Usage
from nerve.core.nodes.attempt import is_in
from nerve.core.nodes.context import take

RUNNING_STATES = frozenset({"running", "waiting", "pausing", "paused"})
BUSY = ("running", "waiting", "retrying")
"""States of steps that have begun and not ended."""


@dataclass(slots=True)
class NodeView:
    """One line of the progress tree."""

    path: str
    name: str
    state: str = "pending"
    """pending, running, waiting, retrying, completed, failed, skipped or cancelled."""
    control: bool = False
    own: bool = False
    """Whether events tell of it; what is only part of the body is known by its parts."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    iteration: int | None = None
    max_iterations: int | None = None
    attempts: int = 1
    error: str | None = None
    held: str | None = None
    """Why it stands although it runs: its provider is at a limit, and until when."""
    thread_running: bool = False
    """Whether a sync function goes on in its thread although its step has ended."""
    children: list[NodeView] = field(default_factory=list)

    @property
    def seconds(self) -> float | None:
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


@dataclass(slots=True)
class RunView:
    """State, tree, open gates and usage of a run after some of its events; any prefix gives a valid view."""

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
    usage: Usage = field(default_factory=Usage)
    ledger: Ledger = field(default_factory=Ledger)
    """What agents took, by step and by model."""
    last_seq: int = 0
    _waits: set[str] = field(default_factory=set)
    _leaves: set[str] = field(default_factory=set)
    _resting: set[str] = field(default_factory=set)
    """Leaves at which no further attempt begins while the run is paused."""
    _paused: bool = False
    _visits: dict[str, dict[str, int]] = field(default_factory=dict)
    """How often each machine has entered each of its states."""
    _current: dict[str, str] = field(default_factory=dict)
    """The path of the state that each machine is in."""
    _before_end: dict[str, str] = field(default_factory=dict)
    """The states of steps without events of their own as they were when the run ended."""
    _copied: int = -1
    """How many events it has from the run that it was forked from, which has spent what they tell."""

    @property
    def limited(self) -> dict[str, str]:
        """The steps that stand because their providers are at a limit, and until when, by their paths."""
        if self.state not in RUNNING_STATES:
            return {}
        return {path: node.held for path, node in self.nodes.items() if node.held}

    def apply(self, event: WorkflowEvent) -> RunView:
        """Take in the next event."""
        self.last_seq = event.seq
        family, _, what = event.event_type.partition("_") if is_reserved(event.event_type) else ("", "", "")
        if family == "workflow":
            self._lifecycle(event, what)
        elif family in ("node", "step"):
            self._call(event, what)
        elif family in ("gate", "timer", "signal"):
            self._wait(event, family, what)
        elif event.event_type == "loop_iteration":
            self.usage.iterations += 1
            if event.path:
                looping = self._node(event.path, event.path.rsplit("/", 1)[-1])
                looping.iteration = (whole_number(event.data.get("iteration")) or 0) + 1
                looping.max_iterations = whole_number(event.data.get("max"))
                self._decided(looping, event)
        elif event.event_type == "state_entered":
            self._entered(event)
        elif event.event_type == "branch_taken":
            self._branched(event)
        elif event.event_type in ("provider_limited", "provider_open"):
            if (node := self.nodes.get(event.path)) is not None:
                node.held = text(event.data.get("message"))
        elif event.event_type == "usage":
            if event.seq > self._copied:
                self.ledger.turn(event.path, event.data)
        elif event.event_type == "skipped":
            self._skipped(event)
        elif event.event_type == "log" and "thread" in event.data and event.path in self.nodes:
            self.nodes[event.path].thread_running = event.data["thread"] == "running"
        elif event.event_type == "path_reset":
            self._reset(event.path)
        elif event.event_type == "child_stopped" and event.seq > self._copied:
            self.usage.spend(event.data["usage"])
            self.ledger.settled(event.path, event.data)
        self._restate()
        return self

    def _skipped(self, event: WorkflowEvent) -> None:
        """A step of what tells so, or that itself, is passed over."""
        path = event.data.get("path")
        if isinstance(path, str) and path.startswith("/") and f"{path}/".startswith(f"{event.path}/"):
            self._node(path, text(event.data.get("step_id")) or path.rsplit("/", 1)[-1]).state = "skipped"

    def _lifecycle(self, event: WorkflowEvent, what: str) -> None:
        data = event.data
        if what == "started":
            self.run_id, self.workflow_id = event.run_id, event.workflow_id
            self.started_at, self.state = event.timestamp, "running"
            self._copied = (data.get("forked_from") or {}).get("copied", -1)
            for step in data.get("steps", []):
                self._node(f"/{step}", step)
        elif what in ("completed", "failed", "cancelled"):
            self.state, self.ended_at = what, event.timestamp
            self.result, self.error = data.get("result"), data.get("error") or data.get("reason") or None
            self.gates.clear()
            self._end_all(event.timestamp, what)
        elif what == "paused":
            self._paused = True
            self._resting = set(data.get("resting", ()))
        elif what == "held":
            self.held, self.state = data, "held"
        elif what == "resumed":
            self._paused, self.held, self.state = False, None, "running"
            self._resting.clear()
            for path, state in self._before_end.items():
                self.nodes[path].state, self.nodes[path].ended_at = state, None
            self._before_end.clear()

    def _end_all(self, at: datetime, what: str) -> None:
        """What was going on when the run ended goes on no more, and what was to come does not come."""
        current = set(self._current.values())
        last = max((n for n, node in enumerate(self.tree) if node.state != "pending"), default=-1)
        passed = {id(node) for n, node in enumerate(self.tree) if n < last or what == "completed"}
        for node in self.nodes.values():
            if not node.own and node.state in ("pending", "running"):
                self._before_end[node.path] = node.state
            if node.state in BUSY:
                working = any(part.state in BUSY for part in node.children)
                node.state = what if node.path in current and not node.own and not working else "cancelled"
                node.ended_at, node.held = at, None
            elif node.state == "pending":
                # Without a machine, steps follow each other: one that only computes a value has no event.
                computed = id(node) in passed and "" not in self._current
                node.state = "completed" if computed else "skipped"

    # -- what records nothing itself -----------------------------------------------------------

    def _entered(self, event: WorkflowEvent) -> None:
        """A machine goes on to a state: the one before is over, and this one has begun."""
        name, machine = text(event.data.get("state")), event.path
        if not name or self._is_leaf(machine):
            return
        if (left := self._current.get(machine)) is not None:
            self._leave(self.nodes[left], event, event.data.get("previous"))
        path = self._current[machine] = take(machine, self._visits.setdefault(machine, {}), name)
        node = self._node(path, path.rsplit("/", 1)[-1])
        node.state, node.started_at, node.ended_at = "running", event.timestamp, None
        self._around(replace(event, path=path))

    def _leave(self, node: NodeView, event: WorkflowEvent, how: object) -> None:
        for machine, state in list(self._current.items()):
            if machine and is_in(machine, node.path):
                del self._current[machine]
                self._leave(self.nodes[state], event, how)
        if not node.own and (node.state == "running" or how in ("completed", "failed")):
            node.state = "failed" if how == "failed" else "completed"
            node.ended_at = event.timestamp

    def _branched(self, event: WorkflowEvent) -> None:
        """A way was taken, which may have nothing in it that is recorded."""
        name = text(event.data.get("branch"))
        if self._is_leaf(event.path):
            return
        if event.path:
            self._decided(self._node(event.path, event.path.rsplit("/", 1)[-1]), event)
        if name:
            path = take(event.path, {}, name)
            self._decided(self._node(path, path.rsplit("/", 1)[-1]), event)

    def _decided(self, node: NodeView, event: WorkflowEvent) -> None:
        """What only decides is over when it has; what is done in it is known by its own events."""
        if not node.own and node.state == "pending":
            node.state, node.started_at, node.ended_at = "completed", event.timestamp, event.timestamp
            self._around(replace(event, path=node.path))

    def _is_leaf(self, path: str) -> bool:
        node = self.nodes.get(path)
        return node is not None and node.own and not node.control

    def _call(self, event: WorkflowEvent, what: str) -> None:
        data = event.data
        node = self._node(event.path, event.path.rsplit("/", 1)[-1])
        if what == "started":
            node.state, node.started_at, node.control = "running", event.timestamp, bool(data.get("control"))
            node.own, node.ended_at = True, None
            if not node.control:
                self.usage.steps += 1
            if not node.control and "child" not in data:
                self._leaves.add(event.path)
        elif what == "retrying":
            node.state, node.attempts = "retrying", int(data.get("attempt", 1)) + (not data.get("recovered"))
            if self._paused:
                self._resting.add(event.path)
        else:
            self._settled(node, data, event, what)
        self._around(event)

    def _around(self, event: WorkflowEvent) -> None:
        """What is around a part is as its parts are, where no event tells of it."""
        path = event.path
        while path := path.rpartition("/")[0]:
            node = self.nodes[path]
            if node.own:
                return
            node.started_at = node.started_at or event.timestamp
            busy = [part.state for part in node.children if part.state in BUSY]
            last = next(
                (part.state for part in reversed(node.children) if part.state != "pending"), "pending"
            )
            if not busy and path in self._current.values():
                busy = ["running"]
            node.state, node.ended_at = (busy[0], None) if busy else (last, event.timestamp)

    def _settled(self, node: NodeView, data: dict[str, Any], event: WorkflowEvent, what: str) -> None:
        self._leaves.discard(event.path)
        success = data.get("success", False)
        node.state = "cancelled" if what == "cancelled" else "completed" if success else "failed"
        node.ended_at, node.error, node.held = event.timestamp, data.get("error"), None
        if node.control:
            return
        if not success and what != "cancelled":
            self.usage.errors += 1
        result = data.get("result")
        if isinstance(result, dict) and event.seq > self._copied:
            attributes = result.get("attributes") or {}
            self.usage.spend(attributes.get("usage"))
            self.ledger.settled(event.path, attributes)

    def _wait(self, event: WorkflowEvent, family: str, what: str) -> None:
        opened = what in ("waiting", "started")
        if opened and not event.data.get("guard"):
            self._waits.add(event.path)
        elif not opened:
            self._waits.discard(event.path)
        if not event.data.get("guard") and (place := self._waits_at(event)):
            self._waiting(self._node(place, place.rsplit("/", 1)[-1]), event, opened)
        if family == "gate" and opened:
            self.gates[event.path] = {**event.data, "path": event.path}
        else:
            self.gates.pop(event.path, None)

    def _waits_at(self, event: WorkflowEvent) -> str:
        """The place of what waits; a gate that is the whole run has that of its own name."""
        asked = event.data.get("node_id") or self.gates.get(event.path, {}).get("node_id")
        return event.path.rpartition("/")[0] or (f"/{asked}" if asked else "")

    def _waiting(self, node: NodeView, event: WorkflowEvent, opened: bool) -> None:
        """What only waits is known by its wait."""
        if node.own or node.children:
            return
        node.started_at = node.started_at or event.timestamp
        if opened:
            node.state, node.ended_at = "waiting", None
        else:
            kind = event.event_type.rpartition("_")[2]
            if kind == "timeout" and event.data.get("timeout") == 0:
                kind = "received"  # a test waits for no time, and has its answer
            node.state = {"timeout": "failed", "cancelled": "cancelled"}.get(kind, "completed")
            node.ended_at = event.timestamp
        self._around(replace(event, path=node.path))

    def _reset(self, path: str) -> None:
        for place in [p for p in self.nodes if p == path or p.startswith(path + "/")]:
            self.nodes[place].state = "pending"
        below = f"{path}/"
        self._leaves = {p for p in self._leaves if not f"{p}/".startswith(below)}
        self._waits = {p for p in self._waits if not f"{p}/".startswith(below)}
        self.gates = {p: gate for p, gate in self.gates.items() if not f"{p}/".startswith(below)}

    def _restate(self) -> None:
        if self.state not in RUNNING_STATES:
            return
        if self._paused:
            self.state = "pausing" if self._leaves - self._resting else "paused"
        else:
            self.state = "waiting" if self._waits else "running"

    def _node(self, path: str, name: str) -> NodeView:
        node = self.nodes.get(path)
        if node is None:
            node = self.nodes[path] = NodeView(path, name)
            parent = path.rpartition("/")[0]
            if not parent:
                self.tree.append(node)
            else:
                self._node(parent, parent.rsplit("/", 1)[-1]).children.append(node)
        return node


def whole_number(value: Any) -> int | None:
    """A number of an event that anybody may emit, with anything in it."""
    return value if isinstance(value, int) else None


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def fold(events: Iterable[WorkflowEvent]) -> RunView:
    """The view after these events."""
    view = RunView()
    for event in events:
        view.apply(event)
    return view
