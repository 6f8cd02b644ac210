"""Deliver outcomes to a body one at a time and in order, live and on replay alike.

The next outcome is delivered when the body is idle after the previous one. This makes `gather`,
`as_completed` and `wait(FIRST_COMPLETED)` in a user's function see the same order again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from nerve.core.workflow.cleanup import IN_CLEANUP
from nerve.engine.quiescence import quiescence_monitor_of
from nerve.journal.events import Event, outcome_of
from nerve.journal.replay import Replay, ReplayEntry

log = logging.getLogger("nerve")

BUSY_TURNS_BEFORE_WARNING = 10_000
"""Loop turns after which the log names a body that is never idle although an outcome is due."""

REPLAY_PAUSE_S = 0.001
"""Seconds between two parts of a replay that gives way."""

REPLAY_TIMEOUT_S = 10.0
"""Seconds a body may spend on its own during replay before it requests the next record."""

DeliveredOutcome = Any
QueueEntry = tuple[int, asyncio.Future[Any], DeliveredOutcome]


class ReplayOwner(Protocol):
    """What a replay tells the run."""

    def on_mismatch(self, obstacle: ReplayEntry) -> None:
        """Hold the run: the body does not request what the journal has next."""

    def prepare_to_go_live(self) -> bool:
        """Return whether the replay may end; then new work can start."""

    def on_recorded_stop(self, event: Event) -> None:
        """Cancel the body where the recorded one was cancelled."""


class ResultDispatcher:
    """The tasks of one body, the futures they wait for, and the outcomes queued for them."""

    optional_replay: Replay | None = None
    is_sequential = True
    """Whether the body has never had a second task: it is idle whenever it waits here."""
    blocked_count = 0
    is_released = False
    is_cancelled = False
    """Whether the engine has cancelled the tasks of the body; how they end then is of no interest."""
    is_held_back = False
    """Whether the body has yet to start, because the run waits for a slot of a queue."""
    is_paused = False
    """Whether the run is paused or held: new outcomes are kept and delivered on resume."""
    _is_checking_idle = False
    _is_idle = False
    """Whether the body was idle in this turn of the loop; stale after the next delivery."""
    _busy_turns = 0
    outcomes_per_turn: int | None = None
    """How many recorded outcomes are delivered before the loop gets its turn; None for all."""
    _turn_outcomes = 0
    """How many recorded outcomes were delivered since the replay gave way."""
    _mismatch_timer: asyncio.TimerHandle | None = None
    # Without items until the first one comes: most runs are not replayed, and have one task.
    _queue: deque[QueueEntry] | None = None
    leaf_queue: Sequence[QueueEntry] = ()
    """New outcomes for running leaves, which are not on disk yet."""
    _on_idle: Sequence[Callable[[], None]] = ()
    _waiting_for_live: list[asyncio.Future[Any]] | None = None

    def __init__(self, run_id: str, replay: Replay | None, owner: ReplayOwner) -> None:
        self._run_id, self.replay, self._owner = run_id, replay, owner
        self.replay_timeout = REPLAY_TIMEOUT_S
        self.history = replay
        """The records that the body may request: those that are replayed, or the optional ones after that."""
        self.tasks: dict[asyncio.Future[Any], bool] = {}
        """The tasks of the body in the order of their start; True for those in a cleanup block."""
        self._loop = asyncio.get_running_loop()
        self._recorded_outcomes: dict[int, tuple[asyncio.Future[Any], DeliveredOutcome]] = {}
        self._quiescence_monitor = quiescence_monitor_of(self._loop)

    def can_deliver_inline(self) -> bool:
        """Whether a new outcome can be returned to the only task of the body without queueing it."""
        return self.is_sequential and not self._queue and self.replay is None and not self.is_paused

    @property
    def is_polling(self) -> bool:
        """Whether the body does not come to rest although an outcome is due."""
        return self._busy_turns >= BUSY_TURNS_BEFORE_WARNING

    def track_task(self, task: asyncio.Future[Any]) -> None:
        self.is_sequential = not self.tasks and self.is_sequential
        self.tasks[task] = IN_CLEANUP.get()
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Future[Any]) -> None:
        is_cleaning_up = self.tasks.pop(task, False)
        if not task.cancelled() and (self.is_released or (self.is_cancelled and not is_cleaning_up)):
            task.exception()  # marks the exception as retrieved, so asyncio does not log it
        self.dispatch()

    def create_future(self) -> asyncio.Future[Any]:
        """Create a future that the body is about to wait for."""
        self.blocked_count += 1
        return self._loop.create_future()

    async def wait_for(self, future: asyncio.Future[Any]) -> Any:
        try:
            return await future
        finally:
            # Delivery decrements the count itself; only a future cancelled by the waiter is still counted
            # here.
            if future.cancelled():
                self.blocked_count -= 1

    async def wait_in_turn(self, future: asyncio.Future[Any], is_gone: Callable[[], bool]) -> Any:
        """Wait for an outcome in its turn, even while the body is cancelling, unless `is_gone()`.

        In the recorded run the body also waited for a cancelled leaf to end.
        """
        while True:
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                if is_gone():
                    if not future.done():
                        self.blocked_count -= 1
                        future.cancel()
                    raise

    async def wait_forever(self) -> None:
        """Wait until the body or the engine cancels this task."""
        future = self.create_future()
        self.dispatch()
        await self.wait_for(future)

    def recorded_outcome(self, record: ReplayEntry) -> asyncio.Future[Any]:
        """Return a future for a recorded outcome, delivered when its turn comes."""
        future, outcome = self.create_future(), outcome_of(record.event)
        # Sequence number 0: optional records have no order to keep, and they are on disk.
        if self.replay is None or (record.is_optional and self.optional_replay is not None):
            self._enqueue_unordered(future, outcome)
        else:
            self._recorded_outcomes[record.seq] = (future, outcome)
        self.dispatch()
        return future

    def replay_inline(self, record: ReplayEntry) -> bool:
        """Mark a recorded outcome as delivered if the only task can have it at once; return whether it was.

        That is so for most outcomes of a sequential body: they are next, and a request follows.
        """
        if (
            self.replay is None
            or not self.is_sequential
            or self.blocked_count
            or self._queue
            or self._is_checking_idle
            or self._mismatch_timer is None
            or self._turn_outcomes == self.outcomes_per_turn
            or not self.replay.deliver_between_requests(record)
        ):
            return False
        self._turn_outcomes += 1
        self._mark_active()
        return True

    def enqueue(self, seq: int, future: asyncio.Future[Any], outcome: DeliveredOutcome) -> None:
        """Queue a new outcome, and deliver it if it is next.

        It need not be on disk: the next leaf waits for that, and so does everything a user sees.
        """
        if (queue := self._queue) is None:
            queue = self._queue = deque()
        index = len(queue)
        while index and queue[index - 1][0] > seq:  # an answer may precede its wait: keep journal order
            index -= 1
        queue.insert(index, (seq, future, outcome))
        self.dispatch()

    @property
    def undelivered_outcomes(self) -> list[DeliveredOutcome]:
        """The outcomes that the body waits for and has not received."""
        recorded = [(future, outcome) for future, outcome in self._recorded_outcomes.values()]
        queued = [(future, outcome) for _, future, outcome in self._queue or ()]
        return [outcome for future, outcome in (*recorded, *queued) if not future.done()]

    def is_awaited(self, record: ReplayEntry) -> bool:
        """Whether the body waits for a recorded outcome that is not delivered yet."""
        return record.seq in self._recorded_outcomes

    def enqueue_for_leaf(self, seq: int, future: asyncio.Future[Any], outcome: DeliveredOutcome) -> None:
        """Queue a new outcome for a running leaf, delivered once it is on disk whatever the body does."""
        # A leaf acts on an answer at once, so a crash must not lose the answer.
        self.leaf_queue = [*self.leaf_queue, (seq, future, outcome)]

    def deliver_at_rest(self, future: asyncio.Future[Any]) -> None:
        """Complete a future for which a task of the body waits without seeing an outcome.

        When the body is at rest: a task that is woken just as the body cancels it would end before others
        that are cancelled as well, which no replay repeats.
        """

        def deliver() -> None:
            if not self.is_released:
                self._deliver(future, None)

        if self.is_held_back:
            deliver()
        else:
            self.call_when_idle(deliver)

    def release_unordered(self) -> None:
        """Deliver outcomes whose place in the order was dropped."""
        self._queue_unordered()
        self.dispatch()

    def wait_for_live(self) -> asyncio.Future[Any]:
        """Return a future that completes when replay has ended."""
        future = self.create_future()
        if self._waiting_for_live is None:
            self._waiting_for_live = []
        self._waiting_for_live.append(future)
        self.dispatch()
        return future

    def wait_until_idle(self) -> asyncio.Future[None]:
        """Return a future that completes when replay has ended and the body has nothing left to run."""
        future: asyncio.Future[None] = self._loop.create_future()
        self.call_when_idle(lambda: None if future.done() else future.set_result(None))
        return future

    def call_when_idle(self, callback: Callable[[], None]) -> None:
        """Call back when replay has ended and the body has nothing left to run, or when it is released."""
        self._on_idle = [*self._on_idle, callback]
        self.dispatch()

    def stop(self, error: BaseException | None = None) -> None:
        """Release the body; its waiting tasks receive `error`."""
        self.is_released = True
        waiting = self._list_waiting() if error is not None else ()
        self._recorded_outcomes.clear()
        self._waiting_for_live, self._queue, self.leaf_queue = None, None, ()
        if self._mismatch_timer is not None:
            self._mismatch_timer.cancel()
        if self._on_idle:
            self._notify_idle()
        for future in waiting:
            if error is not None and not future.done():
                future.set_exception(error)

    def _list_waiting(self) -> list[asyncio.Future[Any]]:
        recorded = [future for future, _ in self._recorded_outcomes.values()]
        queued = [future for _, future, _ in (*(self._queue or ()), *self.leaf_queue)]
        return [*recorded, *queued, *(self._waiting_for_live or ())]

    def dispatch(self) -> None:
        """Deliver what can be delivered now."""
        if self._is_checking_idle:
            return
        while (self._queue or self.replay is not None) and self._has_next():
            # One outcome per idle period: if two were set in the same turn, the order in which the body's
            # tasks react would depend on the loop and not on the journal.
            if not self._is_at_rest or (self._is_stop_next and not self._is_idle):
                self._schedule_idle_check()
                return
            if self._turn_outcomes == self.outcomes_per_turn:
                self._give_way()
                return
            self._deliver_next()
        if self.replay is not None and not self.is_released:
            if not self.is_held_back:
                self._check_replay_progress()
        elif self._on_idle and not self._is_idle:
            self._schedule_idle_check()

    @property
    def _is_at_rest(self) -> bool:
        """Whether the body does nothing until it receives an outcome."""
        return self._is_idle or (self.is_sequential and self.blocked_count == 1)

    def deliver_to_leaves(self, committed_seq: int) -> None:
        """Deliver the outcomes for leaves that are on disk now."""
        ready = [entry for entry in self.leaf_queue if entry[0] <= committed_seq]
        self.leaf_queue = [entry for entry in self.leaf_queue if entry[0] > committed_seq]
        for _, future, outcome in ready:
            self._deliver(future, outcome)

    def _has_next(self) -> bool:
        """Whether the next outcome, from the queue or from the journal, can be delivered."""
        if self._queue and self._is_queue_next():
            return not (self.is_paused and self.replay is None)
        record = self.replay.next_outcome() if self.replay is not None else None
        return record is not None and (record.kind == "stop" or self.is_awaited(record))

    def _is_queue_next(self) -> bool:
        """Whether the queue is next: new outcomes follow recorded ones, as they will on the next replay."""
        if not self._queue or self.replay is None or self._queue[0][0] == 0:
            return bool(self._queue)
        obstacle = self.replay.next_unmatched()
        return obstacle is not None and obstacle.is_optional

    @property
    def _is_stop_next(self) -> bool:
        """Whether a recorded stop is next: a task must not be cancelled by a call that it makes itself."""
        if self.replay is None or not self.replay.has_stops:
            return False
        record = self.replay.next_outcome()
        return record is not None and record.kind == "stop" and not self._is_queue_next()

    def _deliver_next(self) -> None:
        if self._queue and self._is_queue_next():
            _, future, outcome = self._queue.popleft()
            self._deliver(future, outcome)
            return
        assert self.replay is not None
        record = self.replay.next_outcome()
        assert record is not None
        record.is_done = True
        self._turn_outcomes += 1
        if record.kind == "stop":
            self._mark_active()
            self._owner.on_recorded_stop(record.event)
        else:
            self._deliver(*self._recorded_outcomes.pop(record.seq))

    def _give_way(self) -> None:
        """Continue with the replay in another turn of the loop: a Temporal workflow must not run for long."""
        self._is_checking_idle = True
        self._loop.call_later(REPLAY_PAUSE_S, self._continue_replay)

    def _continue_replay(self) -> None:
        self._is_checking_idle, self._turn_outcomes = False, 0
        self.dispatch()

    def _deliver(self, future: asyncio.Future[Any], outcome: DeliveredOutcome) -> None:
        if future.done():
            return
        self._mark_active()
        self.blocked_count -= 1
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _mark_active(self) -> None:
        """Note that the body is about to continue."""
        self._is_idle, self._busy_turns = False, 0

    def _schedule_idle_check(self) -> None:
        self._is_checking_idle = True
        self._quiescence_monitor.check_next_turn(self)

    def on_idle_check(self, is_idle: bool) -> None:
        """Deliver the next outcome if the body is idle, or check again in the next turn."""
        self._is_checking_idle, self._is_idle = False, is_idle
        self._busy_turns += 1
        # Only a warning: an outcome in the middle of a loop would come in another iteration of it on replay.
        if self._busy_turns == BUSY_TURNS_BEFORE_WARNING and not is_idle:
            log.warning(
                "The function of run %s does not come to rest, so it receives no results: it polls with "
                "sleep(0). Wait for a task or an asyncio.Event instead.",
                self._run_id,
            )
        self.dispatch()
        # Still idle: the dispatch has delivered nothing.
        if self._is_idle and self.replay is None:
            self._notify_idle()
        # The observation holds for this turn only: tasks woken by the delivery run in the next.
        self._is_idle = False

    def _notify_idle(self) -> None:
        callbacks, self._on_idle = self._on_idle, ()
        for callback in callbacks:
            callback()

    def _check_replay_progress(self) -> None:
        """Go live at the end of replay, or detect that the body does not request the next record."""
        assert self.replay is not None
        obstacle = self.replay.next_unmatched()
        if obstacle is None:
            # Because of the last recorded outcome the body may abandon a new request, which must not start.
            if self._is_at_rest:
                self._go_live()
            else:
                self._schedule_idle_check()
            return
        is_awaited = self.is_awaited(obstacle)
        # If every task of the body waits for something else, nothing is left to request the record. A
        # "drop" is an exception: the body abandons it by itself, perhaps after a timeout of its own.
        all_blocked = obstacle.kind != "drop" and not is_awaited and 0 < len(self.tasks) == self.blocked_count
        if obstacle.is_optional or all_blocked:
            if self._is_idle:
                self._handle_mismatch(obstacle)
            else:
                self._schedule_idle_check()
        elif not is_awaited and self._mismatch_timer is None:
            # The body may wait on its own (a timer, a thread), so a mismatch is declared only after a
            # timeout.
            delay = self.replay_timeout + self.replay.seconds_until_abandoned(obstacle)
            self._mismatch_timer = self._loop.call_later(delay, self._check_mismatch, obstacle)

    def _check_mismatch(self, obstacle: ReplayEntry) -> None:
        self._mismatch_timer = None
        if self.replay is not None and self.replay.next_unmatched() is obstacle:
            self._handle_mismatch(obstacle)
        else:
            self.dispatch()

    def _handle_mismatch(self, obstacle: ReplayEntry) -> None:
        assert self.replay is not None
        if self.replay.skip_optional(obstacle):
            self.optional_replay = self.replay
            self._queue_unordered()
            self.dispatch()
        else:
            self._owner.on_mismatch(obstacle)

    def _go_live(self) -> None:
        if not self._owner.prepare_to_go_live():
            return
        self.replay, self.history = None, self.optional_replay
        if self._mismatch_timer is not None:
            self._mismatch_timer.cancel()
            self._mismatch_timer = None
        waiting, self._waiting_for_live = self._waiting_for_live or (), None
        for future in waiting:
            if not future.done():
                self._mark_active()
                self.blocked_count -= 1
                future.set_result(None)
        self._queue_unordered()
        self.dispatch()

    def _queue_unordered(self) -> None:
        """Queue requested outcomes that no longer have a place in the order."""
        ordered = self.replay.ordered_seqs() if self.replay is not None else set()
        for seq in [seq for seq in self._recorded_outcomes if seq not in ordered]:
            self._enqueue_unordered(*self._recorded_outcomes.pop(seq))

    def _enqueue_unordered(self, future: asyncio.Future[Any], outcome: DeliveredOutcome) -> None:
        """Queue an outcome that has no place in the order, and is on disk."""
        if self._queue is None:
            self._queue = deque()
        self._queue.append((0, future, outcome))
