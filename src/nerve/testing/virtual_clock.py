"""VirtualClock: a clock that skips the time in which nothing happens."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any

from nerve.core.clock import sleep_on_clock
from nerve.engine.leaf_runtime import LeafRuntime
from nerve.engine.quiescence import has_ready_callbacks, ready_queue
from nerve.engine.task_tracking import TASK_OWNER

log = logging.getLogger("nerve")

BUSY_CHECK_INTERVAL_S = 0.001
"""Seconds after which the clock looks again whether a step that executes has ended."""

BUSY_TURNS_BEFORE_WARNING = 100_000
"""Loop turns after which the log says that the clock cannot move, because the event loop is never idle."""

FAKE_LEAF: ContextVar[LeafRuntime | None] = ContextVar("FAKE_LEAF", default=None)
"""The step that a fake executes for; None elsewhere."""


class ClockCheckOwner:
    """Marks the callbacks of virtual clocks: they do not keep the event loop busy."""

    def track_task(self, task: asyncio.Future[Any]) -> None:
        pass


CLOCK_CHECKS = ClockCheckOwner()


class VirtualTimer:
    """A callback that a virtual clock calls at a time."""

    __slots__ = ("args", "callback", "context", "deadline", "is_done", "real_timer")

    def __init__(self, deadline: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.deadline, self.callback, self.args = deadline, callback, args
        self.context: Context = copy_context()
        self.real_timer: asyncio.Handle | None = None
        self.is_done = False

    def cancel(self) -> None:
        self.is_done = True
        if self.real_timer is not None:
            self.real_timer.cancel()


class VirtualClock:
    """Time that stands still, and jumps to the next timer when its sessions are at rest.

    A session is at rest when the event loop has no callback to run, no step executes except those that wait
    for a person, a budget, a rate limit or `sleep` of this clock, and nothing is being written, started,
    resumed or replayed. While a step executes, a timer fires after its delay in real time, as without this
    clock. With `skip=False` only `advance` moves the time.
    """

    def __init__(self, start: datetime | None = None, *, skip: bool = True) -> None:
        self._time = (start if start is not None else datetime.now(UTC)).timestamp()
        self._start, self._skip = self._time, skip
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._numbers = itertools.count()
        self._rest_checks: list[Callable[[], bool]] = []
        self._is_check_scheduled = False
        self._busy_turns = 0
        self._context = copy_context()
        self._context.run(TASK_OWNER.set, CLOCK_CHECKS)

    # -- the clock of runs ---------------------------------------------------------------------

    def time(self) -> float:
        """Return the Unix timestamp."""
        return self._time

    def monotonic(self) -> float:
        """Return the Unix timestamp, which does not go back."""
        return self._time

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> VirtualTimer:
        """Call back after `delay` seconds of this clock."""
        timer = VirtualTimer(self._time + delay, callback, args)
        if delay <= 0:
            # Due already, also if the clock is frozen.
            timer.real_timer = asyncio.get_running_loop().call_soon(callback, *args)
            return timer
        heapq.heappush(self._timers, (timer.deadline, next(self._numbers), timer))
        if self._skip and delay < math.inf:
            loop = asyncio.get_running_loop()
            timer.real_timer = loop.call_later(delay, self._on_real_time, timer, context=self._context)
        self._schedule_check()
        return timer

    # -- what tests use ------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The time in UTC."""
        return datetime.fromtimestamp(self._time, UTC)

    @property
    def elapsed(self) -> timedelta:
        """The time that has passed since the clock was created."""
        return timedelta(seconds=round(self._time - self._start, 6))

    @property
    def skip(self) -> bool:
        """Whether the clock jumps by itself; setting it stops or continues that."""
        return self._skip

    @skip.setter
    def skip(self, skip: bool) -> None:
        self._skip = skip
        self._schedule_check()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock; a fake that waits here does not count as executing."""
        leaf = FAKE_LEAF.get()
        with nullcontext() if leaf is None else leaf.marked_waiting():
            await sleep_on_clock(self, seconds)

    async def advance(
        self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Let time pass, timer by timer, and return when the sessions are at rest again.

        Each move waits until the sessions are at rest, so a step that executes is waited for.
        """
        end = self._time + count_seconds(seconds, minutes, hours, days)
        while True:
            await self._wait_for_rest()
            deadline = self._next_deadline()
            if deadline is None or deadline > end:
                break
            self._move_to(deadline)
        self._move_to(max(self._time, end))

    def jump(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Move the time at once, although steps execute, so that their timeouts fire."""
        self._move_to(self._time + count_seconds(seconds, minutes, hours, days))

    # -- moving --------------------------------------------------------------------------------

    @contextmanager
    def observe(self, is_at_rest: Callable[[], bool]) -> Iterator[None]:
        """Move only while a session is at rest, in a block in which the session is open."""
        if ready_queue(loop := asyncio.get_running_loop()) is None:
            found = f"{type(loop).__module__}.{type(loop).__qualname__}"
            raise RuntimeError(f"A virtual clock needs an event loop of asyncio, got {found}.")
        self._rest_checks.append(is_at_rest)
        try:
            yield
        finally:
            self._rest_checks.remove(is_at_rest)

    def _next_deadline(self) -> float | None:
        """Return the time of the next timer; None without one that ever fires."""
        while self._timers and self._timers[0][2].is_done:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers and self._timers[0][0] < math.inf else None

    def _move_to(self, time: float) -> None:
        """Set the time, and call what is due, in the order of the deadlines."""
        self._time = max(self._time, time)
        loop = asyncio.get_running_loop()
        while (deadline := self._next_deadline()) is not None and deadline <= self._time:
            timer = heapq.heappop(self._timers)[2]
            timer.cancel()
            # Through the loop, like its own timers: the code that moves the clock has to end first.
            loop.call_soon(timer.callback, *timer.args, context=timer.context)
        self._schedule_check()

    def _on_real_time(self, timer: VirtualTimer) -> None:
        """Fire a timer whose delay has passed while a step executed."""
        if self._skip and not timer.is_done:
            self._move_to(timer.deadline)

    def _schedule_check(self, delay: float = 0.0) -> None:
        if self._is_check_scheduled or not self._skip or self._next_deadline() is None:
            return
        self._is_check_scheduled = True
        loop = asyncio.get_running_loop()
        if delay:
            loop.call_later(delay, self._check, context=self._context)
        else:
            loop.call_soon(self._check, context=self._context)

    def _check(self) -> None:
        """Jump to the next timer if the sessions are at rest; look again soon if not."""
        self._is_check_scheduled = False
        deadline = self._next_deadline()
        if deadline is None or not self._skip:
            return
        if self._is_loop_busy():
            self._schedule_check()
        elif all(is_at_rest() for is_at_rest in self._rest_checks):
            self._move_to(deadline)
        else:
            # What it waits for, such as the end of a process, makes the loop busy in its own time.
            self._schedule_check(BUSY_CHECK_INTERVAL_S)

    def _is_loop_busy(self) -> bool:
        if not has_ready_callbacks(asyncio.get_running_loop(), CLOCK_CHECKS):
            self._busy_turns = 0
            return False
        self._busy_turns += 1
        if self._busy_turns == BUSY_TURNS_BEFORE_WARNING:
            log.warning(
                "The virtual clock does not move: the event loop is never idle. Do not poll with sleep(0)."
            )
        return True

    async def _wait_for_rest(self) -> None:
        """Return when the loop is idle and every session is at rest."""
        rested: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def check() -> None:
            if rested.done():
                return
            if self._is_loop_busy():
                loop.call_soon(check, context=self._context)
            elif all(is_at_rest() for is_at_rest in self._rest_checks):
                rested.set_result(None)
            else:
                loop.call_later(BUSY_CHECK_INTERVAL_S, check, context=self._context)

        loop.call_soon(check, context=self._context)
        await rested


def count_seconds(seconds: float, minutes: float, hours: float, days: float) -> float:
    """Return a period in seconds; ValueError for a negative one."""
    total = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days).total_seconds()
    if total < 0:
        raise ValueError(f"A clock cannot go back, got {total:g} seconds")
    return total
