"""Queries: operations that only read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, TypeVar

from nerve.api import models
from nerve.api.errors import ApiError
from nerve.api.event_hub import to_event_response
from nerve.api.responses import (
    complete_unique_name,
    fact_response,
    find_run,
    gate_response,
    omit_large_fields,
    run_detail_response,
    run_response_from_row,
    workflow_response,
)
from nerve.core.json_codec import decode_json
from nerve.core.workflow import WorkflowState
from nerve.core.workflow.state import FINAL_STATES
from nerve.errors import JournalBroken
from nerve.store.port import RunRow

if TYPE_CHECKING:
    from nerve.session import Session

RUNS_PER_LOOP_TURN = 50
"""Runs to process per iteration of the event loop; their journals may have to be read."""
MAX_LOOP_TURN_S = 0.01
"""Seconds that such an iteration may take, because results may be large."""
SLOW_DISK_S = 1.0
"""Seconds that a disk write may take before it is reported."""
T = TypeVar("T")
OPEN_STATES = [state.value for state in WorkflowState if state not in FINAL_STATES]


async def workflows(session: Session, request: models.ListWorkflowsRequest) -> models.WorkflowPage:
    """Return the workflows that may be started; with `all` also those that the configuration disables."""
    registered = [
        entry for name in session.list_workflows() if (entry := session.get_workflow(name)) is not None
    ]
    responses = [workflow_response(entry, enabled=not session.disabled_reason(entry)) for entry in registered]
    return models.WorkflowPage(
        workflows=[entry for entry in responses if entry.enabled or request.all],
        nodes=[name for name in session.nodes if not name.startswith("_")],
        graphs=[name for name in session.graphs if not name.startswith("_")],
    )


async def workflow(session: Session, request: models.WorkflowRequest) -> models.WorkflowResponse:
    name = complete_unique_name(request.workflow, session.workflows)
    match = session.get_workflow(name) if name is not None else None
    if match is None:
        raise ApiError(
            "not_found", f"Workflow '{request.workflow}' not found", "See the list: nerve workflow list"
        )
    return workflow_response(match, source=True)


async def definitions(session: Session, request: models.EmptyRequest) -> models.DefinitionPage:
    engine, names = session.engine, session.list_workflows()
    current_hashes = {
        engine.definition_of(registered).hash for name in names if (registered := session.get_workflow(name))
    }
    run_counts = engine.store.count_definitions(session.name)
    stored = [(engine.store.definition(hash), runs) for hash, runs in run_counts.items()]
    responses = [
        models.DefinitionResponse(
            hash=definition.hash,
            workflow=definition.workflow,
            notation=definition.notation,
            source=definition.source,
            current=definition.hash in current_hashes,
            runs=runs,
        )
        for definition, runs in stored
        if definition is not None
    ]
    return models.DefinitionPage(definitions=responses)


async def sessions(session: Session, request: models.EmptyRequest) -> models.SessionPage:
    store = session.engine.store
    names = dict.fromkeys([session.name, *store.sessions()])
    return models.SessionPage(
        sessions=[
            models.SessionResponse(name=name, current=name == session.name, runs=store.count_runs(name))
            for name in names
        ]
    )


async def runs(session: Session, request: models.ListRunsRequest) -> models.RunPage:
    rows = newest_run_rows(session, request, request.limit + 1)
    page_rows = rows[: request.limit]
    responses = [
        omit_large_fields(run_response_from_row(session, row), request.largest)
        async for row in iterate_cooperatively(page_rows)
    ]
    return models.RunPage(runs=responses, more=len(rows) > request.limit)


def newest_run_rows(session: Session, request: models.ListRunsRequest, number: int) -> list[RunRow]:
    """Return that many of the matching runs, newest first."""
    store = session.engine.store
    rows = store.runs(
        session=session.name,
        workflow=None if request.workflow is None else complete_workflow_name(session, request.workflow),
        states=None if request.state is None else [parse_run_state(request.state)],
        conversation=request.conversation,
        label=request.label,
        before=store.run(find_run(session, request.before).run_id) if request.before is not None else None,
        newest=number,
    )
    return rows[::-1]


def complete_workflow_name(session: Session, name: str) -> str:
    """Return the workflow name for a prefix, from runs and definitions; the workflow may no longer exist."""
    known = [*session.workflows, *session.graphs, *session.nodes]
    if name in known:
        return name
    store = session.engine.store
    stored = (store.definition(hash) for hash in store.count_definitions(session.name))
    return (
        complete_unique_name(
            name, [*known, *(definition.workflow for definition in stored if definition is not None)]
        )
        or name
    )


def parse_run_state(name: str) -> str:
    try:
        return WorkflowState(name).value
    except ValueError:
        known = ", ".join(state.value for state in WorkflowState)
        raise ApiError("bad_request", f"Unknown state '{name}'", f"Available: {known}.") from None


async def run(session: Session, request: models.RunRequest) -> models.RunDetailResponse:
    detail = run_detail_response(find_run(session, request.run))
    row = session.engine.store.run(detail.run_id)
    return detail.model_copy(update={"parent": row.parent if row is not None else None})


async def events(session: Session, request: models.ListEventsRequest) -> models.EventPage:
    history = await find_run(session, request.run).history(request.after, request.limit + 1, request.whole)
    return models.EventPage(
        events=[to_event_response(event) for event in history[: request.limit]],
        more=len(history) > request.limit,
    )


async def gates(session: Session, request: models.EmptyRequest) -> models.GatePage:
    rows = session.engine.store.runs(session=session.name, states=OPEN_STATES)
    return models.GatePage(
        gates=[
            gate_response(row.run, row.workflow, gate)
            async for row in iterate_cooperatively(rows)
            for gate in session.engine.gates_of_run(row).values()
        ]
    )


async def iterate_cooperatively(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, and give other tasks a turn in between, so that a long list blocks no one."""
    began = time.monotonic()
    for number, item in enumerate(items, 1):
        yield item
        if number % RUNS_PER_LOOP_TURN == 0 or time.monotonic() - began > MAX_LOOP_TURN_S:
            await asyncio.sleep(0)
            began = time.monotonic()


async def facts(session: Session, request: models.ListFactsRequest) -> models.FactPage:
    return models.FactPage(facts=[fact_response(fact) for fact in session.dataspace.facts(request.pattern)])


async def usage(session: Session, request: models.EmptyRequest) -> models.UsageResponse:
    engine, today = session.engine, await session.engine.daily_usage.load()
    usage_by_run_id = {
        run_id: run_usage(session, run_id) async for run_id in iterate_cooperatively(today.run_ids)
    }
    return models.UsageResponse(
        today=(engine.budgets.daily_budget or today).usage.to_dict(),
        models=today.by_model(),
        budget=session.budget.to_dict() if session.budget is not None else None,
        runs={run_id: figures for run_id, figures in usage_by_run_id.items() if figures},
        limited=dict(session.provider_slots.limited),
    )


def run_usage(session: Session, run_id: str) -> dict[str, float]:
    """Return the usage of a run; empty for one that is unreadable or deleted."""
    row = session.engine.store.run(run_id)
    try:
        return session.engine.run_handle(row).view.usage.to_dict() if row is not None else {}
    except JournalBroken:
        return {}


async def threads(session: Session, request: models.EmptyRequest) -> models.ThreadPage:
    store, responses = session.engine.store, []
    async for row in iterate_cooperatively(store.runs(session=session.name, states=OPEN_STATES)):
        try:
            last = store.last_event(row.run, "agent_thread")
            rows = store.events(row.run, limit=last.seq) if last is not None else []
        except JournalBroken as error:
            session.engine.mark_unreadable(error)
            continue
        for event in rows:
            if event.type == "agent_thread":
                data = {"run_id": row.run, "agent": event.path, **decode_json(event.data)}
                responses.append(models.ThreadResponse.model_validate(data))
    return models.ThreadPage(threads=responses)


async def health(session: Session, request: models.EmptyRequest) -> models.HealthResponse:
    from nerve import __version__

    engine = session.engine
    held_runs = {
        row.run: str((engine.hold_data(row) or {}).get("message", ""))
        for row in engine.store.runs(session=session.name, states=[WorkflowState.HELD.value])
    }
    held_runs |= engine.unreadable_runs
    waits = engine.committer.disk_wait_s
    return models.HealthResponse(
        status="degraded" if held_runs or engine.store.loss or waits > SLOW_DISK_S else "ok",
        session=session.name,
        store=type(engine.store).__name__,
        runs=engine.store.count_runs(session.name),
        held=held_runs,
        loss=engine.store.loss,
        waits=round(waits, 3),
        limited=dict(session.provider_slots.limited),
        queue={"driven": len(engine.executors), "writing": engine.committer.queued_count},
        providers=session.provider_slots.snapshot(),
        version=__version__,
    )
