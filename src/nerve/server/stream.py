"""Streams of events (SSE): from any number on, with heartbeats, and cut off when nobody reads."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette.responses import Response

from nerve.api import Api
from nerve.server.following import Follow, Said, follow_all

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

HEARTBEAT = 15.0
RETRY = b"retry: 1000\n\n"


class Streams:
    """The two streams of a server: one run, and all of them."""

    def __init__(self, api: Api, closing: asyncio.Event, heartbeat: float = HEARTBEAT) -> None:
        self._api, self._closing, self._heartbeat = api, closing, heartbeat

    async def run(self, request: Request) -> Response:
        """The events of one run; when it is over, so is the stream, and nothing is left to come back for."""
        follow = await Follow.of(self._api, unquote(request.path_params["run_id"]), last_event_id(request))
        return Response(status_code=204) if follow.over else self._stream(follow.all(), flat=True)

    async def all(self, request: Request) -> Response:
        """The events of all runs, behind a snapshot of them."""
        return self._stream(follow_all(self._api, last_event_id(request)))

    def _stream(self, said: AsyncGenerator[Said, None], flat: bool = False) -> Response:
        return Stream(written(said, flat), self._closing, self._heartbeat)


def last_event_id(request: Request) -> str:
    return request.headers.get("last-event-id", "") or request.query_params.get("after", "")


async def written(said: AsyncGenerator[Said, None], flat: bool) -> AsyncGenerator[bytes, None]:
    """As server-sent events; `flat` puts the data of an event beside what it is, as well as inside it."""
    try:
        async for each in said:
            data = each.data["data"] | each.data if flat and each.is_event else each.data
            # An event may have any name; one with a line end in it would be two lines.
            kind = " ".join(each.kind.splitlines())
            mark = f"id: {each.mark}\n" if each.mark is not None else ""
            yield f"{mark}event: {kind}\ndata: {json.dumps(data)}\n\n".encode()
    finally:
        await said.aclose()


class Stream(Response):
    """Messages as they come, until they end, the reader leaves or stops reading, or the server stops."""

    media_type = "text/event-stream"

    def __init__(
        self, messages: AsyncGenerator[bytes, None], closing: asyncio.Event, heartbeat: float
    ) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._messages, self._closing, self._heartbeat = messages, closing, heartbeat
        self._sent = 0
        self._sending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        told = asyncio.create_task(self._tell(send))
        stuck = asyncio.create_task(self._beat(send))
        left = [asyncio.create_task(gone(receive)), asyncio.create_task(self._closing.wait())]
        tasks = [told, stuck, *left]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._messages.aclose()
        if not stuck.cancelled():
            abort(scope)
        elif not told.cancelled() and (error := told.exception()) is not None:
            raise error
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, send: Send) -> None:
        await self._send(send, RETRY)
        async for each in self._messages:
            await self._send(send, each)

    async def _beat(self, send: Send) -> None:
        """Say that we are there when there is nothing to say; return when nothing more is taken."""
        while True:
            before, stuck = self._sent, self._sending
            await asyncio.sleep(self._heartbeat)
            if self._sent > before:
                continue
            if stuck and self._sending:
                return
            if not self._sending:
                await self._send(send, b": heartbeat\n\n")

    async def _send(self, send: Send, text: bytes) -> None:
        self._sending = True
        await send({"type": "http.response.body", "body": text, "more_body": True})
        self._sending = False
        self._sent += 1


def abort(scope: Scope) -> None:
    """Close a connection without waiting for what was written to be read."""
    with contextlib.suppress(KeyError):
        scope["state"]["abort"]()


async def gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
