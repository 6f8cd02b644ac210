"""WebSockets: every operation as a message, and any number of streams beside them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Coroutine
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocketDisconnect

from nerve.api import OPERATIONS, Api, ApiError
from nerve.api.errors import NotTaken
from nerve.api.operations import Scope
from nerve.api.reading import read
from nerve.api.scopes import scope_of
from nerve.core.values import encode
from nerve.server.auth import Auth, need
from nerve.server.body import read_object
from nerve.server.callers import asking
from nerve.server.commands import foreseen
from nerve.server.following import Follow, Said, follow_all

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

PROTOCOL = "nerve"
FIRST_SECONDS = 5.0
"""In which the token must come, if it has not come with the request."""
AT_ONCE = 64
"""Messages of one client that are worked on; then no more are read until one is done."""
POLICY, BAD_DATA = 1008, 1003

SHAPE = 'Send {"id": 1, "op": "runs", "args": {}}'


class Sockets:
    """What is behind `/ws`."""

    def __init__(self, api: Api, auth: Auth) -> None:
        self._api, self._auth = api, auth

    async def talk(self, socket: WebSocket) -> None:
        await socket.accept(PROTOCOL if PROTOCOL in socket.scope["subprotocols"] else None)
        try:
            caller = socket.scope["nerve.caller"] or await self._introduced(socket)
            talk = Talk(self._api.asked_by(asking(socket.scope, caller)), caller, socket)
            try:
                await talk.listen()
            finally:
                await talk.leave()
        except ApiError as error:
            await last_word(socket, error)
        except WebSocketDisconnect:
            pass

    async def _introduced(self, socket: WebSocket) -> Scope:
        """The token is the first thing that is said."""
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                first = await heard(socket)
        except TimeoutError:
            raise ApiError("unauthorized", "no token came", 'First send {"token": "TOKEN"}') from None
        token = first.get("token")
        caller = self._auth.known(token if isinstance(token, str) else "")
        await socket.send_text(json.dumps({"id": first.get("id"), "result": {"done": True}}))
        return caller


class Talk:
    """One client: what it has asked for, and what it follows."""

    def __init__(self, api: Api, caller: Scope, socket: WebSocket) -> None:
        self._api, self._caller, self._socket = api, caller, socket
        self._room = asyncio.Semaphore(AT_ONCE)
        self._followed: dict[str, asyncio.Task[None]] = {}
        """By the text of its id as JSON: 1 is not "1"."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        while True:
            try:
                asked = await heard(self._socket)
            except ApiError as error:
                await self._say({"id": None, "error": error.to_dict()})
                continue
            await self._room.acquire()
            self._begin(self._work(asked)).add_done_callback(lambda _: self._room.release())

    async def leave(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _work(self, asked: dict[str, Any]) -> None:
        """Do what one message asks for, and say how it went."""
        id = asked.get("id")
        try:
            await self._say({"id": id, "result": await self._done(asked)})
        except Exception as error:
            await self._say({"id": id, "error": foreseen(error).to_dict()})

    async def _done(self, asked: dict[str, Any]) -> Any:
        op, args = asked.get("op"), asked.get("args", {})
        if not isinstance(op, str) or not isinstance(args, dict) or set(asked) - {"id", "op", "args"}:
            raise ApiError("bad_request", "that is no message", SHAPE)
        match op:
            case "subscribe":
                return await self._subscribe(asked.get("id"), **taken(args, "run", "after"))
            case "unsubscribe":
                return self._unsubscribe(**taken(args, "id"))
        if op in OPERATIONS:
            need(self._caller, scope_of(OPERATIONS[op], args))
        return (await self._api.perform(op, args)).model_dump(mode="json")

    async def _subscribe(self, id: Any, run: Any = None, after: Any = "") -> Any:
        """Follow a run, or all; what comes carries the id of this message."""
        need(self._caller, "read")
        name, mark = encode(id, canonical=True), mark_of(after)
        if name in self._followed:
            raise ApiError("conflict", f"{name} follows something already", "Use another id.")
        if len(self._followed) >= AT_ONCE:
            raise ApiError("too_many", f"{AT_ONCE} streams are followed already", "Unsubscribe from one.")
        if run is None:
            said = follow_all(self._api, mark)
        else:
            read(OPERATIONS["run"], {"run": run})
            said = (await Follow.of(self._api, run, mark)).all()
        following = self._begin(self._follow(id, said))
        self._followed[name] = following
        following.add_done_callback(lambda _: self._followed.pop(name, None))
        return {"done": True}

    def _unsubscribe(self, id: Any = None) -> Any:
        name = encode(id, canonical=True)
        if (following := self._followed.get(name)) is None:
            raise ApiError("not_found", f"nothing is followed under {name}", "Give the id of a subscription.")
        following.cancel()
        return {"done": True}

    async def _follow(self, id: Any, said: AsyncGenerator[Said, None]) -> None:
        try:
            async for each in said:
                await self._say({"id": id, "event": each.kind, "data": each.data, "mark": each.mark})
            await self._say({"id": id, "end": True})
        except Exception as error:
            await self._say({"id": id, "end": True, "error": foreseen(error).to_dict()})
        finally:
            await said.aclose()

    async def _say(self, told: dict[str, Any]) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # who has left hears nothing
            await self._socket.send_text(json.dumps(told))


async def heard(socket: WebSocket) -> dict[str, Any]:
    """The next message."""
    try:
        return read_object(await socket.receive_text(), SHAPE)
    except (KeyError, TypeError):
        raise ApiError("unsupported", "a message is text", SHAPE) from None
    except RuntimeError:  # a reply found him gone
        raise WebSocketDisconnect from None


def taken(args: dict[str, Any], *names: str) -> dict[str, Any]:
    """The arguments of what only sockets have."""
    if wrong := [name for name in args if name not in names]:
        raise NotTaken("bad_request", f"'{wrong[0]}' is not known", names)
    return {name: value for name, value in args.items() if value is not None}


def mark_of(after: Any) -> str:
    """What one comes back with; a number may be written as such."""
    if isinstance(after, bool) or not isinstance(after, str | int):
        raise ApiError("bad_request", "subscribe: after: it is the mark of an event", "Send it as it came.")
    return str(after)


async def last_word(socket: WebSocket, error: ApiError) -> None:
    code = {"unsupported": BAD_DATA, "bad_request": BAD_DATA}.get(error.code, POLICY)
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await socket.send_text(json.dumps({"id": None, "error": error.to_dict()}))
        await socket.close(code, error.message[:100])
