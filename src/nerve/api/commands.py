"""Commands: operations that change something. Each returns after the change is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from nerve.api import models
from nerve.api.answer_gate import answer
from nerve.api.delete_runs import collect
from nerve.api.errors import ApiError
from nerve.api.idempotency import with_key_lock
from nerve.api.reload import reload
from nerve.api.responses import complete_unique_name, fact_response, find_run, run_response, workflow_response
from nerve.core.json_codec import decode_json, encode_json
from nerve.core.limits import Limits
from nerve.core.workflow import Workflow, WorkflowRun, WorkflowState
from nerve.dataspace import Change, Record
from nerve.engine.fork import fork_source_of
from nerve.journal.failures import find_failures
from nerve.session import loader
from nerve.store.port import Append, ReplyRow, RunRow

if TYPE_CHECKING:
    from nerve.router.open_gates import WaitingGate
    from nerve.session import Session

__all__ = [
    "answer",
    "assert_fact",
    "collect",
    "define",
    "fork",
    "pause",
    "reload",
    "resume",
    "retract",
    "retry",
    "route",
    "signal",
    "skip",
    "start",
    "stop",
]

RouteKind = Literal["workflow", "conversation", "question"]

IDLE_STATES = (WorkflowState.PAUSED, WorkflowState.HELD)


async def define(session: Session, request: models.DefineRequest) -> models.WorkflowResponse:
    """Define a workflow from source text, which is never read as a file name."""
    definition = loader.read_checked_definition(
        session, request.source, request.notation, request.file, request.prompts
    )
    workflow = loader.make_defined_workflow(session, definition)
    response, reply = workflow_response(workflow), request._reply
    if request.keep:
        make_reply_row = None if reply is None else lambda _: reply.completed_row(response)
        await session.dataspace.define(workflow, request._caller.identity, make_reply_row)
    else:
        await store_definition(session, workflow)
    return response


async def store_definition(session: Session, workflow: Workflow) -> None:
    """Store a definition to start runs from, without a name."""
    store, part = session.engine.store, Append("", 0, (), definition=session.engine.definition_of(workflow))
    if store.durable:
        await asyncio.to_thread(store.append, [part])
    else:
        store.append([part])


async def start(session: Session, request: models.StartRequest) -> models.RunResponse:
    name = (
        resolve_startable(session, request.workflow)
        if request.definition is None
        else resolve_definition(session, request)
    )
    metadata = {"label": request.label, "branch": request.branch, "conversation": request.conversation}

    async def begin(_: object = None) -> WorkflowRun:
        if request.key is not None:
            arguments = StartArguments(
                name, request.input, request.params, metadata, request.limits, request.definition
            )
            check_start_key(session, request.key, arguments)
        return await session.start(
            name,
            request.input,
            request.params,
            request.key,
            limits=request.limits,
            label=request.label,
            branch=request.branch,
            conversation=request.conversation,
            definition=request.definition,
        )

    run = await (begin() if request.key is None else with_key_lock(session, "start", request.key, begin))
    if request.wait:
        await wait_until_run_idle(session, run)
    return run_response(run)


class StartArguments(NamedTuple):
    """The arguments of a start."""

    workflow: str
    input: Any
    params: Mapping[str, Any]
    metadata: Mapping[str, str | None]
    limits: Mapping[str, Any] | None = None
    definition: str | None = None


def check_start_key(session: Session, key: str, arguments: StartArguments) -> None:
    """Check that a repeated key comes with the same arguments; omitted ones count as their defaults."""
    row = session.engine.store.run_by_key(session.name, key)
    if row is not None and (difference_name := find_start_difference(session, row, arguments)):
        message = f"Key '{key}' belongs to run '{row.run}', which was started with another {difference_name}"
        raise ApiError("conflict", message, "Use a new key for a new run.", {"run_id": row.run})


def find_start_difference(session: Session, row: RunRow, arguments: StartArguments) -> str | None:
    if row.workflow != arguments.workflow:
        return f"workflow, '{row.workflow}'"
    start = decode_json(session.engine.store.events(row.run, limit=1)[0].data)
    if arguments.definition not in (None, start["definition"]):
        return "definition"
    workflow = session.engine.run_handle(row).workflow
    try:
        params = workflow.check_params(arguments.params)
    except ValueError:
        return "input"
    if not is_same_json([start["input"], start["params"]], [arguments.input, params]):
        return "input"
    if arguments.limits is not None and not is_same_json(
        start["limits"], Limits.of(arguments.limits).to_dict()
    ):
        return "limit"
    return next((name for name, value in arguments.metadata.items() if start.get(name) != value), None)


def is_same_json(one: Any, other: Any) -> bool:
    return encode_json(one, True, None) == encode_json(other, True, None)


def resolve_startable(session: Session, name: str) -> str:
    """Return the name of a workflow, node or graph, which may be given by a unique prefix."""
    name = complete_unique_name(name, [*session.workflows, *session.graphs, *session.nodes]) or name
    if session.find_startable(name) is None:
        raise ApiError("not_found", f"Workflow '{name}' not found", "See the list: nerve workflow list")
    return name


def resolve_definition(session: Session, request: models.StartRequest) -> str:
    """Return the name of the workflow with that definition."""
    definition = session.engine.store.definition(str(request.definition))
    if definition is None or definition.workflow != request.workflow:
        message = f"Workflow '{request.workflow}' has no definition '{request.definition}'"
        raise ApiError("not_found", message, "Define it, and start it with the hash in the reply.")
    return definition.workflow


async def wait_until_run_idle(session: Session, run: WorkflowRun) -> None:
    """Wait until the run has ended, or needs a user's action to continue."""
    while not (run.is_complete or is_paused_or_held(run) or session.engine.waits_for_person_or_fact(run)):
        await run._wait_for_change()
    await session.engine.wait_durable(run)


def is_paused_or_held(run: WorkflowRun) -> bool:
    """Return whether the run or a child of it needs a user's action to continue."""
    return run.state in IDLE_STATES or any(map(is_paused_or_held, run._children.values()))


async def signal(session: Session, request: models.SignalRequest) -> models.DoneResponse:
    reply, record = request._reply, ["signal", request.label, {"key": request.key, "value": request.value}]
    make_reply_row = None if reply is None else lambda _: reply.completed_row(models.DoneResponse())
    await session.dataspace.assert_fact(record, request._caller.identity, make_reply_row)
    return models.DoneResponse()


async def assert_fact(session: Session, request: models.FactRequest) -> models.FactResponse:
    record = Record.of(request.fact)
    find_facts = session.dataspace.facts
    reply = request._reply
    make_reply_row = (
        None if reply is None else lambda changes: reply.completed_row(fact_response(changes[0].fact))
    )
    change = await session.dataspace.assert_fact(record, request._caller.identity, make_reply_row)
    # An existing fact may have more fields in the reply: a definition has its id.
    existing = [] if change is not None else [*find_facts(record), *find_facts(record.to_json())]
    fact = change.fact if change is not None else next(iter(existing), None)
    if fact is None:
        raise ApiError("conflict", f"{record} was retracted immediately")
    return fact_response(fact)


async def retract(session: Session, request: models.FactRequest) -> models.FactPage:
    def build_response(changes: list[Change]) -> models.FactPage:
        return models.FactPage(facts=[fact_response(change.fact) for change in changes])

    reply = request._reply
    make_reply_row = None if reply is None else lambda changes: reply.completed_row(build_response(changes))
    retracted = await session.dataspace.retract(request.fact, request._caller.identity, make_reply_row)
    return models.FactPage(facts=[fact_response(fact) for fact in retracted])


async def pause(session: Session, request: models.PauseRequest) -> models.RunResponse:
    run = find_run(session, request.run)
    await run.pause()
    return run_response(run)


async def resume(session: Session, request: models.ResumeRequest) -> models.RunResponse:
    run = find_run(session, request.run)
    await run.resume(
        limits=request.limits, with_changes=request.with_changes, reply=started_reply_row(request)
    )
    return run_response(run)


async def steer(session: Session, request: models.SteerRequest) -> models.SteerResponse:
    run = find_run(session, request.run)
    reply = request._reply

    def build_response(path: str) -> models.SteerResponse:
        return models.SteerResponse(run_id=run.run_id, path=path, text=request.text)

    make_reply_row = None if reply is None else lambda path: reply.completed_row(build_response(path))
    return build_response(
        await run.steer(request.text, request.path, by=request._caller.identity, make_reply=make_reply_row)
    )


async def stop(session: Session, request: models.StopRequest) -> models.RunResponse:
    run = find_run(session, request.run)
    await run.stop(request.reason)
    return run_response(run)


async def fork(session: Session, request: models.ForkRequest) -> models.RunResponse:
    run = find_run(session, request.run)
    changed = {"input": request.input} if "input" in request.model_fields_set else {}
    options = {"overrides": request.overrides, "limits": request.limits, **changed}
    check_fork_key(session, run, request)
    forked = await session.fork(
        run.run_id, request.at, key=request.key, reply=started_reply_row(request), **options
    )
    return run_response(forked)


def check_fork_key(session: Session, run: WorkflowRun, request: models.CommandRequest) -> None:
    """Reject a key that belongs to a run other than a fork of this one."""
    key, store = request.key, session.engine.store
    existing = None if key is None else store.run_by_key(session.name, key)
    if existing is not None and fork_source_of(session.engine, existing.run) != run.run_id:
        message = f"Key '{key}' belongs to run '{existing.run}', which is not a fork of '{run.run_id}'"
        raise ApiError("conflict", message, "Use a new key for a new run.", {"run_id": existing.run})


async def retry(session: Session, request: models.SkipRequest) -> models.RunResponse:
    run = find_run(session, request.run)
    if not run.is_complete:
        await run.retry(request.path or None, reply=started_reply_row(request))
        return run_response(run)
    check_fork_key(session, run, request)
    if request.path:
        return run_response(
            await session.fork(run.run_id, request.path, key=request.key, reply=started_reply_row(request))
        )
    if run.state is not WorkflowState.FAILED and not find_failures(session.engine.store.events(run.run_id)):
        raise ApiError("conflict", f"Run '{run.run_id}' has no failed step", "Start it again, or fork it.")
    return run_response(await session.retry(run.run_id, request.key, reply=started_reply_row(request)))


async def skip(session: Session, request: models.SkipRequest) -> models.RunResponse:
    run = find_run(session, request.run)
    await run.skip(request.path, request.output, reply=started_reply_row(request))
    return run_response(run)


def started_reply_row(request: models.ApiRequest) -> ReplyRow | None:
    """Return the reply row to store atomically with the effect of a command, if it has a key."""
    return None if request._reply is None else request._reply.started_row()


async def route(session: Session, request: models.RouteRequest) -> models.RouteResponse:
    from nerve.router import ConversationDecision, WorkflowDecision, project_router
    from nerve.router import start as start_decided
    from nerve.router.open_gates import ask_for_gate

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
            metadata = {"conversation": request.conversation}
            arguments = StartArguments(decision.workflow, decision.intent, decision.inputs, metadata)
            check_start_key(session, request.key, arguments)
        run = await start_decided(session, decision, request.conversation, key=request.key)
    kind: RouteKind = "question"
    if isinstance(decision, WorkflowDecision | ConversationDecision):
        kind = "workflow" if isinstance(decision, WorkflowDecision) else "conversation"
    decision_fields = {
        name: value for name, value in decision.to_dict().items() if name != "kind" and value is not None
    }
    return models.RouteResponse(
        kind=kind, run=run_response(run) if run is not None else None, **decision_fields
    )


async def list_waiting_gates(session: Session, conversation: str | None = None) -> list[WaitingGate]:
    """Return the open gates of all runs, or of those of a conversation, with their root run."""
    from nerve.api.queries import gates
    from nerve.router.open_gates import WaitingGate

    waiting = []
    for gate in (await gates(session, models.EmptyRequest())).gates:
        run_id, store = gate.run_id, session.engine.store
        while (row := store.run(run_id)) is not None and row.parent is not None:
            run_id = row.parent
        if conversation is not None and (row is None or row.conversation != conversation):
            continue  # a conversation may belong to other users
        answers = tuple(gate.choices or gate.options or ())
        workflow = row.workflow if row is not None else gate.workflow or ""
        waiting.append(WaitingGate(gate.gate_id, gate.prompt, answers, run_id, workflow))
    return waiting
