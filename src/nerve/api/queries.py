"""Queries: what changes nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nerve.api import models
from nerve.api.errors import ApiError
from nerve.api.hub import event_told
from nerve.api.telling import fact_told, found, gate_told, run_detail, run_told, workflow_told
from nerve.core.workflow import WorkflowState
from nerve.core.workflow.state import FINAL

if TYPE_CHECKING:
    from nerve.core.session import Session

SLOW = 1.0
"""Seconds that the disk may take for what is written."""
OPEN = [state.value for state in WorkflowState if state not in FINAL]


async def workflows(session: Session, asked: models.Nothing) -> models.Workflows:
    listed = [session.get_workflow(name) for name in session.list_workflows()]
    return models.Workflows(
        workflows=[workflow_told(each) for each in listed if each is not None],
        nodes=[name for name in session.nodes if not name.startswith("_")],
        graphs=[name for name in session.graphs if not name.startswith("_")],
    )


async def workflow(session: Session, asked: models.OneWorkflow) -> models.WorkflowTold:
    one = session.get_workflow(asked.workflow)
    if one is None:
        raise ApiError(
            "not_found", f"Workflow '{asked.workflow}' not found", "See the list: nerve workflow list"
        )
    return workflow_told(one, source=True)


async def runs(session: Session, asked: models.RunsAsked) -> models.Runs:
    states = None if asked.state is None else [state_of(asked.state)]
    rows = session.engine.store.runs(
        session=session.name,
        workflow=asked.workflow,
        states=states,
        conversation=asked.conversation,
        label=asked.label,
    )
    rows = [row for row in reversed(rows) if session.engine.has_workflow(row)]
    if asked.before is not None:
        run_id = found(session, asked.before).run_id
        ids = [row.run for row in rows]
        rows = rows[ids.index(run_id) + 1 :] if run_id in ids else []
    shown = rows[: asked.limit]
    told = [run_told(session.engine.handle(row)).model_copy(update={"parent": row.parent}) for row in shown]
    return models.Runs(runs=told, more=len(rows) > asked.limit)


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
    known = [session.engine.handle(row) for row in rows if session.engine.has_workflow(row)]
    return models.Gates(gates=[gate_told(run, gate) for run in known for gate in run._gates.values()])


async def facts(session: Session, asked: models.Pattern) -> models.FactsTold:
    return models.FactsTold(facts=[fact_told(fact) for fact in session.dataspace.facts(asked.pattern)])


async def usage(session: Session, asked: models.Nothing) -> models.UsageTold:
    from nerve.core.limits import Limits
    from nerve.engine.spending import Day

    day = session.engine.day or Day(Limits(), session.engine.store, session.name)
    spent = {
        run.run_id: used for run in session._workflow_runs.values() if (used := run.view.usage.to_dict())
    }
    return models.UsageTold(
        today=day.usage.to_dict(),
        models=session.engine.today.by_model(),
        budget=session.budget.to_dict() if session.budget is not None else None,
        runs=spent,
        limited=dict(session.accounts.limited),
    )


async def threads(session: Session, asked: models.Nothing) -> models.Threads:
    rows = session.engine.store.runs(session=session.name, states=OPEN)
    told = []
    for row in rows:
        for event in session.engine.handle(row).events if session.engine.has_workflow(row) else ():
            if event.event_type == "agent_thread":
                data = {"run_id": row.run, "agent": event.path, **event.data}
                told.append(models.ThreadTold.model_validate(data))
    return models.Threads(threads=told)


async def health(session: Session, asked: models.Nothing) -> models.Health:
    from nerve import __version__

    rows = session.engine.store.runs(session=session.name)
    held = {
        row.run: str((run.held or {}).get("message", ""))
        for row in rows
        if row.state == "held" and session.engine.has_workflow(row) and (run := session.engine.handle(row))
    }
    waits = session.engine.writer.waits
    return models.Health(
        status="degraded" if held or waits > SLOW else "ok",
        session=session.name,
        store=type(session.engine.store).__name__,
        runs=dict(Counter(row.state for row in rows)),
        held=held,
        waits=round(waits, 3),
        limited=dict(session.accounts.limited),
        version=__version__,
    )
