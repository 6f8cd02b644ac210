"""The seeds' commands as lines of JSON, over the Unix socket."""

from __future__ import annotations

import asyncio
import json
import select
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nerve.api import Api, ApiError
from nerve.api.operations import Scope
from nerve.server import commands
from nerve.server.auth import Auth, need
from nerve.server.body import LARGEST, read_object
from nerve.server.callers import beside
from nerve.server.protocol import STOPPING, pid_of

FIRST_SECONDS = 5.0
"""In which the token must come."""
AT_ONCE = 64
"""Commands of one client that are worked on; then no more are read until one is done."""
GRACE = 2.0
"""Seconds in which commands may end when the server stops."""

FIRST = 'First send {"token": "TOKEN"}'
SHAPE = 'Send {"type": "LIST_WORKFLOWS", "params": {}}, each command on a line of its own.'

Given = Mapping[str, Any]


class Lines:
    """What is behind the Unix socket for those who do not speak HTTP."""

    def __init__(self, api: Api, auth: Auth) -> None:
        self._api, self._auth = api, auth
        self._working: set[asyncio.Task[None]] = set()
        """What is done is done to its end, though nobody may wait for it any more."""

    def protocol(self, lost: Callable[[Exception | None], None]) -> LinesProtocol:
        """For a connection whose first byte is that of an object."""
        return LinesProtocol(self._talk, lost)

    async def _talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: asyncio.Future[None]
    ) -> None:
        working: dict[asyncio.Task[None], Given] = {}
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                caller = self._introduced(read_object(await line_of(reader), FIRST))
            api = self._api.asked_by(beside(caller, pid_of(writer.transport)))
            await say(writer, {"success": True})
            while await room(working, left) and (line := await next_line(reader, writer)):
                if (given := await object_in(line, writer)) is not None:
                    task = asyncio.create_task(self._work(api, caller, given, writer))
                    working[task] = given
                    self._working.add(task)
                    task.add_done_callback(working.pop)
                    task.add_done_callback(self._working.discard)
            await finished(working, left)
        except ApiError as error:
            await say(writer, commands.failed(error))
        except TimeoutError:
            await say(writer, commands.failed(ApiError("bad_request", "the first line comes at once")))
        except ConnectionError:
            pass  # who has left hears nothing
        finally:
            leave(working, writer)

    def _introduced(self, first: dict[str, Any]) -> Scope:
        token = first.get("token")
        return self._auth.known(token if isinstance(token, str) else "")

    async def _work(self, api: Api, caller: Scope, given: Given, writer: asyncio.StreamWriter) -> None:
        try:
            need(caller, commands.scope_of(given))
            async for reply in commands.replies(api, given):
                await say(writer, reply)
        except Exception as error:
            await say(writer, commands.same_request(given, commands.failed(commands.foreseen(error))))


class LinesProtocol(asyncio.StreamReaderProtocol):
    """Knows when the other end is gone for good: who has only nothing more to say still wants his replies."""

    def __init__(
        self, talk: Callable[..., Awaitable[None]], lost: Callable[[Exception | None], None]
    ) -> None:
        self._reader = asyncio.StreamReader(limit=LARGEST)
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        super().__init__(self._reader, lambda reader, writer: talk(reader, writer, self._left))
        self._lost = lost
        self._hangs_up = select.epoll()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._talking: Any = transport
        # A closed end is told without being asked for; that there is something to read is not.
        self._hangs_up.register(transport.get_extra_info("socket").fileno(), 0)
        asyncio.get_running_loop().add_reader(self._hangs_up.fileno(), self._is_gone)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_gone()
        self._hangs_up.close()
        super().connection_lost(exc)
        self._lost(exc)

    def stop(self) -> None:
        """Take no more commands; those at work have a moment to end."""
        self._talking.pause_reading()
        self._reader.feed_eof()
        asyncio.get_running_loop().call_later(GRACE, self._is_gone)

    def _is_gone(self) -> None:
        if not self._hangs_up.closed:
            asyncio.get_running_loop().remove_reader(self._hangs_up.fileno())
        if not self._left.done():
            self._left.set_result(None)


async def line_of(reader: asyncio.StreamReader) -> bytes:
    """The next line; one that is too long is read to its end and refused."""
    refused = False
    while True:
        try:
            line = await reader.readuntil(b"\n")
            break
        except asyncio.LimitOverrunError as error:
            refused = True
            await reader.readexactly(error.consumed)
        except asyncio.IncompleteReadError as error:
            line = error.partial
            break
    if refused:
        raise ApiError("too_large", f"a line has at most {LARGEST} bytes")
    return line


async def next_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The next line that may be one; nothing when no more come."""
    while True:
        try:
            return await line_of(reader)
        except ApiError as error:
            await say(writer, commands.failed(error))


async def object_in(line: bytes, writer: asyncio.StreamWriter) -> dict[str, Any] | None:
    try:
        return read_object(line, SHAPE)
    except ApiError as error:
        await say(writer, commands.failed(error))
        return None


async def room(working: Mapping[asyncio.Task[None], Given], left: asyncio.Future[None]) -> bool:
    """Wait until another command can be worked on; whether one should be."""
    while len(working) >= AT_ONCE and not left.done():
        await asyncio.wait([*working, left], return_when=asyncio.FIRST_COMPLETED)
    return len(working) < AT_ONCE


async def finished(working: Mapping[asyncio.Task[None], Given], left: asyncio.Future[None]) -> None:
    """Return when everything that was asked for has its reply, or nobody waits for it any more."""
    while working and not left.done():
        await asyncio.wait([*working, left], return_when=asyncio.FIRST_COMPLETED)


def leave(working: Mapping[asyncio.Task[None], Given], writer: asyncio.StreamWriter) -> None:
    """Say of what is not done that it is not; what only tells of runs ends, and everything else goes on."""
    for task, given in working.items():
        if not task.done():
            write(writer, commands.same_request(given, commands.failed(STOPPING)))
        if commands.is_subscription(given):
            task.cancel()
    writer.close()


def write(writer: asyncio.StreamWriter, told: dict[str, Any]) -> None:
    writer.write(json.dumps(told).encode() + b"\n")


async def say(writer: asyncio.StreamWriter, told: dict[str, Any]) -> None:
    if not writer.is_closing():
        write(writer, told)
        try:
            await writer.drain()
        except ConnectionError:
            pass  # who has left hears nothing
