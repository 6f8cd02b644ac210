"""Build the responses for runs, gates, workflows and facts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nerve.api import models
from nerve.core.events import RUN_END_EVENTS
from nerve.core.gates import NO_PROGRESS, gate_hash, gate_progress_fields
from nerve.core.input_fields import DeclaredInputs
from nerve.core.json_codec import MAX_JSON_DEPTH, decode_json, is_too_deep, preview_value
from nerve.core.notation_table import NOTATION_NAMES
from nerve.core.run_view import NodeView, RunView
from nerve.core.workflow import GateInfo, Workflow, WorkflowRun, WorkflowState
from nerve.dataspace import Fact
from nerve.engine.local_engine import CHILDLESS_STATES
from nerve.engine.run_summary import StoredSummary, tags_of_row
from nerve.engine.session_queues import QueueInfo
from nerve.errors import JournalBroken
from nerve.journal.events import read_short_input
from nerve.journal.index import read_row, read_start
from nerve.journal.run_view import RunViewBuilder
from nerve.journal.waiting import describe_waits

if TYPE_CHECKING:
    from nerve.session import Session
    from nerve.store.port import RunRow


MAX_PREVIEWED_CHARS = 20_000
"""Maximum characters of a first event from which a list extracts the input."""
MAX_WHOLE_EVENTS = 2500
"""The longest journal that is read for a response; the tree of a longer one has pages."""
PAGE_EVENTS = 1000
"""Events of a long run from which one response is built."""
GATE_FIELDS = (
    models.GateResponse.model_fields.keys() - {"run_id", "workflow", "label", "hash"} - NO_PROGRESS.keys()
)
NODE_FIELDS = models.NodeResponse.model_fields.keys() - {"usage", "parts"}


def gate_response(
    run_id: str, workflow: str, gate: GateInfo, label: str | None = None
) -> models.GateResponse:
    fields = {name: getattr(gate, name) for name in GATE_FIELDS}
    fields |= gate_progress_fields(gate)
    return models.GateResponse(run_id=run_id, workflow=workflow, label=label, hash=gate_hash(gate), **fields)


def limit_depth(value: Any) -> Any:
    """Return the value, or a placeholder for one that is nested too deeply for readers."""
    return f"(a value nested more than {MAX_JSON_DEPTH} deep)" if is_too_deep(value) else value


def run_fields(run: WorkflowRun) -> dict[str, Any]:
    info = run.to_info()
    return {
        "run_id": run.run_id,
        "workflow": run.workflow_id,
        "state": run.state.value,
        "label": run.label if run.label != run.run_id else None,
        "tags": run.tags,
        "started_at": info.started_at,
        "ended_at": info.completed_at,
        "result": limit_depth(info.result),
        "error": info.error,
        "error_type": run.run_state.error_type or None,
        "location": run.run_state.trace.location,
        "held": run.held,
        "waiting_for": run.waiting_for,
        "gates": [
            gate_response(run.run_id, run.workflow_id, gate, run.about.get("label"))
            for gate in run.pending_gates
        ],
        "continued_as": run.continued_as,
        "continued_from": run.continued_from,
        "input_preview": preview_value(run.input),
        "started_by": (run.about.get("caller") or {}).get("by"),
        "started_via": (run.about.get("caller") or {}).get("via"),
    }


def run_response(run: WorkflowRun) -> models.RunResponse:
    return models.RunResponse(**run_fields(run))


def run_response_from_row(session: Session, row: RunRow) -> models.RunResponse:
    """Return a run of a list, without reading the whole journal of one that is not in memory.

    Only a run that may have child runs is read, unless its journal is long. An unreadable run shows as held.
    """
    with suppress(JournalBroken):
        if row.run not in session.engine.run_handles and (
            (not may_have_children(row) and session.engine.reader.is_readable(row.run))
            or is_long_run(session, row)
        ):
            return models.RunResponse(**stored_run_fields(session, row), parked=is_parked(session, row))
    summary = StoredSummary.of_row(row) or StoredSummary()
    return run_response(session.engine.run_handle(row)).model_copy(
        update={
            **origin_fields(row, summary),
            "usage": summary.usage,
            "parked": is_parked(session, row),
        }
    )


def is_parked(session: Session, row: RunRow) -> bool:
    """Return whether a run was running when its process ended, and the session has not continued it."""
    return row.state == WorkflowState.RUNNING.value and row.run not in session.engine.executors


def may_have_children(row: RunRow) -> bool:
    """Return whether a run may have open child runs, of which its row tells nothing."""
    return row.ended is None and WorkflowState(row.state) not in CHILDLESS_STATES


def origin_fields(row: RunRow, summary: StoredSummary) -> dict[str, Any]:
    """Return the parent of a run, and what started it."""
    return {
        "parent": row.parent,
        "started_by": summary.find_starter(row),
        "started_via": summary.started_via,
    }


def is_long_run(session: Session, row: RunRow) -> bool:
    """Return whether the journal of a run is too long to be read for a response."""
    last = session.engine.store.last_event(row.run)
    return last is not None and last.seq > MAX_WHOLE_EVENTS


def stored_run_fields(session: Session, row: RunRow) -> dict[str, Any]:
    """Return what is known of a run from its row, its first and its last event, and its open waits."""
    engine, is_open = session.engine, row.ended is None
    summary = StoredSummary.of_row(row) or StoredSummary()
    outcome = engine.reader.stored_outcome(row) if not is_open else None
    gates = engine.reader.gates_of_run(row).values() if is_open else ()
    first_rows = engine.store.events(row.run, limit=1)
    return {
        "run_id": row.run,
        "workflow": row.workflow,
        "state": row.state,
        "label": row.label,
        "tags": tags_of_row(row),
        "started_at": datetime.fromtimestamp(row.started, UTC),
        "ended_at": datetime.fromtimestamp(row.ended, UTC) if row.ended is not None else None,
        "result": limit_depth(outcome.result) if outcome is not None else None,
        "error": outcome.error if outcome is not None else None,
        "error_type": outcome.error_type or None if outcome is not None else None,
        "location": outcome.trace.location if outcome is not None else None,
        "held": engine.reader.hold_data(row) if row.state == WorkflowState.HELD.value else None,
        "waiting_for": describe_waits(engine.reader.waits_of_run(row.run))
        if row.state == WorkflowState.WAITING.value
        else None,
        "gates": [gate_response(row.run, row.workflow, gate, row.label) for gate in gates],
        **origin_fields(row, summary),
        "continued_as": summary.continued_as,
        "continued_from": summary.continued_from,
        "input_preview": preview_value(
            read_short_input(first_rows[0], MAX_PREVIEWED_CHARS) if first_rows else None
        ),
        "usage": summary.usage,
    }


def omit_large_fields(response: models.RunResponse, max_chars: int | None) -> models.RunResponse:
    """Return the run without larger fields, which a query for the run returns."""
    if max_chars is None:
        return response
    names = ("result", "error", "held")
    omitted = [name for name in names if exceeds_size(getattr(response, name), max_chars)]
    return (
        response.model_copy(update={**dict.fromkeys(omitted), "left_out": omitted}) if omitted else response
    )


def exceeds_size(value: Any, remaining: int) -> bool:
    """Return whether a value has more than about that many characters, without reading more of it."""
    stack = [value]
    while stack and remaining >= 0:
        match stack.pop():
            case str() as text:
                remaining -= len(text)
            case dict() as mapping if len(mapping) <= remaining:
                remaining -= len(mapping)
                stack += [*mapping, *mapping.values()]
            case list() as items if len(items) <= remaining:
                remaining -= len(items)
                stack += items
            case dict() | list():
                return True
            case None:
                pass
            case _:
                remaining -= 8
    return remaining < 0


def run_detail_response(
    session: Session, row: RunRow, before: int | None = None, steps: bool = True
) -> models.RunDetailResponse:
    """Return a run with its tree; for a long run, only its newest or, with `before`, earlier steps."""
    if steps and before is None and not is_long_run(session, row):
        detail = whole_run_response(session.engine.run_handle(row), row)
    else:
        detail = run_page_response(session, row, before, PAGE_EVENTS if steps else 0)
    return detail.model_copy(update={"parked": is_parked(session, row)})


def whole_run_response(run: WorkflowRun, row: RunRow) -> models.RunDetailResponse:
    view: RunView = run.view
    fields = run_fields(run) | origin_fields(row, StoredSummary.of_row(row) or StoredSummary())
    return models.RunDetailResponse(
        **fields | ended_fields(view),
        traceback=view.traceback,
        input=limit_depth(run.input),
        params={name: limit_depth(value) for name, value in run.params.items()},
        tree=tree_response(view),
        usage=view.usage.to_dict(),
        models=view.ledger.by_model(),
        last_seq=view.last_seq,
    )


def ended_fields(view: RunView) -> dict[str, Any]:
    """Return what differs if a run has ended: a client that saw its last event must get the final state."""
    if view.ended_at is None:
        return {}
    return {
        "state": view.state,
        "ended_at": view.ended_at,
        "result": limit_depth(view.result),
        "error": view.error,
        "error_type": view.error_type,
        "location": view.location,
        "continued_as": view.continued_as,
        "gates": [],
        "held": None,
        "waiting_for": None,
    }


def run_page_response(
    session: Session, row: RunRow, before: int | None, event_count: int
) -> models.RunDetailResponse:
    """Return a run with the steps of one page of its journal and, on the newest page, those that are open.

    Without events, no step is listed.
    """
    engine, store = session.engine, session.engine.store
    last = store.last_event(row.run)
    last_seq = last.seq if last is not None else 0
    end = last_seq if before is None else min(before - 1, last_seq)
    after = max(0, end - event_count)
    rows = store.events(row.run, after, end - after) if event_count else []
    builder, end_builder = RunViewBuilder(), RunViewBuilder()
    for event_row in rows:
        builder.add(read_row(event_row))
    if last is not None and last.type in RUN_END_EVENTS:
        end_builder.add(read_row(last))
    run, executor = engine.run_handles.get(row.run), engine.executors.get(row.run)
    if run is None and may_have_children(row) and last_seq <= MAX_WHOLE_EVENTS:
        run = engine.run_handle(row)
    start = read_start(store, row.run)
    origin = origin_fields(row, StoredSummary.of_row(row) or StoredSummary())
    fields = stored_run_fields(session, row) if run is None else run_fields(run) | origin
    if before is None and event_count:
        for path in executor.call_runner.running_leaves if executor is not None else ():
            builder.add_open_step(path, "running")
        for gate in fields["gates"]:
            builder.add_open_step(gate.path.rpartition("/")[0], "waiting")
    return models.RunDetailResponse(
        **fields | ended_fields(end_builder.view),
        traceback=end_builder.view.traceback,
        input=limit_depth(start.input),
        params={name: limit_depth(value) for name, value in start.params.items()},
        tree=tree_response(builder.view),
        last_seq=last_seq,
        next=after + 1 if after and event_count else None,
        left_out=["models", "usage"] if event_count else ["models", "tree", "usage"],
    )


def tree_response(view: RunView) -> list[models.NodeResponse]:
    steps = view.ledger.by_step()
    return [node_response(node, steps) for node in view.tree]


def node_response(node: NodeView, steps: Mapping[str, dict[str, float]]) -> models.NodeResponse:
    return models.NodeResponse(
        **{name: getattr(node, name) for name in NODE_FIELDS},
        usage=steps.get(node.path, {}),
        parts=[node_response(part, steps) for part in node.children],
    )


def workflow_response(
    workflow: Workflow, source: bool = False, enabled: bool = True
) -> models.WorkflowResponse:
    definition_hash, text, canonical = workflow.definition()
    try:
        declared = workflow.declared_inputs
    except TypeError:  # an annotation that cannot be resolved is the error of a start, not of a list
        declared = DeclaredInputs(workflow.name)
    return models.WorkflowResponse(
        id=workflow.name,
        kind=workflow.kind,
        description=workflow.description,
        inputs=[models.InputResponse(**asdict(declared_input)) for declared_input in declared.fields],
        input_schema=declared.input_schema or None,
        params_schema=declared.params_schema or None,
        output_schema=declared.output_schema or None,
        steps=workflow.steps,
        hash=definition_hash,
        created_at=workflow.to_info().created_at,
        source=text if source else None,
        spec=parsed_spec(workflow.kind, canonical) if source else None,
        prompts=workflow_prompts(workflow) if source else {},
        enabled=enabled,
    )


def parsed_spec(notation: str, canonical: str) -> dict[str, Any] | None:
    """Return the spec of a definition in one of the notations; Python code has none."""
    return decode_json(canonical) if notation in NOTATION_NAMES else None


def workflow_prompts(workflow: Workflow) -> dict[str, str]:
    if (document := getattr(workflow, "document", None)) is None or not document.prompts:
        return {}
    from nerve.notations.yaml_prompts import prompt_texts

    return prompt_texts(document)


def fact_response(fact: Fact) -> models.FactResponse:
    return models.FactResponse(
        id=fact.id, record=fact.record.to_json(), text=str(fact.record), by=fact.asserted_by, at=fact.at
    )


def queue_response(info: QueueInfo) -> models.QueueResponse:
    oldest_wait = None if info.oldest_wait is None else datetime.fromtimestamp(info.oldest_wait, UTC)
    return models.QueueResponse(
        name=info.name,
        concurrency=info.concurrency,
        rate=info.rate,
        per=info.per,
        priority=info.priority,
        running=info.running,
        waiting=info.waiting,
        oldest_wait=oldest_wait,
        paused=info.is_paused,
        declared=info.is_declared,
    )


def find_queue_response(session: Session, name: str) -> models.QueueResponse:
    """Return a queue by its name; one that is not declared and has no entries is not paused."""
    infos = (info for info in session.list_queues() if info.name == name)
    return queue_response(next(infos, QueueInfo(name, is_declared=False)))
