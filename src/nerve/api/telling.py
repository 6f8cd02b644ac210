"""How runs, gates, workflows and facts are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nerve.api import models
from nerve.api.errors import ApiError, RunAbsent
from nerve.core.values import DEEP, decode, first_words, too_deep
from nerve.core.view import NodeView, RunView
from nerve.core.workflow import GateInfo, Workflow, WorkflowRun
from nerve.dataspace import Fact
from nerve.engine.recovery import OPEN
from nerve.errors import JournalBroken

if TYPE_CHECKING:
    from nerve.core.session import Session
    from nerve.store.port import Row, RunRow


LISTED = 20_000
"""Characters of a first event from which a list takes the first words of the input."""
AMONG = 5
"""Names that are told where one could mean several."""


def found(session: Session, name: str) -> WorkflowRun:
    """The one run that a name means; ApiError if there is none, or if it could be several."""
    return session.engine.handle(named(session, name))


def named(session: Session, name: str) -> RunRow:
    """A run by its id, by its label or the beginning of its id, or by the beginning of its label.

    Where several go by a name, it means the one that is open, if the others have ended.
    """
    store = session.engine.store
    exact = store.run(name)
    if exact is not None and exact.session == session.name:
        return exact
    for names in ({"label": name}, {"prefix": name}), ({"label": each} for each in one_label(session, name)):
        if rows := meant(session, list(names)):
            break
    else:
        raise RunAbsent(name)
    if len(rows) > 1:
        raise ambiguous(name, rows)
    return rows[0]


def meant(session: Session, names: list[dict[str, Any]]) -> list[RunRow]:
    """The open runs that go by one of the names, or else the others that do; the newest, newest first."""
    for states in (OPEN, None):
        kinds = [{"session": session.name, "states": states, "newest": AMONG + 1, **each} for each in names]
        rows = {row.run: row for kind in kinds for row in session.engine.store.runs(**kind)}
        if rows:
            return sorted(rows.values(), key=lambda row: row.started, reverse=True)
    return []


def one_label(session: Session, beginning: str) -> Iterator[str]:
    """The only label that begins like that, if there is one."""
    close = session.engine.store.labels(session.name, beginning, AMONG + 1)
    if len(close) > 1:
        raise ApiError("conflict", several(beginning, close), "Write more of the label.")
    yield from close


def ambiguous(name: str, rows: list[RunRow]) -> ApiError:
    could_be = [f"{row.run} ({row.state}, started {when(row.started)})" for row in rows]
    told = [
        {"run_id": row.run, "label": row.label, "state": row.state, "started_at": when(row.started)}
        for row in rows[:AMONG]
    ]
    return ApiError("conflict", several(name, could_be), "Name one by its id.", {"runs": told})


def when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def goes_by(row: RunRow, name: str) -> bool:
    """Whether a name could mean this run."""
    return row.run.startswith(name) or (row.label or "").startswith(name)


def several(name: str, could_be: list[str]) -> str:
    return f"'{name}' could be {', '.join(could_be[:AMONG])}{', …' if len(could_be) > AMONG else ''}"


def whole_name(name: str, names: Iterable[str]) -> str | None:
    """The name that is meant by itself or by a beginning that no other has; None if there is none."""
    close = sorted({each for each in names if each.startswith(name)})
    if name in close:
        return name
    if len(close) > 1:
        raise ApiError("conflict", several(name, close), "Write more of the name.")
    return close[0] if close else None


def gate_told(run_id: str, workflow: str, gate: GateInfo) -> models.GateTold:
    return models.GateTold(
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


def tellable(value: Any) -> Any:
    """A value as it is told; in place of one that no reader can take stands a sentence."""
    return f"(a value nested more than {DEEP} deep)" if too_deep(value) else value


def fields_of(run: WorkflowRun) -> dict[str, Any]:
    info = run.to_info()
    return {
        "run_id": run.run_id,
        "workflow": run.workflow_id,
        "state": run.state.value,
        "label": run.label if run.label != run.run_id else None,
        "started_at": info.started_at,
        "ended_at": info.completed_at,
        "result": tellable(info.result),
        "error": info.error,
        "held": run.held,
        "gates": [gate_told(run.run_id, run.workflow_id, gate) for gate in run.pending_gates],
        "input_preview": first_words(run.input),
    }


def run_told(run: WorkflowRun) -> models.RunTold:
    return models.RunTold(**fields_of(run))


def row_told(session: Session, row: RunRow) -> models.RunTold:
    """A run of a list. One that is over costs its last event; an unreadable one is shown as held."""
    engine = session.engine
    came, begun = None, []
    if row.ended is not None and row.run not in engine.known:
        with suppress(JournalBroken):
            came, begun = engine.outcome(row), engine.store.events(row.run, limit=1)
    if came is None:
        return run_told(engine.handle(row)).model_copy(update={"parent": row.parent})
    return models.RunTold(
        run_id=row.run,
        workflow=row.workflow,
        state=row.state,
        label=row.label,
        started_at=datetime.fromtimestamp(row.started, UTC),
        ended_at=datetime.fromtimestamp(row.ended, UTC) if row.ended is not None else None,
        result=tellable(came.result),
        error=came.error,
        parent=row.parent,
        input_preview=first_words(input_in(begun[0]) if begun else None),
    )


def input_in(started: Row) -> Any:
    """The input that the first event of a run has; None for one that is too large for a list."""
    return decode(started.data).get("input") if len(started.data) <= LISTED else None


def shortened(told: models.RunTold, largest: int | None) -> models.RunTold:
    """A run without what is larger; whoever needs it asks for the run."""
    if largest is None:
        return told
    names = ("result", "error", "held")
    cut = [name for name in names if larger(getattr(told, name), largest)]
    return told.model_copy(update={**dict.fromkeys(cut), "left_out": cut}) if cut else told


def larger(value: Any, most: int) -> bool:
    """Whether a value has more than so many characters, about; no more of it is looked at than that."""
    stack = [value]
    while stack and most >= 0:
        match stack.pop():
            case str() as text:
                most -= len(text)
            case dict() as mapping if len(mapping) <= most:
                most -= len(mapping)
                stack += [*mapping, *mapping.values()]
            case list() as items if len(items) <= most:
                most -= len(items)
                stack += items
            case dict() | list():
                return True
            case None:
                pass
            case _:
                most -= 8
    return most < 0


def run_detail(run: WorkflowRun) -> models.RunDetail:
    view: RunView = run.view
    steps = view.ledger.by_step()
    fields = fields_of(run)
    if view.ended_at is not None:  # who has seen its end must be told so, although the run is just ending
        told = {
            "state": view.state,
            "ended_at": view.ended_at,
            "result": tellable(view.result),
            "error": view.error,
        }
        fields |= told | {"gates": [], "held": None}
    return models.RunDetail(
        **fields,
        input=tellable(run.input),
        params={name: tellable(value) for name, value in run._params.items()},
        tree=[node_told(node, steps) for node in view.tree],
        usage=view.usage.to_dict(),
        models=view.ledger.by_model(),
        last_seq=view.last_seq,
    )


def node_told(node: NodeView, steps: Mapping[str, dict[str, float]]) -> models.NodeTold:
    return models.NodeTold(
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
        parts=[node_told(part, steps) for part in node.children],
    )


def workflow_told(workflow: Workflow, source: bool = False, enabled: bool = True) -> models.WorkflowTold:
    hashed, text, _ = workflow.definition()
    spec: Any = getattr(workflow, "spec", None)
    inputs = spec.inputs.items() if spec is not None else ()
    return models.WorkflowTold(
        id=workflow.name,
        kind=workflow.kind,
        description=workflow.description,
        inputs=[models.InputTold(name=name, **declared.model_dump()) for name, declared in inputs],
        steps=workflow.steps,
        hash=hashed,
        created_at=workflow.to_info().created_at,
        source=text if source else None,
        prompts=prompts_of(workflow) if source else {},
        enabled=enabled,
    )


def prompts_of(workflow: Workflow) -> dict[str, str]:
    if (document := getattr(workflow, "document", None)) is None or not document.prompts:
        return {}
    from nerve.notations.prompts import prompt_texts

    return prompt_texts(document)


def fact_told(fact: Fact) -> models.FactTold:
    return models.FactTold(
        id=fact.id, record=fact.record.to_json(), text=str(fact.record), by=fact.asserted_by, at=fact.at
    )
