"""The clock: what time it is, and timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic as read_monotonic
from time import time as read_time
from types import TracebackType
from typing import Any, Protocol


class ClockTimer(Protocol):
    """A callback that the clock has yet to call."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The time that runs see. Timers of the engine's own input and output use the event loop instead."""

    def time(self) -> float:
        """Return the Unix timestamp."""

    def monotonic(self) -> float:
        """Return seconds that a change of the system time does not affect."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> ClockTimer:
        """Call back on the running event loop after `delay` seconds."""


class SystemClock:
    """The clock of the machine and of the running event loop."""

    # The functions themselves, without a layer: every event of a run reads the time.
    time = staticmethod(read_time)
    monotonic = staticmethod(read_monotonic)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> ClockTimer:
        return asyncio.get_running_loop().call_later(delay, callback, *args)


SYSTEM_CLOCK = SystemClock()


def utc_now(clock: Clock) -> datetime:
    """Return the time of a clock in UTC."""
    return datetime.fromtimestamp(clock.time(), UTC)


async def sleep_on_clock(clock: Clock, seconds: float) -> None:
    """Return after `seconds` of the clock."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        timer.cancel()


class ClockTimeout:
    """An `asyncio.timeout` that follows a clock."""

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self._clock, self._seconds = clock, seconds
        self._task: asyncio.Task[Any] | None = None
        self._timer: ClockTimer | None = None
        self._deadline = 0.0
        self._cancel_count = 0
        self.is_expired = False

    async def __aenter__(self) -> ClockTimeout:
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancel_count = self._task.cancelling()
        self.restart(self._seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restart(None)
        task, self._task = self._task, None
        # Another cancellation of the task counts more than the timeout: it must not be swallowed.
        is_only_timeout = self.is_expired and task is not None and task.uncancel() <= self._cancel_count
        if is_only_timeout and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def restart(self, seconds: float | None) -> None:
        """Expire after `seconds` from now, or never; do nothing outside of the block or after the expiry."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # The block may have ended: an event can come from a thread that still runs.
        if seconds is not None and self._task is not None and not self.is_expired:
            self._deadline = self._clock.monotonic() + seconds
            self._timer = self._clock.call_later(max(0.0, seconds), self._expire)

    @property
    def remaining_seconds(self) -> float | None:
        """The seconds until it expires; None if it does not."""
        return None if self._timer is None else self._deadline - self._clock.monotonic()

    def _expire(self) -> None:
        self._timer, self.is_expired = None, True
        if self._task is not None:
            self._task.cancel()
