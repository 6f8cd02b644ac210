"""Messages of users for the agent of a running step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


class SteeringQueue(asyncio.Queue[str]):
    """Messages of users for the agent of a step; the agent gets each of them when it is on disk."""

    def __init__(self) -> None:
        super().__init__()
        self._writes: set[asyncio.Future[None]] = set()

    def put_when_written(self, text: str, written: Awaitable[None]) -> asyncio.Future[None]:
        """Put a message when a write completes; return a future that completes then, or fails with it."""
        write = asyncio.ensure_future(written)
        self._writes.add(write)

        def put(write: asyncio.Future[None]) -> None:
            self._writes.discard(write)
            if not write.cancelled() and write.exception() is None:
                self.put_nowait(text)

        write.add_done_callback(put)
        return write

    async def take_all(self) -> list[str]:
        """Return the messages that are not taken yet, including those that are being written."""
        # A message that comes at the end of a turn must not get lost because the disk is slow.
        while self._writes:
            await asyncio.wait(self._writes)
        return [self.get_nowait() for _ in range(self.qsize())]
