"""A timeout with a recorded timer: on replay it expires at the same point."""

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
    """Raise TimeoutError inside the block when the timer at `path` fires before it ends.

    The timer is paused while the path `around` waits for input or a budget.
    """
    task = asyncio.current_task()
    assert task is not None
    cancel_count = task.cancelling()
    timer = asyncio.ensure_future(wait(TimerWait(path, seconds, guard=True, around=around)))
    fired = False

    def fire(done: asyncio.Future[Any]) -> None:
        nonlocal fired
        # A cancelled or failed timer wait (the run stops or is unloaded) is not an expiry.
        if not done.cancelled() and done.exception() is None:
            fired = True
            task.cancel()

    timer.add_done_callback(fire)
    try:
        yield
        await asyncio.sleep(0)  # a scheduled cancellation must be delivered inside the block
    except asyncio.CancelledError:
        if not fired:
            raise
        if task.uncancel() > cancel_count:
            raise  # the enclosing task was cancelled, too, and asyncio raises CancelledError only once
        raise TimeoutError(f"timed out after {seconds:g} s") from None
    finally:
        timer.remove_done_callback(fire)
        timer.cancel()
        await asyncio.wait([timer])
