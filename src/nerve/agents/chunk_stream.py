"""Turn a callback-based producer of chunks into an async iterator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from nerve.agents.provider import Chunk

EmitChunk = Callable[[Chunk], None]


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


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
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
