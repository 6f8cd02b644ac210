"""Queries: operations that only read."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from nerve.api import models
from nerve.api.agent_overview import agents as agents
from nerve.api.artifacts import list_artifacts
from nerve.api.audit import audit as audit
from nerve.api.chats import chats as chats
from nerve.api.commands import find_definition_refusal, find_reuse_refusal
from nerve.api.errors import ApiError
from nerve.api.event_hub import to_event_response
from nerve.api.lookup import complete_workflow_name, find_run, find_run_row, find_workflow
from nerve.api.notifications import notifications as notifications
from nerve.api.people import find_known, person_of_caller
from nerve.api.people import people as people
from nerve.api.permissions import permits
from nerve.api.reload import problems_of_last_reload
from nerve.api.responses import (
    fact_response,
    gate_response,
    omit_large_fields,
    parsed_spec,
    queue_response,
    run_detail_response,
    run_response_from_row,
    workflow_response,
)
from nerve.api.step_changes import changes as changes
from nerve.api.triggers import trigger as trigger
from nerve.api.triggers import triggers as triggers
from nerve.api.usage_history import usage_history as usage_history
from nerve.core.events import WorkflowEventType
from nerve.core.people import ANSWERING_SCOPES, Person
from nerve.core.tags import parse_tag
from nerve.core.workflow import GateInfo, WorkflowState
from nerve.core.workflow.state import OPEN_STATE_VALUES
from nerve.engine.budget import day_bounds
from nerve.engine.fork import ANOTHER_INPUT, UNCHANGED_INPUT
from nerve.engine.run_starters import find_starters
from nerve.engine.run_summary import GATE_KIND, LEAF_GATE_KIND, StoredSummary
from nerve.errors import JournalBroken
from nerve.journal.events import AgentThreadRecorded, contains_text, decode_event, make_event
from nerve.journal.paths import is_within_step
from nerve.session.run_filters import InvalidFilter, RunFilters
from nerve.store.port import EventRow, RunRow, WaitRow

if TYPE_CHECKING:
    from nerve.session import Session

RUNS_PER_LOOP_TURN = 50
"""Runs to process per iteration of the event loop; their journals may have to be read."""
MAX_LOOP_TURN_S = 0.01
"""Seconds that such an iteration may take, because results may be large."""
MAX_LISTED_HELD_RUNS = 100
"""Number of newest held runs that the health lists; `runs` counts all of them."""
MAX_LISTED_RUNS = 1000
"""Number of newest runs whose usage is listed."""
MAX_SCANNED_EVENTS, EVENTS_PER_SCAN = 10_000, 1000
"""Events that one request searches, and how many of them per iteration of the event loop."""
MAX_SORTED_RUNS = 5000
"""Number of newest matching runs among which the longest and the most expensive ones are found."""
SLOW_DISK_S = 1.0
"""Seconds that a disk write may take before it is reported."""
T = TypeVar("T")


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
        problems=problems_of_last_reload(session),
    )


async def query(session: Session, request: models.QueryRequest) -> models.QueryResponse:
    run = find_run(session, request.run)
    return models.QueryResponse(run_id=run.run_id, query=request.query, result=await run.query(request.query))


async def workflow(session: Session, request: models.WorkflowRequest) -> models.WorkflowResponse:
    return workflow_response(find_workflow(session, request.workflow), source=True)


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


async def definition(session: Session, request: models.RunRequest) -> models.DefinitionResponse:
    engine, row = session.engine, find_run_row(session, request.run)
    stored = engine.store.definition(row.definition) if row.definition is not None else None
    if stored is None:
        raise ApiError("not_found", f"The definition of run '{row.run}' is not stored")
    registered = session.get_workflow(row.workflow)
    return models.DefinitionResponse(
        hash=stored.hash,
        workflow=stored.workflow,
        notation=stored.notation,
        source=stored.source,
        current=registered is not None and engine.definition_of(registered).hash == stored.hash,
        runs=engine.store.count_definitions(session.name).get(stored.hash, 0),
        spec=parsed_spec(stored.notation, stored.canonical),
    )


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
    rows = sorted_run_rows(session, request, request.limit + 1)
    page_rows = rows[: request.limit]
    responses = [
        omit_large_fields(run_response_from_row(session, row), request.largest)
        async for row in iterate_cooperatively(page_rows)
    ]
    return models.RunPage(runs=responses, more=len(rows) > request.limit)


def sorted_run_rows(session: Session, request: models.ListRunsRequest, number: int) -> list[RunRow]:
    """Return that many of the matching runs in the order of the request."""
    if request.sort == "started":
        return newest_run_rows(session, request, number)
    rows = newest_run_rows(session, request.model_copy(update={"before": None}), MAX_SORTED_RUNS)
    now = session.engine.clock.time()
    if request.sort == "duration":
        rows.sort(key=lambda row: (row.ended or now) - row.started, reverse=True)
    else:
        rows.sort(key=read_cost, reverse=True)
    first = 0
    if request.before is not None:
        before = find_run_row(session, request.before).run
        first = next((index for index, row in enumerate(rows, 1) if row.run == before), len(rows))
    return rows[first : first + number]


def read_cost(row: RunRow) -> float:
    summary = StoredSummary.of_row(row)
    return summary.usage.get("cost", 0.0) if summary is not None else 0.0


def newest_run_rows(session: Session, request: models.ListRunsRequest, number: int) -> list[RunRow]:
    """Return that many of the matching runs, newest first."""
    before = find_run_row(session, request.before) if request.before is not None else None
    filters = RunFilters(
        None if request.workflow is None else complete_workflow_name(session, request.workflow),
        request.state or None,
        request.label,
        request.conversation,
        parse_tags(request.tag),
        request.since,
        request.search,
        request.patch,
    )
    try:
        engine = session.engine
        return filters.find_newest(engine.store, session.name, before, number, engine.clock.time())
    except InvalidFilter as error:
        raise ApiError("bad_request", error.problem, error.fix) from None


def parse_tags(texts: list[str]) -> dict[str, str]:
    try:
        return dict(map(parse_tag, texts))
    except ValueError as error:
        raise ApiError("bad_request", str(error), "Use a tag such as customer=42.") from None


async def run(session: Session, request: models.ShowRunRequest) -> models.RunDetailResponse:
    return run_detail_response(session, find_run_row(session, request.run), request.before, request.steps)


async def events(session: Session, request: models.ListEventsRequest) -> models.EventPage:
    run, store = find_run_row(session, request.run), session.engine.store
    has_filter = bool(request.path is not None or request.type or request.search)
    page: list[EventRow] = []
    after, scanned, more = request.after, 0, True
    while more and len(page) < request.limit and scanned < MAX_SCANNED_EVENTS:
        count = EVENTS_PER_SCAN if has_filter else request.limit
        rows = store.events(run.run, after, count + 1)
        more = len(rows) > count
        for row in rows[:count]:
            if len(page) == request.limit:
                more = True
                break
            after, scanned = row.seq, scanned + 1
            if not has_filter or matches_event(row, request):
                page.append(row)
        if more and has_filter:
            await asyncio.sleep(0)
    found = [make_event(run.run, run.workflow, row, request.whole) for row in page]
    return models.EventPage(
        events=[to_event_response(event) for event in found], more=more, next=after if more else None
    )


def matches_event(row: EventRow, request: models.ListEventsRequest) -> bool:
    """Return whether an event passes the filters of a request."""
    if request.path is not None and not is_within_step(row.path, request.path):
        return False
    if request.type and row.type not in request.type:
        return False
    return contains_text(row, (request.search or "").lower())


async def artifacts(session: Session, request: models.ListArtifactsRequest) -> models.ArtifactPage:
    row = find_run_row(session, request.run)
    return await asyncio.to_thread(list_artifacts, session.project, row.run, request.after, request.limit)


async def preview_fork(session: Session, request: models.PreviewForkRequest) -> models.ForkPreviewResponse:
    run = find_run(session, request.run)
    options = request.model_dump(include={"at", "definition"})
    if request.retry and (any(options.values()) or request.new_input or request.overridden):
        raise ApiError("bad_request", "A retry has no path and no changes", "Leave out 'retry', or the rest.")
    await session.engine.wait_durable(run)
    refusal: ApiError | None = None
    if request.retry:
        preview = session.preview_retry(run.run_id)
    else:
        overrides: dict[str, dict[str, Any]] = {path: {} for path in request.overridden}
        input = ANOTHER_INPUT if request.new_input else UNCHANGED_INPUT
        preview = session.preview_fork(run.run_id, input=input, overrides=overrides, **options)
        refusal = find_definition_refusal(
            session, request.caller, run.workflow_id, request.definition, run.run_id
        )
        if refusal is None and (overrides or (request.new_input and request.at is not None)):
            answers = session.find_reused_answers(run.run_id, input=input, overrides=overrides, **options)
            refusal = find_reuse_refusal(answers, request.caller)
    steps = [models.ForkStepResponse(**asdict(step)) for step in preview.steps]
    counts = Counter(step.fate for step in preview.steps)
    fields = {**asdict(preview), "steps": steps, "counts": counts}
    return models.ForkPreviewResponse(**fields, refusal=None if refusal is None else refusal.to_dict())


async def gates(session: Session, request: models.ListGatesRequest) -> models.GatePage:
    engine, store = session.engine, session.engine.store
    engine.bind_to_running_loop()
    is_waiting = make_gate_filter(session, request)
    after = None if request.after is None else parse_wait_cursor(request.after)
    waits = store.open_waits(session.name, GATE_KIND, after, request.limit + 1)
    page = waits[: request.limit]
    is_last = len(waits) <= request.limit
    if is_last:
        # Few, and not open any more if the process that ran the step has ended.
        leaf_waits = store.open_waits(session.name, LEAF_GATE_KIND)
        page += [wait for wait in leaf_waits if engine.reader.may_ask_in_step(wait.run)]
    rows = [(wait, store.run(wait.run)) for wait in page]
    gates = [(row, engine.reader.find_gate(wait)) for wait, row in rows if row is not None]
    return models.GatePage(
        gates=[
            gate_response(row.run, row.workflow, gate, row.label)
            for row, gate in gates
            if gate is not None and is_waiting(row.run, gate)
        ],
        more=not is_last,
        next=None if is_last else wait_cursor(waits[request.limit - 1]),
    )


def make_gate_filter(session: Session, request: models.ListGatesRequest) -> Callable[[str, GateInfo], bool]:
    """Return whether an open gate of a run waits for the person that a request names, or who calls."""
    if request.person is None and not request.mine:
        return lambda run, gate: True
    known = session.people.current()
    if request.person is not None:
        person: Person | None = find_known(known, request.person)
        may_answer = person is not None and not person.disabled and person.scope in ANSWERING_SCOPES
    else:
        person, may_answer = person_of_caller(known, request.caller), permits(request.caller, "answer")

    def is_waiting(run: str, gate: GateInfo) -> bool:
        if gate.policy is None or gate.tally is None:
            return may_answer
        from nerve.core.gate_policy import is_asked, make_voter  # few gates have a policy

        if person is None or not may_answer:
            return False
        starters = find_starters(session.engine.store, run)
        return is_asked(gate.policy, gate.tally, make_voter(person, known, starters))

    return is_waiting


def wait_cursor(wait: WaitRow) -> str:
    """Return the text with which a client asks for the waits that follow."""
    return f"{wait.since!r} {wait.run} {wait.path}"


def parse_wait_cursor(text: str) -> WaitRow:
    try:
        since, run, path = text.split(" ", 2)
        return WaitRow("", run, path, "", float(since), None)
    except ValueError:
        raise ApiError(
            "bad_request", f"Invalid after '{text}'", "Use the field next of the previous page."
        ) from None


async def iterate_cooperatively(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, and give other tasks a turn in between, so that a long list blocks no one."""
    began = time.monotonic()
    for number, item in enumerate(items, 1):
        yield item
        if number % RUNS_PER_LOOP_TURN == 0 or time.monotonic() - began > MAX_LOOP_TURN_S:
            await asyncio.sleep(0)
            began = time.monotonic()


async def facts(session: Session, request: models.ListFactsRequest) -> models.FactPage:
    find_facts = session.dataspace.asserted_facts if request.asserted else session.dataspace.facts
    found = find_facts(request.pattern)
    if request.limit is None and request.before is None:
        return models.FactPage(facts=list(map(fact_response, found)))
    # By time: the facts of runs are in the order in which their journals were read.
    found = sorted(found, key=lambda fact: fact.at)[::-1]
    if request.before is not None:
        place = next((number for number, fact in enumerate(found, 1) if fact.id == request.before), None)
        if place is None:
            message = f"No matching fact '{request.before}'"
            raise ApiError("not_found", message, "It was retracted; request the first page.")
        found = found[place:]
    page = found[: request.limit]
    return models.FactPage(facts=list(map(fact_response, page)), more=len(found) > len(page))


async def queues(session: Session, request: models.EmptyRequest) -> models.QueuePage:
    return models.QueuePage(queues=list(map(queue_response, session.list_queues())))


async def usage(session: Session, request: models.EmptyRequest) -> models.UsageResponse:
    engine = session.engine
    begins = day_bounds(engine.clock.time())[0]
    engine.bind_to_running_loop()
    rows = engine.store.runs(session=session.name, newest=MAX_LISTED_RUNS)
    usage_by_run_id = {
        row.run: summary.usage
        for row in rows
        if (row.ended is None or row.ended >= begins) and (summary := StoredSummary.of_row(row)) is not None
    }
    return models.UsageResponse(
        today=engine.usage_today().to_dict(),
        models=engine.models_used_today(),
        budget=session.budget.to_dict() if session.budget is not None else None,
        runs={run_id: figures for run_id, figures in usage_by_run_id.items() if figures},
        limited=dict(session.provider_slots.rate_limits.limited),
    )


async def threads(session: Session, request: models.EmptyRequest) -> models.ThreadPage:
    store, responses = session.engine.store, []
    async for row in iterate_cooperatively(store.runs(session=session.name, states=OPEN_STATE_VALUES)):
        try:
            last = store.last_event(row.run, WorkflowEventType.AGENT_THREAD)
            rows = store.events(row.run, limit=last.seq) if last is not None else []
        except JournalBroken as error:
            session.engine.mark_unreadable(error)
            continue
        for event_row in rows:
            event = decode_event(event_row) if event_row.type == WorkflowEventType.AGENT_THREAD else None
            if isinstance(event, AgentThreadRecorded):
                data = {"run_id": row.run, "agent": event_row.path, **event.to_data()}
                responses.append(models.ThreadResponse.model_validate(data))
    return models.ThreadPage(threads=responses)


async def health(session: Session, request: models.EmptyRequest) -> models.HealthResponse:
    from nerve import __version__

    engine = session.engine
    held_runs = {
        row.run: str((engine.reader.hold_data(row) or {}).get("message", ""))
        for row in engine.store.runs(
            session=session.name, states=[WorkflowState.HELD.value], newest=MAX_LISTED_HELD_RUNS
        )
    }
    held_runs |= engine.unreadable_runs
    is_degraded = bool(held_runs or engine.store.loss or engine.problem)
    return models.HealthResponse(
        session=session.name,
        store=type(engine.store).__name__,
        runs=engine.store.count_runs(session.name),
        held=held_runs,
        engine=engine.problem,
        loss=engine.store.loss,
        version=__version__,
        **live_health(session, is_degraded),
    )


def live_health(session: Session, is_degraded: bool) -> dict[str, Any]:
    """Return the part of the health that is in the memory of the process that executes the runs."""
    engine, slots = session.engine, session.provider_slots
    waits = engine.committer.disk_wait_s
    return {
        "status": "degraded" if is_degraded or waits > SLOW_DISK_S else "ok",
        "waits": round(waits, 3),
        "limited": dict(slots.rate_limits.limited),
        "queue": {"driven": len(engine.executors), "writing": engine.committer.queued_count},
        "providers": slots.snapshot(),
    }
