"""A thread with an event loop of its own, for a session whose store is reached over a network.

Its reads wait for the server. The event loop that executes runs and answers clients does not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from nerve.api.errors import DATABASE_FIX, ApiError
from nerve.background_tasks import cancel_tasks

if TYPE_CHECKING:
    from nerve.session import Session

T = TypeVar("T")

ANSWER_TIMEOUT_S = 10.0
"""Seconds that one request may read."""
UNLIMITED = inf
"""The timeout of what waits for something else than the database."""


class ReadingThread:
    """Executes coroutines with a session in its thread; the methods are called from another event loop."""

    def __init__(
        self,
        open_session: Callable[[], AbstractAsyncContextManager[Session]],
        interrupt: Callable[[], None],
    ) -> None:
        """`interrupt` ends a read that is in progress, from another thread."""
        self._open_session, self._interrupt = open_session, interrupt
        self._thread = threading.Thread(target=self._run, name="nerve-reads", daemon=True)
        self._ready: Future[Session] = Future()
        self._end: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> Session:
        """Open the session in the thread; return it for what does not read its store."""
        self._thread.start()
        return await asyncio.wrap_future(self._ready)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with self._open_session() as session:
            self._ready.set_result(session)
            await self._end.wait()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await cancel_tasks(*others)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function in the thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the thread has ended
                self._loop.call_soon_threadsafe(function)

    async def execute(self, work: Callable[[Session], Awaitable[T]], timeout: float | None = None) -> T:
        """Return the result of a coroutine; ApiError if the server does not answer it in time."""
        seconds = ANSWER_TIMEOUT_S if timeout is None else timeout
        try:
            async with asyncio.timeout(None if seconds == UNLIMITED else seconds):
                return await self._await(lambda: work(self._ready.result()))
        except TimeoutError:
            self._interrupt()
            message = f"The database has not answered for {seconds:g} seconds"
            raise ApiError("busy", message, DATABASE_FIX) from None

    async def iterate(self, generate: Callable[[], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        """Yield what an asynchronous generator yields in the thread."""
        steps = ThreadSteps(generate())
        try:
            while (item := await self._await(steps.next)) is not None:
                yield item[0]
        finally:
            await self._await(steps.close)

    async def _await(self, work: Callable[[], Awaitable[T]]) -> T:
        assert self._loop is not None

        async def execute() -> T:
            return await work()

        if not self._loop.is_running():
            raise ApiError("busy", "The server is shutting down", "Retry when the server is back.")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(execute(), self._loop))

    async def close(self) -> None:
        """Close the session and end the thread."""
        if self._end is not None:
            self.call_soon(self._end.set)
            self._interrupt()
        await asyncio.to_thread(self._thread.join)


class ThreadSteps:
    """The items of a generator, one at a time; closing it ends a step that is in progress."""

    def __init__(self, generator: AsyncGenerator[Any, None]) -> None:
        self._generator = generator
        self._step: asyncio.Task[Any] | None = None

    async def next(self) -> tuple[Any] | None:
        """Return the next item in a tuple; None at the end."""
        self._step = asyncio.ensure_future(anext(self._generator, self))
        item = await self._step
        return None if item is self else (item,)

    async def close(self) -> None:
        if self._step is not None and not self._step.done():
            await cancel_tasks(self._step)
        await self._generator.aclose()
