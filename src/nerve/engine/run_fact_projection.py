"""Project workflows and runs as facts that workflows and clients can watch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

from nerve.core.events import WorkflowEventType
from nerve.core.workflow.state import FINAL_STATE_VALUES
from nerve.core.workflow.workflow import Workflow
from nerve.dataspace import Change, Dataspace, Fact, Record, exactly, literal
from nerve.dataspace.builtin_records import (
    DEFINITION_LABEL,
    INSTANCE_LABEL,
    LOG_LABEL,
    STATE_LABEL,
    workflow_definition,
    workflow_instance,
    workflow_log,
    workflow_state,
)
from nerve.dataspace.matchers import NO_LITERAL
from nerve.dataspace.pattern import Pattern
from nerve.dataspace.record import normalize_json
from nerve.engine.run_summary import EVENT_BY_KIND, RunPosition, StoredSummary, event_of_wait
from nerve.errors import NotJson
from nerve.journal.events import (
    CallSettled,
    CallStarted,
    GateWaiting,
    MessageWaiting,
    NodeCompleted,
    PathReset,
    QueueWaiting,
    RunStarted,
    SignalWaiting,
    StateEntered,
    TimerStarted,
    WaitOpened,
)
from nerve.journal.index import RecordedEvent, is_guard, read_row
from nerve.journal.paths import is_within_step
from nerve.journal.waiting import describe_waits
from nerve.lazy_dataclass import dataclass
from nerve.store.port import EventRow, RunRow, WaitRow

MAX_LOG_FACTS = 1000
"""Maximum number of log lines kept as facts."""
MAX_ENDED_RUNS = 1000
"""Maximum number of ended runs kept as facts."""
PROJECTED_LABELS = frozenset({DEFINITION_LABEL, INSTANCE_LABEL, STATE_LABEL, LOG_LABEL})

LOG_TEMPLATES: dict[str, str] = {
    WorkflowEventType.STARTED: "started",
    WorkflowEventType.COMPLETED: "completed",
    WorkflowEventType.FAILED: "failed: {error}",
    WorkflowEventType.CANCELLED: "cancelled: {reason}",
    WorkflowEventType.PAUSED: "paused",
    WorkflowEventType.RESUMED: "resumed",
    WorkflowEventType.HELD: "held: {message}",
    WorkflowEventType.NODE_COMPLETED: "{path} done",
    WorkflowEventType.STEP_COMPLETED: "{path} done",
    WorkflowEventType.NODE_ERROR: "{path} failed: {error}",
    WorkflowEventType.STEP_FAILED: "{path} failed: {error}",
    WorkflowEventType.NODE_TIMEOUT: "{path} {error}",
    WorkflowEventType.NODE_RETRYING: "{path} is tried again: {error}",
    WorkflowEventType.GATE_WAITING: "{path} asks: {prompt}",
    WorkflowEventType.GATE_ANSWERED: "{path} was answered: {answer}",
    WorkflowEventType.GATE_TIMEOUT: "{path} was not answered in time",
    WorkflowEventType.SIGNAL_WAITING: "{path} waits",
    WorkflowEventType.SIGNAL_RECEIVED: "{path} received",
    WorkflowEventType.SIGNAL_TIMEOUT: "{path} received nothing in time",
    WorkflowEventType.MESSAGE_SENT: "message sent",
    WorkflowEventType.MESSAGE_WAITING: "{path} waits",
    WorkflowEventType.MESSAGE_RECEIVED: "{path} received",
    WorkflowEventType.MESSAGE_TIMEOUT: "{path} received nothing in time",
    WorkflowEventType.LOG: "{message}",
}
"""The events that become log lines."""

STATUS_BY_EVENT: dict[str, str] = {
    WorkflowEventType.STARTED: "running",
    WorkflowEventType.COMPLETED: "completed",
    WorkflowEventType.FAILED: "failed",
    WorkflowEventType.CANCELLED: "cancelled",
    WorkflowEventType.PAUSED: "paused",
    WorkflowEventType.RESUMED: "running",
    WorkflowEventType.HELD: "held",
}
STATUS_BY_STATE = {"pending": "running", "waiting": "running", "pausing": "paused", "stopping": "running"}
"""The states of rows whose status has another name."""
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
    position: RunPosition = field(default_factory=RunPosition)
    waits_by_path: dict[str, WaitOpened | str] = field(default_factory=dict)
    """The open waits, and the ids of the called runs that wait."""

    def to_record(self) -> Record:
        waits = self.waits_by_path
        awaits = [to_fact_value(describe_wait(wait, path)) for path, wait in waits.items()]
        waiting_for = describe_waits(
            (wait for wait in waits.values() if isinstance(wait, WaitOpened)),
            {wait: None for wait in waits.values() if isinstance(wait, str)},
        )
        return workflow_state(
            self.run,
            self.workflow,
            self.visible_status,
            label=self.label,
            step=self.position.step,
            awaits=awaits or None,
            waiting_for=waiting_for if self.visible_status == "waiting" else None,
        )

    def apply(self, recorded: RecordedEvent) -> None:
        """Take the next event of the run into account."""
        event, path = recorded.event, recorded.path
        self.status = STATUS_BY_EVENT.get(event.type, self.status)
        match event:
            case CallStarted():
                self.position.on_step_started(path)
            case StateEntered(state=str() as name):
                self.position.on_state_entered(path, name)
            case WaitOpened() if not is_guard(event):
                self.position.on_step_started(path)
                self.waits_by_path[path] = event
            case PathReset():
                waits = self.waits_by_path.items()
                self.waits_by_path = {at: wait for at, wait in waits if not is_within_step(at, path)}
            case _ if recorded.settles:
                self.waits_by_path.pop(path, None)
        if self.status in FINAL_STATE_VALUES:
            self.waits_by_path = {}

    @property
    def visible_status(self) -> str:
        return "waiting" if self.status == "running" and self.waits_by_path else self.status


class RunFactProjection:
    """Facts that were not asserted. They are not stored: journals are their source.

    The facts with a label are projected from the first look at one of them on.
    """

    def __init__(
        self,
        space: Dataspace,
        notify: Callable[[], None],
        load_state: Callable[[str], RunFactState | None],
    ) -> None:
        self._space, self._notify, self._load_state = space, notify, load_state
        self.labels: set[str] = set()
        """The labels whose facts are projected."""
        self._states: dict[str, RunFactState] = {}
        self._ended_runs: dict[str, None] = {}
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

    # -- before the first look ---------------------------------------------------------------------

    def has_state(self, run_id: str) -> bool:
        return run_id in self._states

    def add_state(self, state: RunFactState) -> None:
        """Project the state of a run that was started before the first look."""
        self._states[state.run] = state
        self._project_state(state)
        if state.status in FINAL_STATE_VALUES:
            self._limit_ended_runs(state.run)

    def add_instance(self, run_id: str, start: RunStarted) -> None:
        """Project a run as an instance, unless an instance with its name was asserted."""
        if (start.key or "").startswith("instance:"):
            return
        instance = instance_record(run_id, start)
        if self._find_asserted(instance) is None:
            self._assert_record(instance)

    def add_log_line(self, run_id: str, recorded: RecordedEvent) -> None:
        """Project the line of an event that is logged."""
        event = recorded.event
        # The end of a call shows its error only, so its result is not decoded.
        data = {"error": event.error} if isinstance(event, CallSettled) else event.to_data()
        failed = bool(data.get("error"))
        # A node that returns a failure has completed, unlike one that raises.
        is_returned_failure = failed and isinstance(event, NodeCompleted)
        template = LOG_TEMPLATES[WorkflowEventType.NODE_ERROR if is_returned_failure else event.type]
        text = template.format_map(EventFields({**data, "path": recorded.path}))
        level = "error" if failed else "info"
        line = workflow_log(run_id, recorded.seq, text, level)
        self._log_lines.append(line)
        self._assert_record(line)
        if len(self._log_lines) > MAX_LOG_FACTS:
            self._retract_record(self._log_lines.popleft())

    # -- as events are committed -------------------------------------------------------------------

    def project_rows(self, run_id: str, workflow: str, rows: Iterable[EventRow]) -> None:
        """Apply new events of a run."""
        if not self.labels:
            return
        for recorded in map(read_row, rows):
            if isinstance(recorded.event, RunStarted) and INSTANCE_LABEL in self.labels:
                self.add_instance(run_id, recorded.event)
            if STATE_LABEL in self.labels:
                self._apply_event(run_id, workflow, recorded)
            if LOG_LABEL in self.labels and is_logged(recorded):
                self.add_log_line(run_id, recorded)
        if (state := self._states.get(run_id)) is not None:
            self._project_state(state)
            if state.status in FINAL_STATE_VALUES:
                self._limit_ended_runs(run_id)

    def _apply_event(self, run_id: str, workflow: str, recorded: RecordedEvent) -> None:
        event, state = recorded.event, self._states.get(run_id)
        if isinstance(event, RunStarted):
            has_caller = event.parent is not None and event.parent_path is not None
            parent = (event.parent or "", event.parent_path or "") if has_caller else None
            state = RunFactState(run_id, workflow, event.label or run_id, parent)
        elif state is None:
            # The run started too long ago to be among those that were loaded.
            state = self._load_state(run_id) or RunFactState(run_id, workflow, run_id)
        self._states[run_id] = state
        state.apply(recorded)
        if isinstance(event, StateEntered):
            self._project_state(state)  # watchers must see it, even if the batch leaves it again

    def _project_state(self, state: RunFactState) -> None:
        """Project the state of a run; its caller counts as waiting as long as it does."""
        self._assert_record(state.to_record())
        caller = state.parent
        parent = self._states.get(caller[0]) if caller is not None else None
        if caller is None or parent is None or parent.status in FINAL_STATE_VALUES:
            return
        before = dict(parent.waits_by_path)
        if state.visible_status in ("waiting", "held"):
            parent.waits_by_path[caller[1]] = state.run
        else:
            parent.waits_by_path.pop(caller[1], None)
        if parent.waits_by_path != before:
            self._project_state(parent)

    def _limit_ended_runs(self, run_id: str) -> None:
        """Remove the oldest ended runs from the facts."""
        self._ended_runs[run_id] = None
        while len(self._ended_runs) > MAX_ENDED_RUNS:
            ended_id = next(iter(self._ended_runs))
            del self._ended_runs[ended_id]
            # The runs stay in the store; facts about all of them would grow without bound.
            self._states.pop(ended_id, None)
            for label in (STATE_LABEL, INSTANCE_LABEL):
                for fact in self._space.facts([label, {"run": literal(ended_id)}]):
                    if self.is_projected(fact):
                        self._retract_record(fact.record)

    def _find_asserted(self, record: Record) -> Fact | None:
        fact = self._space.fact(record.id)
        return fact if fact is not None and not self.is_projected(fact) else None

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


def instance_record(run_id: str, start: RunStarted) -> Record:
    """Return the record of a run as a workflow instance."""
    arguments = {**start.params, **({"input": start.input} if start.input is not None else {})}
    context = {name: to_fact_value(value) for name, value in arguments.items()}
    instance = workflow_instance(start.workflow_id, start.label or run_id, start.branch or "main", context)
    return Record(instance.label, instance.fields, {**instance.named, "run": run_id})


def projected_labels(pattern: Pattern | None) -> frozenset[str]:
    """Return the labels of projected facts that a pattern can match."""
    label = NO_LITERAL if pattern is None else pattern.label.literal_value()
    return PROJECTED_LABELS if label is NO_LITERAL else PROJECTED_LABELS & {label}


def state_of_row(row: RunRow, summary: StoredSummary, waits: Iterable[WaitRow]) -> RunFactState:
    """Return the state of a run from its row and its open waits."""
    parent = (row.parent, summary.parent_path or "") if row.parent is not None else None
    state = RunFactState(row.run, row.workflow, row.label or row.run, parent)
    state.status = STATUS_BY_STATE.get(row.state, row.state)
    state.position = RunPosition(summary.step, summary.machine)
    for wait in waits:
        if wait.kind in EVENT_BY_KIND and isinstance(event := event_of_wait(wait), WaitOpened):
            state.waits_by_path[wait.path] = event
    return state


def is_logged(recorded: RecordedEvent) -> bool:
    """Whether an event becomes a log line; checks and what a leaf does itself do not."""
    return recorded.type in LOG_TEMPLATES and "/_" not in recorded.path and "~" not in recorded.path


def to_fact_value(value: Any) -> Any:
    """Return a value as facts allow it; others are replaced by the reason why not."""
    try:
        return normalize_json(value, RECORD_DEPTH)
    except NotJson as error:
        return f"({error})"


def describe_wait(wait: WaitOpened | str, path: str) -> Any:
    """Return what a wait is for, as the data of a fact; a text is the id of a called run."""
    match wait:
        case str(run_id):
            return {"run": run_id, "path": path}
        case GateWaiting(gate_id=gate_id, prompt=prompt):
            return {"gate": gate_id, "prompt": prompt, "path": path}
        case TimerStarted(deadline=deadline):
            return {"until": deadline, "path": path}
        case SignalWaiting(patterns=dict() as patterns):
            return {"patterns": patterns}
        case SignalWaiting(label=label, key=key):
            return {"signal": label, "key": key}
        case MessageWaiting(channel=channel):
            return {"message": channel}
        case QueueWaiting(queue=queue, key=key):
            return {"queue": queue, "key": key}
