"""How runs, gates, workflows and facts are told."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nerve.api import models
from nerve.api.errors import ApiError
from nerve.core.values import DEEP, too_deep
from nerve.core.view import NodeView, RunView
from nerve.core.workflow import GateInfo, Workflow, WorkflowRun
from nerve.dataspace import Fact
from nerve.engine.local import Outcome
from nerve.errors import JournalBroken

if TYPE_CHECKING:
    from nerve.core.session import Session
    from nerve.store.port import RunRow


AMONG = 5
"""Names that are told where one could mean several."""


def found(session: Session, name: str) -> WorkflowRun:
    """A run by its id, any unique beginning of it, or its label."""
    store = session.engine.store
    exact = store.run(name)
    if exact is not None and exact.session == session.name:
        return session.engine.handle(exact)
    rows = store.runs(session=session.name, label=name, newest=1)
    rows = rows or store.runs(session=session.name, prefix=name, newest=AMONG + 1)
    if len(rows) > 1:
        raise ApiError("conflict", several(name, [row.run for row in rows]), "Write more of the id.")
    if not (rows := rows or labelled(session, name)):
        raise ApiError("not_found", f"Workflow run '{name}' not found", "See the list: nerve runs")
    return session.engine.handle(rows[0])


def labelled(session: Session, name: str) -> list[RunRow]:
    """The newest run whose label begins like that, if only one label does."""
    store = session.engine.store
    close = store.labels(session.name, name, AMONG + 1)
    if len(close) > 1:
        raise ApiError("conflict", several(name, close), "Write more of the label.")
    return store.runs(session=session.name, label=close[0], newest=1) if close else []


def several(name: str, could_be: list[str]) -> str:
    return f"'{name}' could be {', '.join(could_be[:AMONG])}{', …' if len(could_be) > AMONG else ''}"


def gate_told(run_id: str, gate: GateInfo) -> models.GateTold:
    return models.GateTold(
        gate_id=gate.gate_id,
        run_id=run_id,
        path=gate.path,
        prompt=gate.prompt,
        choices=gate.choices,
        options=gate.options,
        node_id=gate.node_id,
        note=gate.note,
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
        "gates": [gate_told(run.run_id, gate) for gate in run.pending_gates],
    }


def run_told(run: WorkflowRun) -> models.RunTold:
    return models.RunTold(**fields_of(run))


def row_told(session: Session, row: RunRow) -> models.RunTold:
    """A run of a list: one that is over costs its last event, and one that cannot be read hides no other."""
    engine = session.engine
    try:
        if row.ended is None or row.run in engine.known:
            return run_told(engine.handle(row)).model_copy(update={"parent": row.parent})
        came = engine.outcome(row)
    except JournalBroken as error:
        came = Outcome(error=str(error))
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
    )


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


def workflow_told(workflow: Workflow, source: bool = False) -> models.WorkflowTold:
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
    )


def fact_told(fact: Fact) -> models.FactTold:
    return models.FactTold(
        id=fact.id, record=fact.record.to_json(), text=str(fact.record), by=fact.asserted_by, at=fact.at
    )
