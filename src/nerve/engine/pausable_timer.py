"""Timers that pause while the steps they bound wait for a person, a budget or a provider."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nerve.core.runtime import TimerWait, Wait
from nerve.journal.replay import is_within_step

if TYPE_CHECKING:
    from nerve.engine.open_waits import OpenWait
    from nerve.engine.run_executor import RunExecutor


class PausableTimer:
    """The timer of an open wait. Pauses are recorded only if they last beyond the current loop turn."""

    def __init__(
        self, executor: RunExecutor, open_wait: OpenWait, on_expired: Callable[[Wait], None]
    ) -> None:
        self._executor, self._open_wait, self._on_expired = executor, open_wait, on_expired
        self._remaining_s, self._pause_count = 0.0, 0
        self._pending_record: asyncio.Handle | None = None
        self._is_pause_recorded = False

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

    def start(self) -> None:
        open_wait = self._open_wait
        assert open_wait.deadline is not None
        delay = max(0.0, open_wait.deadline - time.time())
        open_wait.timer_handle = self._executor.loop.call_later(delay, self._on_expired, open_wait.wait)

    def _pause(self) -> None:
        open_wait = self._open_wait
        if open_wait.timer_handle is not None:
            open_wait.timer_handle.cancel()
        self._remaining_s = max(0.0, (open_wait.deadline or 0.0) - time.time())
        open_wait.deadline = None
        # In the next turn: most waits end at once, and recording each would double the events of a run.
        self._pending_record = self._executor.loop.call_soon(self.record_pause)

    def record_pause(self) -> None:
        """Record the pause, unless that has been done."""
        if self._pending_record is not None:
            self._pending_record.cancel()
            self._pending_record = None
            if self._is_open:
                self._is_pause_recorded = True
                self._record_move({"left": self._remaining_s})

    def _resume(self) -> None:
        if self._pending_record is not None:
            self._pending_record.cancel()
            self._pending_record = None
        # The wait may have been settled, or the run released, while the timer was paused.
        if not self._is_open:
            return
        self._open_wait.deadline = time.time() + self._remaining_s
        self.start()
        if self._is_pause_recorded:
            self._is_pause_recorded = False
            self._record_move({"deadline": self._open_wait.deadline})

    @property
    def _is_open(self) -> bool:
        return not self._executor.is_inactive and self._executor.open_waits.is_open(self._open_wait)

    def _record_move(self, data: dict[str, Any]) -> None:
        self._executor.append_event(
            "timer_moved", self._open_wait.wait.path, {**data, "guard": True}, urgent=True
        )


def bounds_path(wait: Wait, path: str) -> bool:
    """Whether a wait bounds the time of a path, including its retries."""
    if not isinstance(wait, TimerWait) or wait.around is None:
        return False
    return is_within_step(path, wait.around)


def moved_deadline(moved: dict[str, Any] | None, deadline: float | None) -> float | None:
    """Return the deadline of a moved timer; one that was paused when its engine ended continues now."""
    if moved is None:
        return deadline
    # "left" without a "deadline" means the process ended during the pause: the time it was down is not
    # counted.
    return float(moved["deadline"]) if "deadline" in moved else time.time() + float(moved["left"])
