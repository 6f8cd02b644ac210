"""Cancel the body of a run that is stopped or has reached a limit, and let it clean up."""

from __future__ import annotations

import asyncio
from typing import Any

from nerve.core.workflow.cleanup import IN_CLEANUP
from nerve.core.workflow.run import RunState
from nerve.core.workflow.state import WorkflowState
from nerve.engine.execution_barrier import ExecutionBarrier
from nerve.engine.result_dispatcher import ResultDispatcher
from nerve.engine.run_journal import RunJournal
from nerve.engine.side_effects import SideEffects
from nerve.journal.events import RunStopping

CANCEL_RETRY_INTERVAL_S = 5.0
"""Seconds a cancelled body gets to end before the engine cancels it again."""


NO_STOP = RunStopping()


class BodyCancellation:
    """The cancellation of one body: where it was cancelled, and which of its tasks clean up.

    A body is cancelled when it is at rest, because a replay cannot repeat a cancellation between two of its
    steps. The stop is recorded before the first thing that happens after it: a cleanup block begins, or a
    cancelled step has ended. A body that only waits just ends.
    """

    def __init__(
        self,
        state: RunState,
        journal: RunJournal,
        dispatcher: ResultDispatcher,
        barrier: ExecutionBarrier,
        side_effects: SideEffects,
    ) -> None:
        self._state, self._journal, self._dispatcher = state, journal, dispatcher
        self._barrier, self._side_effects = barrier, side_effects
        self._stop = NO_STOP
        """Why the body is cancelled, once it is."""
        self._fallback: asyncio.TimerHandle | None = None
        """Cancels a body that does not come to rest."""
        self._uncancelled_tasks: set[asyncio.Future[Any]] = set()
        """The tasks that were in a cleanup block when the body was cancelled."""

    def begin_cleanup(self) -> None:
        """Note that the current task is in a cleanup block; record the stop before the first of its steps."""
        self._mark_current_task()
        self.record_stop()

    def end_cleanup(self) -> bool:
        """Note that the current task has left a cleanup block; return whether a stop waits for that."""
        task = self._mark_current_task()
        is_in_outer_block = IN_CLEANUP.get()
        return self._barrier.is_unwinding and not is_in_outer_block and task in self._uncancelled_tasks

    def _mark_current_task(self) -> asyncio.Future[Any] | None:
        task = asyncio.current_task()
        if task in self._dispatcher.tasks:
            self._dispatcher.tasks[task] = IN_CLEANUP.get()
        return task

    async def unwind(self, stop: RunStopping) -> None:
        """Cancel the body, unless it is, and wait until it has ended; a cleanup block delays that."""
        self.cancel_when_idle(stop)
        while tasks := [task for task in self._dispatcher.tasks if not task.done()]:
            await asyncio.wait(tasks, timeout=CANCEL_RETRY_INTERVAL_S)
            # One that swallows its cancellation gets another, unless it is allowed to clean up.
            for task in tasks if self._barrier.is_unwinding else ():
                if not task.done() and not self._dispatcher.tasks.get(task):
                    task.cancel()

    def cancel_when_idle(self, stop: RunStopping) -> None:
        """Cancel the body when it is at rest, or all the same if it does not come to rest."""
        if not self._barrier.is_unwinding:
            loop = asyncio.get_running_loop()
            self._fallback = loop.call_later(CANCEL_RETRY_INTERVAL_S, self.cancel, stop)
            self._dispatcher.call_when_idle(lambda: self.cancel(stop))

    def cancel(self, stop: RunStopping, except_task: asyncio.Future[Any] | None = None) -> None:
        """Cancel every task of the body, except those in a cleanup block; only once."""
        barrier, tasks = self._barrier, self._dispatcher.tasks
        if self._fallback is not None:
            self._fallback.cancel()
        if barrier.is_unwinding or barrier.is_detached:
            return
        barrier.is_unwinding, self._stop, self._dispatcher.is_cancelled = True, stop, True
        # The journal has no place for the stop before the body is as far as the journal.
        barrier.is_cleanup_aborted |= self._dispatcher.replay is not None and not barrier.is_stop_recorded
        if not barrier.is_cleanup_aborted:
            self._uncancelled_tasks = {task for task, is_cleaning_up in tasks.items() if is_cleaning_up}
        if self._uncancelled_tasks:
            self.record_stop()
        for task in list(tasks):
            if task is not except_task and task not in self._uncancelled_tasks:
                task.cancel()
        barrier.resume()

    def cancel_tasks_left_behind(self, ended_task: asyncio.Future[Any] | None) -> None:
        """Cancel the tasks of a body whose function has ended while the run is being stopped.

        The function ends at the same outcome on replay, and so must its tasks: what they would record from
        here on, a cleanup included, could not be repeated.
        """
        if not self._barrier.is_unwinding:
            self._barrier.is_cleanup_aborted = True
            self.cancel(NO_STOP, except_task=ended_task)

    def record_stop(self) -> None:
        """Record that the body was cancelled here, if it was: a replay cancels it again and continues."""
        barrier = self._barrier
        if not barrier.is_unwinding or barrier.is_stop_recorded or barrier.is_cleanup_aborted:
            return
        barrier.is_stop_recorded = True
        self._state.status, self._state.recorded_status = WorkflowState.STOPPING, None
        self._journal.append(self._stop, "", urgent=True)
        self._journal.mark_row_dirty()
        self._side_effects.flush_deferred()
        self._state.notify_watchers()

    def repeat(self, stop: RunStopping) -> None:
        """Cancel the body where it was cancelled before a restart."""
        self._barrier.is_stop_recorded = True
        self._state.status = WorkflowState.STOPPING
        self.cancel(stop)

    def abort_cleanup(self) -> None:
        """End the cleanup of the body at once."""
        self._barrier.is_cleanup_aborted = True
        for task in self._dispatcher.tasks:
            task.cancel()
