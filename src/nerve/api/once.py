"""Once: a command with a key is done once, and whoever repeats it is told the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from nerve.api.errors import ApiError
from nerve.api.models import Asked, OneRun, Told
from nerve.api.operations import Operation
from nerve.api.replies import Reply
from nerve.api.telling import found, run_told
from nerve.core.values import encode
from nerve.engine.fork import forked_from
from nerve.store.port import Append, ReplyRow, RunRow

if TYPE_CHECKING:
    from nerve.core.session import Session

T = TypeVar("T")
Do = Callable[["Session", Any], Awaitable[Told]]
FIX = "Use a new key for a new command."

OWN = ("start", "answer")
"""What keeps its keys itself: with the run, and with the answer."""

_on_their_way: WeakKeyDictionary[Session, dict[str, asyncio.Task[Any]]] = WeakKeyDictionary()


async def done_once(session: Session, operation: Operation, asked: Asked, do: Do) -> Told:
    """Do a command, unless it was done under its key before; then say what was said then.

    A command that was refused has done nothing, and may be repeated.
    """
    key = asked.once
    if key is None or operation.name in OWN:
        return await do(session, asked)
    reply = Reply(session.name, key, fingerprint(operation, asked))

    async def told(before: ReplyRow | None) -> Told:
        if before is not None:
            return repeated(session, operation, asked, reply, before)
        asked._reply = reply
        return await kept(session, asked, reply, do)

    return await under_key(session, operation.name, key, told)


async def under_key(
    session: Session, name: str, key: str, do: Callable[[ReplyRow | None], Coroutine[Any, Any, T]]
) -> T:
    """Do something when nobody else does anything with that key, which must not be another command's.

    It is given what was said to the same command before, if that is kept.
    """
    flying = _on_their_way.setdefault(session, {})
    while (first := flying.get(key)) is not None:
        await asyncio.wait([first])
    store = session.engine.store
    before, run = store.reply(session.name, key), store.run_by_key(session.name, key)
    check_owner(session, name, key, before, run)
    if before is not None or run is not None:
        return await do(before)
    task = flying[key] = asyncio.ensure_future(do(None))
    task.add_done_callback(lambda _: flying.pop(key))
    return await asyncio.shield(task)  # whoever asked may go away meanwhile


def check_owner(session: Session, name: str, key: str, before: ReplyRow | None, run: RunRow | None) -> None:
    """A key belongs to one command: that which was replied to, or that which made a run with it."""
    if before is not None:
        used = before.asked.partition(" ")[0]
        if used != name:
            raise ApiError("conflict", f"key '{key}' was used for another command ({used})", FIX)
    elif run is not None:
        makers = ("fork", "retry") if forked_from(session.engine, run.run) else ("start", "route")
        if name not in makers:
            told = f"key '{key}' is that of run '{run.run}' of workflow '{run.workflow}'"
            raise ApiError("conflict", told, FIX, {"run_id": run.run})


async def kept(session: Session, asked: Asked, reply: Reply, do: Do) -> Told:
    told = await do(session, asked)
    if not reply.kept:
        await write(session, reply.row(told))
    return told


async def write(session: Session, row: ReplyRow) -> None:
    store, part = session.engine.store, Append("", 0, (), replies=[row])
    if store.durable:
        await asyncio.to_thread(store.append, [part])
    else:
        store.append([part])


def fingerprint(operation: Operation, asked: Asked) -> str:
    """What a command is, without its key."""
    given = asked.model_dump(mode="json", exclude={asked.keyed_by})
    return f"{operation.name} {sha256(encode(given, canonical=True).encode()).hexdigest()}"


def repeated(session: Session, operation: Operation, asked: Asked, reply: Reply, before: ReplyRow) -> Told:
    if before.asked != reply.asked:
        told = f"key '{reply.key}' was used for another command ({operation.name})"
        raise ApiError("conflict", told, FIX)
    if not before.reply and isinstance(asked, OneRun):  # it was done, and then the process died
        made = session.engine.store.run_by_key(session.name, reply.key)
        return run_told(found(session, asked.run if made is None else made.run))
    return operation.tells.model_validate_json(before.reply)
