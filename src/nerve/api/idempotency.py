"""Idempotency: a repeated key returns the stored reply instead of running the command again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from nerve.api.errors import ApiError
from nerve.api.models import ApiRequest, ApiResponse, RunRequest
from nerve.api.operations import Operation
from nerve.api.pending_reply import PendingReply
from nerve.api.responses import find_run, run_response
from nerve.core.json_codec import encode_json
from nerve.engine.fork import fork_source_of
from nerve.store.port import Append, ReplyRow, RunRow

if TYPE_CHECKING:
    from nerve.session import Session

T = TypeVar("T")
OperationFunction = Callable[["Session", Any], Awaitable[ApiResponse]]
NEW_KEY_FIX = "Use a new key for a new command."

SELF_KEYED_OPERATIONS = ("start", "answer")
"""Operations that store their keys themselves: with the run, and with the answer."""

_commands_in_progress: WeakKeyDictionary[Session, dict[str, asyncio.Task[Any]]] = WeakKeyDictionary()


async def execute_once(
    session: Session, operation: Operation, request: ApiRequest, do: OperationFunction
) -> ApiResponse:
    """Run a command, or return the stored reply if its key was used before.

    A command that was refused has changed nothing and may be repeated.
    """
    key = request.request_key
    if key is None or operation.name in SELF_KEYED_OPERATIONS:
        return await do(session, request)
    reply = PendingReply(session.name, key, command_fingerprint(operation, request))

    async def execute_or_replay(before: ReplyRow | None) -> ApiResponse:
        if before is not None:
            return replay_stored_reply(session, operation, request, reply, before)
        request._reply = reply
        return await execute_and_store(session, request, reply, do)

    return await with_key_lock(session, operation.name, key, execute_or_replay)


async def with_key_lock(
    session: Session, name: str, key: str, do: Callable[[ReplyRow | None], Coroutine[Any, Any, T]]
) -> T:
    """Call `do` while no other command uses the key; raise ApiError if the key belongs to another command.

    `do` receives the stored reply to the same command, if there is one.
    """
    in_progress = _commands_in_progress.setdefault(session, {})
    while (current_task := in_progress.get(key)) is not None:
        await asyncio.wait([current_task])
    store = session.engine.store
    before, run = store.stored_reply(session.name, key), store.run_by_key(session.name, key)
    check_key_owner(session, name, key, before, run)
    if before is not None or run is not None:
        return await do(before)
    task = in_progress[key] = asyncio.ensure_future(do(None))
    task.add_done_callback(lambda _: in_progress.pop(key))
    return await asyncio.shield(task)  # it completes even if the caller disconnects


def check_key_owner(
    session: Session, name: str, key: str, before: ReplyRow | None, run: RunRow | None
) -> None:
    """Check that the key belongs to this command: by its stored reply, or by the run created with it."""
    if before is not None:
        used = before.asked.partition(" ")[0]
        if used != name:
            raise ApiError("conflict", f"Key '{key}' was used for another command ({used})", NEW_KEY_FIX)
    elif run is not None:
        makers = ("fork", "retry") if fork_source_of(session.engine, run.run) else ("start", "route")
        if name not in makers:
            message = f"Key '{key}' belongs to run '{run.run}' of workflow '{run.workflow}'"
            raise ApiError("conflict", message, NEW_KEY_FIX, {"run_id": run.run})


async def execute_and_store(
    session: Session, request: ApiRequest, reply: PendingReply, do: OperationFunction
) -> ApiResponse:
    response = await do(session, request)
    if not reply.is_stored:
        await store_reply(session, reply.completed_row(response))
    return response


async def store_reply(session: Session, row: ReplyRow) -> None:
    store, part = session.engine.store, Append("", 0, (), replies=[row])
    if store.durable:
        await asyncio.to_thread(store.append, [part])
    else:
        store.append([part])


def command_fingerprint(operation: Operation, request: ApiRequest) -> str:
    """Return the identity of a command without its key."""
    fields = request.model_dump(mode="json", exclude={request.key_field})
    return f"{operation.name} {sha256(encode_json(fields, canonical=True).encode()).hexdigest()}"


def replay_stored_reply(
    session: Session, operation: Operation, request: ApiRequest, reply: PendingReply, before: ReplyRow
) -> ApiResponse:
    if before.asked != reply.fingerprint:
        message = f"Key '{reply.key}' was used for another command ({operation.name})"
        raise ApiError("conflict", message, NEW_KEY_FIX)
    if not before.reply and isinstance(
        request, RunRequest
    ):  # a crash came after the effect, before the reply
        created_run = session.engine.store.run_by_key(session.name, reply.key)
        return run_response(find_run(session, request.run if created_run is None else created_run.run))
    return operation.response_model.model_validate_json(before.reply)
