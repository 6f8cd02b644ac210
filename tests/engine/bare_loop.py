"""An event loop with no more than that of a Temporal workflow: no task factory, no threads, no wall clock."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


class SkippingSelector(selectors.SelectSelector):
    """Waits for nothing: the time that the loop would wait has passed at once."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("The loop waits for something that never happens")
        self.skipped_s += timeout
        return []


class BareLoop(asyncio.SelectorEventLoop):
    """Has the methods of a workflow's loop, whose time passes when it has nothing else to do."""

    START = 1_000_000.0  # small, so that a sum of times is exact enough for timers

    def __init__(self) -> None:
        self.skipping_selector = SkippingSelector()
        self.timer_delays: list[float] = []
        super().__init__(self.skipping_selector)

    def time(self) -> float:
        return self.START + self.skipping_selector.skipped_s

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        self.timer_delays.append(round(when - self.time(), 3))
        return super().call_at(when, callback, *args, context=context)

    def set_task_factory(self, factory: Any) -> NoReturn:
        raise NotImplementedError

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:
        raise NotImplementedError

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> NoReturn:
        raise NotImplementedError


def run_bare(main: Callable[[], Awaitable[T]]) -> tuple[T, list[float]]:
    """Return what a function returns on a bare loop, and the delays of the timers that it set."""
    loop = BareLoop()
    try:
        return loop.run_until_complete(main()), loop.timer_delays
    finally:
        loop.close()
