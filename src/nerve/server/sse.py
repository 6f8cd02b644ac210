"""Server-sent events: resumable by event id, with heartbeats, closed if the client stops reading."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette.responses import Response

from nerve.api import Api
from nerve.api.event_hub import EventFrame
from nerve.background_tasks import cancel_tasks
from nerve.server.event_feed import Feed, RunFeed, all_runs_feed

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

HEARTBEAT_S = 15.0
EncodeEvent = Callable[[EventFrame, str], bytes]
RETRY_FIELD = b"retry: 1000\n\n"


class SseEndpoints:
    """The event streams of one run and of all runs."""

    def __init__(self, api: Api, closing: asyncio.Event, heartbeat: float = HEARTBEAT_S) -> None:
        self._api, self._closing, self._heartbeat = api, closing, heartbeat

    async def run_events(self, request: Request) -> Response:
        """Stream the events of one run until it ends. A later reconnect gets 204, which stops retries."""
        follow = await RunFeed.open(self._api, unquote(request.path_params["run_id"]), last_event_id(request))
        return (
            Response(status_code=204)
            if follow.is_over
            else self.respond(encode_sse_batches(follow.messages(), encode_flat_sse_event))
        )

    async def all_events(self, request: Request) -> Response:
        """Stream the events of all runs, after a snapshot."""
        return self.respond(
            encode_sse_batches(all_runs_feed(self._api, last_event_id(request)), encode_sse_event)
        )

    def respond(self, messages: AsyncGenerator[bytes, None]) -> Response:
        """Stream encoded messages until they end or the server stops."""
        return EventSourceResponse(messages, self._closing, self._heartbeat)


def last_event_id(request: Request) -> str:
    return request.headers.get("last-event-id", "") or request.query_params.get("after", "")


async def encode_sse_batches(feed: Feed, encode_event: EncodeEvent) -> AsyncGenerator[bytes, None]:
    """Encode messages as server-sent events, those that are available together."""
    try:
        async for messages in feed:
            yield b"".join(
                message.data.encode(encode_event, message.cursor or "")
                if isinstance(message.data, EventFrame)
                else encode_sse(message.kind, json.dumps(message.data), message.cursor)
                for message in messages
            )
    finally:
        await feed.aclose()


def encode_sse_event(frame: EventFrame, cursor: str) -> bytes:
    return encode_sse(frame.event.event_type, frame.response.model_dump_json(), cursor)


def encode_flat_sse_event(frame: EventFrame, cursor: str) -> bytes:
    """Encode an event with its data also at the top level."""
    fields = frame.response.model_dump(mode="json")
    return encode_sse(frame.event.event_type, json.dumps(fields["data"] | fields), cursor)


def encode_sse(kind: str, data: str, cursor: str | None) -> bytes:
    id_line = f"id: {cursor}\n" if cursor is not None else ""
    # A line break in an event name would inject another SSE field.
    return f"{id_line}event: {' '.join(kind.splitlines())}\ndata: {data}\n\n".encode()


class EventSourceResponse(Response):
    """Streams messages until they end, the client disconnects or stops reading, or the server stops."""

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
            await cancel_tasks(*tasks)
            await self._messages.aclose()
        if not heartbeat_task.cancelled():
            with contextlib.suppress(KeyError):
                scope["state"]["abort"]()  # written data is not flushed to a client that does not read
        elif not message_task.cancelled() and (error := message_task.exception()) is not None:
            raise error
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_messages(self, send: Send) -> None:
        await self._send(send, RETRY_FIELD)
        async for message in self._messages:
            await self._send(send, message)

    async def _send_heartbeats(self, send: Send) -> None:
        """Send heartbeats while the stream is idle; return if the client does not read."""
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


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
