"""The tasks of a turn: one that emits chunks, and those that answer the requests of the agent meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from nerve.agents.provider import Chunk

EmitChunk = Callable[[Chunk], None]
T = TypeVar("T")


async def chunks_from_callback(work: Callable[[EmitChunk], Awaitable[None]]) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks that `work` emits; closing the iterator cancels `work` and waits for its end."""
    queue: asyncio.Queue[Chunk | None] = asyncio.Queue()

    async def run() -> None:
        try:
            await work(queue.put_nowait)
        finally:
            queue.put_nowait(None)

    task = asyncio.create_task(run())
    try:
        while (chunk := await queue.get()) is not None:
            yield chunk
        await task
    finally:
        await cancel_and_wait(task)


async def cancel_and_wait(task: asyncio.Future[Any]) -> None:
    """Cancel the task and wait until it has ended, even if the caller is cancelled while it waits."""
    task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


class AnswerTasks:
    """Answers to requests of an agent, given while its messages are read; an error in one ends the turn."""

    def __init__(self) -> None:
        self._tasks: dict[object, asyncio.Task[Any]] = {}
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, answer: Coroutine[Any, Any, T], request_id: object = None) -> asyncio.Task[T]:
        task = asyncio.create_task(answer)
        key = request_id if request_id is not None else task
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._finish(key, done))
        return task

    def _finish(self, key: object, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the turn with an error; the first one counts."""
        if not self._failure.done():
            self._failure.set_exception(error)

    def cancel(self, request_id: object) -> None:
        """Cancel the answer to a request that the agent has withdrawn."""
        if (task := self._tasks.get(request_id)) is not None:
            task.cancel()

    async def run(self, work: Awaitable[T]) -> T:
        """Return the result of `work`, or raise the error of an answer if that comes first."""
        task = asyncio.ensure_future(work)
        try:
            first: set[asyncio.Future[Any]] = {task, self._failure}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                self._failure.result()
            return await task
        finally:
            await cancel_and_wait(task)

    async def close(self) -> None:
        """Cancel all answers and wait until they have ended."""
        if tasks := list(self._tasks.values()):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if self._failure.done() and not self._failure.cancelled():
            self._failure.exception()  # it was raised, or came too late to matter
        self._failure.cancel()
