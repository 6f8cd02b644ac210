"""Decide what the body of a run may do: after it was released, and while the run is paused or held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from nerve.core.workflow.cleanup import IN_CLEANUP
from nerve.core.workflow.run import RunState
from nerve.engine.result_dispatcher import ResultDispatcher
from nerve.engine.run_journal import RunJournal
from nerve.engine.run_timers import RunTimers
from nerve.errors import CleanupRequired, Suspended
from nerve.journal.events import RunOnHold

MAX_CLEANUP_ERRORS = 3
"""How often a body that is being stopped hears that it starts steps outside a cleanup block."""


class PauseObserver(Protocol):
    """What gives something up while no new work may start."""

    def on_pause(self) -> None: ...


class ExecutionBarrier:
    """The barrier between a body and its run.

    A detached body no longer affects the run. While the run is paused or held, no new work starts and no new
    outcome is delivered; work that runs is finished and recorded.
    """

    is_detached = False
    """Whether the executor has let go of the body; nothing the body does from then on affects the run."""
    is_stopping = False
    """Whether the run is being stopped: nothing that the body does from then on is its outcome."""
    is_unwinding = False
    """Whether the engine has cancelled the body; only work in a cleanup block starts from then on."""
    is_stop_recorded = False
    """Whether the journal says that the body was cancelled."""
    is_cleanup_aborted = False
    pause_observer: PauseObserver | None = None
    forced_error: Exception | None = None
    """The error that the run fails with, even if the body catches it."""
    _cleanup_errors_left = MAX_CLEANUP_ERRORS
    resumed: asyncio.Future[None] | None = None
    """Completes when the run is resumed; None unless it is paused or held."""

    def __init__(
        self,
        state: RunState,
        journal: RunJournal,
        dispatcher: ResultDispatcher,
        timers: RunTimers,
        is_shutting_down: Callable[[], bool],
    ) -> None:
        self._state, self._journal, self._dispatcher, self._timers = state, journal, dispatcher, timers
        self.is_shutting_down = is_shutting_down

    # -- is the body still part of the run? ----------------------------------------------------

    @property
    def is_inactive(self) -> bool:
        """Whether the body no longer affects the run."""
        return self.is_detached or self.is_shutting_down()

    def is_cancelled_by_engine(self) -> bool:
        """Whether the engine, and not the body itself, cancels the tasks of the body."""
        return self.is_detached or (self.is_unwinding and not self.is_cleaning_up) or self.is_shutting_down()

    def is_out_of_order(self) -> bool:
        """Whether the engine cancels calls without waiting for their turn in the order of outcomes."""
        is_polling = self.is_unwinding and self._dispatcher.is_polling
        return self.is_inactive or self.is_cleanup_aborted or is_polling

    def has_no_place_in_journal(self) -> bool:
        """Whether the body is cancelled, and the journal does not say so."""
        return self.is_cancelled_by_engine() and (self.is_out_of_order() or not self.is_stop_recorded)

    @property
    def is_cleaning_up(self) -> bool:
        """Whether the code that runs now is in a cleanup block."""
        return IN_CLEANUP.get() and not self.is_cleanup_aborted

    def raise_if_cancelled(self) -> None:
        """Raise in a stopped or released body what `except Exception` does not catch."""
        if self.is_cancelled_by_engine():
            # A body that is stopped may clean up; one that is released continues from its journal.
            raise Suspended if self.is_inactive else asyncio.CancelledError

    def check_request(self, path: str) -> None:
        """Raise if the body was released, or is stopped and not in a cleanup block."""
        if not (self.is_detached or self.is_unwinding or self.is_shutting_down()):
            return  # as before most requests
        if not self.is_cancelled_by_engine():
            return
        # A body that catches the error and tries again must end, too.
        if self.is_unwinding and not self.is_inactive and self._cleanup_errors_left:
            self._cleanup_errors_left -= 1
            raise CleanupRequired(path)
        raise Suspended

    # -- may new work start? -------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether the run is paused or held."""
        return self.resumed is not None

    @property
    def is_live(self) -> bool:
        """Whether new work may start at once."""
        return self._dispatcher.replay is None and self.resumed is None

    async def wait_until_live(self) -> None:
        """Wait until replay has ended and the run is not paused."""
        if self._dispatcher.replay is not None:
            await self._dispatcher.wait_for(self._dispatcher.wait_for_live())
        await self.wait_until_resumed()
        self.raise_if_cancelled()

    async def wait_until_resumed(self) -> None:
        while self.resumed is not None:
            # shield(): the future is shared by all tasks of the body, and cancelling one must not cancel it
            # for all.
            await asyncio.shield(self.resumed)

    def pause(self) -> asyncio.Future[None]:
        """Start no new work; return the future that completes on resume."""
        if self.resumed is None:
            # The future stops new work and the flag stops new outcomes; set together, since an outcome that
            # still came through would be journaled before the event that pauses or holds the run.
            self.resumed, self._dispatcher.is_paused = asyncio.get_running_loop().create_future(), True
            if self.pause_observer is not None:
                self.pause_observer.on_pause()
        return self.resumed

    def stop_new_work(self) -> None:
        """Start no new work, but deliver the outcomes that are recorded: the body has seen them on replay."""
        self.pause()
        self._dispatcher.is_paused = False
        self._dispatcher.dispatch()

    def resume(self) -> None:
        """Let new work start; waiting tasks wake in a later turn of the loop."""
        resumed, self.resumed, self._dispatcher.is_paused = self.resumed, None, False
        if resumed is not None:
            resumed.set_result(None)

    def hold_new_work(self, hold: RunOnHold) -> asyncio.Future[None]:
        """Start no new work until the user decides; return the future that completes on resume."""
        if self.resumed is not None:
            return self.resumed
        resumed = self.pause()
        self.record_hold(hold)
        return resumed

    def record_hold(self, hold: RunOnHold) -> int:
        """Record why the run is held; return the sequence number of the event."""
        self._state.set_held(hold.to_data())
        self._timers.record_pauses()
        seq = self._journal.append(hold, "", urgent=True)
        self._journal.mark_row_dirty()
        self._journal.wait_durable(seq).add_done_callback(lambda _: self._state.notify_watchers())
        return seq
