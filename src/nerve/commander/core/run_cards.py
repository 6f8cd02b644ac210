"""Run cards: the summary of a run in a list. A run that is not followed has only a card, no tree."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from nerve.api.models import GateResponse, RunResponse
from nerve.core.events import (
    RUN_END_EVENTS,
    RUN_LEVEL_EVENTS,
    STEP_END_EVENTS,
    WAIT_END_EVENTS,
    WAIT_OPEN_EVENTS,
    WorkflowEvent,
    WorkflowEventType,
    continued_as,
)
from nerve.core.json_codec import preview_value
from nerve.core.limits import RunUsage
from nerve.lazy_dataclass import dataclass
from nerve.ui.event_lines import result_attributes
from nerve.ui.failure_text import failure_text
from nerve.ui.formatting import short_id

if TYPE_CHECKING:
    from nerve.journal.events import WaitOpened
    from nerve.ui.progress_tree import ProgressTree

TargetKind = Literal["node", "graph", "workflow", "router"]
TARGET_PREFIXES: dict[str, TargetKind] = {"@": "node", "#": "graph", "%": "workflow"}
ENDED_STATES = ("completed", "failed", "cancelled")
MIN_ID_SUFFIX_CHARS = 4
"""Minimum length of an id suffix that identifies a run."""


@dataclass(frozen=True, slots=True)
class InputTarget:
    """The recipient of plain text."""

    kind: TargetKind = "router"
    name: str = ""

    def __str__(self) -> str:
        prefix = next((prefix for prefix, kind in TARGET_PREFIXES.items() if kind == self.kind), "")
        return f"{prefix}{self.name}" if prefix else "router"


@dataclass(slots=True, eq=False)
class RunCard:
    """A run in the list; a followed run also has a `tree`."""

    run_id: str
    workflow: str
    label: str | None = None
    input_preview: str = ""
    """The first words of the run's input."""
    tags: dict[str, str] = field(default_factory=dict)
    state: str = "running"
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: Any = None
    error: str | None = None
    error_type: str | None = None
    location: str | None = None
    """Where the workflow function raised."""
    held: dict[str, Any] | None = None
    stated_waiting_for: str | None = None
    """What it waits for according to the API or its tree."""
    open_waits: dict[str, WaitOpened] = field(default_factory=dict)
    """The waits that the events of a run that is not followed have opened, by path."""
    child_waits: dict[str, dict[str, WaitOpened]] = field(default_factory=dict)
    """The same for its child runs, by their ids, without gates."""
    gates: list[GateResponse] = field(default_factory=list)
    """Open gates of the run and of its child runs."""
    usage: RunUsage = field(default_factory=RunUsage)
    parent: str | None = None
    tree: ProgressTree | None = None
    last_seq: int = 0
    """Number of the last applied event; a followed run has no gap before it."""

    @classmethod
    def from_run(cls, run: RunResponse) -> RunCard:
        card = cls(run.run_id, run.workflow)
        card.update_from(run)
        return card

    def update_from(self, run: RunResponse) -> None:
        """Update from an API response, which is newer than the applied events."""
        self.label, self.state, self.parent = run.label, run.state, run.parent or self.parent
        self.input_preview = run.input_preview or self.input_preview
        self.tags = dict(run.tags)
        self.started_at, self.ended_at = run.started_at, run.ended_at
        self.error, self.held = run.error, run.held
        self.error_type, self.location = run.error_type, run.location
        self.stated_waiting_for, self.open_waits, self.child_waits = run.waiting_for, {}, {}
        if run.result is not None:  # the run list omits large results
            self.result = run.result

    @property
    def name(self) -> str:
        """The label, or the workflow name."""
        return self.label or self.workflow

    @property
    def short_id(self) -> str:
        """The end of the id, which is random; the start is a timestamp."""
        return short_id(self.run_id)

    @property
    def waiting_for(self) -> str | None:
        """What a waiting run waits for; None if it does not wait, or if it is unknown."""
        if self.state != "waiting":
            return None
        from nerve.journal.events import GateWaiting
        from nerve.journal.waiting import describe_waits

        gates = [GateWaiting(gate.gate_id, gate.prompt) for gate in self.gates]
        children = {run_id: describe_waits(waits.values()) for run_id, waits in self.child_waits.items()}
        opened = describe_waits(self.open_waits.values(), children)
        return opened or self.stated_waiting_for or describe_waits(gates)

    @property
    def failure_text(self) -> str:
        """Why the run failed, with its place in the user's code; "" if it did not."""
        return failure_text(self.error, self.error_type, self.location)

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES

    @property
    def is_active(self) -> bool:
        """Whether the run makes progress without user input."""
        return self.state in ("pending", "running", "pausing", "stopping")

    def apply_event(self, event: WorkflowEvent) -> None:
        """Apply an event of a run that is not followed."""
        type, data = event.event_type, event.data
        if type in RUN_LEVEL_EVENTS:
            self._apply_lifecycle(event, type.removeprefix("workflow_"))
        elif type == WorkflowEventType.TAGS_CHANGED:
            self.tags |= data.get("tags") or {}
        elif type in WAIT_OPEN_EVENTS:
            if (wait := read_wait(event)) is not None:
                self.open_waits[event.path] = wait
                self.state = "waiting" if self.state == "running" else self.state
        elif type in WAIT_END_EVENTS and not data.get("guard"):
            self.open_waits.pop(event.path, None)
            self._leave_wait()
        elif type in STEP_END_EVENTS and not data.get("control"):
            self.usage.spend(result_attributes(data).get("usage"))

    def apply_child_event(self, event: WorkflowEvent) -> None:
        """Apply an event of a child run of a run that is not followed: only what it waits for."""
        type, run_id = event.event_type, event.run_id
        if type in WAIT_OPEN_EVENTS and type != WorkflowEventType.GATE_WAITING:
            if (wait := read_wait(event)) is not None:
                self.child_waits.setdefault(run_id, {})[event.path] = wait
                self.state = "waiting" if self.state == "running" else self.state
        elif run_id in self.child_waits and type in (*WAIT_END_EVENTS, *RUN_END_EVENTS):
            waits = self.child_waits[run_id]
            waits.pop(event.path, None)
            if not waits or type in RUN_END_EVENTS:
                del self.child_waits[run_id]
            self._leave_wait()

    def _leave_wait(self) -> None:
        self.stated_waiting_for = None  # it may be about the wait that has ended
        if self.state == "waiting" and not (self.gates or self.open_waits or self.child_waits):
            self.state = "running"

    def _apply_lifecycle(self, event: WorkflowEvent, change: str) -> None:
        data = event.data
        if change == "started":
            self.state, self.started_at = "running", self.started_at or event.timestamp
            self.label, self.parent = data.get("label") or self.label, data.get("parent") or self.parent
            self.input_preview = preview_value(data.get("input"))
            self.tags = dict(data.get("tags") or {})
        elif continued_as(event) is not None:
            self.gates, self.open_waits = [], {}  # the next run of the chain follows
        elif change in ENDED_STATES:
            self.state, self.ended_at, self.gates, self.held = change, event.timestamp, [], None
            self.open_waits, self.child_waits = {}, {}
            self.result = data.get("result")
            self.error = data.get("error") or data.get("reason") or None
            self.error_type, self.location = data.get("error_type"), data.get("location")
        elif change == "held":
            self.state, self.held = "held", data
        elif change == "paused":
            self.state = "paused"
        elif change == "resumed":
            self.state, self.held = "waiting" if self.gates else "running", None

    def sync_from_tree(self) -> None:
        """Copy the state of the tree to the card."""
        if self.tree is None or "" not in self.tree.branches:
            return
        view = self.tree.root.view
        self.state, self.started_at, self.ended_at = view.state, view.started_at, view.ended_at
        if view.continued_as is not None:
            self.state, self.ended_at = "running", None  # the next run of the chain follows
        self.result, self.error, self.held = view.result, view.error, view.held
        self.error_type, self.location = view.error_type, view.location
        self.stated_waiting_for = self.tree.waiting_for
        self.tags = view.tags
        self.usage = self.tree.root.view.usage
        if self.state == "running":
            states = {branch.view.state for branch in self.tree.branches.values()}
            self.state = next((state for state in ("held", "waiting") if state in states), "running")


def read_wait(event: WorkflowEvent) -> WaitOpened | None:
    """Return the wait that an event opens; None for the timer of a timeout, which is not waited for."""
    from nerve.journal.events import WaitOpened, event_from_data  # not needed for the first prompt
    from nerve.journal.index import is_guard

    wait = event_from_data(event.event_type, event.data)
    return wait if isinstance(wait, WaitOpened) and not is_guard(wait) else None


def gate_from_event(event: WorkflowEvent) -> GateResponse:
    """Return the gate that an event opens."""
    from nerve.journal.events import GateWaiting, event_from_data  # not needed for the first prompt
    from nerve.journal.gate_info import shown_gate_fields

    opened = event_from_data(event.event_type, event.data)
    assert isinstance(opened, GateWaiting)
    fields = shown_gate_fields(event.path, opened, event.timestamp)
    return GateResponse.model_validate({**fields, "run_id": event.run_id, "workflow": event.workflow_id})
