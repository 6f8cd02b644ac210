"""Build the view of a run: its tree from its events, and what they add up to from the index."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from nerve.core.events import LONG_TEXT_EVENTS, JournalRow, WorkflowEvent
from nerve.core.nodes.attempt import is_same_or_below
from nerve.core.nodes.context import next_child_path
from nerve.core.run_view import ACTIVE_RUN_STATES, BUSY_NODE_STATES, NodeView, RunView
from nerve.core.step_names import is_internal_path
from nerve.journal.events import (
    BranchTaken,
    CallSettled,
    CallStarted,
    ChildStopped,
    Event,
    GateTimeout,
    GateWaiting,
    LogWritten,
    LoopIteration,
    MapItemStart,
    NodeCancelled,
    NodeRetrying,
    PathReset,
    ProviderLimited,
    ProviderOpen,
    RequestAbandoned,
    RunCancelled,
    RunCompleted,
    RunEnd,
    RunFailed,
    RunOnHold,
    RunPaused,
    RunResumed,
    RunStarted,
    SignalTimeout,
    StateEntered,
    StepSkipped,
    TagsChanged,
    UsageReported,
    WaitOpened,
    WaitSettled,
    event_from_data,
)
from nerve.journal.gate_info import shown_gate_fields
from nerve.journal.index import JournalIndex, RecordedEvent, is_guard, read_row
from nerve.journal.paths import ROOT_PATH, is_within_step


def read_view(run_id: str, workflow_id: str, rows: Iterable[JournalRow]) -> RunView:
    """Return the view of a run after these rows of its journal."""
    builder = RunViewBuilder()
    for row in rows:
        builder.add(read_row(row))
    builder.view.run_id, builder.view.workflow_id = run_id, workflow_id
    return builder.view


def fold_events(events: Iterable[WorkflowEvent]) -> RunView:
    """Return the view of a run after these events."""
    builder = RunViewBuilder()
    for event in events:
        builder.add_event(event)
    return builder.view


def set_failure(view: NodeView | RunView, failure: CallSettled | NodeRetrying | RunFailed | None) -> None:
    """Set why a step or a run failed; None if it did not."""
    if failure is None:
        view.error = view.error_type = view.location = view.traceback = None
    else:
        view.error, view.error_type = failure.error or None, failure.error_type or None
        view.location, view.traceback = failure.location, failure.traceback


class RunViewBuilder:
    """Keeps the view of a run up to date; any prefix of the events of a run gives a valid view."""

    def __init__(self) -> None:
        self._index = JournalIndex()
        self.view = RunView(usage=self._index.usage)
        self.open_waits: dict[str, WaitOpened] = {}
        """The waits that are open, also those of leaves, by path."""
        self.running_calls: dict[str, CallStarted] = {}
        """The calls of leaves and child runs that have not ended, by path."""
        self._resting_leaves: set[str] = set()
        """Leaves that start no further attempt while the run is paused."""
        self._visit_counts: dict[str, dict[str, int]] = {}
        """How often each state machine has entered each of its states."""
        self._current_states: dict[str, str] = {}
        """The path of the current state of each state machine."""
        self._busy_parts: dict[str, dict[str, NodeView]] = {}
        """The steps that have started and not ended, by the path of the step around them, oldest first."""
        self._states_before_end: dict[str, str] = {}
        """The states of steps without own events at the end of the run, to restore if it resumes."""

    def add_event(self, event: WorkflowEvent) -> None:
        """Update the view with the next event, as clients get it."""
        self.view.run_id, self.view.workflow_id = event.run_id, event.workflow_id
        if event.event_type in LONG_TEXT_EVENTS:  # most events of a run with an agent; no part of the view
            self.view.last_seq = event.seq
            return
        typed = event_from_data(event.event_type, event.data)
        settles: str | None = None
        match typed:
            case RunEnd():
                settles = ROOT_PATH
            case CallSettled() | WaitSettled():
                settles = event.path
            case RequestAbandoned() if event.path in self._index.unsettled:
                settles = event.path
        self.add(RecordedEvent(event.seq, event.timestamp.timestamp(), event.path, settles, typed))

    def add(self, recorded: RecordedEvent) -> None:
        """Update the view with the next event of the journal."""
        self._index.add((recorded,))
        self.view.last_seq = recorded.seq
        event, path, at = recorded.event, recorded.path, datetime.fromtimestamp(recorded.at, UTC)
        match event:
            case CallStarted():
                self._start_call(path, event, at)
            case CallSettled() | NodeCancelled():
                self._end_call(recorded, event, at)
            case WaitOpened():
                self._open_wait(path, event, at)
            case WaitSettled() | RequestAbandoned():
                self._end_wait(path, event, at)
            case NodeRetrying():
                node = self._get_or_add_node(path)
                node.state, node.attempts = "retrying", event.attempt + (not event.recovered)
                if event.error is not None:
                    set_failure(node, event)
                if self._index.clock.is_paused:
                    self._resting_leaves.add(path)
                self._update_ancestors(path, at)
            case LoopIteration() if path:
                loop_node = self._get_or_add_node(path)
                loop_node.iteration, loop_node.max_iterations = (event.iteration or 0) + 1, event.max
                self._mark_decided(loop_node, at)
            case MapItemStart() if path:
                self._get_or_add_node(path).max_iterations = event.total
            case StateEntered():
                self._enter_state(path, event, at)
            case BranchTaken():
                self._take_branch(path, event, at)
            case StepSkipped():
                self._skip_step(path, event)
            case PathReset():
                self._reset_path(path)
            case UsageReported() if self._is_charged(recorded):
                self.view.ledger.add_turn(path, event.extra)
            case ChildStopped() if self._is_charged(recorded):
                self.view.ledger.settle_step(path, {"run_id": event.run_id, "usage": event.usage})
            case ProviderLimited() | ProviderOpen() if (limited := self.view.nodes.get(path)) is not None:
                limited.held = event.message if isinstance(event, ProviderLimited) else None
            case LogWritten(thread=str() as thread) if path in self.view.nodes:
                self.view.nodes[path].thread_running = thread == "running"
            case _:
                self._apply_run_event(event, at)
        self._update_state()

    def add_open_step(self, path: str, state: str) -> None:
        """Add a step that has started before the first event of the view and not ended."""
        if path and path not in self.view.nodes:
            self._get_or_add_node(path).state = state

    def _is_charged(self, recorded: RecordedEvent) -> bool:
        """Whether the usage of an event counts here; that of copied events counts in the forked run."""
        return recorded.seq > self._index.start.copied_events

    # -- the run -----------------------------------------------------------------------------------

    def _apply_run_event(self, event: Event, at: datetime) -> None:
        view = self.view
        match event:
            case RunStarted():
                view.started_at, view.state = at, "running"
                view.tags = dict(event.tags or {})
                view.continued_from, view.used_before = event.previous_run, event.used_before
                for step in event.steps:
                    self._get_or_add_node(f"/{step}")
            case RunCompleted():
                view.result, view.continued_as = event.result, event.continued_as
                self._end_run("completed", at)
            case RunFailed():
                set_failure(view, event)
                self._end_run("failed", at)
            case RunCancelled():
                view.error = event.reason or None
                self._end_run("cancelled", at)
            case TagsChanged():
                view.tags |= event.tags
            case RunPaused():
                self._resting_leaves = set(event.resting or ())
            case RunOnHold():
                view.held, view.state = event.to_data(), "held"
            case RunResumed():
                view.held, view.state = None, "running"
                self._resting_leaves.clear()
                for path, state in self._states_before_end.items():
                    view.nodes[path].state, view.nodes[path].ended_at = state, None
                    if state in BUSY_NODE_STATES:
                        above = path.rpartition("/")[0]
                        self._busy_parts.setdefault(above, {})[path] = view.nodes[path]
                self._states_before_end.clear()

    def _end_run(self, state: str, at: datetime) -> None:
        """Settle all nodes at the end of the run: busy ones are cancelled, pending ones skipped."""
        view = self.view
        view.state, view.ended_at = state, at
        view.gates.clear()
        current = set(self._current_states.values())
        last = max((n for n, node in enumerate(view.tree) if node.state != "pending"), default=-1)
        passed = {id(node) for n, node in enumerate(view.tree) if n < last or state == "completed"}
        for node in view.nodes.values():
            if not node.has_own_events and node.state in ("pending", "running"):
                self._states_before_end[node.path] = node.state
            if node.state in BUSY_NODE_STATES:
                working = any(part.state in BUSY_NODE_STATES for part in node.children)
                is_last_state = node.path in current and not node.has_own_events and not working
                node.state = state if is_last_state else "cancelled"
                node.ended_at, node.held = at, None
            elif node.state == "pending":
                # Without a state machine, steps run in order. A step that only computes a value has no
                # events, so it is complete if a later step has started.
                computed = id(node) in passed and "" not in self._current_states
                node.state = "completed" if computed else "skipped"

    def _update_state(self) -> None:
        view = self.view
        if view.state not in ACTIVE_RUN_STATES:
            return
        if self._index.clock.is_paused:
            leaves = {path for path, call in self.running_calls.items() if call.is_leaf}
            view.state = "pausing" if leaves - self._resting_leaves else "paused"
        else:
            view.state = "waiting" if self.open_waits else "running"

    # -- calls -------------------------------------------------------------------------------------

    def _start_call(self, path: str, event: CallStarted, at: datetime) -> None:
        node = self._get_or_add_node(path)
        node.state, node.started_at, node.is_control = "running", at, event.is_control
        node.has_own_events, node.ended_at = True, None
        if not event.is_control:
            self.running_calls[path] = event
        self._update_ancestors(path, at)

    def _end_call(self, recorded: RecordedEvent, event: CallSettled | NodeCancelled, at: datetime) -> None:
        path = recorded.path
        node = self._get_or_add_node(path)
        self.running_calls.pop(path, None)
        node.ended_at, node.held = at, None
        if isinstance(event, NodeCancelled):
            node.state = "cancelled"
            set_failure(node, None)
        else:
            node.state = "completed" if event.success else "failed"
            set_failure(node, None if event.success else event)
        has_result = isinstance(event, CallSettled) or event.result is not None
        if has_result and not node.is_control and self._is_charged(recorded):
            self.view.ledger.settle_step(path, event.attributes)
        self._update_ancestors(path, at)

    # -- waits -------------------------------------------------------------------------------------

    def _open_wait(self, path: str, event: WaitOpened, at: datetime) -> None:
        if is_guard(event):
            return
        self.open_waits[path] = event
        if (node := self._waiting_node(path, event)) is not None:
            node.started_at = node.started_at or at
            node.state, node.ended_at = "waiting", None
            self._update_ancestors(node.path, at)
        if isinstance(event, GateWaiting):
            self.view.gates[path] = shown_gate_fields(path, event, at)

    def _end_wait(self, path: str, event: WaitSettled | RequestAbandoned, at: datetime) -> None:
        self.open_waits.pop(path, None)
        if (node := self._waiting_node(path, event)) is not None:
            node.started_at, node.ended_at = node.started_at or at, at
            match event:
                case RequestAbandoned():
                    node.state = "cancelled"
                # A timeout of 0 polls, so its expiry is the answer.
                case GateTimeout(timeout=seconds) | SignalTimeout(timeout=seconds) if seconds != 0:
                    node.state = "failed"
                case _:
                    node.state = "completed"
            self._update_ancestors(node.path, at)
        self.view.gates.pop(path, None)

    def _waiting_node(self, path: str, event: Event) -> NodeView | None:
        """Return the node of a wait, if it has no own events and children; else they set its state.

        A gate that is the whole run is at its own name, and so is one beside a step, about a conflict.
        """
        node_path = path.rpartition("/")[0]
        is_gate = isinstance(event, GateWaiting) or path in self.view.gates
        if is_gate and is_internal_path(path):
            above = self._get_or_add_node(node_path) if node_path else None
            return None if above is not None and above.has_own_events else self._get_or_add_node(path)
        if not node_path:
            node_id = getattr(event, "node_id", None) or self.view.gates.get(path, {}).get("node_id")
            node_path = f"/{node_id}" if node_id else ""
        if not node_path:
            return None
        node = self._get_or_add_node(node_path)
        return None if node.has_own_events or node.children else node

    # -- nodes without own events ------------------------------------------------------------------

    def _enter_state(self, machine: str, event: StateEntered, at: datetime) -> None:
        """Settle the previous state of a state machine and start the next one."""
        if not event.state or self._is_leaf(machine):
            return
        if (previous_path := self._current_states.get(machine)) is not None:
            self._leave_state(self.view.nodes[previous_path], event.previous, at)
        path = self._current_states[machine] = next_child_path(
            machine, self._visit_counts.setdefault(machine, {}), event.state
        )
        node = self._get_or_add_node(path)
        node.state, node.started_at, node.ended_at = "running", at, None
        self._update_ancestors(path, at)

    def _leave_state(self, node: NodeView, outcome: str | None, at: datetime) -> None:
        for machine, state in list(self._current_states.items()):
            if machine and is_same_or_below(machine, node.path):
                del self._current_states[machine]
                self._leave_state(self.view.nodes[state], outcome, at)
        if not node.has_own_events and (node.state == "running" or outcome in ("completed", "failed")):
            node.state = "failed" if outcome == "failed" else "completed"
            node.ended_at = at

    def _take_branch(self, path: str, event: BranchTaken, at: datetime) -> None:
        """Mark a branch as decided; it may contain no steps with events."""
        if self._is_leaf(path):
            return
        if path:
            self._mark_decided(self._get_or_add_node(path), at)
        if event.branch:
            self._mark_decided(self._get_or_add_node(next_child_path(path, {}, event.branch)), at)

    def _mark_decided(self, node: NodeView, at: datetime) -> None:
        """Complete a node that only decides; the steps in it have their own events."""
        if not node.has_own_events and node.state == "pending":
            node.state, node.started_at, node.ended_at = "completed", at, at
            self._update_ancestors(node.path, at)

    def _skip_step(self, path: str, event: StepSkipped) -> None:
        """Mark the step that emitted the event, or a step below it, as skipped."""
        skipped = event.path
        if skipped and skipped.startswith("/") and f"{skipped}/".startswith(f"{path}/"):
            self._get_or_add_node(skipped, event.step_id).state = "skipped"

    def _is_leaf(self, path: str) -> bool:
        node = self.view.nodes.get(path)
        return node is not None and node.has_own_events and not node.is_control

    def _update_ancestors(self, path: str, at: datetime) -> None:
        """Derive the states of the ancestors without own events from their children."""
        part = self.view.nodes[path]
        while path := path.rpartition("/")[0]:
            node = self.view.nodes[path]
            if node.has_own_events:
                return
            node.started_at = node.started_at or at
            busy_state = self._busy_state(node, part)
            if busy_state is None and path in self._current_states.values():
                busy_state = "running"
            last = next(
                (each.state for each in reversed(node.children) if each.state != "pending"), "pending"
            )
            node.state, node.ended_at = (busy_state, None) if busy_state else (last, at)
            part = node

    def _busy_state(self, node: NodeView, changed_part: NodeView) -> str | None:
        """Return the state of the part that is busy for the longest time, or None; one part has changed."""
        # Not a search through all parts, which would be quadratic for a map over many items.
        busy = self._busy_parts.setdefault(node.path, {})
        if changed_part.state in BUSY_NODE_STATES:
            busy[changed_part.path] = changed_part
        else:
            busy.pop(changed_part.path, None)
        while busy:
            first = next(iter(busy.values()))
            if first.state in BUSY_NODE_STATES:
                return first.state
            del busy[first.path]
        return None

    def _reset_path(self, path: str) -> None:
        for node_path, node in self.view.nodes.items():
            if is_within_step(node_path, path):
                node.state = "pending"
        open_by_path: tuple[dict[str, Any], ...] = (self.running_calls, self.open_waits, self.view.gates)
        for opened in open_by_path:
            for reset_path in [at for at in opened if is_within_step(at, path)]:
                del opened[reset_path]

    def _get_or_add_node(self, path: str, name: str | None = None) -> NodeView:
        node = self.view.nodes.get(path)
        if node is None:
            parent, _, last = path.rpartition("/")
            node = self.view.nodes[path] = NodeView(path, name or last)
            siblings = self._get_or_add_node(parent).children if parent else self.view.tree
            siblings.append(node)
        return node
