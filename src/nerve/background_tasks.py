"""Work in the background of an event loop: tasks, events to wait for, and signals that end it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

END_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def cancel_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended; their errors are dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after that many seconds."""
    # `asyncio.wait_for` of Python 3.11 loses a cancellation that comes together with the event.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


@contextlib.asynccontextmanager
async def run_in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine until the end of the context."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await cancel_tasks(task)


@contextlib.contextmanager
def handle_signals(signals: tuple[signal.Signals, ...], handle: Callable[[], object]) -> Iterator[None]:
    """Call a function on the running event loop when one of the signals arrives, inside the block."""
    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
