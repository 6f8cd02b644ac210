"""Readers of streams: to the end, up to a byte, or one byte a second."""

import asyncio

from e2e.world import Asking
from server.sse import Message, messages, stream


async def events_of(client: Asking, run: str, last: str | None = None) -> list[Message]:
    """All events of a run, to its end."""
    async with asyncio.timeout(60):
        return [each async for each in stream(client.http, f"/events/workflow/{run}", last)]


async def cut(client: Asking, path: str, last: str | None, left: int) -> tuple[list[Message], bool]:
    """What is understood of a stream that breaks off behind so many bytes, and whether it ended before."""
    headers = {"last-event-id": last} if last is not None else {}
    text = b""
    async with client.http.stream("GET", path, headers=headers) as reply:
        assert reply.status_code in (200, 204)
        async for part in reply.aiter_raw():
            text += part[: left - len(text)]
            if len(text) >= left:
                break
        else:
            return messages(text.decode()), True
    return messages(text.decode(errors="ignore")), False
