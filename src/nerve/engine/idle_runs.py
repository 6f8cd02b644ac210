"""Runs that only wait: the oldest are evicted from memory, and woken when a deadline or a slot is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from nerve.core.clock import Clock, ClockTimer
from nerve.core.workflow.state import WorkflowState
from nerve.engine.run_executor import RunExecutor
from nerve.engine.task_tracking import spawn_detached
from nerve.store.port import RunRow, Store

MAX_IDLE_RUNS = 128
"""Maximum number of waiting runs in memory; older ones are evicted and rebuilt when needed."""


class IdleRuns:
    """The idle runs of an engine, which says how one is resumed."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        executors: Mapping[str, RunExecutor],
        is_shutting_down: Callable[[], bool],
        resume: Callable[[RunRow], Coroutine[Any, Any, None]],
    ) -> None:
        self._store, self._clock, self._executors = store, clock, executors
        self._is_shutting_down, self._resume = is_shutting_down, resume
        self._idle_executors: dict[str, RunExecutor] = {}
        """The idle runs in memory, the one that has waited longest first."""
        self._wake_timers: dict[str, ClockTimer] = {}
        self._resume_tasks: set[asyncio.Task[None]] = set()

    @property
    def is_resuming(self) -> bool:
        return bool(self._resume_tasks)

    def add(self, executor: RunExecutor) -> None:
        """Note that a run only waits; if too many do, evict the one that has waited longest."""
        if not self._store.durable:
            return
        self._idle_executors.pop(executor.run.run_id, None)
        self._idle_executors[executor.run.run_id] = executor
        while len(self._idle_executors) > MAX_IDLE_RUNS:
            oldest = self._idle_executors.pop(next(iter(self._idle_executors)))
            # It may have received an answer since it was queued.
            if oldest.open_waits.is_single_wait:
                self.evict(oldest)

    def remove(self, run_id: str) -> None:
        """Forget a run whose executor was released."""
        self._idle_executors.pop(run_id, None)

    def evict(self, executor: RunExecutor) -> None:
        """Evict a run that only waits for an external event."""
        # Read before suspend(), which ends the open waits.
        wake = executor.open_waits.wake_time
        executor.suspend()
        executor.state.forget_gates()
        self.schedule_wake(executor.run.run_id, wake)

    def schedule_wake(self, run_id: str, deadline: float | None) -> None:
        """Wake a run that is not in memory at its deadline, if it has one."""
        self.cancel_wake(run_id)
        if deadline is not None and run_id not in self._executors:
            delay = max(0.0, deadline - self._clock.time())
            self._wake_timers[run_id] = self._clock.call_later(delay, self.wake, run_id)

    def cancel_wake(self, run_id: str) -> None:
        if timer := self._wake_timers.pop(run_id, None):
            timer.cancel()

    def cancel_all_wakes(self) -> None:
        for run_id in list(self._wake_timers):
            self.cancel_wake(run_id)

    def wake(self, run_id: str) -> None:
        """Resume a run whose deadline has come, unless it does not wait any more."""
        self._wake_timers.pop(run_id, None)
        row = self._store.run(run_id)
        if row is not None and row.state == WorkflowState.WAITING.value and not self._is_shutting_down():
            self.schedule_resume(row)

    def wake_for_slot(self, run_id: str) -> None:
        """Resume an inactive run that has a slot now; an active one asks for it when it needs it."""
        if run_id not in self._executors and (row := self._store.run(run_id)) is not None:
            self.schedule_resume(row)

    def schedule_resume(self, row: RunRow) -> None:
        """Resume a run as soon as no command holds its lock."""
        task = spawn_detached(self._resume(row))
        self._resume_tasks.add(task)
        task.add_done_callback(self._resume_tasks.discard)

    def forget_loop(self) -> None:
        """Forget the timers and tasks of an ended loop, which never fire; the store has their runs."""
        for collection in (self._idle_executors, self._wake_timers, self._resume_tasks):
            collection.clear()
