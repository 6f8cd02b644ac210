"""The projection: what can be read of workflows and runs, as facts that anybody can watch."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from nerve.core.values import decode
from nerve.core.workflow.replay import CONTROL, within
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.workflow import Workflow
from nerve.dataspace import Change, Dataspace, Fact, Record, exactly
from nerve.dataspace.known import (
    DEFINITION,
    workflow_definition,
    workflow_instance,
    workflow_log,
    workflow_state,
)
from nerve.dataspace.plain import plain
from nerve.errors import NotJson
from nerve.store.port import Row

LINES = 1000
"""How many lines of all logs are facts at once."""
ENDED = 1000
"""How many runs that have ended are facts at once."""

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
    "gate_timeout": "{path} was not answered in time",
    "signal_waiting": "{path} waits",
    "signal_received": "{path} received",
    "signal_timeout": "{path} received nothing in time",
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
STARTS = ("node_started", "step_started")
OVER = ("completed", "failed", "cancelled")
WAITS = ("gate_waiting", "signal_waiting", "timer_started")
WITHIN = 3
"""How deep in its record something stands that a run was given or waits for."""


@dataclass(slots=True)
class Standing:
    """Where a run stands, as its journal tells it."""

    run: str
    workflow: str
    label: str
    parent: tuple[str, str] | None = None
    """The run that called it, and the path there."""
    status: str = "running"
    step: str | None = None
    """The state of its machine, or else the step at the top that it is in."""
    machine: str | None = None
    """Where the outermost machine stands that it is in."""
    awaits: dict[str, Any] = field(default_factory=dict)

    def record(self) -> Record:
        awaits = list(self.awaits.values())
        return workflow_state(
            self.run, self.workflow, self.seen, label=self.label, step=self.step, awaits=awaits or None
        )

    def goes_to(self, path: str) -> None:
        """Something begins at a path."""
        if self.machine is not None and within(path, self.machine):
            return
        top = re.split(r"[/~[]", path[1:], maxsplit=1)[0]
        if top and not top.startswith("_"):
            self.machine, self.step = None, top

    def enters(self, machine: str, state: str) -> None:
        if self.machine is None or machine == self.machine or not within(machine, self.machine):
            self.machine, self.step = machine, state

    @property
    def seen(self) -> str:
        return "waiting" if self.status == "running" and self.awaits else self.status


class Projection:
    """Facts that nobody asserted. They are in no store: the journals are."""

    def __init__(self, space: Dataspace, tell: Callable[[], None]) -> None:
        self._space, self._tell = space, tell
        self.begun = False
        self._standing: dict[str, Standing] = {}
        self._ended: deque[tuple[str, Record]] = deque()
        self._lines: deque[Record] = deque()
        self._defined: dict[str, str] = {}
        self._made: dict[str, Fact] = {}

    def facts(self) -> list[Fact]:
        return list(self._made.values())

    def made(self, fact: Fact) -> bool:
        """Whether a fact comes from here."""
        return self._made.get(fact.id) is fact

    def forget(self, change: Change) -> None:
        """Somebody has taken back a fact of here, or put one in its place."""
        self._made.pop(change.fact.id, None)

    def define(self, workflows: Iterable[Workflow]) -> None:
        """A definition for every workflow there is; one that was asserted is that already."""
        for workflow in workflows:
            hashed, source, _ = workflow.definition()
            if self._defined.get(workflow.name) == hashed or workflow.name.startswith("_"):
                continue
            self._defined[workflow.name] = hashed
            record = workflow_definition(workflow.name, workflow.kind, source, hashed)
            there = self._asserted(record)
            if there is None or there.record.get("source") != source:
                self._put(record)

    def undefine(self, name: str) -> None:
        """A workflow is not there any more."""
        self._defined.pop(name, None)
        for fact in list(self._made.values()):
            if fact.record.label == DEFINITION and fact.record.get("id") == name:
                self._drop(fact.record)

    def begin(self, runs: Iterable[tuple[WorkflowRun, Iterable[Row]]]) -> None:
        self.begun = True
        for run, rows in runs:
            self.take(run, rows, past=True)

    def take(self, run: WorkflowRun, rows: Iterable[Row], past: bool = False) -> None:
        """Read what a run has written; of what is past, only the end is told."""
        if not self.begun:
            return
        standing = self._standing.get(run.run_id)
        before = standing.record() if standing is not None else None
        for row in rows:
            self._read(run, row)
            standing = self._standing[run.run_id]
            if not past and row.type == "state_entered" and standing.record() != before:
                before = standing.record()  # it may be left again in what was written together
                self._stands(standing)
        if standing is not None and standing.record() != before:
            self._stands(standing)
        if standing is not None and standing.status in OVER:
            self._over(run)

    def _stands(self, standing: Standing) -> None:
        """Say where a run stands; whoever called it waits as long as it does."""
        self._put(standing.record())
        place = standing.parent
        parent = self._standing.get(place[0]) if place is not None else None
        if place is None or parent is None or parent.status in OVER:
            return
        before = dict(parent.awaits)
        if standing.seen in ("waiting", "held"):
            parent.awaits[place[1]] = {"run": standing.run, "path": place[1]}
        else:
            parent.awaits.pop(place[1], None)
        if parent.awaits != before:
            self._stands(parent)

    def _over(self, run: WorkflowRun) -> None:
        """Of the runs that have ended, the oldest are not shown any more."""
        self._ended.append((run.run_id, instance_of(run)))
        while len(self._ended) > ENDED:
            gone, instance = self._ended.popleft()
            standing = self._standing.pop(gone, None)
            for record in (instance, *([standing.record()] if standing else [])):
                if (fact := self._made.get(record.id)) is not None and fact.record == record:
                    self._drop(record)

    def _read(self, run: WorkflowRun, row: Row) -> None:
        if row.type == "workflow_started":
            start = decode(row.data)
            parent = (start["parent"], start["parent_path"]) if "parent_path" in start else None
            self._standing[run.run_id] = Standing(run.run_id, run.workflow_id, run.label, parent)
            if not str(start.get("key") or "").startswith("instance:"):
                self._instance(run)
        state = self._standing.get(run.run_id)
        if state is None:
            state = self._standing[run.run_id] = Standing(run.run_id, run.workflow_id, run.label)
        state.status = STATUS.get(row.type, state.status)
        if row.type in STARTS:
            state.goes_to(row.path)
        elif row.type == "state_entered":
            state.enters(row.path, decode(row.data)["state"])
        elif row.type in WAITS and '"guard":true' not in row.data:
            state.goes_to(row.path)
            state.awaits[row.path] = readable(awaited(row))
        elif row.type == "path_reset":
            state.awaits = {path: told for path, told in state.awaits.items() if not within(path, row.path)}
        elif row.settles:
            state.awaits.pop(row.path, None)
        if state.status in OVER:
            state.awaits = {}
        if row.type in SAYS and not ("/_" in row.path or "~" in row.path or row.data.startswith(CONTROL)):
            self._say(run, row)

    def _instance(self, run: WorkflowRun) -> None:
        """Unless an instance with its name was asserted."""
        made = instance_of(run)
        if self._asserted(made) is None:
            self._put(made)

    def _asserted(self, record: Record) -> Fact | None:
        fact = self._space.fact(record.id)
        return fact if fact is not None and not self.made(fact) else None

    def _say(self, run: WorkflowRun, row: Row) -> None:
        data = decode(row.data)
        failed = bool(data.get("error"))
        # a node that returns a failure has completed, unlike one that raises
        says = SAYS["node_error" if failed and row.type == "node_completed" else row.type]
        text = says.format_map(Told({**data, "path": row.path}))
        level = "error" if failed else "info"
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


def instance_of(run: WorkflowRun) -> Record:
    given = {**run._params, **({"input": run.input} if run.input is not None else {})}
    context = {name: readable(value) for name, value in given.items()}
    made = workflow_instance(run.workflow_id, run.label, run.branch, context)
    return Record(made.label, made.fields, {**made.named, "run": run.run_id})


def readable(value: Any) -> Any:
    """A value as a fact has it; a journal may have others, and in the place of those stands why."""
    try:
        return plain(value, WITHIN)
    except NotJson as error:
        return f"({error})"


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
