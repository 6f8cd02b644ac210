"""The gates, timers and waits for signals and messages of a body; each is settled once, from outside."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from nerve.core.gates import gate_id
from nerve.core.json_codec import decode_json, encode_json, is_scalar_json, short_sha256
from nerve.core.result import deep_copy_json
from nerve.core.runtime import GateWait, MessageWait, SignalWait, TimerWait, Wait
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import GateAnswer, GateInfo, WorkflowState
from nerve.engine.execution_barrier import ExecutionBarrier
from nerve.engine.recorded_history import RecordedHistory
from nerve.engine.result_dispatcher import ResultDispatcher
from nerve.engine.run_journal import RunJournal
from nerve.engine.run_timers import DeadlineTimer, RunTimers, moved_deadline
from nerve.engine.wall_clock import WallClock
from nerve.errors import GateNotOpen, Suspended
from nerve.journal.events import (
    GateAnswered,
    GateCancelled,
    GateProgress,
    GateTimeout,
    GateWaiting,
    MessageCancelled,
    MessageReceived,
    MessageSent,
    MessageTimeout,
    MessageWaiting,
    SignalCancelled,
    SignalReceived,
    SignalTimeout,
    SignalWaiting,
    TimerCancelled,
    TimerFired,
    TimerStarted,
    WaitSettled,
    outcome_of,
)
from nerve.journal.gate_info import gate_info
from nerve.journal.index import is_guard
from nerve.journal.paths import is_below_leaf
from nerve.journal.replay import RecordedCall, RecordInvalidated
from nerve.lazy_dataclass import dataclass


class RunFacts(Protocol):
    """The facts of the session, as the runs that wait for them see them."""

    decides_tests: bool
    """Whether `confirm_timeout` alone decides a wait with a timeout of 0, which then needs no timer."""

    def match_or_watch(self, run_id: str, path: str, request: SignalWaiting) -> dict[str, Any] | None:
        """Return the fact that settles a wait, or settle the wait when there is one."""

    def unwatch(self, run_id: str, path: str) -> None:
        """Stop watching for a wait."""

    def confirm_timeout(
        self, run_id: str, path: str, request: SignalWaiting, on_absent: Callable[[], object]
    ) -> None:
        """Settle a wait whose time is over by a fact, or call back if there is none."""

    def change_now(
        self, asserted: Sequence[Any], retracted: Sequence[Any], by: str
    ) -> asyncio.Future[None] | None:
        """Retract and assert facts; return a future that completes when that is on disk, if it is not."""


@dataclass(slots=True)
class QueueWait:
    """A wait for a slot of a queue, which the engine opens for a step or for the run itself."""

    path: str


CANCELLATION_OF_WAIT = {
    GateWait: GateCancelled,
    TimerWait: TimerCancelled,
    SignalWait: SignalCancelled,
    MessageWait: MessageCancelled,
}


@dataclass(slots=True)
class OpenWait:
    """A wait whose outcome is not known yet."""

    wait: Wait | QueueWait
    future: asyncio.Future[Any]
    timer: DeadlineTimer | None = None
    """Its timer, if it has a deadline."""
    step_timer: DeadlineTimer | None = None
    """The timer of the next reminder or escalation of a gate."""
    gate: GateInfo | None = None
    """The gate as users see it, if it is one."""
    is_blocking: bool = True
    """Whether the run counts as waiting because of this wait."""

    @property
    def is_background(self) -> bool:
        """Whether it waits for updates beside the body."""
        return isinstance(self.wait, MessageWait) and self.wait.background


class OpenWaits:
    """The open waits of one run."""

    _blocking_count = 0
    """The number of open waits that make the run a waiting one."""
    unshown_gates: deque[tuple[int, OpenWait]] | None = None
    """Gates that are not on disk yet, with the sequence numbers of their events."""

    def __init__(
        self,
        run: WorkflowRun,
        journal: RunJournal,
        dispatcher: ResultDispatcher,
        barrier: ExecutionBarrier,
        history: RecordedHistory,
        timers: RunTimers,
        wall_clock: WallClock,
        running_leaves: Container[str],
        get_facts: Callable[[], RunFacts],
    ) -> None:
        self._run, self._state, self._journal, self._dispatcher = run, run.run_state, journal, dispatcher
        self._barrier, self._history, self._timers, self._wall_clock = barrier, history, timers, wall_clock
        self._running_leaves, self._get_facts = running_leaves, get_facts
        self.by_path: dict[str, OpenWait] = {}
        """The open waits."""
        self._gate_ids: dict[str, None] = {}
        """The ids of the gates among the open waits, shown or not."""

    async def wait(self, wait: Wait) -> Any:
        self._barrier.check_request(wait.path)
        request_text = encode_json(comparable_wait(wait), canonical=True, max_depth=None)
        request_hash = short_sha256(request_text)
        recorded = self._history.lookup(wait.path, request_hash, request_text)
        open_wait: OpenWait | None = None
        try:
            if recorded is not None and recorded.outcome is not None:
                try:
                    return await self._history.await_outcome(recorded)
                except RecordInvalidated:
                    recorded = None
            await self._barrier.wait_until_live()
            # The recorded answers that follow were given without this question, so they are asked again.
            # A timer shows nothing to a person.
            if recorded is None and not isinstance(wait, TimerWait):
                self._history.invalidate_later_answers()
            open_wait = self._open_wait(wait, request_hash, recorded)
            return await self._dispatcher.wait_for(open_wait.future)
        except asyncio.CancelledError:
            # Determined before _close_wait() removes the wait, which would look as if it had been settled.
            is_settled = self._is_settled(wait.path, recorded, open_wait)
            if not self._barrier.is_detached:
                self._close_wait(wait.path)
            is_requested = open_wait is not None or recorded is not None
            if is_requested and self._history.must_record_abandoned(recorded):
                self._history.record_abandoned(CANCELLATION_OF_WAIT[type(wait)](), wait.path, is_settled)
                if isinstance(wait, MessageWait):
                    # The body did not get the message that had settled it; another task may wait for it.
                    self._deliver_messages(wait.channel)
            raise

    def _is_settled(self, path: str, recorded: RecordedCall | None, open_wait: OpenWait | None) -> bool:
        """Whether an abandoned wait was already settled, just not delivered yet."""
        if open_wait is not None:
            return path not in self.by_path
        is_early = self._history.early_outcomes.pop(path, None) is not None
        return is_early or (recorded is not None and recorded.outcome is not None)

    async def open_leaf_gate(self, gate: GateWait) -> Any:
        """Open a gate for a running leaf; the body does not see it."""
        gate.path = self._journal.unused_path(gate.path, self._state.gates)
        # Before the gate event: a crash in between must not count the time of the wait against the step.
        self._timers.record_pauses()
        open_wait = self._open_wait(gate, "", None)
        try:
            return await open_wait.future
        except asyncio.CancelledError:
            if gate.path in self.by_path and not self._barrier.is_detached:
                self._close_wait(gate.path)
                self._record_gate_cancelled(gate.path)
            raise

    def cancel_leaf_gates(self, path: str) -> None:
        """Cancel the gates a leaf had opened: the leaf starts over and opens its own."""
        for gate_path, recorded in list(self._journal.index.unsettled.items()):
            if gate_path.startswith(f"{path}/") and isinstance(recorded.event, GateWaiting):
                self._record_gate_cancelled(gate_path)
                self._state.gates.pop(gate_path, None)

    def _record_gate_cancelled(self, path: str) -> None:
        self._journal.append(GateCancelled(), path, self._journal.settle_key(path))

    def _open_wait(self, wait: Wait, request_hash: str, recorded: RecordedCall | None) -> OpenWait:
        seq = 0
        if recorded is None:
            new_gate_id = self._unused_gate_id(wait.path) if isinstance(wait, GateWait) else ""
            event = wait_opened(
                wait, new_gate_id, wait_deadline(wait, self._timers.clock.time()), request_hash
            )
            seq = self._journal.append(event, wait.path, urgent=True)
        else:
            # The recorded deadline stays: a restart must not grant the wait more time.
            assert isinstance(recorded.request.event, WaitEvent)
            event = recorded.request.event
        open_wait = OpenWait(wait, self._dispatcher.create_future(), is_blocking=not is_guard(event))
        if wait.path in self._history.early_outcomes:
            self._deliver_early_outcome(wait.path, open_wait)
            return open_wait
        self.by_path[wait.path] = open_wait
        self._blocking_count += open_wait.is_blocking
        if isinstance(event, GateWaiting):
            # As after a restart: the hash of what the gate asks has the time of its event.
            rows = self._journal.pending_rows
            if recorded is not None:
                opened_at = recorded.request.row.at
            else:
                opened_at = rows[-1].at if rows else self._timers.clock.time()
            if event.policy is not None:
                event = self._with_progress(wait.path, event)
            open_wait.gate = gate_info(wait.path, event, opened_at)
            open_wait.gate.future = open_wait.future
            self._gate_ids[open_wait.gate.gate_id] = None
            if self.unshown_gates is None:
                self.unshown_gates = deque()
            # In the order of their numbers; a recorded gate has 0 and is shown at once.
            if event.policy is not None and isinstance(wait, GateWait) and wait.auto_answer is None:
                self._start_step_timer(open_wait, open_wait.gate)
            (self.unshown_gates.append if seq else self.unshown_gates.appendleft)((seq, open_wait))
        is_auto_answered = isinstance(wait, GateWait) and wait.auto_answer is not None
        if event.deadline is not None and not is_auto_answered and not self._is_decided_by_look(wait):
            self._start_timer(open_wait, wait, event.deadline, is_reopened=recorded is not None)
        self.update_run_state()
        if isinstance(wait, SignalWait | MessageWait):
            self._state.notify_watchers()
        self.show_recorded_gates()
        # The row has the time at which an evicted or crashed run has to be woken.
        self._journal.mark_row_dirty()
        if self._is_decided_by_look(wait):
            self._on_timeout(wait)
        elif isinstance(wait, SignalWait):
            self._settle_by_known_fact(wait)
        elif isinstance(wait, MessageWait):
            self._deliver_messages(wait.channel)
        elif isinstance(wait, GateWait) and open_wait.gate is not None and wait.auto_answer is not None:
            self.answer(open_wait.gate, GateAnswer(wait.auto_answer, "auto"))
        return open_wait

    def _is_decided_by_look(self, wait: Wait) -> bool:
        """Whether a wait only tests if there is a fact, and the facts say so without a timer."""
        return isinstance(wait, SignalWait) and wait.timeout == 0 and self._get_facts().decides_tests

    def add_queue_wait(self, path: str, future: asyncio.Future[Any]) -> None:
        """Count the run as waiting for a slot; `future` completes when it has one."""
        self.by_path[path] = OpenWait(QueueWait(path), future)
        self._blocking_count += 1
        self.update_run_state()
        self._journal.mark_row_dirty()

    def remove_queue_wait(self, path: str) -> None:
        self._close_wait(path)
        self._journal.mark_row_dirty()

    def show_recorded_gates(self) -> None:
        """Show the gates whose events are on disk: an answer to one that a crash loses would be lost, too."""
        unshown, committed_seq = self.unshown_gates, self._journal.committed_seq
        if not unshown or unshown[0][0] > committed_seq:
            return
        while unshown and unshown[0][0] <= committed_seq:
            open_wait = unshown.popleft()[1]
            if self._is_open(open_wait) and open_wait.gate is not None:
                self._state.gates[open_wait.wait.path] = open_wait.gate
        self.update_run_state()

    def _is_open(self, open_wait: OpenWait) -> bool:
        return self.by_path.get(open_wait.wait.path) is open_wait

    def _unused_gate_id(self, path: str) -> str:
        """Return the shortest id for a new gate that no open gate has."""
        whole_id = gate_id(self._run.run_id, path, 64)
        ids = (whole_id[:length] for length in range(8, 65, 4))
        return next(id for id in ids if id not in self._gate_ids and not self._state.gates.has_id(id))

    def _start_timer(self, open_wait: OpenWait, wait: Wait, deadline: float, is_reopened: bool) -> None:
        around = wait.around if isinstance(wait, TimerWait) else None
        if around is not None and is_reopened:
            moved = self._journal.index.last_timer_move(wait.path)
            deadline = moved_deadline(moved, deadline, self._timers.clock.time())
        open_wait.timer = DeadlineTimer(
            wait.path,
            deadline,
            around,
            self._journal,
            self._timers,
            lambda: self._is_open(open_wait) and not self._barrier.is_inactive,
            lambda: self._on_timeout(wait),
        )

    def _settle_by_known_fact(self, wait: SignalWait) -> None:
        """Settle a wait by a fact that exists already, or watch for one."""
        request = signal_waiting(wait)
        fact_match = self._get_facts().match_or_watch(self._run.run_id, wait.path, request)
        if fact_match is not None:
            self.settle(wait.path, signal_received(request, fact_match))

    def send(self, channel: str, value: Any, key: str | None, by: str) -> int:
        """Record a message for the body and return its event; one with a known key is not sent again."""
        if (sent := self._journal.index.mailbox.find_same(channel, key, value)) is not None:
            return sent.seq
        seq = self._journal.append(MessageSent(channel, value, key, by or None), "")
        # The row has the time to wake the run: now, if it has not received the message when it crashes.
        self._journal.mark_row_dirty()
        self._deliver_messages(channel)
        return seq

    def _deliver_messages(self, channel: str) -> None:
        """Settle waits for messages of a channel, as long as it has unread ones.

        Only waits that the body has opened: one that replay has not reached finds its message when it opens.
        """
        while (path := self._find_receiver(channel)) is not None:
            message = self._journal.index.mailbox.first_unread(channel)
            if message is None:
                return
            self.settle(path, MessageReceived(channel, message.seq, deep_copy_json(message.value)))

    def _find_receiver(self, channel: str) -> str | None:
        """Return the oldest open wait for messages of a channel."""
        for path, open_wait in self.by_path.items():
            if isinstance(open_wait.wait, MessageWait) and open_wait.wait.channel == channel:
                return path
        return None

    def request_at(self, path: str) -> SignalWaiting | None:
        """Return the wait for a signal or a fact that is open at a path."""
        open_wait = self.by_path.get(path)
        if open_wait is not None and isinstance(open_wait.wait, SignalWait):
            return signal_waiting(open_wait.wait)
        index = self._journal.index
        request = index.unsettled[path].event if index.is_open_wait(path) else None
        return request if isinstance(request, SignalWaiting) else None

    def hide_gates(self) -> None:
        """Show no gates until the body requests them."""
        self._state.gates.clear()

    def _deliver_early_outcome(self, path: str, open_wait: OpenWait) -> None:
        seq, outcome = self._history.early_outcomes.pop(path)
        self._dispatcher.enqueue(seq, open_wait.future, outcome)
        self._dispatcher.dispatch()

    def answer(self, gate: GateInfo, answer: GateAnswer) -> int:
        """Settle a gate and return the sequence number of the event; raise RuntimeError if it is closed."""
        seq = self.settle(gate.path, gate_answered(gate, answer))
        if seq is None:
            raise gate_closed_error(self._run, gate)
        # Attached after append: the reply belongs to the commit of that event.
        self._journal.attach_reply(answer.reply)
        return seq

    # -- gates with a policy -----------------------------------------------------------------------

    def _with_progress(self, path: str, event: GateWaiting) -> GateWaiting:
        """Return the event of a gate with what people have done at it."""
        opened = self._journal.index.unsettled.get(path)
        return opened.event if opened is not None and isinstance(opened.event, GateWaiting) else event

    def act_at_gate(self, gate: GateInfo, answer: GateAnswer) -> int:
        """Record what a person does at a gate with a policy; settle it if that decides it.

        Return the number of the event. VoteRefused says why the person may not do it, and RuntimeError that
        the gate is closed.
        """
        from nerve.engine.gate_votes import make_gate_events  # few gates have a policy
        from nerve.engine.run_starters import starters_of

        opened = self._journal.index.unsettled.get(gate.path)
        is_over = self._barrier.is_unwinding and not self._barrier.is_stop_recorded
        if is_over or opened is None or not isinstance(opened.event, GateWaiting):
            raise gate_closed_error(self._run, gate)
        starters = starters_of(self._journal.index.start)
        current = gate_info(gate.path, opened.event, opened.at)
        if current.gate_id != gate.gate_id:
            raise gate_closed_error(self._run, gate)
        # Appended without an await in between: they are written in one transaction.
        for event in make_gate_events(current, answer, starters, self._timers.clock.time()):
            if isinstance(event, WaitSettled):
                self.settle(gate.path, event)
            else:
                self._record_progress(gate.path, event)
        self._journal.attach_reply(answer.reply)
        return self._journal.seq

    def _record_progress(self, path: str, event: GateProgress) -> int:
        """Record an event of an open gate that does not settle it."""
        seq = self._journal.append(event, path)
        self._journal.mark_row_dirty()
        opened = self._journal.index.unsettled[path]
        open_wait = self.by_path.get(path)
        if open_wait is not None and open_wait.gate is not None and isinstance(opened.event, GateWaiting):
            open_wait.gate.tally = gate_info(path, opened.event, opened.at).tally
        self._state.notify_watchers()
        self._journal.flush_soon()
        return seq

    def _start_step_timer(self, open_wait: OpenWait, gate: GateInfo) -> None:
        """Wait for the next reminder or escalation of a gate, if there is one."""
        from nerve.core.gate_policy import next_step

        assert gate.policy is not None
        assert gate.tally is not None
        step = next_step(gate.policy, gate.tally)
        if step is None:
            return
        open_wait.step_timer = DeadlineTimer(
            gate.path,
            gate.created_at.timestamp() + step.after,
            None,
            self._journal,
            self._timers,
            lambda: self._is_open(open_wait) and not self._barrier.is_inactive,
            lambda: self._take_step(open_wait, gate),
        )

    def _take_step(self, open_wait: OpenWait, gate: GateInfo) -> None:
        """Record that a gate is due for a reminder or an escalation."""
        from nerve.engine.gate_votes import make_step_event

        if not self._is_open(open_wait) or open_wait.step_timer is None:
            return
        self._timers.remove(open_wait.step_timer)
        open_wait.step_timer = None
        self._record_progress(gate.path, make_step_event(gate))
        self._start_step_timer(open_wait, gate)

    # -- outcomes ----------------------------------------------------------------------------------

    def settle(self, path: str, event: WaitSettled) -> int | None:
        """Settle a wait that is open, or that replay has not reached; None if it was settled before."""
        if path not in self.by_path and not self._journal.index.is_open_wait(path):
            return None
        # The body is cancelled and gets no more outcomes; one before the event that says so would be
        # delivered on replay.
        if self._barrier.is_unwinding and not self._barrier.is_stop_recorded:
            return None
        # Check, close and append happen without an await, so of two racing answers exactly one settles the
        # wait.
        open_wait = self._close_wait(path)
        self._journal.mark_row_dirty()
        seq, outcome = self._journal.append(event, path, self._journal.settle_key(path)), outcome_of(event)
        if open_wait is None:
            # Replay has not reached the wait; the outcome is delivered when the body asks.
            self._history.early_outcomes[path] = (seq, outcome)
        # A leaf must get its answer while the body is busy or paused; only outcomes for the body have an
        # order.
        elif is_below_leaf(path, self._running_leaves):
            self._dispatcher.enqueue_for_leaf(seq, open_wait.future, outcome)
        else:
            self._dispatcher.enqueue(seq, open_wait.future, outcome)
        # Scheduled after the body was woken, so what the body does with the outcome shares the commit.
        self._journal.flush_soon()
        return seq

    def _on_timeout(self, wait: Wait) -> None:
        if wait.path not in self.by_path:
            return
        if isinstance(wait, TimerWait):
            self.settle(wait.path, TimerFired())
        elif (gate := self.by_path[wait.path].gate) is not None:
            self.settle(wait.path, GateTimeout(gate.gate_id, gate.node_id or None, wait.timeout))
        elif isinstance(wait, MessageWait):
            self.settle(wait.path, MessageTimeout(wait.channel, wait.timeout))
        elif isinstance(wait, SignalWait):
            self._time_out_signal(wait)

    def _time_out_signal(self, wait: SignalWait) -> None:
        open_wait = self.by_path[wait.path]

        def settle() -> None:
            if self._is_open(open_wait) and not self._barrier.is_inactive:
                self.settle(wait.path, SignalTimeout(wait.timeout))

        self._get_facts().confirm_timeout(self._run.run_id, wait.path, signal_waiting(wait), settle)

    def _close_wait(self, path: str) -> OpenWait | None:
        open_wait = self.by_path.pop(path, None)
        self._state.gates.pop(path, None)
        if open_wait is not None:
            self._blocking_count -= open_wait.is_blocking
            if open_wait.gate is not None:
                self._gate_ids.pop(open_wait.gate.gate_id, None)
                if open_wait.step_timer is not None:
                    self._timers.remove(open_wait.step_timer)
            if open_wait.timer is not None:
                self._timers.remove(open_wait.timer)
            if isinstance(open_wait.wait, SignalWait):
                self._get_facts().unwatch(self._run.run_id, path)
        self.update_run_state()
        return open_wait

    def update_run_state(self) -> None:
        """Set the state of the run to waiting or running, depending on the open waits."""
        state = self._state
        # A pause or a hold outranks waiting; the clock still has to stop.
        if state.status not in (WorkflowState.RUNNING, WorkflowState.WAITING):
            self._wall_clock.update()
            return
        status = self.status
        if status is not state.status:
            self._journal.mark_row_dirty()
            # A run that waits has a gate to answer: both are shown when the gate is on disk.
            if not self.unshown_gates:
                state.status = status
        self._wall_clock.update()
        state.notify_watchers()

    @property
    def status(self) -> WorkflowState:
        """Whether the run is running or waiting."""
        return WorkflowState.WAITING if self._blocking_count else WorkflowState.RUNNING

    @property
    def waits_for_person_or_fact(self) -> bool:
        """Whether the run waits for a person, a fact or a message, not just for a timer or the disk."""
        return not self.unshown_gates and any(
            not isinstance(open_wait.wait, TimerWait | QueueWait) and open_wait.is_blocking
            for open_wait in self.by_path.values()
        )

    @property
    def wake_time(self) -> float | None:
        """When an inactive run has to be woken: now, unless it only waits."""
        dispatcher = self._dispatcher
        # One open wait per task means that the body does nothing else; otherwise its work has to continue.
        is_blocked = len(self.by_path) == len(dispatcher.tasks) == dispatcher.blocked_count
        # A leaf that asks a person has to run again, because only it knows the question.
        return (
            self._timers.next_deadline
            if is_blocked and not self._running_leaves
            else self._timers.clock.time()
        )

    @property
    def is_single_wait(self) -> bool:
        """Whether the body is a single task, besides those for updates, that waits for an external event."""
        open_waits, dispatcher = self.by_path, self._dispatcher
        if not len(open_waits) == len(dispatcher.tasks) == dispatcher.blocked_count:
            return False
        own_waits = [open_wait for open_wait in open_waits.values() if not open_wait.is_background]
        return (
            len(own_waits) == 1
            and own_waits[0].is_blocking
            and self._barrier.is_live
            and not self._barrier.is_stopping
            and not self._running_leaves
            # With unwritten events the eviction would rebuild the run from an incomplete journal.
            and self._journal.committed_seq == self._journal.seq
        )

    def cancel_timers(self) -> None:
        """Let no wait time out any more."""
        for open_wait in self.by_path.values():
            for timer in (open_wait.timer, open_wait.step_timer):
                if timer is not None:
                    timer.cancel()

    def suspend(self) -> None:
        """Raise Suspended in every task of the body that waits."""
        for open_wait in self.by_path.values():
            if not open_wait.future.done():
                open_wait.future.set_exception(Suspended())


def comparable_wait(wait: Wait) -> dict[str, Any]:
    """Return the part of a wait that must be the same on replay: `compared_wait_data` of its event."""
    if isinstance(wait, GateWait):
        compared: dict[str, Any] = {"prompt": wait.prompt, "options": wait.options}
        if not wait.typed:
            compared["choices"] = wait.choices
            if wait.form is not None:
                compared["form"] = dict(wait.form)
        return compared
    if isinstance(wait, TimerWait):
        return {"seconds": wait.seconds}
    if isinstance(wait, MessageWait):
        return {"channel": wait.channel}
    if wait.patterns is None:
        return {"label": wait.label, "key": wait.key}
    return {"patterns": {name: list(pattern) for name, pattern in wait.patterns.items()}}


def signal_received(request: SignalWaiting, fact_match: Mapping[str, Any]) -> SignalReceived:
    """Return the event that settles a wait by a fact."""
    if request.patterns is not None:
        return SignalReceived(value=dict(fact_match))
    value = fact_match["captures"].get("value")
    fields = fact_match["fact"][-1]
    key = fields.get("key") if isinstance(fields, dict) else None
    return SignalReceived(request.label, key, value)


def wait_deadline(wait: Wait, now: float) -> float | None:
    """Return the time at which a wait that starts now times out."""
    seconds = wait.seconds if isinstance(wait, TimerWait) else wait.timeout
    return None if seconds is None else now + seconds


WaitEvent = GateWaiting | TimerStarted | SignalWaiting | MessageWaiting


def wait_opened(wait: Wait, gate_id: str, deadline: float | None, request_hash: str) -> WaitEvent:
    """Return the event that opens the wait."""
    if isinstance(wait, GateWait):
        return GateWaiting(
            gate_id,
            wait.prompt,
            wait.choices,
            wait.options,
            wait.node_id,
            wait.input_preview,
            wait.note,
            dict(wait.action) if wait.action is not None else None,
            dict(wait.form) if wait.form is not None else None,
            wait.timeout,
            deadline,
            request_hash,
            wait.typed,
            None if wait.policy is None else wait.policy.to_data(),
        )
    if isinstance(wait, TimerWait):
        return TimerStarted(wait.seconds, deadline, wait.guard, request_hash)
    if isinstance(wait, MessageWait):
        return MessageWaiting(wait.channel, deadline, wait.background, request_hash)
    return signal_waiting(wait, deadline, request_hash)


def signal_waiting(wait: SignalWait, deadline: float | None = None, request_hash: str = "") -> SignalWaiting:
    if wait.patterns is None:
        return SignalWaiting(None, wait.label, wait.key, deadline, request_hash)
    patterns = {name: list(pattern) for name, pattern in wait.patterns.items()}
    return SignalWaiting(patterns, deadline=deadline, hash=request_hash)


def gate_answered(gate: GateInfo, answer: GateAnswer) -> GateAnswered:
    """Return the event that answers a gate, with the answer as it will be read back."""
    value = answer.value if is_scalar_json(answer.value) else decode_json(encode_json(answer.value))
    answered = GateAnswered(gate.gate_id, gate.node_id or None, value, value, answer.by, key=answer.key)
    if not answer.about:
        return answered
    about = GateAnswered.from_data(answer.about)
    return replace(answered, via=about.via, reason=about.reason, extra=about.extra)


def gate_closed_error(run: WorkflowRun, gate: GateInfo) -> GateNotOpen:
    """Build the error for an answer that comes too late."""
    reason = f"the run is {run.state.value}" if run.is_complete else f"the run no longer waits at {gate.path}"
    return GateNotOpen(f"Gate '{gate.gate_id}' of run '{run.run_id}' is not open: {reason}")
