"""The seeds' commands as lines of JSON, over the Unix socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from nerve.api import Api, ApiError
from nerve.api.operations import Scope
from nerve.server import commands
from nerve.server.auth import Auth, need
from nerve.server.body import LARGEST, read_object
from nerve.server.callers import beside
from nerve.server.protocol import pid_of

FIRST_SECONDS = 5.0
"""In which the token must come."""
AT_ONCE = 64
"""Commands of one client that are worked on; then no more are read until one is done."""


class Lines:
    """What is behind the Unix socket for those who do not speak HTTP."""

    def __init__(self, api: Api, auth: Auth) -> None:
        self._api, self._auth = api, auth

    def protocol(self, lost: Callable[[Exception | None], None]) -> asyncio.Protocol:
        """For a connection whose first byte is that of an object."""
        return LinesProtocol(self._talk, lost)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        working: set[asyncio.Task[None]] = set()
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                caller = self._introduced(read_object(await reader.readline()))
            api = self._api.asked_by(beside(caller, pid_of(writer.transport)))
            await say(writer, {"success": True})
            while line := await reader.readline():
                while len(working) >= AT_ONCE:
                    await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
                task = asyncio.create_task(self._work(api, caller, read_object(line), writer))
                working.add(task)
                task.add_done_callback(working.discard)
        except ApiError as error:
            await say(writer, commands.failed(error))
        except (ValueError, TimeoutError):
            reason = f"a line has at most {LARGEST} bytes, and the first one comes at once"
            await say(writer, commands.failed(ApiError("bad_request", reason)))
        finally:
            for task in list(working):
                task.cancel()
            writer.close()

    def _introduced(self, first: dict[str, Any]) -> Scope:
        token = first.get("token")
        return self._auth.known(token if isinstance(token, str) else "")

    async def _work(
        self, api: Api, caller: Scope, given: Mapping[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        try:
            need(caller, commands.scope_of(given))
            async for reply in commands.replies(api, given):
                await say(writer, reply)
        except ApiError as error:
            await say(writer, commands.same_request(given, commands.failed(error)))


class LinesProtocol(asyncio.StreamReaderProtocol):
    """Tells whoever had the connection before when it is lost."""

    def __init__(self, talk: Callable[..., Any], lost: Callable[[Exception | None], None]) -> None:
        super().__init__(asyncio.StreamReader(limit=LARGEST), talk)
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost(exc)


async def say(writer: asyncio.StreamWriter, told: dict[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(told).encode() + b"\n")
        try:
            await writer.drain()
        except ConnectionError:
            pass  # who has left hears nothing
