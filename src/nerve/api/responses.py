"""Build the responses for runs, gates, workflows and facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nerve.api import models
from nerve.api.errors import ApiError, RunNotFound
from nerve.core.json_codec import MAX_JSON_DEPTH, decode_json, is_too_deep, preview_value
from nerve.core.run_view import NodeView, RunView
from nerve.core.workflow import GateInfo, Workflow, WorkflowRun
from nerve.dataspace import Fact
from nerve.engine.recovery import OPEN_STATES
from nerve.errors import JournalBroken

if TYPE_CHECKING:
    from nerve.session import Session
    from nerve.store.port import EventRow, RunRow


MAX_PREVIEWED_CHARS = 20_000
"""Maximum characters of a first event from which a list extracts the input."""
MAX_LISTED_MATCHES = 5
"""How many candidates an ambiguity message lists."""


def find_run(session: Session, name: str) -> WorkflowRun:
    """Return the run with that name; raise ApiError if none or several match."""
    return session.engine.run_handle(find_run_row(session, name))


def find_run_row(session: Session, name: str) -> RunRow:
    """Return a run by its id, its label, a prefix of its id, or a prefix of its label.

    If several match and only one of them is open, return that one.
    """
    store = session.engine.store
    exact = store.run(name)
    if exact is not None and exact.session == session.name:
        return exact
    for names in (
        ({"label": name}, {"prefix": name}),
        ({"label": label} for label in find_unique_label(session, name)),
    ):
        if rows := match_run_rows(session, list(names)):
            break
    else:
        raise RunNotFound(name)
    if len(rows) > 1:
        raise ambiguous_run_error(name, rows)
    return rows[0]


def match_run_rows(session: Session, names: list[dict[str, Any]]) -> list[RunRow]:
    """Return the newest open runs that match one of the names, or else the newest others, newest first."""
    for states in (OPEN_STATES, None):
        queries = [
            {"session": session.name, "states": states, "newest": MAX_LISTED_MATCHES + 1, **criteria}
            for criteria in names
        ]
        rows = {row.run: row for query in queries for row in session.engine.store.runs(**query)}
        if rows:
            return sorted(rows.values(), key=lambda row: row.started, reverse=True)
    return []


def find_unique_label(session: Session, prefix: str) -> Iterator[str]:
    """Yield the only label with that prefix, if there is one."""
    matches = session.engine.store.labels(session.name, prefix, MAX_LISTED_MATCHES + 1)
    if len(matches) > 1:
        raise ApiError("conflict", ambiguity_message(prefix, matches), "Use a longer prefix.")
    yield from matches


def ambiguous_run_error(name: str, rows: list[RunRow]) -> ApiError:
    descriptions = [f"{row.run} ({row.state}, started {format_utc_time(row.started)})" for row in rows]
    candidates = [
        {
            "run_id": row.run,
            "label": row.label,
            "state": row.state,
            "started_at": format_utc_time(row.started),
        }
        for row in rows[:MAX_LISTED_MATCHES]
    ]
    return ApiError(
        "conflict", ambiguity_message(name, descriptions), "Name one by its id.", {"runs": candidates}
    )


def format_utc_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def matches_run_name(row: RunRow, name: str) -> bool:
    """Return whether a name could refer to this run."""
    return row.run.startswith(name) or (row.label or "").startswith(name)


def ambiguity_message(name: str, candidates: list[str]) -> str:
    return (
        f"'{name}' is ambiguous: {', '.join(candidates[:MAX_LISTED_MATCHES])}"
        f"{', …' if len(candidates) > MAX_LISTED_MATCHES else ''}"
    )


def complete_unique_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that matches exactly or by a unique prefix; None if none does."""
    matches = sorted({candidate for candidate in names if candidate.startswith(name)})
    if name in matches:
        return name
    if len(matches) > 1:
        raise ApiError("conflict", ambiguity_message(name, matches), "Use a longer prefix.")
    return matches[0] if matches else None


def gate_response(run_id: str, workflow: str, gate: GateInfo) -> models.GateResponse:
    return models.GateResponse(
        gate_id=gate.gate_id,
        run_id=run_id,
        workflow=workflow,
        path=gate.path,
        prompt=gate.prompt,
        choices=gate.choices,
        options=gate.options,
        node_id=gate.node_id,
        note=gate.note,
        input_preview=gate.input_preview,
        created_at=gate.created_at,
        deadline=gate.deadline,
        action=gate.action,
        form=gate.form,
    )


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
        "started_at": info.started_at,
        "ended_at": info.completed_at,
        "result": limit_depth(info.result),
        "error": info.error,
        "held": run.held,
        "gates": [gate_response(run.run_id, run.workflow_id, gate) for gate in run.pending_gates],
        "input_preview": preview_value(run.input),
    }


def run_response(run: WorkflowRun) -> models.RunResponse:
    return models.RunResponse(**run_fields(run))


def run_response_from_row(session: Session, row: RunRow) -> models.RunResponse:
    """Return a run of a list: a finished one reads only its last event, an unreadable one shows as held."""
    engine = session.engine
    outcome, first_rows = None, []
    if row.ended is not None and row.run not in engine.run_handles:
        with suppress(JournalBroken):
            outcome, first_rows = engine.stored_outcome(row), engine.store.events(row.run, limit=1)
    if outcome is None:
        return run_response(engine.run_handle(row)).model_copy(update={"parent": row.parent})
    return models.RunResponse(
        run_id=row.run,
        workflow=row.workflow,
        state=row.state,
        label=row.label,
        started_at=datetime.fromtimestamp(row.started, UTC),
        ended_at=datetime.fromtimestamp(row.ended, UTC) if row.ended is not None else None,
        result=limit_depth(outcome.result),
        error=outcome.error,
        parent=row.parent,
        input_preview=preview_value(recorded_input(first_rows[0]) if first_rows else None),
    )


def recorded_input(first_row: EventRow) -> Any:
    """Return the input in the first event of a run; None if it is too large for a list."""
    return decode_json(first_row.data).get("input") if len(first_row.data) <= MAX_PREVIEWED_CHARS else None


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


def run_detail_response(run: WorkflowRun) -> models.RunDetailResponse:
    view: RunView = run.view
    steps = view.ledger.by_step()
    fields = run_fields(run)
    if view.ended_at is not None:  # a client that saw the end event must get the final state
        ended_fields = {
            "state": view.state,
            "ended_at": view.ended_at,
            "result": limit_depth(view.result),
            "error": view.error,
        }
        fields |= ended_fields | {"gates": [], "held": None}
    return models.RunDetailResponse(
        **fields,
        input=limit_depth(run.input),
        params={name: limit_depth(value) for name, value in run._params.items()},
        tree=[node_response(node, steps) for node in view.tree],
        usage=view.usage.to_dict(),
        models=view.ledger.by_model(),
        last_seq=view.last_seq,
    )


def node_response(node: NodeView, steps: Mapping[str, dict[str, float]]) -> models.NodeResponse:
    return models.NodeResponse(
        path=node.path,
        name=node.name,
        state=node.state,
        seconds=node.seconds,
        iteration=node.iteration,
        max_iterations=node.max_iterations,
        attempts=node.attempts,
        error=node.error,
        held=node.held,
        usage=steps.get(node.path, {}),
        parts=[node_response(part, steps) for part in node.children],
    )


def workflow_response(
    workflow: Workflow, source: bool = False, enabled: bool = True
) -> models.WorkflowResponse:
    definition_hash, text, _ = workflow.definition()
    spec: Any = getattr(workflow, "spec", None)
    inputs = spec.inputs.items() if spec is not None else ()
    return models.WorkflowResponse(
        id=workflow.name,
        kind=workflow.kind,
        description=workflow.description,
        inputs=[models.InputResponse(name=name, **declared.model_dump()) for name, declared in inputs],
        steps=workflow.steps,
        hash=definition_hash,
        created_at=workflow.to_info().created_at,
        source=text if source else None,
        prompts=workflow_prompts(workflow) if source else {},
        enabled=enabled,
    )


def workflow_prompts(workflow: Workflow) -> dict[str, str]:
    if (document := getattr(workflow, "document", None)) is None or not document.prompts:
        return {}
    from nerve.notations.yaml_prompts import prompt_texts

    return prompt_texts(document)


def fact_response(fact: Fact) -> models.FactResponse:
    return models.FactResponse(
        id=fact.id, record=fact.record.to_json(), text=str(fact.record), by=fact.asserted_by, at=fact.at
    )
