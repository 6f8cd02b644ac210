"""A bound on time that is recorded: on replay it runs out at the same point again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from nerve.core.runtime import TimerWait


@asynccontextmanager
async def durable_timeout(
    wait: Callable[[TimerWait], Awaitable[Any]], path: str, seconds: float, around: str | None = None
) -> AsyncIterator[None]:
    """Raise TimeoutError inside when the timer at `path` fires before the block is done.

    With a place that it is `around`, it stands still while that waits for somebody else.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    timer = asyncio.ensure_future(wait(TimerWait(path, seconds, guard=True, around=around)))
    fired = False

    def fire(done: asyncio.Future[Any]) -> None:
        nonlocal fired
        if not done.cancelled() and done.exception() is None:
            fired = True
            task.cancel()

    timer.add_done_callback(fire)
    try:
        yield
        await asyncio.sleep(0)  # a cancel that is already on its way must arrive in here
    except asyncio.CancelledError:
        if not fired:
            raise
        if task.uncancel() > before:
            raise  # what is around was cancelled meanwhile, and is told only once
        raise TimeoutError(f"timed out after {seconds:g} s") from None
    finally:
        timer.remove_done_callback(fire)
        timer.cancel()
        await asyncio.wait([timer])
