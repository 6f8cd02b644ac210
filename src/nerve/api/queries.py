"""Queries: what changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, TypeVar

from nerve.api import models
from nerve.api.errors import ApiError
from nerve.api.hub import event_told
from nerve.api.telling import (
    fact_told,
    found,
    gate_told,
    row_told,
    run_detail,
    shortened,
    whole_name,
    workflow_told,
)
from nerve.core.values import decode
from nerve.core.workflow import WorkflowState
from nerve.core.workflow.state import FINAL
from nerve.errors import JournalBroken
from nerve.store.port import RunRow

if TYPE_CHECKING:
    from nerve.core.session import Session

TURN = 50
"""Runs that are looked at in one turn of the loop; their journals may have to be read."""
LONG = 0.01
"""Seconds that such a turn may take: what came of a run may be large."""
SLOW = 1.0
"""Seconds that the disk may take for what is written."""
T = TypeVar("T")
OPEN = [state.value for state in WorkflowState if state not in FINAL]


async def workflows(session: Session, asked: models.WorkflowsAsked) -> models.Workflows:
    """The workflows that may be started; with `all` also those that the configuration switches off."""
    listed = [each for name in session.list_workflows() if (each := session.get_workflow(name)) is not None]
    told = [workflow_told(each, enabled=not session.why_switched_off(each)) for each in listed]
    return models.Workflows(
        workflows=[each for each in told if each.enabled or asked.all],
        nodes=[name for name in session.nodes if not name.startswith("_")],
        graphs=[name for name in session.graphs if not name.startswith("_")],
    )


async def workflow(session: Session, asked: models.OneWorkflow) -> models.WorkflowTold:
    name = whole_name(asked.workflow, session.workflows)
    one = session.get_workflow(name) if name is not None else None
    if one is None:
        raise ApiError(
            "not_found", f"Workflow '{asked.workflow}' not found", "See the list: nerve workflow list"
        )
    return workflow_told(one, source=True)


async def definitions(session: Session, asked: models.Nothing) -> models.Definitions:
    engine, names = session.engine, session.list_workflows()
    now = {engine.definition(found).hash for name in names if (found := session.get_workflow(name))}
    counted = engine.store.count_definitions(session.name)
    kept = [(engine.store.definition(hash), runs) for hash, runs in counted.items()]
    told = [
        models.DefinitionTold(
            hash=each.hash,
            workflow=each.workflow,
            notation=each.notation,
            source=each.source,
            current=each.hash in now,
            runs=runs,
        )
        for each, runs in kept
        if each is not None
    ]
    return models.Definitions(definitions=told)


async def sessions(session: Session, asked: models.Nothing) -> models.Sessions:
    store = session.engine.store
    names = dict.fromkeys([session.name, *store.sessions()])
    return models.Sessions(
        sessions=[
            models.SessionTold(name=name, current=name == session.name, runs=store.count_runs(name))
            for name in names
        ]
    )


async def runs(session: Session, asked: models.RunsAsked) -> models.Runs:
    rows = newest(session, asked, asked.limit + 1)
    shown = rows[: asked.limit]
    told = [shortened(row_told(session, row), asked.largest) async for row in in_turns(shown)]
    return models.Runs(runs=told, more=len(rows) > asked.limit)


def newest(session: Session, asked: models.RunsAsked, number: int) -> list[RunRow]:
    """So many of the runs that are asked for, newest first."""
    store = session.engine.store
    rows = store.runs(
        session=session.name,
        workflow=None if asked.workflow is None else run_from(session, asked.workflow),
        states=None if asked.state is None else [state_of(asked.state)],
        conversation=asked.conversation,
        label=asked.label,
        before=store.run(found(session, asked.before).run_id) if asked.before is not None else None,
        newest=number,
    )
    return rows[::-1]


def run_from(session: Session, name: str) -> str:
    """What runs are runs of, by the beginning of its name; it may be gone by now."""
    known = [*session.workflows, *session.graphs, *session.nodes]
    if name in known:
        return name
    store = session.engine.store
    kept = (store.definition(hash) for hash in store.count_definitions(session.name))
    return whole_name(name, [*known, *(each.workflow for each in kept if each is not None)]) or name


def state_of(name: str) -> str:
    try:
        return WorkflowState(name).value
    except ValueError:
        known = ", ".join(state.value for state in WorkflowState)
        raise ApiError("bad_request", f"there is no state '{name}'", f"There are: {known}.") from None


async def run(session: Session, asked: models.OneRun) -> models.RunDetail:
    told = run_detail(found(session, asked.run))
    row = session.engine.store.run(told.run_id)
    return told.model_copy(update={"parent": row.parent if row is not None else None})


async def events(session: Session, asked: models.EventsAsked) -> models.Events:
    past = await found(session, asked.run).history(asked.after, asked.limit + 1, asked.whole)
    return models.Events(
        events=[event_told(event) for event in past[: asked.limit]], more=len(past) > asked.limit
    )


async def gates(session: Session, asked: models.Nothing) -> models.Gates:
    rows = session.engine.store.runs(session=session.name, states=OPEN)
    return models.Gates(
        gates=[
            gate_told(row.run, row.workflow, gate)
            async for row in in_turns(rows)
            for gate in session.engine.gates(row).values()
        ]
    )


async def in_turns(many: Iterable[T]) -> AsyncIterator[T]:
    """Each of many, with turns of the loop in between: nobody waits until all have been looked at."""
    began = time.monotonic()
    for number, each in enumerate(many, 1):
        yield each
        if number % TURN == 0 or time.monotonic() - began > LONG:
            await asyncio.sleep(0)
            began = time.monotonic()


async def facts(session: Session, asked: models.Pattern) -> models.FactsTold:
    return models.FactsTold(facts=[fact_told(fact) for fact in session.dataspace.facts(asked.pattern)])


async def usage(session: Session, asked: models.Nothing) -> models.UsageTold:
    engine, today = session.engine, await session.engine.today.read()
    used = {run_id: spent_by(session, run_id) async for run_id in in_turns(today.runs)}
    return models.UsageTold(
        today=(engine.budgets.day or today).usage.to_dict(),
        models=today.by_model(),
        budget=session.budget.to_dict() if session.budget is not None else None,
        runs={run_id: each for run_id, each in used.items() if each},
        limited=dict(session.accounts.limited),
    )


def spent_by(session: Session, run_id: str) -> dict[str, float]:
    """What a run has taken; of one that cannot be read, or is gone, nothing is told."""
    row = session.engine.store.run(run_id)
    try:
        return session.engine.handle(row).view.usage.to_dict() if row is not None else {}
    except JournalBroken:
        return {}


async def threads(session: Session, asked: models.Nothing) -> models.Threads:
    store, told = session.engine.store, []
    async for row in in_turns(store.runs(session=session.name, states=OPEN)):
        try:
            last = store.last(row.run, "agent_thread")
            past = store.events(row.run, limit=last.seq) if last is not None else []
        except JournalBroken as error:
            session.engine.note_unreadable(error)
            continue
        for event in past:
            if event.type == "agent_thread":
                data = {"run_id": row.run, "agent": event.path, **decode(event.data)}
                told.append(models.ThreadTold.model_validate(data))
    return models.Threads(threads=told)


async def health(session: Session, asked: models.Nothing) -> models.Health:
    from nerve import __version__

    engine = session.engine
    held = {
        row.run: str((engine.held(row) or {}).get("message", ""))
        for row in engine.store.runs(session=session.name, states=[WorkflowState.HELD.value])
    }
    held |= engine.unreadable
    waits = engine.writer.waits
    return models.Health(
        status="degraded" if held or engine.store.loss or waits > SLOW else "ok",
        session=session.name,
        store=type(engine.store).__name__,
        runs=engine.store.count_runs(session.name),
        held=held,
        loss=engine.store.loss,
        waits=round(waits, 3),
        limited=dict(session.accounts.limited),
        queue={"driven": len(engine.drives), "writing": engine.writer.queued},
        providers=session.accounts.told(),
        version=__version__,
    )
