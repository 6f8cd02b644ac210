"""WebSocket endpoint: API operations as messages, and subscriptions to event feeds."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocketDisconnect

from nerve.api import OPERATIONS, Api, ApiError
from nerve.api.command_protocol import convert_and_log_error
from nerve.api.errors import InvalidRequest
from nerve.api.event_hub import EventFrame
from nerve.api.request_parsing import parse_request
from nerve.background_tasks import cancel_tasks
from nerve.core.json_codec import encode_json
from nerve.server.auth import Auth, Holder, caller_of_request
from nerve.server.event_feed import Feed, FeedMessage, RunFeed, all_runs_feed
from nerve.server.request_body import parse_json_object

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

SUBPROTOCOL = "nerve"
TOKEN_TIMEOUT_S = 5.0
"""Seconds within which the token must arrive, if the request had none."""
MAX_CONCURRENT_MESSAGES = 64
"""Maximum concurrent messages of one client. Reading pauses while the limit is reached."""
CLOSE_POLICY_VIOLATION, CLOSE_BAD_DATA = 1008, 1003

MESSAGE_FIX = 'Send {"id": 1, "op": "runs", "args": {}}'


class WebSocketEndpoint:
    """Serves WebSockets at `/ws`."""

    def __init__(self, api: Api, auth: Auth) -> None:
        self._api, self._auth = api, auth

    async def handle(self, socket: WebSocket) -> None:
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in socket.scope["subprotocols"] else None)
        try:
            caller = socket.scope["nerve.caller"] or await self._authenticate(socket)
            session = WebSocketSession(self._api.as_caller(caller_of_request(socket.scope, caller)), socket)
            try:
                await session.run()
            finally:
                await session.close()
        except ApiError as error:
            code = CLOSE_BAD_DATA if error.code in ("unsupported", "bad_request") else CLOSE_POLICY_VIOLATION
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await socket.send_text(json.dumps({"id": None, "error": error.to_dict()}))
                await socket.close(code, error.message[:100])
        except WebSocketDisconnect:
            pass

    async def _authenticate(self, socket: WebSocket) -> Holder:
        """Return what the token in the first message permits."""
        try:
            async with asyncio.timeout(TOKEN_TIMEOUT_S):
                first = await receive_ws_message(socket)
        except TimeoutError:
            raise ApiError(
                "unauthorized",
                f"No token within {TOKEN_TIMEOUT_S:g} seconds",
                'First send {"token": "TOKEN"}',
            ) from None
        token = first.get("token")
        caller = await self._auth.authenticate_token(token if isinstance(token, str) else "")
        await socket.send_text(json.dumps({"id": first.get("id"), "result": {"done": True}}))
        return caller


class WebSocketSession:
    """One client with its running requests and subscriptions."""

    def __init__(self, api: Api, socket: WebSocket) -> None:
        self._api, self._socket = api, socket
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_MESSAGES)
        self._subscriptions: dict[str, asyncio.Task[None]] = {}
        """By message id encoded as JSON, because 1 and "1" are different ids."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        while True:
            try:
                message = await receive_ws_message(self._socket)
            except ApiError as error:
                await self._send({"id": None, "error": error.to_dict()})
                continue
            await self._slots.acquire()
            self._start_task(self._process(message)).add_done_callback(lambda _: self._slots.release())

    async def close(self) -> None:
        tasks = list(self._tasks)
        await cancel_tasks(*tasks)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _process(self, message: dict[str, Any]) -> None:
        """Execute one message and send the result or error."""
        id = message.get("id")
        try:
            await self._send({"id": id, "result": await self._perform(message)})
        except Exception as error:
            await self._send({"id": id, "error": convert_and_log_error(error).to_dict()})

    async def _perform(self, message: dict[str, Any]) -> Any:
        op, args = message.get("op"), message.get("args", {})
        if not isinstance(op, str) or not isinstance(args, dict) or set(message) - {"id", "op", "args"}:
            raise ApiError("bad_request", "Invalid message", MESSAGE_FIX)
        match op:
            case "subscribe":
                return await self._subscribe(message.get("id"), **pick_arguments(args, "run", "after"))
            case "unsubscribe":
                return self._unsubscribe(**pick_arguments(args, "id"))
        return (await self._api.perform(op, args)).model_dump(mode="json")

    async def _subscribe(self, id: Any, run: Any = None, after: Any = "") -> Any:
        """Subscribe to one run or all runs. The events carry the id of this message."""
        name = encode_json(id, canonical=True)
        if isinstance(after, bool) or not isinstance(after, str | int):
            raise ApiError(
                "bad_request",
                "subscribe: 'after' must be the mark of an event",
                "Send the mark as received.",
            )
        if name in self._subscriptions:
            raise ApiError("conflict", f"Subscription {name} already exists", "Use another id.")
        if len(self._subscriptions) >= MAX_CONCURRENT_MESSAGES:
            raise ApiError(
                "too_many",
                f"Too many subscriptions, at most {MAX_CONCURRENT_MESSAGES}",
                "Unsubscribe from one.",
            )
        if run is None:
            feed = all_runs_feed(self._api, str(after))
        else:
            parse_request(OPERATIONS["run"], {"run": run})
            feed = (await RunFeed.open(self._api, run, str(after))).messages()
        feed_task = self._start_task(self._forward(id, feed))
        self._subscriptions[name] = feed_task
        feed_task.add_done_callback(lambda _: self._subscriptions.pop(name, None))
        return {"done": True}

    def _unsubscribe(self, id: Any = None) -> Any:
        name = encode_json(id, canonical=True)
        if (feed_task := self._subscriptions.get(name)) is None:
            raise ApiError(
                "not_found", f"Subscription {name} not found", "Use the id of an active subscription."
            )
        feed_task.cancel()
        return {"done": True}

    async def _forward(self, id: Any, feed: Feed) -> None:
        prefix = f'{{"id": {json.dumps(id)}, '
        try:
            async for messages in feed:
                for message in messages:
                    await self._send_text(prefix + encode_ws_message(message))
            await self._send({"id": id, "end": True})
        except Exception as error:
            await self._send({"id": id, "end": True, "error": convert_and_log_error(error).to_dict()})
        finally:
            await feed.aclose()

    async def _send(self, payload: dict[str, Any]) -> None:
        await self._send_text(json.dumps(payload))

    async def _send_text(self, text: str) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the client has disconnected
            await self._socket.send_text(text)


def encode_ws_message(message: FeedMessage) -> str:
    """Return a message without its opening brace, so that each subscription adds its id."""
    if isinstance(message.data, EventFrame):
        return message.data.encode(encode_ws_event, message.cursor or "")
    fields = {"event": message.kind, "data": message.data, "mark": message.cursor}
    return json.dumps(fields)[1:]


def encode_ws_event(frame: EventFrame, cursor: str) -> str:
    kind, mark = json.dumps(frame.event.event_type), json.dumps(cursor)
    return f'"event": {kind}, "data": {frame.response.model_dump_json()}, "mark": {mark}}}'


async def receive_ws_message(socket: WebSocket) -> dict[str, Any]:
    """Return the next message."""
    try:
        return parse_json_object(await socket.receive_text(), MESSAGE_FIX)
    except (KeyError, TypeError):
        raise ApiError("unsupported", "A message must be text, not binary", MESSAGE_FIX) from None
    except RuntimeError:  # a send has already found the client disconnected
        raise WebSocketDisconnect from None


def pick_arguments(args: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the arguments of a WebSocket operation without nulls; raise InvalidRequest for unknown ones."""
    if unknown := [name for name in args if name not in names]:
        raise InvalidRequest("bad_request", f"Unknown argument '{unknown[0]}'", names)
    return {name: value for name, value in args.items() if value is not None}
