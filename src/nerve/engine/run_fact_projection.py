"""Project workflows and runs as facts that workflows and clients can watch."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from nerve.core.json_codec import decode_json
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.workflow import Workflow
from nerve.dataspace import Change, Dataspace, Fact, Record, exactly
from nerve.dataspace.builtin_records import (
    DEFINITION_LABEL,
    workflow_definition,
    workflow_instance,
    workflow_log,
    workflow_state,
)
from nerve.dataspace.canonical_json import normalize_json
from nerve.errors import NotJson
from nerve.journal.replay import CONTROL_PREFIX, is_within_step
from nerve.store.port import EventRow

MAX_LOG_FACTS = 1000
"""Maximum number of log lines kept as facts."""
MAX_ENDED_RUNS = 1000
"""Maximum number of ended runs kept as facts."""

LOG_TEMPLATES = {
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
    "gate_timeout": "{path} was not answered in time",
    "signal_waiting": "{path} waits",
    "signal_received": "{path} received",
    "signal_timeout": "{path} received nothing in time",
    "log": "{message}",
}
"""The events that become log lines."""

STATUS_BY_EVENT = {
    "workflow_started": "running",
    "workflow_completed": "completed",
    "workflow_failed": "failed",
    "workflow_cancelled": "cancelled",
    "workflow_paused": "paused",
    "workflow_resumed": "running",
    "workflow_held": "held",
}
START_EVENTS = ("node_started", "step_started")
FINAL_STATUSES = ("completed", "failed", "cancelled")
WAIT_EVENTS = ("gate_waiting", "signal_waiting", "timer_started")
RECORD_DEPTH = 3
"""Depth of an input or a wait within its record."""


@dataclass(slots=True)
class RunFactState:
    """The state of a run according to its journal."""

    run: str
    workflow: str
    label: str
    parent: tuple[str, str] | None = None
    """The run that called it, and the path of the call."""
    status: str = "running"
    step: str | None = None
    """The state of its state machine, or else its current top-level step."""
    machine: str | None = None
    """The path of the outermost state machine it is in."""
    waits_by_path: dict[str, Any] = field(default_factory=dict)

    def to_record(self) -> Record:
        awaits = list(self.waits_by_path.values())
        return workflow_state(
            self.run,
            self.workflow,
            self.visible_status,
            label=self.label,
            step=self.step,
            awaits=awaits or None,
        )

    def on_step_started(self, path: str) -> None:
        """Track a step that starts at a path."""
        # Steps inside a machine are details of its state; the state is what users watch.
        if self.machine is not None and is_within_step(path, self.machine):
            return
        top = re.split(r"[/~[]", path[1:], maxsplit=1)[0]
        if top and not top.startswith("_"):
            self.machine, self.step = None, top

    def on_state_entered(self, machine: str, state: str) -> None:
        if self.machine is None or machine == self.machine or not is_within_step(machine, self.machine):
            self.machine, self.step = machine, state

    @property
    def visible_status(self) -> str:
        return "waiting" if self.status == "running" and self.waits_by_path else self.status


class RunFactProjection:
    """Facts that were not asserted. They are not stored: journals are their source."""

    def __init__(self, space: Dataspace, notify: Callable[[], None]) -> None:
        self._space, self._notify = space, notify
        self.is_started = False
        self._states: dict[str, RunFactState] = {}
        self._ended_runs: deque[tuple[str, Record]] = deque()
        self._log_lines: deque[Record] = deque()
        self._definition_hashes: dict[str, str] = {}
        self._facts_by_id: dict[str, Fact] = {}

    def facts(self) -> list[Fact]:
        return list(self._facts_by_id.values())

    def is_projected(self, fact: Fact) -> bool:
        """Whether a fact comes from this projection."""
        return self._facts_by_id.get(fact.id) is fact

    def forget(self, change: Change) -> None:
        """Forget a projected fact that was retracted or replaced."""
        self._facts_by_id.pop(change.fact.id, None)

    def project_definitions(self, workflows: Iterable[Workflow]) -> None:
        """Project a definition for every workflow; one that was asserted already counts."""
        for workflow in workflows:
            definition_hash, source, _ = workflow.definition()
            if self._definition_hashes.get(workflow.name) == definition_hash or workflow.name.startswith("_"):
                continue
            self._definition_hashes[workflow.name] = definition_hash
            record = workflow_definition(workflow.name, workflow.kind, source, definition_hash)
            asserted = self._find_asserted(record)
            if asserted is None or asserted.record.get("source") != source:
                self._assert_record(record)

    def remove_definition(self, name: str) -> None:
        """Remove the definition of a workflow."""
        self._definition_hashes.pop(name, None)
        for fact in list(self._facts_by_id.values()):
            if fact.record.label == DEFINITION_LABEL and fact.record.get("id") == name:
                self._retract_record(fact.record)

    def start(self, runs: Iterable[tuple[WorkflowRun, Iterable[EventRow]]]) -> None:
        self.is_started = True
        for run, rows in runs:
            self.project_rows(run, rows, is_history=True)

    def project_rows(self, run: WorkflowRun, rows: Iterable[EventRow], is_history: bool = False) -> None:
        """Apply the events of a run; for history only the final state is projected."""
        if not self.is_started:
            return
        state = self._states.get(run.run_id)
        before = state.to_record() if state is not None else None
        for row in rows:
            self._apply_row(run, row)
            state = self._states[run.run_id]
            if not is_history and row.type == "state_entered" and state.to_record() != before:
                before = state.to_record()  # watchers must see it, even if the batch leaves it again
                self._project_state(state)
        if state is not None and state.to_record() != before:
            self._project_state(state)
        if state is not None and state.status in FINAL_STATUSES:
            self._limit_ended_runs(run)

    def _project_state(self, state: RunFactState) -> None:
        """Project the state of a run; its caller counts as waiting as long as it does."""
        self._assert_record(state.to_record())
        caller = state.parent
        parent = self._states.get(caller[0]) if caller is not None else None
        if caller is None or parent is None or parent.status in FINAL_STATUSES:
            return
        before = dict(parent.waits_by_path)
        if state.visible_status in ("waiting", "held"):
            parent.waits_by_path[caller[1]] = {"run": state.run, "path": caller[1]}
        else:
            parent.waits_by_path.pop(caller[1], None)
        if parent.waits_by_path != before:
            self._project_state(parent)

    def _limit_ended_runs(self, run: WorkflowRun) -> None:
        """Remove the oldest ended runs from the facts."""
        self._ended_runs.append((run.run_id, instance_record(run)))
        while len(self._ended_runs) > MAX_ENDED_RUNS:
            ended_id, instance = self._ended_runs.popleft()
            # The runs stay in the store; facts about all of them would grow without bound.
            state = self._states.pop(ended_id, None)
            for record in (instance, *([state.to_record()] if state else [])):
                if (fact := self._facts_by_id.get(record.id)) is not None and fact.record == record:
                    self._retract_record(record)

    def _apply_row(self, run: WorkflowRun, row: EventRow) -> None:
        if row.type == "workflow_started":
            start = decode_json(row.data)
            parent = (start["parent"], start["parent_path"]) if "parent_path" in start else None
            self._states[run.run_id] = RunFactState(run.run_id, run.workflow_id, run.label, parent)
            if not str(start.get("key") or "").startswith("instance:"):
                self._project_instance(run)
        state = self._states.get(run.run_id)
        # The run started too long ago to be among those that the projection has loaded.
        if state is None:
            state = self._states[run.run_id] = RunFactState(run.run_id, run.workflow_id, run.label)
        state.status = STATUS_BY_EVENT.get(row.type, state.status)
        if row.type in START_EVENTS:
            state.on_step_started(row.path)
        elif row.type == "state_entered":
            state.on_state_entered(row.path, decode_json(row.data)["state"])
        elif row.type in WAIT_EVENTS and '"guard":true' not in row.data:
            state.on_step_started(row.path)
            state.waits_by_path[row.path] = to_fact_value(describe_wait(row))
        elif row.type == "path_reset":
            state.waits_by_path = {
                path: wait for path, wait in state.waits_by_path.items() if not is_within_step(path, row.path)
            }
        elif row.settles:
            state.waits_by_path.pop(row.path, None)
        if state.status in FINAL_STATUSES:
            state.waits_by_path = {}
        if row.type in LOG_TEMPLATES and not (
            "/_" in row.path or "~" in row.path or row.data.startswith(CONTROL_PREFIX)
        ):
            self._project_log_line(run, row)

    def _project_instance(self, run: WorkflowRun) -> None:
        """Project a run as an instance, unless an instance with its name was asserted."""
        instance = instance_record(run)
        if self._find_asserted(instance) is None:
            self._assert_record(instance)

    def _find_asserted(self, record: Record) -> Fact | None:
        fact = self._space.fact(record.id)
        return fact if fact is not None and not self.is_projected(fact) else None

    def _project_log_line(self, run: WorkflowRun, row: EventRow) -> None:
        data = decode_json(row.data)
        failed = bool(data.get("error"))
        # A node that returns a failure has completed, unlike one that raises.
        template = LOG_TEMPLATES["node_error" if failed and row.type == "node_completed" else row.type]
        text = template.format_map(EventFields({**data, "path": row.path}))
        level = "error" if failed else "info"
        line = workflow_log(run.run_id, row.seq, text, level)
        self._log_lines.append(line)
        self._assert_record(line)
        if len(self._log_lines) > MAX_LOG_FACTS:
            self._retract_record(self._log_lines.popleft())

    def _assert_record(self, record: Record) -> None:
        changes = self._space.stage(asserted=[record])
        for change in changes:
            self._facts_by_id[change.fact.id] = change.fact
        self._apply_changes(changes)

    def _retract_record(self, record: Record) -> None:
        self._facts_by_id.pop(record.id, None)
        self._apply_changes(self._space.stage(retracted=[exactly(record)]))

    def _apply_changes(self, changes: list[Change]) -> None:
        self._space.apply(changes, publish=False)
        self._notify()


class EventFields(dict[str, Any]):
    """The fields of an event; missing ones are empty."""

    def __missing__(self, key: str) -> str:
        return ""


def instance_record(run: WorkflowRun) -> Record:
    """Return the record of a run as a workflow instance."""
    arguments = {**run._params, **({"input": run.input} if run.input is not None else {})}
    context = {name: to_fact_value(value) for name, value in arguments.items()}
    instance = workflow_instance(run.workflow_id, run.label, run.branch, context)
    return Record(instance.label, instance.fields, {**instance.named, "run": run.run_id})


def to_fact_value(value: Any) -> Any:
    """Return a value as facts allow it; others are replaced by the reason why not."""
    try:
        return normalize_json(value, RECORD_DEPTH)
    except NotJson as error:
        return f"({error})"


def describe_wait(row: EventRow) -> Any:
    """Describe what a wait is for."""
    data = decode_json(row.data)
    if row.type == "gate_waiting":
        return {"gate": data["gate_id"], "prompt": data["prompt"], "path": row.path}
    if row.type == "timer_started":
        return {"until": data.get("deadline"), "path": row.path}
    return (
        {"patterns": data["patterns"]}
        if "patterns" in data
        else {"signal": data["label"], "key": data["key"]}
    )
