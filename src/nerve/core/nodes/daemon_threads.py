"""Daemon threads for sync functions: a hanging thread does not block the process from exiting."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Job = Callable[[], None]


class DaemonThreads:
    """A pool without a size limit that reuses idle threads."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()

    async def run(self, fn: Callable[[Any], Any], argument: Any, on_late: Callable[[], None]) -> Any:
        """Return `fn(argument)`; `on_late` is called at its end if the caller was cancelled before."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()  # the function sees the context variables of its caller

        def job() -> None:
            try:
                outcome, error = context.run(fn, argument), None
            except BaseException as caught:
                outcome, error = None, caught
            try:
                loop.call_soon_threadsafe(settle_future, future, outcome, error, on_late)
            except RuntimeError:
                pass  # the loop is closed, and so is the caller

        self._submit(job)
        return await future

    def _submit(self, job: Job) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._work, name="nerve-function", daemon=True).start()
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            self._jobs.get()()
            with self._lock:
                self._idle += 1


def settle_future(
    future: asyncio.Future[Any], outcome: Any, error: BaseException | None, on_late: Callable[[], None]
) -> None:
    if future.cancelled():
        on_late()
    elif error is None:
        future.set_result(outcome)
    elif isinstance(error, StopIteration):  # a future does not accept StopIteration
        future.set_exception(RuntimeError(f"the function raised StopIteration: {error}"))
    else:
        future.set_exception(error)


DAEMON_THREADS = DaemonThreads()
