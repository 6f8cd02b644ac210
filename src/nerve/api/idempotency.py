"""Idempotency: a repeated key returns the stored reply instead of running the command again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from nerve.api.answer_gate import check_repeated_answer
from nerve.api.errors import ApiError
from nerve.api.lookup import find_run, find_startable_name
from nerve.api.models import ApiRequest, ApiResponse, RunRequest, StartRequest
from nerve.api.operations import Operation
from nerve.api.pending_reply import (
    PendingReply,
    append_to_store,
    run_to_completion,
    work_in_progress,
)
from nerve.api.responses import run_response
from nerve.core.json_codec import encode_json
from nerve.core.limits import Limits
from nerve.core.tags import validate_tags
from nerve.errors import StoreBusy
from nerve.journal.index import read_start
from nerve.store.port import Append, ReplyRow, RunRow

if TYPE_CHECKING:
    from nerve.session import Session

OperationFunction = Callable[["Session", Any], Awaitable[ApiResponse]]
NEW_KEY_FIX = "Use a new key for a new command."

REPEAT_CHECKS: dict[str, Callable[[Session, Any, Any], None]] = {"answer": check_repeated_answer}
"""Checks that a request with other fields means the same command as the first one, by its stored reply."""


async def execute_once(
    session: Session, operation: Operation, request: ApiRequest, do: OperationFunction
) -> ApiResponse:
    """Run a command, or return the stored reply if its key was used before.

    A command that was refused has changed nothing and may be repeated. Concurrent commands with one key run
    one after the other. A key of another command raises ApiError.
    """
    key = request.request_key
    if key is None:
        return await do(session, request)
    in_progress = work_in_progress(session)
    while (current_task := in_progress.get(("command", key))) is not None:
        await asyncio.wait([current_task])
        raise_if_busy(current_task)
    reply = PendingReply(session.name, key, command_fingerprint(operation, request))
    store = session.engine.store
    before = store.stored_reply(session.name, key)
    check_key_owner(session, operation.name, request, before, store.run_by_key(session.name, key))
    if before is not None:
        return replay_stored_reply(session, operation, request, reply, before)
    request.set_pending_reply(reply)
    try:
        return await run_to_completion(
            session, ("command", key), execute_and_store(session, request, reply, do)
        )
    except (ApiError, RuntimeError):
        # An earlier request with this key may have taken effect meanwhile, and so this one was refused.
        if (stored := store.stored_reply(session.name, key)) is None:
            raise
        return replay_stored_reply(session, operation, request, reply, stored)


def raise_if_busy(task: asyncio.Future[Any]) -> None:
    """Raise StoreBusy if a command failed with it: those that waited would only fail one after the other."""
    if not task.cancelled() and isinstance(error := task.exception(), StoreBusy):
        raise StoreBusy(str(error))


def check_key_owner(
    session: Session, name: str, request: Any, before: ReplyRow | None, run: RunRow | None
) -> None:
    """Check that the key belongs to this command: by its stored reply, or by the run created with it."""
    if before is not None:
        used = before.asked.partition(" ")[0]
        if used != name:
            message = f"Key '{request.request_key}' was used for another command ({used})"
            raise ApiError("conflict", message, NEW_KEY_FIX)
    elif run is not None:
        source, owner = read_start(session.engine.store, run.run).source_run, f"of workflow '{run.workflow}'"
        if source is not None and name in ("fork", "retry"):
            named = find_run(session, request.run).run_id
            owner = "" if source == named else f"which is not a fork of '{named}'"
        elif source is None and name == "start":
            owner = ""
            started = find_startable_name(session, request.workflow, request.definition)
            check_start_key(session, started, request)
        elif source is None and name == "route":
            owner = ""  # the router selects what to start, and compares that with the run
        if owner:
            message = f"Key '{request.request_key}' belongs to run '{run.run}', {owner}"
            raise ApiError("conflict", message, NEW_KEY_FIX, {"run_id": run.run})


async def execute_and_store(
    session: Session, request: ApiRequest, reply: PendingReply, do: OperationFunction
) -> ApiResponse:
    response = await do(session, request)
    if not reply.is_stored:
        await store_reply(session, reply.completed_row(response))
    return response


async def store_reply(session: Session, row: ReplyRow) -> None:
    await append_to_store(session, Append("", 0, (), replies=[row]))


def command_fingerprint(operation: Operation, request: ApiRequest) -> str:
    """Return the identity of a command without its key."""
    fields = request.model_dump(mode="json", exclude={request.key_field})
    return f"{operation.name} {sha256(encode_json(fields, canonical=True).encode()).hexdigest()}"


def replay_stored_reply(
    session: Session, operation: Operation, request: ApiRequest, reply: PendingReply, before: ReplyRow
) -> ApiResponse:
    is_same_request = before.asked == reply.fingerprint
    if not is_same_request and operation.name not in REPEAT_CHECKS:
        message = f"Key '{reply.key}' was used for another command ({operation.name})"
        raise ApiError("conflict", message, NEW_KEY_FIX)
    if not before.reply and isinstance(request, RunRequest):
        # A crash came after the effect, before the reply.
        created_run = session.engine.store.run_by_key(session.name, reply.key)
        return run_response(find_run(session, request.run if created_run is None else created_run.run))
    response = operation.response_model.model_validate_json(before.reply)
    if not is_same_request:
        REPEAT_CHECKS[operation.name](session, request, response)
    return response


def check_start_key(session: Session, name: str, request: StartRequest) -> None:
    """Check that a repeated key comes with the same arguments; omitted ones count as their defaults."""
    row = session.engine.store.run_by_key(session.name, str(request.key))
    if row is not None and (difference := find_start_difference(session, row, name, request)):
        message = (
            f"Key '{request.key}' belongs to run '{row.run}', which was started with another {difference}"
        )
        raise ApiError("conflict", message, "Use a new key for a new run.", {"run_id": row.run})


def find_start_difference(session: Session, row: RunRow, name: str, request: StartRequest) -> str | None:
    """Return what differs between a request and the start of a run; None if nothing does."""
    if row.workflow != name:
        return f"workflow, '{row.workflow}'"
    start = read_start(session.engine.store, row.run)
    if request.definition not in (None, start.definition):
        return "definition"
    workflow = session.engine.run_handle(row).workflow
    try:
        input, params = workflow.parse_start(request.input, request.params)
        input, params = workflow.encode_input(input), workflow.check_params(params)
    except ValueError:
        return "input"
    if not is_same_json([start.input, start.params], [input, params]):
        return "input"
    if request.limits is not None and not is_same_json(start.limits, Limits.of(request.limits).to_dict()):
        return "limit"
    if (start.tags or {}) != validate_tags(request.tags):
        return "tag"
    if request.queue is not None and request.queue != (start.queue or {}).get("name"):
        return "queue"
    metadata_names = ("label", "branch", "conversation")
    return next((field for field in metadata_names if getattr(start, field) != getattr(request, field)), None)


def is_same_json(one: Any, other: Any) -> bool:
    return encode_json(one, True, None) == encode_json(other, True, None)
