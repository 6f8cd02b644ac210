"""Once: a command with a key is done once, and whoever repeats it is told the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from nerve.api.errors import ApiError
from nerve.api.models import Asked, OneRun, Told
from nerve.api.operations import Operation
from nerve.api.replies import Reply
from nerve.api.telling import found, run_told
from nerve.core.values import encode
from nerve.store.port import Append, ReplyRow

if TYPE_CHECKING:
    from nerve.core.session import Session

Do = Callable[["Session", Any], Awaitable[Told]]

OWN = ("start", "answer")
"""What keeps its keys itself: with the run, and with the answer."""

_on_their_way: WeakKeyDictionary[Session, dict[str, asyncio.Task[Told]]] = WeakKeyDictionary()


async def done_once(session: Session, operation: Operation, asked: Asked, do: Do) -> Told:
    """Do a command, unless it was done under its key before; then say what was said then.

    A command that was refused has done nothing, and may be repeated.
    """
    key = asked.once
    if key is None or operation.name in OWN:
        return await do(session, asked)
    flying = _on_their_way.setdefault(session, {})
    while (first := flying.get(key)) is not None:
        await asyncio.wait([first])
    reply = Reply(session.name, key, fingerprint(operation, asked))
    if (before := session.engine.store.reply(session.name, key)) is not None:
        return repeated(session, operation, asked, reply, before)
    asked._reply = reply
    task = flying[key] = asyncio.ensure_future(kept(session, asked, reply, do))
    task.add_done_callback(lambda _: flying.pop(key))
    return await asyncio.shield(task)  # whoever asked may go away meanwhile


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
        name = before.asked.partition(" ")[0]
        told = f"key '{reply.key}' was used for another command ({name})"
        raise ApiError("conflict", told, "Use a new key for a new command.")
    if not before.reply and isinstance(asked, OneRun):  # it was done, and then the process died
        return run_told(found(session, asked.run))
    return operation.tells.model_validate_json(before.reply)
