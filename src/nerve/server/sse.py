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
from nerve.server.event_feed import FeedMessage, RunFeed, all_runs_feed

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

HEARTBEAT_S = 15.0
RETRY_FIELD = b"retry: 1000\n\n"


class SseEndpoints:
    """The two streams of a server: one run, and all of them."""

    def __init__(self, api: Api, closing: asyncio.Event, heartbeat: float = HEARTBEAT_S) -> None:
        self._api, self._closing, self._heartbeat = api, closing, heartbeat

    async def run_events(self, request: Request) -> Response:
        """The events of one run; when it is over, so is the stream, and nothing is left to come back for."""
        follow = await RunFeed.open(self._api, unquote(request.path_params["run_id"]), last_event_id(request))
        return Response(status_code=204) if follow.is_over else self._respond(follow.messages(), flat=True)

    async def all_events(self, request: Request) -> Response:
        """The events of all runs, behind a snapshot of them."""
        return self._respond(all_runs_feed(self._api, last_event_id(request)))

    def _respond(self, messages: AsyncGenerator[FeedMessage, None], flat: bool = False) -> Response:
        return EventSourceResponse(encode_sse(messages, flat), self._closing, self._heartbeat)


def last_event_id(request: Request) -> str:
    return request.headers.get("last-event-id", "") or request.query_params.get("after", "")


async def encode_sse(messages: AsyncGenerator[FeedMessage, None], flat: bool) -> AsyncGenerator[bytes, None]:
    """As server-sent events; `flat` puts the data of an event beside what it is, as well as inside it."""
    try:
        async for message in messages:
            data = message.data["data"] | message.data if flat and message.is_event else message.data
            # An event may have any name; one with a line end in it would be two lines.
            kind = " ".join(message.kind.splitlines())
            id_line = f"id: {message.cursor}\n" if message.cursor is not None else ""
            yield f"{id_line}event: {kind}\ndata: {json.dumps(data)}\n\n".encode()
    finally:
        await messages.aclose()


class EventSourceResponse(Response):
    """Messages as they come, until they end, the reader leaves or stops reading, or the server stops."""

    media_type = "text/event-stream"

    def __init__(
        self, messages: AsyncGenerator[bytes, None], closing: asyncio.Event, heartbeat: float
    ) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._messages, self._closing, self._heartbeat = messages, closing, heartbeat
        self._sent_count = 0
        self._is_sending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        message_task = asyncio.create_task(self._send_messages(send))
        heartbeat_task = asyncio.create_task(self._send_heartbeats(send))
        end_tasks = [
            asyncio.create_task(wait_for_disconnect(receive)),
            asyncio.create_task(self._closing.wait()),
        ]
        tasks = [message_task, heartbeat_task, *end_tasks]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._messages.aclose()
        if not heartbeat_task.cancelled():
            abort_connection(scope)
        elif not message_task.cancelled() and (error := message_task.exception()) is not None:
            raise error
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_messages(self, send: Send) -> None:
        await self._send(send, RETRY_FIELD)
        async for message in self._messages:
            await self._send(send, message)

    async def _send_heartbeats(self, send: Send) -> None:
        """Say that we are there when there is nothing to say; return when nothing more is taken."""
        while True:
            before, stuck = self._sent_count, self._is_sending
            await asyncio.sleep(self._heartbeat)
            if self._sent_count > before:
                continue
            if stuck and self._is_sending:
                return
            if not self._is_sending:
                await self._send(send, b": heartbeat\n\n")

    async def _send(self, send: Send, text: bytes) -> None:
        self._is_sending = True
        await send({"type": "http.response.body", "body": text, "more_body": True})
        self._is_sending = False
        self._sent_count += 1


def abort_connection(scope: Scope) -> None:
    """Close a connection without waiting for what was written to be read."""
    with contextlib.suppress(KeyError):
        scope["state"]["abort"]()


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
