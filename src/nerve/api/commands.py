"""Commands: operations that change something. Each returns after the change is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nerve.api import models
from nerve.api.answer_gate import answer
from nerve.api.callers import Caller
from nerve.api.delete_runs import collect, delete
from nerve.api.errors import ApiError
from nerve.api.idempotency import check_start_key
from nerve.api.lookup import find_run, find_run_row, find_startable_name
from nerve.api.notifications import test_channel
from nerve.api.pending_reply import append_to_store
from nerve.api.people import add_person, change_person, remove_person
from nerve.api.permissions import permits
from nerve.api.reload import reload
from nerve.api.responses import (
    fact_response,
    find_queue_response,
    is_parked,
    run_response,
    workflow_response,
)
from nerve.api.triggers import (
    backfill_trigger,
    define_trigger,
    fire_trigger,
    pause_trigger,
    remove_trigger,
    resume_trigger,
)
from nerve.core.workflow import WorkflowRun, WorkflowState
from nerve.dataspace import Fact, Record
from nerve.journal.failures import find_failures
from nerve.journal.index import read_start
from nerve.session import loader
from nerve.store.port import Append, Definition, ReplyRow

if TYPE_CHECKING:
    from nerve.engine.reused_answers import ReusedAnswer
    from nerve.router.open_gates import WaitingGate
    from nerve.session import Session

__all__ = [
    "add_person",
    "answer",
    "assert_fact",
    "backfill_trigger",
    "change_person",
    "collect",
    "define",
    "define_trigger",
    "delete",
    "fire_trigger",
    "fork",
    "pause",
    "pause_queue",
    "pause_trigger",
    "reload",
    "remove_person",
    "remove_trigger",
    "resume",
    "resume_queue",
    "resume_trigger",
    "retract",
    "retry",
    "route",
    "send",
    "signal",
    "skip",
    "start",
    "stop",
    "test_channel",
    "update",
]

WORKFLOW_DEFINED = "workflow defined"
IDLE_STATES = (WorkflowState.PAUSED, WorkflowState.HELD)


async def define(session: Session, request: models.DefineRequest) -> models.WorkflowResponse:
    """Define a workflow from source text, which is never read as a file name."""
    definition = loader.read_checked_definition(
        session, request.source, request.notation, request.file, request.prompts
    )
    workflow = loader.make_defined_workflow(session, definition)
    response = workflow_response(workflow)
    await record_definition(session, request.caller, session.engine.definition_of(workflow))
    if request.keep:
        await session.dataspace.define(
            workflow, request.caller.identity, request.reply_maker(lambda _: response)
        )
    else:  # runs can be started from it by its hash
        definition_row = session.engine.definition_of(workflow)
        await append_to_store(session, Append("", 0, (), definition=definition_row))
    return response


async def record_definition(session: Session, caller: Caller, definition: Definition) -> None:
    """Record a definition that runs can be started from, for the audit."""
    details = {"workflow": definition.workflow, "definition": definition.hash}
    who, now = caller.to_event_data(), session.engine.clock.time()
    await asyncio.to_thread(session.people.record, now, WORKFLOW_DEFINED, who, details)


async def start(session: Session, request: models.StartRequest) -> models.RunResponse:
    """Start a run. Its row in the store records the key, so a repeated key returns the run as it is now."""
    if request.pending_reply is not None:
        request.pending_reply.is_stored = True
    name = find_startable_name(session, request.workflow, request.definition)
    if (refusal := find_definition_refusal(session, request.caller, name, request.definition)) is not None:
        raise refusal
    workflow = session.get_workflow(name)
    input, params = (
        (request.input, request.params)
        if workflow is None
        else workflow.parse_start(request.input, request.params)
    )
    if request.branch is not None and not getattr(workflow, "creates_branch", False):
        raise ApiError(
            "bad_request",
            f"Workflow '{name}' has no workspace, so it cannot create the branch '{request.branch}'",
            "Write 'workspace: worktree' at the top of the workflow, or leave out the branch.",
        )
    run = await session.start(
        name,
        input,
        params,
        request.key,
        limits=request.limits,
        label=request.label,
        branch=request.branch,
        conversation=request.conversation,
        definition=request.definition,
        tags=request.tags,
        queue=request.queue,
        caller=request.caller.to_start_data(),
        traceparent=request.traceparent,
    )
    return run_response(run)


async def run_when_idle(session: Session, started: models.RunResponse) -> models.RunResponse:
    """Return a run when it has ended or waits for a user."""
    run = await wait_until_run_idle(session, find_run(session, started.run_id))
    # Read again: of a run that another process executes, the open gate is newer than the handle.
    return run_response(find_run(session, run.run_id))


async def wait_until_run_idle(session: Session, run: WorkflowRun) -> WorkflowRun:
    """Return the current run of the chain when it has ended, or needs a user's action to continue."""
    run, waits_for_user = run.current, session.engine.reader.waits_for_person_or_fact
    while not (run.is_complete or is_paused_or_held(run) or waits_for_user(run)):
        run = await session.engine.next_change(run)
    await session.engine.wait_durable(run)
    return run


def is_paused_or_held(run: WorkflowRun) -> bool:
    """Return whether the run or a child of it needs a user's action to continue."""
    return run.state in IDLE_STATES or any(map(is_paused_or_held, run.run_state.children.values()))


async def signal(session: Session, request: models.SignalRequest) -> models.DoneResponse:
    record = ["signal", request.label, {"key": request.key, "value": request.value}]
    make_reply_row = request.reply_maker(lambda _: models.DoneResponse())
    await session.dataspace.assert_fact(record, request.caller.identity, make_reply_row)
    return models.DoneResponse()


async def assert_fact(session: Session, request: models.FactRequest) -> models.FactResponse:
    record = Record.of(request.fact)
    find_facts = session.dataspace.facts
    make_reply_row = request.reply_maker(lambda changes: fact_response(changes[0].fact))
    change = await session.dataspace.assert_fact(record, request.caller.identity, make_reply_row)
    # An existing fact may have more fields in the reply: a definition has its id.
    existing = [] if change is not None else [*find_facts(record), *find_facts(record.to_json())]
    fact = change.fact if change is not None else next(iter(existing), None)
    if fact is None:
        raise ApiError("conflict", f"{record} was retracted immediately")
    return fact_response(fact)


async def retract(session: Session, request: models.FactRequest) -> models.FactPage:
    def build_response(facts: Iterable[Fact]) -> models.FactPage:
        return models.FactPage(facts=[fact_response(fact) for fact in facts])

    make_reply_row = request.reply_maker(lambda changes: build_response(change.fact for change in changes))
    return build_response(
        await session.dataspace.retract(request.fact, request.caller.identity, make_reply_row)
    )


async def pause(session: Session, request: models.PauseRequest) -> models.RunResponse:
    run = find_run(session, request.run).current
    await run.pause(about=request.caller.to_event_data())
    return run_response(run)


async def resume(session: Session, request: models.ResumeRequest) -> models.RunResponse:
    run = find_run(session, request.run).current
    row = find_run_row(session, run.run_id)
    is_idle = is_parked(session, row) or (row.state == WorkflowState.WAITING.value and row.wake is not None)
    if is_idle and not (request.limits or request.with_changes):
        return run_response(session.engine.resume_run(row))
    await run.resume(
        limits=request.limits,
        with_changes=request.with_changes,
        reply=started_reply_row(request),
        about=request.caller.to_event_data(),
    )
    return run_response(run)


async def pause_queue(session: Session, request: models.ChangeQueueRequest) -> models.QueueResponse:
    await session.pause_queue(request.queue)
    return find_queue_response(session, request.queue)


async def resume_queue(session: Session, request: models.ChangeQueueRequest) -> models.QueueResponse:
    await session.resume_queue(request.queue)
    return find_queue_response(session, request.queue)


async def steer(session: Session, request: models.SteerRequest) -> models.SteerResponse:
    run = find_run(session, request.run)

    def build_response(path: str) -> models.SteerResponse:
        return models.SteerResponse(run_id=run.run_id, path=path, text=request.text)

    by, make_reply_row = request.caller.identity, request.reply_maker(build_response)
    return build_response(await run.steer(request.text, request.path, by=by, make_reply=make_reply_row))


async def send(session: Session, request: models.SendRequest) -> models.MessageResponse:
    run = find_run(session, request.run)
    response = models.MessageResponse(run_id=run.run_id, channel=request.channel)
    reply_row = None if request.pending_reply is None else request.pending_reply.completed_row(response)
    await run.send(
        request.channel, request.value, key=request.key, by=request.caller.identity, reply=reply_row
    )
    return response


async def update(session: Session, request: models.UpdateRequest) -> models.UpdateResponse:
    """Update a run. The journal of the run keeps the key, so a repeated update gets the first reply."""
    run = find_run(session, request.run)
    result = await run.update(request.update, request.value, key=request.key, by=request.caller.identity)
    return models.UpdateResponse(run_id=run.run_id, update=request.update, result=result)


async def stop(session: Session, request: models.StopRequest) -> models.RunResponse:
    run = find_run(session, request.run).current
    await run.stop(request.reason, about=request.caller.to_event_data())
    return run_response(run)


async def fork(session: Session, request: models.ForkRequest) -> models.RunResponse:
    run = find_run(session, request.run)
    if (
        refusal := find_definition_refusal(
            session, request.caller, run.workflow_id, request.definition, run.run_id
        )
    ) is not None:
        raise refusal
    changed = {"input": request.input} if "input" in request.model_fields_set else {}
    options: dict[str, Any] = {"overrides": request.overrides, **changed}
    if request.definition is not None:
        options["definition"] = request.definition
    if (changed and request.at is not None) or any(request.overrides.values()):
        answers = session.find_reused_answers(run.run_id, request.at, **options)
        if (refusal := find_reuse_refusal(answers, request.caller)) is not None:
            raise refusal
    options |= {"limits": request.limits, "reply": started_reply_row(request)}
    options["caller"] = request.caller.to_start_data()
    return run_response(await session.fork(run.run_id, request.at, key=request.key, **options))


def find_definition_refusal(
    session: Session, caller: Caller, workflow: str, definition: str | None, source: str | None = None
) -> ApiError | None:
    """Return why a run may not use a definition: an old one may lack a gate that its workflow has now.

    `source` is the run to fork, whose own definition counts as if none was named.
    """
    if definition in (None, "current") or permits(caller, "admin"):
        return None
    registered = session.find_startable(workflow)
    own = None if source is None else read_start(session.engine.store, source).definition
    if definition in (own, None if registered is None else registered.definition()[0]):
        return None
    message = f"Definition '{definition}' is not the current one of workflow '{workflow}'"
    return ApiError("forbidden", message, "Leave it out, or use a token for 'admin'.")


def find_reuse_refusal(answers: Sequence[ReusedAnswer], caller: Caller) -> ApiError | None:
    """Return why a fork that changes steps may not reuse answers: the caller could not give them.

    A changed step after a gate has the same effect as another answer: a rejected branch can be taken.
    """
    for reused in sorted(answers, key=lambda reused: not reused.has_policy):
        fix = f"Fork at '{reused.path}', so that the gate asks again."
        if reused.has_policy:
            message = (
                f"The fork changes steps, and people have decided the gate at '{reused.path}' without that"
            )
            return ApiError("refused", message, fix)
        if not permits(caller, "answer"):
            message = (
                f"The fork changes steps after the gate at '{reused.path}', so it needs the scope 'answer'"
            )
            return ApiError("forbidden", message, fix)
    return None


async def retry(session: Session, request: models.SkipRequest) -> models.RunResponse:
    run = find_run(session, request.run).current
    reply, caller = started_reply_row(request), request.caller.to_start_data()
    if not run.is_complete:
        await run.retry(request.path or None, reply=reply, about=request.caller.to_event_data())
        return run_response(run)
    if request.path:
        return run_response(
            await session.fork(run.run_id, request.path, key=request.key, reply=reply, caller=caller)
        )
    if run.state is not WorkflowState.FAILED and not find_failures(session.engine.store.events(run.run_id)):
        raise ApiError("conflict", f"Run '{run.run_id}' has no failed step", "Start it again, or fork it.")
    return run_response(await session.retry(run.run_id, request.key, reply=reply, caller=caller))


async def skip(session: Session, request: models.SkipRequest) -> models.RunResponse:
    run = find_run(session, request.run).current
    await run.skip(
        request.path,
        request.output,
        reply=started_reply_row(request),
        about=request.caller.to_event_data(),
    )
    return run_response(run)


def started_reply_row(request: models.ApiRequest) -> ReplyRow | None:
    """Return the reply row to store atomically with the effect of a command, if it has a key."""
    return None if request.pending_reply is None else request.pending_reply.started_row()


async def route(session: Session, request: models.RouteRequest) -> models.RouteResponse:
    from nerve.router import WorkflowDecision, project_router
    from nerve.router import start as start_decided
    from nerve.router.open_gates import ask_for_gate
    from nerve.router.project_routing import find_start_arguments

    decision = await project_router(session).route(request.text)
    started = (
        request.key is not None and session.engine.store.run_by_key(session.name, request.key) is not None
    )
    if request.start and not started:
        waiting = await list_waiting_gates(session, None if request.watching else request.conversation)
        decision = ask_for_gate(decision, waiting, request.watching) or decision
    run = None
    if request.start:
        if request.key is not None and isinstance(decision, WorkflowDecision):
            input, params = find_start_arguments(session, decision)
            start_request = models.StartRequest(
                workflow=decision.workflow,
                input=input,
                params=params,
                conversation=request.conversation,
                key=request.key,
            )
            check_start_key(session, decision.workflow, start_request)
        caller = request.caller.to_start_data(via="router")
        run = await start_decided(
            session,
            decision,
            request.conversation,
            key=request.key,
            caller=caller,
            traceparent=request.traceparent,
        )
    decision_fields = {name: value for name, value in decision.to_dict().items() if value is not None}
    return models.RouteResponse(run=run_response(run) if run is not None else None, **decision_fields)


async def list_waiting_gates(session: Session, conversation: str | None = None) -> list[WaitingGate]:
    """Return the open gates of all runs, or of those of a conversation, with their root run."""
    from nerve.api.queries import gates
    from nerve.router.open_gates import WaitingGate

    waiting = []
    for gate in (await gates(session, models.ListGatesRequest(limit=1000))).gates:
        run_id, store = gate.run_id, session.engine.store
        while (row := store.run(run_id)) is not None and row.parent is not None:
            run_id = row.parent
        if conversation is not None and (row is None or row.conversation != conversation):
            continue  # a conversation may belong to other users
        answers = tuple(gate.choices or gate.options or ())
        workflow = row.workflow if row is not None else gate.workflow or ""
        waiting.append(WaitingGate(gate.gate_id, gate.prompt, answers, run_id, workflow))
    return waiting
