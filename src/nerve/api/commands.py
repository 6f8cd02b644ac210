"""Commands: what changes something. Each returns when that is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from nerve.api import models
from nerve.api.answering import answer
from nerve.api.collecting import collect
from nerve.api.errors import ApiError
from nerve.api.once import under_key
from nerve.api.reloading import reload
from nerve.api.telling import fact_told, found, run_told, whole_name, workflow_told
from nerve.core.limits import Limits
from nerve.core.session import loading
from nerve.core.values import decode, encode
from nerve.core.workflow import Workflow, WorkflowRun, WorkflowState
from nerve.dataspace import Change, Record
from nerve.engine.failures import failures
from nerve.engine.fork import forked_from
from nerve.store.port import Append, ReplyRow, RunRow

if TYPE_CHECKING:
    from nerve.core.session import Session
    from nerve.router.gates import Waiting

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

Kind = Literal["workflow", "conversation", "question"]

RESTS = (WorkflowState.PAUSED, WorkflowState.HELD)


async def define(session: Session, asked: models.Define) -> models.WorkflowTold:
    """A text is never taken for the name of a file."""
    read = loading.read_text(session, asked.source, asked.notation, asked.file, asked.prompts)
    workflow = loading.made(session, read)
    told, reply = workflow_told(workflow), asked._reply
    if asked.keep:
        saying = None if reply is None else lambda _: reply.row(told)
        await session.dataspace.define(workflow, asked._caller.who, saying)
    else:
        await pin(session, workflow)
    return told


async def pin(session: Session, workflow: Workflow) -> None:
    """Keep what runs can be started from, under no name."""
    store, part = session.engine.store, Append("", 0, (), definition=session.engine.definition(workflow))
    if store.durable:
        await asyncio.to_thread(store.append, [part])
    else:
        store.append([part])


async def start(session: Session, asked: models.Start) -> models.RunTold:
    name = startable(session, asked.workflow) if asked.definition is None else pinned(session, asked)
    about = {"label": asked.label, "branch": asked.branch, "conversation": asked.conversation}

    async def begin(_: object = None) -> WorkflowRun:
        if asked.key is not None:
            given = Started(name, asked.input, asked.params, about, asked.limits, asked.definition)
            check_same(session, asked.key, given)
        return await session.start(
            name,
            asked.input,
            asked.params,
            asked.key,
            limits=asked.limits,
            label=asked.label,
            branch=asked.branch,
            conversation=asked.conversation,
            definition=asked.definition,
        )

    run = await (begin() if asked.key is None else under_key(session, "start", asked.key, begin))
    if asked.wait:
        await at_rest(session, run)
    return run_told(run)


class Started(NamedTuple):
    """What a run is started with."""

    workflow: str
    input: Any
    params: Mapping[str, Any]
    about: Mapping[str, str | None]
    limits: Mapping[str, Any] | None = None
    definition: str | None = None


def check_same(session: Session, key: str, asked: Started) -> None:
    """A key is for one start: what comes with it again is the same, and what is left out its default."""
    row = session.engine.store.run_by_key(session.name, key)
    if row is not None and (wrong := difference(session, row, asked)):
        told = f"key '{key}' is that of run '{row.run}', which was started with another {wrong}"
        raise ApiError("conflict", told, "Use a new key for a new run.", {"run_id": row.run})


def difference(session: Session, row: RunRow, asked: Started) -> str | None:
    if row.workflow != asked.workflow:
        return f"workflow, '{row.workflow}'"
    start = decode(session.engine.store.events(row.run, limit=1)[0].data)
    if asked.definition not in (None, start["definition"]):
        return "definition"
    workflow = session.engine.handle(row).workflow
    try:
        params = workflow.check_params(asked.params)
    except ValueError:
        return "input"
    if not same([start["input"], start["params"]], [asked.input, params]):
        return "input"
    if asked.limits is not None and not same(start["limits"], Limits.of(asked.limits).to_dict()):
        return "limit"
    return next((name for name, value in asked.about.items() if start.get(name) != value), None)


def same(one: Any, other: Any) -> bool:
    return encode(one, True, None) == encode(other, True, None)


def startable(session: Session, name: str) -> str:
    """The name of a workflow, a node or a graph, of which the beginning may be given."""
    name = whole_name(name, [*session.workflows, *session.graphs, *session.nodes]) or name
    if session.startable(name) is None:
        raise ApiError("not_found", f"Workflow '{name}' not found", "See the list: nerve workflow list")
    return name


def pinned(session: Session, asked: models.Start) -> str:
    """The name of a workflow that was once defined so."""
    found = session.engine.store.definition(str(asked.definition))
    if found is None or found.workflow != asked.workflow:
        told = f"workflow '{asked.workflow}' was not defined as '{asked.definition}'"
        raise ApiError("not_found", told, "Define it, and start it with the hash that you are told.")
    return found.workflow


async def at_rest(session: Session, run: WorkflowRun) -> None:
    """Return when the run has ended, or somebody must do something before it goes on."""
    while not (run.is_complete or rests(run) or session.engine.waits_for_others(run)):
        await run._change()
    await session.engine.written(run)


def rests(run: WorkflowRun) -> bool:
    """Whether a run, or a child of it, goes on only when somebody lets it."""
    return run.state in RESTS or any(map(rests, run._children.values()))


async def signal(session: Session, asked: models.SignalSent) -> models.Done:
    reply, record = asked._reply, ["signal", asked.label, {"key": asked.key, "value": asked.value}]
    saying = None if reply is None else lambda _: reply.row(models.Done())
    await session.dataspace.assert_fact(record, asked._caller.who, saying)
    return models.Done()


async def assert_fact(session: Session, asked: models.Facts) -> models.FactTold:
    record = Record.of(asked.fact)
    present = session.dataspace.facts
    reply = asked._reply
    saying = None if reply is None else lambda changes: reply.row(fact_told(changes[0].fact))
    change = await session.dataspace.assert_fact(record, asked._caller.who, saying)
    # What was there already may be told with more: a definition has its id.
    there = [] if change is not None else [*present(record), *present(record.to_json())]
    fact = change.fact if change is not None else next(iter(there), None)
    if fact is None:
        raise ApiError("conflict", f"{record} was retracted at once")
    return fact_told(fact)


async def retract(session: Session, asked: models.Facts) -> models.FactsTold:
    def told(changes: list[Change]) -> models.FactsTold:
        return models.FactsTold(facts=[fact_told(change.fact) for change in changes])

    reply = asked._reply
    saying = None if reply is None else lambda changes: reply.row(told(changes))
    gone = await session.dataspace.retract(asked.fact, asked._caller.who, saying)
    return models.FactsTold(facts=[fact_told(fact) for fact in gone])


async def pause(session: Session, asked: models.Pause) -> models.RunTold:
    run = found(session, asked.run)
    await run.pause()
    return run_told(run)


async def resume(session: Session, asked: models.Resume) -> models.RunTold:
    run = found(session, asked.run)
    await run.resume(limits=asked.limits, with_changes=asked.with_changes, reply=begun(asked))
    return run_told(run)


async def steer(session: Session, asked: models.Steer) -> models.Steered:
    run = found(session, asked.run)
    reply = asked._reply

    def told(path: str) -> models.Steered:
        return models.Steered(run_id=run.run_id, path=path, text=asked.text)

    saying = None if reply is None else lambda path: reply.row(told(path))
    return told(await run.steer(asked.text, asked.path, by=asked._caller.who, saying=saying))


async def stop(session: Session, asked: models.Stop) -> models.RunTold:
    run = found(session, asked.run)
    await run.stop(asked.reason)
    return run_told(run)


async def fork(session: Session, asked: models.Fork) -> models.RunTold:
    run = found(session, asked.run)
    changed = {"input": asked.input} if "input" in asked.model_fields_set else {}
    options = {"overrides": asked.overrides, "limits": asked.limits, **changed}
    check_source(session, run, asked)
    forked = await session.fork(run.run_id, asked.at, key=asked.key, reply=begun(asked), **options)
    return run_told(forked)


def check_source(session: Session, run: WorkflowRun, asked: models.Command) -> None:
    """Refuse a key that is of another run than a fork of this one."""
    key, store = asked.key, session.engine.store
    made = None if key is None else store.run_by_key(session.name, key)
    if made is not None and forked_from(session.engine, made.run) != run.run_id:
        told = f"key '{key}' is that of run '{made.run}', which is no fork of '{run.run_id}'"
        raise ApiError("conflict", told, "Use a new key for a new run.", {"run_id": made.run})


async def retry(session: Session, asked: models.Skip) -> models.RunTold:
    run = found(session, asked.run)
    if not run.is_complete:
        await run.retry(asked.path or None, reply=begun(asked))
        return run_told(run)
    check_source(session, run, asked)
    if asked.path:
        return run_told(await session.fork(run.run_id, asked.path, key=asked.key, reply=begun(asked)))
    if run.state is not WorkflowState.FAILED and not failures(session.engine.store.events(run.run_id)):
        raise ApiError("conflict", f"nothing has failed in run '{run.run_id}'", "Start it again, or fork it.")
    return run_told(await session.retry(run.run_id, asked.key, reply=begun(asked)))


async def skip(session: Session, asked: models.Skip) -> models.RunTold:
    run = found(session, asked.run)
    await run.skip(asked.path, asked.output, reply=begun(asked))
    return run_told(run)


def begun(asked: models.Asked) -> ReplyRow | None:
    """What a store keeps together with what a command does, if it has a key."""
    return None if asked._reply is None else asked._reply.begun()


async def route(session: Session, asked: models.Route) -> models.RouteTold:
    from nerve.router import Chosen, Conversation, project_router
    from nerve.router import start as start_decided
    from nerve.router.gates import ask_for_gate

    decision = await project_router(session).route(asked.text)
    started = asked.key is not None and session.engine.store.run_by_key(session.name, asked.key) is not None
    if asked.start and not started:
        waiting = await waiting_gates(session, None if asked.watching else asked.conversation)
        decision = ask_for_gate(decision, waiting, asked.watching) or decision
    run = None
    if asked.start:
        if asked.key is not None and isinstance(decision, Chosen):
            about = {"conversation": asked.conversation}
            given = Started(decision.workflow, decision.intent, decision.inputs, about)
            check_same(session, asked.key, given)
        run = await start_decided(session, decision, asked.conversation, key=asked.key)
    kind: Kind = "question"
    if isinstance(decision, Chosen | Conversation):
        kind = "workflow" if isinstance(decision, Chosen) else "conversation"
    told = {name: value for name, value in decision.to_dict().items() if name != "kind" and value is not None}
    return models.RouteTold(kind=kind, run=run_told(run) if run is not None else None, **told)


async def waiting_gates(session: Session, conversation: str | None = None) -> list[Waiting]:
    """Return the open gates of all runs, or of those of a conversation, with the run that no other called."""
    from nerve.api.queries import gates
    from nerve.router.gates import Waiting

    found = []
    for gate in (await gates(session, models.Nothing())).gates:
        run_id, store = gate.run_id, session.engine.store
        while (row := store.run(run_id)) is not None and row.parent is not None:
            run_id = row.parent
        if conversation is not None and (row is None or row.conversation != conversation):
            continue  # other people write there
        answers = tuple(gate.choices or gate.options or ())
        workflow = row.workflow if row is not None else gate.workflow or ""
        found.append(Waiting(gate.gate_id, gate.prompt, answers, run_id, workflow))
    return found
