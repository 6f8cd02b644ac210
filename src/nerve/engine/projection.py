"""The projection: what can be read of workflows and runs, as facts that anybody can watch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from nerve.core.values import decode
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.workflow import Workflow
from nerve.dataspace import Change, Dataspace, Fact, Record, exactly
from nerve.dataspace.known import workflow_definition, workflow_instance, workflow_log, workflow_state
from nerve.store.port import Row

LINES = 1000
"""How many lines of all logs are facts at once."""

SAYS = {
    "workflow_started": "started",
    "workflow_completed": "completed",
    "workflow_failed": "failed: {error}",
    "workflow_cancelled": "cancelled: {reason}",
    "workflow_paused": "paused",
    "workflow_resumed": "resumed",
    "workflow_held": "held: {message}",
    "node_completed": "{path} done",
    "step_completed": "{path} done",
    "node_error": "{path} failed: {error}",
    "step_failed": "{path} failed: {error}",
    "node_timeout": "{path} {error}",
    "node_retrying": "{path} is tried again: {error}",
    "gate_waiting": "{path} asks: {prompt}",
    "gate_answered": "{path} was answered: {answer}",
    "signal_waiting": "{path} waits",
    "signal_received": "{path} received",
    "log": "{message}",
}
"""The events that are worth a line of a log."""

STATUS = {
    "workflow_started": "running",
    "workflow_completed": "completed",
    "workflow_failed": "failed",
    "workflow_cancelled": "cancelled",
    "workflow_paused": "paused",
    "workflow_resumed": "running",
    "workflow_held": "held",
}
WAITS = ("gate_waiting", "signal_waiting", "timer_started")


class Projection:
    """Facts that nobody asserted. They are in no store: the journals are."""

    def __init__(self, space: Dataspace, tell: Callable[[], None]) -> None:
        self._space, self._tell = space, tell
        self.begun = False
        self._states: dict[str, dict[str, Any]] = {}
        self._lines: deque[Record] = deque()
        self._defined: dict[str, str] = {}
        self._made: dict[str, Fact] = {}

    def facts(self) -> list[Fact]:
        return list(self._made.values())

    def define(self, workflows: Iterable[Workflow]) -> None:
        """A definition for every workflow there is."""
        for workflow in workflows:
            hashed, source, _ = workflow.definition()
            if self._defined.get(workflow.name) != hashed and not workflow.name.startswith("_"):
                self._defined[workflow.name] = hashed
                self._put(workflow_definition(workflow.name, workflow.kind, source, hashed))

    def begin(self, runs: Iterable[tuple[WorkflowRun, Iterable[Row]]]) -> None:
        self.begun = True
        for run, rows in runs:
            self.take(run, rows)

    def take(self, run: WorkflowRun, rows: Iterable[Row]) -> None:
        """Read what a run has written."""
        if not self.begun:
            return
        before = dict(self._states.get(run.run_id, {}))
        for row in rows:
            self._read(run, row)
        now = self._states.get(run.run_id)
        if now is not None and now != before:
            self._put(workflow_state(run.run_id, run.workflow_id, label=run.label, **self._told(now)))

    def _told(self, state: dict[str, Any]) -> dict[str, Any]:
        awaits = list(state["awaits"].values())
        waiting = state["status"] == "running" and bool(awaits)
        return {
            "status": "waiting" if waiting else state["status"],
            "step": state["step"],
            "awaits": awaits or None,
        }

    def _read(self, run: WorkflowRun, row: Row) -> None:
        if row.type == "workflow_started":
            self._states[run.run_id] = {"status": "running", "step": None, "awaits": {}}
            self._instance(run)
        state = self._states.setdefault(run.run_id, {"status": "running", "step": None, "awaits": {}})
        state["status"] = STATUS.get(row.type, state["status"])
        if row.type in ("node_started", "step_started", "state_entered"):
            state["step"] = decode(row.data).get("state") if row.type == "state_entered" else row.path
        elif row.type in WAITS:
            state["awaits"] = {**state["awaits"], row.path: awaited(row)}
        elif row.settles and row.path in state["awaits"]:
            state["awaits"] = {path: told for path, told in state["awaits"].items() if path != row.path}
        elif row.type in ("workflow_completed", "workflow_failed", "workflow_cancelled"):
            state["awaits"] = {}
        if row.type in SAYS and "/_" not in row.path and not row.data.startswith('{"control":true'):
            self._say(run, row)

    def _instance(self, run: WorkflowRun) -> None:
        context = {**run._params, **({"input": run.input} if run.input is not None else {})}
        made = workflow_instance(run.workflow_id, run.label, run.branch, context)
        self._put(Record(made.label, made.fields, {**made.named, "run": run.run_id}))

    def _say(self, run: WorkflowRun, row: Row) -> None:
        data = decode(row.data)
        text = SAYS[row.type].format_map(Told({**data, "path": row.path}))
        level = "error" if data.get("error") else "info"
        line = workflow_log(run.run_id, row.seq, text, level)
        self._lines.append(line)
        self._put(line)
        if len(self._lines) > LINES:
            self._drop(self._lines.popleft())

    def _put(self, record: Record) -> None:
        changes = self._space.propose(asserted=[record])
        for change in changes:
            self._made[change.fact.id] = change.fact
        self._apply(changes)

    def _drop(self, record: Record) -> None:
        self._made.pop(record.id, None)
        self._apply(self._space.propose(retracted=[exactly(record)]))

    def _apply(self, changes: list[Change]) -> None:
        self._space.apply(changes, tell=False)
        self._tell()


class Told(dict[str, Any]):
    """What an event says; what it does not say is left out."""

    def __missing__(self, key: str) -> str:
        return ""


def awaited(row: Row) -> Any:
    """What a wait is for, in one value."""
    data = decode(row.data)
    if row.type == "gate_waiting":
        return {"gate": data["gate_id"], "prompt": data["prompt"], "path": row.path}
    if row.type == "timer_started":
        return {"until": data.get("deadline"), "path": row.path}
    return (
        {"patterns": data["patterns"]}
        if "patterns" in data
        else {"signal": data["label"], "key": data["key"]}
    )
