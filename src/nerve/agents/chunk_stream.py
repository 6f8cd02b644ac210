"""Work that tells chunks while it goes on, as an iterator of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from nerve.agents.provider import Chunk

EmitChunk = Callable[[Chunk], None]


async def chunks_from_callback(work: Callable[[EmitChunk], Awaitable[None]]) -> AsyncGenerator[Chunk, None]:
    """What `work` tells, until it ends or raises; closing the iterator cancels it and waits for its end."""
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
    """Cancel the task and wait until it has ended, however often we are cancelled ourselves meanwhile."""
    task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
