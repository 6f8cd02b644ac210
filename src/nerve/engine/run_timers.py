"""The timers of one run: timeouts of attempts, and timers that pause while the steps they bound wait."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from nerve.core.clock import SYSTEM_CLOCK, Clock, ClockTimer
from nerve.core.nodes.attempt import (
    AttemptTimer,
    pause_timers,
    reset_idle_timers,
    timers_around,
)
from nerve.engine.run_journal import RunJournal
from nerve.journal.events import TimerMoved
from nerve.journal.paths import is_within_step

MAX_STALE_DEADLINES = 100
"""How many deadlines that no longer count a run keeps, in addition to twice those that do."""


class RunTimers:
    """The timers around the steps of one run."""

    _deadline_count = 0
    _pauses_by_path: Sequence[tuple[str, ExitStack]] = ()
    """The paths that wait, with the pauses of the timers around them."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self.attempt_timers: dict[str, AttemptTimer] = {}
        """The timers of running control nodes, by path."""
        self._bounding_timers: dict[str, DeadlineTimer] = {}
        """The timers that bound the steps at a path and pause while these wait, by their own paths."""
        self._open_timers: dict[DeadlineTimer, None] = {}
        self._deadlines: list[tuple[float, int, DeadlineTimer]] = []
        """A heap; an entry counts while its deadline is that of its timer."""

    def add(self, timer: DeadlineTimer) -> None:
        """Add a timer, or one whose deadline has changed."""
        is_new = timer not in self._open_timers
        if timer.bounds_steps:
            self._bounding_timers[timer.path] = timer
        self._open_timers[timer] = None
        if len(self._deadlines) > 2 * len(self._open_timers) + MAX_STALE_DEADLINES:
            self._deadlines = [entry for entry in self._deadlines if entry[2].deadline == entry[0]]
            heapq.heapify(self._deadlines)
        if timer.deadline is not None:
            self._deadline_count += 1  # timers with equal deadlines are not compared
            heapq.heappush(self._deadlines, (timer.deadline, self._deadline_count, timer))
        # After a restart, a child run may be held before the timer around it is set again.
        for path, pauses in self._pauses_by_path if is_new else ():
            if timer.bounds(path):
                pauses.enter_context(timer.pause())

    def remove(self, timer: DeadlineTimer) -> None:
        """Cancel a timer whose wait is settled."""
        timer.cancel()
        timer.deadline = None
        self._open_timers.pop(timer, None)
        self._bounding_timers.pop(timer.path, None)

    @property
    def next_deadline(self) -> float | None:
        """The earliest deadline of all timers that are not paused."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].deadline != deadlines[0][0]:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    @contextmanager
    def paused(self, path: str) -> Iterator[None]:
        """Pause the timers around a path while it waits for a person, a budget or a provider limit."""
        bounding = [timer for timer in self._bounding_timers.values() if timer.bounds(path)]
        with ExitStack() as pauses:
            pauses.enter_context(pause_timers([*timers_around(self.attempt_timers, path), *bounding]))
            self._pauses_by_path = [*self._pauses_by_path, (path, pauses)]
            try:
                yield
            finally:
                self._pauses_by_path = [each for each in self._pauses_by_path if each[1] is not pauses]

    def record_pauses(self) -> None:
        """Record paused timers before the event that pauses them, so a crash cannot separate the two."""
        for timer in self._bounding_timers.values():
            timer.record_pause()

    def reset_idle(self, path: str) -> None:
        """Restart the idle timeouts around a path, because an event came from there."""
        if self.attempt_timers:
            reset_idle_timers(self.attempt_timers, path)


class DeadlineTimer:
    """The timer of an open wait. Pauses are recorded only if they last beyond the current loop turn."""

    def __init__(
        self,
        path: str,
        deadline: float,
        around: str | None,
        journal: RunJournal,
        timers: RunTimers,
        is_open: Callable[[], bool],
        on_expired: Callable[[], None],
    ) -> None:
        self.path = path
        self.deadline: float | None = deadline
        """When it expires; None while it is paused."""
        self._around, self._journal, self._timers = around, journal, timers
        self._is_open, self._on_expired = is_open, on_expired
        self._loop = asyncio.get_running_loop()
        self._clock = timers.clock
        self._handle: ClockTimer | None = None
        self._remaining_s, self._pause_count = 0.0, 0
        self._pending_record: asyncio.Handle | None = None
        self._is_pause_recorded = False
        self._schedule()

    @property
    def bounds_steps(self) -> bool:
        return self._around is not None

    def bounds(self, path: str) -> bool:
        """Whether it bounds the time of a path, including its retries."""
        return self._around is not None and is_within_step(path, self._around)

    def cancel(self) -> None:
        """Expire no more: the wait was settled, or the run was released."""
        if self._handle is not None:
            self._handle.cancel()

    def _schedule(self) -> None:
        assert self.deadline is not None
        delay = max(0.0, self.deadline - self._clock.time())
        self._handle = self._clock.call_later(delay, self._on_expired)
        self._timers.add(self)

    @contextmanager
    def pause(self) -> Iterator[None]:
        # Counted: several steps inside one bound may wait at the same time, and the last one to end resumes
        # it.
        self._pause_count += 1
        if self._pause_count == 1:
            self._pause()
        try:
            yield
        finally:
            self._pause_count -= 1
            if not self._pause_count:
                self._resume()

    def _pause(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._remaining_s = max(0.0, (self.deadline or 0.0) - self._clock.time())
        self.deadline = None
        # In the next turn: most waits end at once, and recording each would double the events of a run.
        self._pending_record = self._loop.call_soon(self.record_pause)

    def record_pause(self) -> None:
        """Record the pause, unless that has been done."""
        if self._cancel_pending_record() and self._is_open():
            self._is_pause_recorded = True
            self._journal.append(TimerMoved(left=self._remaining_s), self.path, urgent=True)

    def _cancel_pending_record(self) -> bool:
        """Drop the pause that is yet to be recorded; return whether there was one."""
        if self._pending_record is None:
            return False
        self._pending_record.cancel()
        self._pending_record = None
        return True

    def _resume(self) -> None:
        self._cancel_pending_record()
        # The wait may have been settled, or the run released, while the timer was paused.
        if not self._is_open():
            return
        self.deadline = self._clock.time() + self._remaining_s
        self._schedule()
        if self._is_pause_recorded:
            self._is_pause_recorded = False
            self._journal.append(TimerMoved(deadline=self.deadline), self.path, urgent=True)


def moved_deadline(moved: TimerMoved | None, deadline: float, now: float) -> float:
    """Return the deadline of a moved timer; one that was paused when its engine ended continues now."""
    if moved is None:
        return deadline
    # Without a deadline the process ended during the pause: the time it was down is not counted.
    return moved.deadline if moved.deadline is not None else now + (moved.left or 0.0)
