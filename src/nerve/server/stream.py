"""Streams of events (SSE): from any number on, with heartbeats, and cut off when nobody reads."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.responses import Response

from nerve.api import Api, ApiError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

HEARTBEAT = 15.0
RETRY = b"retry: 1000\n\n"
SHOWN = 100
"""Runs in a snapshot."""


def message(kind: str, data: str, mark: str | int | None = None) -> bytes:
    # An event may have any name; one with a line end in it would be two lines.
    kind = kind.replace("\r", " ").replace("\n", " ")
    return (
        f"id: {mark}\n" if mark is not None else ""
    ).encode() + f"event: {kind}\ndata: {data}\n\n".encode()


class Streams:
    """The two streams of a server: one run, and all of them."""

    def __init__(self, api: Api, closing: asyncio.Event, heartbeat: float = HEARTBEAT) -> None:
        self._api, self._closing, self._heartbeat = api, closing, heartbeat

    async def run(self, request: Request) -> Response:
        """The events of one run; when it is over, so is the stream, and nothing is left to come back for."""
        name = unquote(request.path_params["run_id"])
        run = str((await self._api.perform("run", {"run": name})).run_id)  # type: ignore[attr-defined]
        given = last_event_id(request)
        if given and not (given.isdecimal() and len(given) < 20):
            raise ApiError("bad_request", "the Last-Event-ID of a run is a number")
        after = int(given or 0)
        oldest = await self._oldest(run, after)
        if oldest is None and await self._over(run, after):
            return Response(status_code=204)
        return self._stream(run_messages(self._api, run, after, oldest))

    async def all(self, request: Request) -> Response:
        """The events of all runs, behind a snapshot of them."""
        return self._stream(all_messages(self._api, last_event_id(request)))

    def _stream(self, messages: AsyncGenerator[bytes, None]) -> Response:
        return Stream(messages, self._closing, self._heartbeat)

    async def _oldest(self, run: str, after: int) -> int | None:
        """The first number there is, if the one that was seen last is not there."""
        if after == 0:
            return None
        told: Any = await self._api.perform("events", {"run": run, "after": after - 1, "limit": 1})
        if told.events and told.events[0].seq == after:
            return None
        return int(told.events[0].seq) if told.events else 1

    async def _over(self, run: str, after: int) -> bool:
        told: Any = await self._api.perform("run", {"run": run})
        return told.ended_at is not None and after >= told.last_seq


def last_event_id(request: Request) -> str:
    return request.headers.get("last-event-id", "") or request.query_params.get("after", "")


async def run_messages(api: Api, run: str, after: int, oldest: int | None) -> AsyncGenerator[bytes, None]:
    """Each event in the shape of the seed: its own data, and beside them what it is and where it stands."""
    if oldest is not None:
        detail: Any = await api.perform("run", {"run": run})
        yield message("gap", json.dumps({"after": after, "oldest": oldest}))
        after = detail.last_seq
        yield message("snapshot", detail.model_dump_json(), after)
        if detail.ended_at is not None:
            return
    events = api.hub.watch(run, after)
    try:
        async for event in events:
            after = event.seq
            told = event.model_dump(mode="json")
            yield message(event.event_type, json.dumps(event.data | told), after)
    except ApiError as error:
        yield cut_off(error, after)
    finally:
        await events.aclose()


async def all_messages(api: Api, mark: str) -> AsyncGenerator[bytes, None]:
    came_back = bool(mark)
    events = api.hub.watch_all(mark)
    try:
        async for mark, event in events:
            if event is not None:
                yield message(event.event_type, event.model_dump_json(), mark)
                continue
            if came_back:
                yield message("gap", json.dumps({"oldest": mark}))
            yield message("snapshot", await snapshot(api), mark)
    except ApiError as error:
        yield cut_off(error, mark)
    finally:
        await events.aclose()


async def snapshot(api: Api) -> str:
    runs = await api.perform("runs", {"limit": SHOWN})
    gates = await api.perform("gates", {})
    return json.dumps(runs.model_dump(mode="json") | {"gates": gates.model_dump(mode="json")["gates"]})


def cut_off(error: ApiError, last: str | int) -> bytes:
    return message("lagged", json.dumps({**error.to_dict(), "last": last}), last)


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
