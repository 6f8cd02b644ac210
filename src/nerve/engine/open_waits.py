"""The gates, timers and signal waits of a body; each is settled once, by an external event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nerve.core.gates import gate_id, gate_waiting_data
from nerve.core.json_codec import decode_json, encode_json, short_sha256
from nerve.core.limits import limit_message
from nerve.core.runtime import GateWait, SignalWait, TimerWait, Wait
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import GateInfo, WorkflowState
from nerve.engine.pausable_timer import PausableTimer, bounds_path, moved_deadline
from nerve.errors import LimitReached, Suspended
from nerve.journal.events import active_seconds, wait_timeout_error
from nerve.journal.replay import (
    CONTROL_PREFIX,
    OPENING_EVENTS,
    ROOT_PATH,
    STOPPED_KEY,
    RecordedCall,
    RecordInvalidated,
    compared_wait_data,
    is_below_leaf,
    is_leaf_start,
    is_within_step,
)
from nerve.store.port import EventRow

if TYPE_CHECKING:
    from nerve.engine.run_executor import RunExecutor

EVENT_BY_WAIT_KIND = {"gate": "gate_waiting", "timer": "timer_started", "signal": "signal_waiting"}


@dataclass(slots=True)
class OpenWait:
    """A wait whose outcome is not known yet."""

    wait: Wait
    future: asyncio.Future[Any]
    deadline: float | None
    timer_handle: asyncio.TimerHandle | None = None
    pausable_timer: PausableTimer | None = None
    """Its timer, if it bounds other steps and can be paused."""


class OpenWaits:
    """The open waits of one run, and its wall-clock limit."""

    def __init__(self, executor: RunExecutor, rows: Iterable[EventRow]) -> None:
        self._executor = executor
        self._open_waits: dict[str, OpenWait] = {}
        # An answer can arrive before replay has reached its wait. It is journaled at once and delivered
        # when the body asks.
        self._early_outcomes: dict[str, tuple[int, Any]] = {}
        self._unsettled_rows = UnsettledRows()
        self._wall_clock_timer: asyncio.TimerHandle | None = None
        self._active_s = 0.0 if executor.limits.wall_time is None else active_seconds(rows)
        self._active_since: float | None = None

    async def wait(self, wait: Wait) -> Any:
        executor = self._executor
        executor.raise_if_cancelled()
        request_text = encode_json(comparable_wait(wait), canonical=True, max_depth=None)
        recorded = executor.lookup_recorded(wait.path, short_sha256(request_text), request_text)
        open_wait: OpenWait | None = None
        try:
            if recorded is not None and recorded.outcome is not None:
                try:
                    return await executor.await_recorded(recorded)
                except RecordInvalidated:
                    recorded = None
            await executor.wait_until_live()
            # The recorded answers that follow were given without this question, so they are asked again.
            # A timer shows nothing to a person.
            if recorded is None and not isinstance(wait, TimerWait):
                executor.invalidate_later_answers()
            open_wait = self._open_wait(wait, short_sha256(request_text), recorded)
            return await executor.dispatcher.wait_for(open_wait.future)
        except asyncio.CancelledError:
            # Determined before _close_wait() removes the wait, which would look as if it had been settled.
            is_settled = self._is_settled(wait.path, recorded, open_wait)
            if not executor.detached:
                self._close_wait(wait.path)
            if open_wait is not None or recorded is not None:
                executor.record_abandoned(wait.path, f"{wait_kind(wait)}_cancelled", recorded, is_settled)
            raise

    def _is_settled(self, path: str, recorded: RecordedCall | None, open_wait: OpenWait | None) -> bool:
        """Whether an abandoned wait was already settled, just not delivered yet."""
        if open_wait is not None:
            return path not in self._open_waits
        is_early = self._early_outcomes.pop(path, None) is not None
        return is_early or (recorded is not None and recorded.outcome is not None)

    async def open_leaf_gate(self, gate: GateWait) -> Any:
        """Open a gate for a running leaf; the body does not see it."""
        executor = self._executor
        gate.path = executor.unused_path(gate.path)
        # Before the gate event: a crash in between must not count the time of the wait against the step.
        self.record_timer_pauses()
        open_wait = self._open_wait(gate, "", None)
        try:
            return await open_wait.future
        except asyncio.CancelledError:
            if gate.path in self._open_waits and not executor.detached:
                self._close_wait(gate.path)
                executor.append_event("gate_cancelled", gate.path, {}, executor.settle_key(gate.path))
            raise

    def cancel_leaf_gates(self, path: str) -> None:
        """Cancel the gates a leaf had opened: the leaf starts over and opens its own."""
        executor = self._executor
        for gate_path, row in find_unsettled_rows(executor.journal_rows()).items():
            if gate_path.startswith(f"{path}/") and row.type == "gate_waiting":
                executor.append_event("gate_cancelled", gate_path, {}, executor.settle_key(gate_path))
                executor.run._gates.pop(gate_path, None)

    def forget_path(self, reset_path: str) -> None:
        """Forget what is recorded at a path, including an answer that has just arrived."""
        for path in [path for path in self._early_outcomes if is_within_step(path, reset_path)]:
            del self._early_outcomes[path]
        for path in [path for path in self._executor.run._gates if is_within_step(path, reset_path)]:
            del self._executor.run._gates[path]

    def last_event_data(self, path: str, type: str) -> dict[str, Any] | None:
        """Return the data of the last event of a type at a path since the step there started."""
        last = None
        for row in self._executor.host.store.events(self._executor.run.run_id):
            if row.path == path and row.type in (*OPENING_EVENTS, type):
                last = row if row.type == type else None
        return None if last is None else decode_json(last.data)

    def steering_since_start(self, path: str) -> list[str]:
        """Return the messages sent to a step since it started."""
        messages: list[str] = []
        for row in self._executor.host.store.events(self._executor.run.run_id):
            if row.path == path and row.type in OPENING_EVENTS:
                messages.clear()
            elif row.path == path and row.type == "steered":
                messages.append(decode_json(row.data)["text"])
        return messages

    def _open_wait(self, wait: Wait, request_hash: str, recorded: RecordedCall | None) -> OpenWait:
        executor, run = self._executor, self._executor.run
        if recorded is None:
            new_gate_id = self._unused_gate_id(wait.path) if isinstance(wait, GateWait) else ""
            data = wait_event_data(wait, new_gate_id, wait_deadline(wait))
            executor.append_event(
                EVENT_BY_WAIT_KIND[wait_kind(wait)], wait.path, data | {"hash": request_hash}, urgent=True
            )
        else:
            # The recorded deadline stays: a restart must not grant the wait more time.
            data = recorded.data
        open_wait = self._open_waits[wait.path] = OpenWait(
            wait, executor.dispatcher.create_future(), data.get("deadline")
        )
        if wait.path in self._early_outcomes:
            self._deliver_early_outcome(wait.path, open_wait)
            return open_wait
        if isinstance(wait, GateWait):
            opened_at = recorded.request.row.at if recorded is not None else time.time()
            run._gates[wait.path] = gate_info(wait.path, data, opened_at)
            run._gates[wait.path].future = open_wait.future
        self.update_run_state()
        if not isinstance(wait, TimerWait):
            run._notify()
        # The row has the time at which an evicted or crashed run has to be woken.
        executor.journal.mark_row_dirty()
        if isinstance(wait, SignalWait) and self._settle_by_known_fact(wait):
            return open_wait
        if isinstance(wait, GateWait) and wait.auto_answer is not None:
            self.answer(run._gates[wait.path], wait.auto_answer, "auto")
        elif open_wait.deadline is not None:
            self._start_timer(open_wait, is_reopened=recorded is not None)
        return open_wait

    def _unused_gate_id(self, path: str) -> str:
        """Return the shortest id for a new gate that no open gate has."""
        run = self._executor.run
        used_ids = {gate.gate_id for gate in run._gates.values()}
        lengths = (length for length in range(8, 65, 4) if gate_id(run.run_id, path, length) not in used_ids)
        return gate_id(run.run_id, path, next(lengths, 64))

    def _start_timer(self, open_wait: OpenWait, is_reopened: bool) -> None:
        wait = open_wait.wait
        timer = PausableTimer(self._executor, open_wait, self._on_timeout)
        if isinstance(wait, TimerWait) and wait.around is not None:
            open_wait.pausable_timer = timer
            if is_reopened:
                open_wait.deadline = moved_deadline(
                    self.last_event_data(wait.path, "timer_moved"), open_wait.deadline
                )
        timer.start()

    def bounding_timers(self, path: str) -> list[PausableTimer]:
        """Return the timers that bound a path."""
        bounding = [open_wait for open_wait in self._open_waits.values() if bounds_path(open_wait.wait, path)]
        return [open_wait.pausable_timer for open_wait in bounding if open_wait.pausable_timer is not None]

    def record_timer_pauses(self) -> None:
        """Record paused timers before the event that pauses them, so a crash cannot separate the two."""
        for open_wait in self._open_waits.values():
            if open_wait.pausable_timer is not None:
                open_wait.pausable_timer.record_pause()

    def is_open(self, open_wait: OpenWait) -> bool:
        return self._open_waits.get(open_wait.wait.path) is open_wait

    def _settle_by_known_fact(self, wait: SignalWait) -> bool:
        """Whether an existing fact settles the wait."""
        request = comparable_wait(wait)
        fact_match = self._executor.host.dataspace.match_or_watch(
            self._executor.run.run_id, wait.path, request
        )
        if fact_match is not None:
            self.settle_by_fact(wait.path, request, fact_match)
        return fact_match is not None

    def settle_by_fact(
        self, path: str, request: Mapping[str, Any], fact_match: Mapping[str, Any]
    ) -> int | None:
        """Settle a wait by a fact if it is open; return the sequence number of the event."""
        if path not in self._open_waits:
            return None
        data, outcome = signal_received_data(request, fact_match)
        return self.settle(path, "signal_received", data, outcome)

    def request_at(self, path: str) -> dict[str, Any] | None:
        open_wait = self._open_waits.get(path)
        return comparable_wait(open_wait.wait) if open_wait is not None else None

    def _deliver_early_outcome(self, path: str, open_wait: OpenWait) -> None:
        seq, outcome = self._early_outcomes.pop(path)
        del self._open_waits[path]
        self._executor.dispatcher.enqueue(seq, open_wait.future, outcome)
        self._executor.dispatcher.dispatch()

    def answer(self, gate: GateInfo, answer: Any, by: str) -> int:
        """Settle a gate and return the sequence number of the event; raise RuntimeError if it is closed."""
        seq = self.settle(gate.path, "gate_answered", *gate_answered_data(gate, answer, by))
        if seq is None:
            raise gate_closed_error(self._executor.run, gate)
        # Attached after append: the reply belongs to the commit of that event.
        self._executor.journal.attach_reply(gate.reply)
        return seq

    def settle(self, path: str, type: str, data: dict[str, Any], outcome: Any) -> int | None:
        """Settle a wait that is open, or that replay has not reached; None if it was settled before."""
        executor = self._executor
        if path not in self._open_waits and not self._is_open_in_journal(path):
            return None
        # Check, close and append happen without an await, so of two racing answers exactly one settles the
        # wait.
        open_wait = self._close_wait(path)
        executor.journal.mark_row_dirty()
        seq = executor.append_event(type, path, data, executor.settle_key(path), urgent=True)
        if open_wait is None:
            self._early_outcomes[path] = (seq, outcome)
        # A leaf must get its answer while the body is busy or paused; only outcomes for the body have an
        # order.
        elif is_below_leaf(path, executor.call_runner.running_leaves):
            executor.dispatcher.enqueue_for_leaf(seq, open_wait.future, outcome)
        else:
            executor.dispatcher.enqueue(seq, open_wait.future, outcome)
        return seq

    def _is_open_in_journal(self, path: str) -> bool:
        """Whether a wait is open that replay has not reached yet.

        Reads only rows added since the last call: many answers may arrive before replay ends.
        """
        self._unsettled_rows.add_rows(self._executor.journal_rows(self._unsettled_rows.seq))
        row = self._unsettled_rows.rows.get(path)
        return (
            row is not None
            and row.type in EVENT_BY_WAIT_KIND.values()
            and not is_below_leaf(path, self._unsettled_rows)
        )

    def _on_timeout(self, wait: Wait) -> None:
        if wait.path not in self._open_waits:
            return
        if isinstance(wait, TimerWait):
            self.settle(wait.path, "timer_fired", {}, None)
            return
        gate = self._executor.run._gates.get(wait.path)
        data = {**(gate_ids(gate) if gate else {}), "timeout": wait.timeout}
        kind = wait_kind(wait)
        self.settle(wait.path, f"{kind}_timeout", data, wait_timeout_error(kind, wait.timeout))

    def _close_wait(self, path: str) -> OpenWait | None:
        open_wait = self._open_waits.pop(path, None)
        self._executor.run._gates.pop(path, None)
        if open_wait is not None and open_wait.timer_handle is not None:
            open_wait.timer_handle.cancel()
        if open_wait is not None and isinstance(open_wait.wait, SignalWait):
            self._executor.host.dataspace.unwatch(self._executor.run.run_id, path)
        self.update_run_state()
        return open_wait

    def update_run_state(self) -> None:
        """Set the state of the run to waiting or running, depending on the open waits."""
        run = self._executor.run
        # A pause or a hold outranks waiting; the clock still has to stop.
        if run._state not in (WorkflowState.RUNNING, WorkflowState.WAITING):
            self.update_wall_clock()
            return
        state = (
            WorkflowState.WAITING
            if any(map(is_blocking_wait, self._open_waits.values()))
            else WorkflowState.RUNNING
        )
        if state is not run._state:
            run._state = state
            self._executor.journal.mark_row_dirty()
        self.update_wall_clock()
        run._notify()

    @property
    def waits_for_person_or_fact(self) -> bool:
        """Whether the run waits for a person or a fact, not just for a timer."""
        return any(not isinstance(open_wait.wait, TimerWait) for open_wait in self._open_waits.values())

    @property
    def next_deadline(self) -> float | None:
        if not self._open_waits:
            return None
        return min(
            (wait.deadline for wait in self._open_waits.values() if wait.deadline is not None), default=None
        )

    @property
    def wake_time(self) -> float | None:
        """When an inactive run has to be woken: now, unless it only waits."""
        delivery = self._executor.dispatcher
        # One open wait per task means that the body does nothing else; otherwise its work has to continue.
        is_idle = len(self._open_waits) == len(delivery.tasks) == delivery.blocked_count
        return self.next_deadline if is_idle else time.time()

    @property
    def is_single_wait(self) -> bool:
        """Whether the body is a single task that waits for an external event."""
        if len(self._open_waits) != 1:
            return False
        delivery = self._executor.dispatcher
        return (
            len(delivery.tasks) == delivery.blocked_count == 1
            and is_blocking_wait(next(iter(self._open_waits.values())))
            and delivery.replay is None
            and self._executor.pause_barrier is None
            and not self._executor.is_stopping
            and not self._executor.call_runner.running_leaves
            # With unwritten events the eviction would rebuild the run from an incomplete journal.
            and self._executor.journal.committed_seq == self._executor.journal.seq
        )

    def cancel_timers(self) -> None:
        for handle in [
            self._wall_clock_timer,
            *(open_wait.timer_handle for open_wait in self._open_waits.values()),
        ]:
            if handle is not None:
                handle.cancel()

    def suspend(self) -> None:
        for open_wait in self._open_waits.values():
            if not open_wait.future.done():
                open_wait.future.set_exception(Suspended())

    # -- wall-clock limit, not counting the time the run waits -------------------------------------

    def update_wall_clock(self) -> None:
        """Run the clock while the run is running and not just waiting for children that wait."""
        executor = self._executor
        if (wall_time := executor.limits.wall_time) is None:
            return
        is_running = not executor.detached and executor.run.state is WorkflowState.RUNNING
        if is_running == (self._active_since is not None):
            return
        # The loop's clock is monotonic: a change of the system time neither extends nor cuts the limit.
        now = executor.loop.time()
        if self._active_since is not None:
            self._active_s += now - self._active_since
        self._active_since = now if is_running else None
        if self._wall_clock_timer is not None:
            self._wall_clock_timer.cancel()
        if is_running:
            self._wall_clock_timer = executor.loop.call_later(
                max(0.0, wall_time - self._active_s), self._on_wall_time_exceeded
            )

    def _on_wall_time_exceeded(self) -> None:
        executor = self._executor
        active_s = self._active_s + (
            executor.loop.time() - self._active_since if self._active_since is not None else 0.0
        )
        problem = limit_message("wall_time", executor.limits, "", active_s, executor.run.workflow.kind)
        executor.fail_run(LimitReached("wall_time", problem))


def wait_kind(wait: Wait) -> str:
    return "gate" if isinstance(wait, GateWait) else "timer" if isinstance(wait, TimerWait) else "signal"


def is_blocking_wait(open_wait: OpenWait) -> bool:
    """Whether the run counts as waiting because of this wait."""
    return not (isinstance(open_wait.wait, TimerWait) and open_wait.wait.guard)


def comparable_wait(wait: Wait) -> dict[str, Any]:
    """Return the part of a wait that must be the same on replay."""
    return compared_wait_data(wait_event_data(wait, "", None))


def signal_received_data(
    request: Mapping[str, Any], fact_match: Mapping[str, Any]
) -> tuple[dict[str, Any], Any]:
    """Return the data of `signal_received`, and the outcome for the body: a signal's value."""
    if "patterns" in request:
        return {"value": dict(fact_match)}, dict(fact_match)
    value = fact_match["captures"].get("value")
    fields = fact_match["fact"][-1]
    key = fields.get("key") if isinstance(fields, dict) else None
    return {"label": request["label"], "key": key, "value": value}, value


def wait_deadline(wait: Wait) -> float | None:
    """Return the time at which a wait that starts now times out."""
    seconds = wait.seconds if isinstance(wait, TimerWait) else wait.timeout
    return None if seconds is None else time.time() + seconds


def wait_event_data(wait: Wait, gate_id: str, deadline: float | None) -> dict[str, Any]:
    """Return the data of the event that opens the wait."""
    if isinstance(wait, GateWait):
        return gate_waiting_data(wait, gate_id, deadline)
    if isinstance(wait, TimerWait):
        guard = {"guard": True} if wait.guard else {}
        return {"seconds": wait.seconds, "deadline": deadline} | guard
    if wait.patterns is not None:
        patterns = {name: list(pattern) for name, pattern in wait.patterns.items()}
        return {"patterns": patterns, "deadline": deadline}
    return {"label": wait.label, "key": wait.key, "deadline": deadline}


def gate_answered_data(gate: GateInfo, answer: Any, by: str) -> tuple[dict[str, Any], Any]:
    """Return the data of `gate_answered`, and the answer as it will be read back."""
    value = decode_json(encode_json(answer))
    key = {"key": gate.key} if gate.key is not None else {}
    return {**gate_ids(gate), "answer": value, "response": value, "by": by, **gate.about, **key}, value


def gate_closed_error(run: WorkflowRun, gate: GateInfo) -> RuntimeError:
    """Build the error for an answer that comes too late."""
    reason = f"the run is {run.state.value}" if run.is_complete else f"the run no longer waits at {gate.path}"
    return RuntimeError(f"Gate '{gate.gate_id}' of run '{run.run_id}' is not open: {reason}")


def gate_ids(gate: GateInfo) -> dict[str, Any]:
    return {"gate_id": gate.gate_id} | ({"node_id": gate.node_id} if gate.node_id else {})


def gate_info(path: str, data: dict[str, Any], at: float) -> GateInfo:
    """Return an open gate from the data of its event."""
    return GateInfo(
        data["gate_id"],
        data["prompt"],
        data.get("choices"),
        created_at=datetime.fromtimestamp(at, UTC),
        path=path,
        node_id=data.get("node_id"),
        options=data.get("options"),
        note=data.get("note"),
        input_preview=data.get("input_preview"),
        deadline=data.get("deadline"),
        action=data.get("action"),
        form=data.get("form"),
    )


def find_open_waits(rows: Iterable[EventRow]) -> dict[str, EventRow]:
    """Return the events of the waits that are open after these rows, by path.

    Waits below a leaf are not included: a leaf that is not running starts over and opens its own.
    """
    unsettled = UnsettledRows()
    unsettled.add_rows(rows)
    return {
        path: row
        for path, row in unsettled.rows.items()
        if row.type in EVENT_BY_WAIT_KIND.values() and not is_below_leaf(path, unsettled)
    }


def stop_events(rows: Iterable[EventRow]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return type, path and data of the events that end open calls when a run stops, innermost first."""
    events = []
    for path, row in find_unsettled_rows(rows).items():
        kind = row.type.partition("_")[0]
        opening_data = decode_json(row.data)
        data = {
            name: opening_data[name] for name in ("gate_id", "node_id", "step_id") if name in opening_data
        }
        events.append((f"{'node' if kind == 'step' else kind}_cancelled", path, data | {STOPPED_KEY: True}))
    return events[::-1]


def has_running_leaf(rows: Iterable[EventRow]) -> bool:
    """Whether a leaf had started and not ended after these rows: it has to run again."""
    return any(
        row.type in ("node_started", "step_started") and not row.data.startswith(CONTROL_PREFIX)
        for row in find_unsettled_rows(rows).values()
    )


def find_unsettled_rows(rows: Iterable[EventRow]) -> dict[str, EventRow]:
    """Return the events of the calls and waits that are unsettled after these rows, by path."""
    unsettled = UnsettledRows()
    unsettled.add_rows(rows)
    return unsettled.rows


class UnsettledRows:
    """The events of unsettled calls and waits, by path, after the rows added so far.

    As a container it holds the paths of the running leaves.
    """

    def __init__(self) -> None:
        self.rows: dict[str, EventRow] = {}
        self.seq = 0
        """The sequence number of the last row added."""

    def add_rows(self, rows: Iterable[EventRow]) -> None:
        for row in rows:
            self.seq = row.seq
            if row.type in OPENING_EVENTS:
                self.rows[row.path] = row
            elif row.settles == ROOT_PATH:
                # The end of the run settles everything in it.
                self.rows.clear()
            elif row.type == "path_reset":
                self.rows = {
                    path: open_row
                    for path, open_row in self.rows.items()
                    if not is_within_step(path, row.path)
                }
            elif row.settles:
                self.rows.pop(row.path, None)

    def __contains__(self, path: object) -> bool:
        row = self.rows.get(path) if isinstance(path, str) else None
        return row is not None and is_leaf_start(row) and not row.data.startswith(CONTROL_PREFIX)
