"""The detail of one step: input, output, attempts, transcript, usage, events, and equivalent commands."""

from __future__ import annotations

import shlex
from collections import deque
from datetime import datetime
from typing import Any, Literal

from nerve.core.events import (
    RUN_END_EVENTS,
    STEP_END_EVENTS,
    STEP_SETTLED_EVENTS,
    STEP_START_EVENTS,
    WAIT_END_EVENTS,
    WAIT_OPEN_EVENTS,
    WorkflowEvent,
    WorkflowEventType,
)
from nerve.core.run_view import BUSY_NODE_STATES, NodeView
from nerve.core.step_names import step_name, step_path
from nerve.journal.run_view import RunViewBuilder
from nerve.lazy_dataclass import dataclass
from nerve.ui.display_values import DisplayValue, display_value
from nerve.ui.event_lines import result_attributes
from nerve.ui.step_transcript import StepTranscript

MAX_KEPT_EVENTS = 1000
"""Events of a step that its detail keeps; the newest."""
StepKind = Literal["run", "leaf", "agent", "control", "child", "gate", "wait"]
UNSET: Any = object()


@dataclass(slots=True)
class AttemptDetail:
    """One attempt at a step."""

    number: int
    started_at: datetime
    ended_at: datetime | None = None
    state: str = "running"
    error: str | None = None
    error_type: str | None = None
    location: str | None = None
    traceback: str | None = None
    is_interrupted: bool = False
    """Whether the process ended during the attempt."""


@dataclass(slots=True)
class WaitDetail:
    """A wait of a step: what it waits for, and how it ended."""

    path: str
    type: str
    """gate, timer, signal, message or queue."""
    data: dict[str, Any]
    started_at: datetime
    ended_at: datetime | None = None
    outcome: dict[str, Any] | None = None
    """The data of the event that ended it, such as `answer`, `by` and `reason`."""


@dataclass(frozen=True, slots=True)
class CliCommand:
    """A command of the command line for a step."""

    title: str
    text: str


class StepDetail:
    """What is known of the step at a path; `apply_event` takes the events of its run in order.

    Events of other steps are ignored, so all events of a run, or only those of the path, give the same.
    The empty path is the run itself.
    """

    def __init__(self, run_id: str, path: str) -> None:
        self.run_id, self.path = run_id, path
        self.name = step_name(path) if path else ""
        self.node_id = ""
        self.child_run_id: str | None = None
        self.attempts: list[AttemptDetail] = []
        self.waits: list[WaitDetail] = []
        self.transcript = StepTranscript(path)
        self.events: deque[WorkflowEvent] = deque(maxlen=MAX_KEPT_EVENTS)
        self.event_count = 0
        self.attributes: dict[str, Any] = {}
        self._input: Any = UNSET
        self._output: Any = UNSET
        self._is_control = False
        self._builder = RunViewBuilder()

    # -- what is displayed -------------------------------------------------------------------------------

    @property
    def kind(self) -> StepKind:
        if not self.path:
            return "run"
        if self.child_run_id is not None:
            return "child"
        if self.attempts:
            return "control" if self._is_control else "agent" if self.transcript.is_agent else "leaf"
        types = {wait.type for wait in self.waits}
        return "gate" if "gate" in types else "wait" if types else "control"

    @property
    def state(self) -> str:
        view = self._builder.view
        return view.state if not self.path else self._node.state

    @property
    def input(self) -> DisplayValue:
        return display_value(None if self._input is UNSET else self._input)

    @property
    def output(self) -> DisplayValue:
        return display_value(None if self._output is UNSET else self._output)

    @property
    def raw_input(self) -> Any:
        """The input as it was recorded, to edit it for a fork; None if there is none."""
        return None if self._input is UNSET else self._input

    @property
    def raw_output(self) -> Any:
        return None if self._output is UNSET else self._output

    @property
    def started_at(self) -> datetime | None:
        return self._builder.view.started_at if not self.path else self._node.started_at

    @property
    def ended_at(self) -> datetime | None:
        return self._builder.view.ended_at if not self.path else self._node.ended_at

    @property
    def usage(self) -> dict[str, float]:
        """Tokens and cost of the step; of the run itself, those of all its steps."""
        view = self._builder.view
        if not self.path:
            return view.usage.to_dict()
        return view.ledger.by_step().get(self.path, {})

    @property
    def models(self) -> dict[str, dict[str, float]]:
        return self._builder.view.ledger.by_model()

    @property
    def commands(self) -> list[CliCommand]:
        """The commands that do the same in a terminal."""
        run, path = shlex.quote(self.run_id), shlex.quote(self.path)
        commands = [
            CliCommand("Show the run", f"nerve status {run}"),
            CliCommand("Show its log", f"nerve logs {run}" + (f" --path {path}" if self.path else "")),
            CliCommand("Show its events", f"nerve events {run}" + (f" --path {path}" if self.path else "")),
        ]
        view_state = self._builder.view.state
        if not self.path:
            if view_state == "failed":
                commands.append(CliCommand("Retry what failed", f"nerve retry {run} --wait"))
            elif view_state in ("running", "waiting"):
                commands.append(CliCommand("Follow it", f"nerve watch {run}"))
            return commands
        if self.state not in ("pending", "skipped"):
            commands.append(
                CliCommand("Preview a rerun from here", f"nerve fork {run} --at {path} --dry-run")
            )
            commands.append(CliCommand("Run again from here", f"nerve fork {run} --at {path} --wait"))
        if view_state == "held":
            commands.append(CliCommand("Retry the held step", f"nerve retry {run} --path {path}"))
            commands.append(CliCommand("Skip the held step", f"nerve skip {run} --path {path}"))
        for wait in self.waits:
            if wait.type == "gate" and wait.ended_at is None:
                gate = shlex.quote(str(wait.data.get("gate_id") or wait.path))
                commands.append(CliCommand("Answer the gate", f"nerve answer {gate} ANSWER"))
        if self.transcript.is_agent and self.state in BUSY_NODE_STATES:
            commands.append(CliCommand("Steer the agent", f"nerve steer {run} TEXT --path {path}"))
        return commands

    # -- the fold ------------------------------------------------------------------------------------------

    def owns(self, event: WorkflowEvent) -> bool:
        """Return whether an event is about the step itself."""
        if event.path == self.path:
            return True
        if not self.path:
            return False
        is_wait = event.event_type in WAIT_OPEN_EVENTS or event.event_type in WAIT_END_EVENTS
        return step_path(event.path) == self.path or (is_wait and event.path.rpartition("/")[0] == self.path)

    def apply_event(self, event: WorkflowEvent) -> None:
        is_own = self.owns(event)
        is_of_run = not event.path
        if not self.path or is_own or is_of_run:
            self._builder.add_event(event)
        if not is_own:
            if self.path and event.event_type in RUN_END_EVENTS:
                self._end_open_parts(event)
            return
        self.events.append(event)
        self.event_count += 1
        type, data = event.event_type, event.data
        if event.path == self.path:
            self.transcript.apply_event(event)
        if type in STEP_START_EVENTS:
            self._input = data.get("input")
            self.node_id, self._is_control = str(data.get("node_id") or ""), bool(data.get("control"))
            self.child_run_id = data.get("child")
            self._start_attempt(event)
        elif type == WorkflowEventType.NODE_RETRYING:
            is_interrupted = bool(data.get("recovered"))
            self._end_attempt(event, "interrupted" if is_interrupted else "failed")
            self._start_attempt(event)
        elif type in STEP_END_EVENTS:
            is_settled = type in STEP_SETTLED_EVENTS
            state = ("completed" if data.get("success") else "failed") if is_settled else "cancelled"
            self._end_attempt(event, state)
            result = data.get("result")
            if isinstance(result, dict):
                self._output = result.get("output", UNSET)
                self.attributes = dict(result_attributes(data))
        elif type in WAIT_OPEN_EVENTS:
            kind = type.partition("_")[0]
            self.waits.append(WaitDetail(event.path, kind, data, event.timestamp))
            if kind == "gate" and self._input is UNSET and data.get("input_preview") is not None:
                self._input = data["input_preview"]
        elif type in WAIT_END_EVENTS:
            self._end_wait(event)
        elif type == WorkflowEventType.STARTED:
            self._input = data.get("input")
        elif type == WorkflowEventType.COMPLETED:
            self._output = data.get("result")

    @property
    def _node(self) -> NodeView:
        return self._builder.view.nodes.get(self.path) or NodeView(self.path, self.name, self._wait_state)

    @property
    def _wait_state(self) -> str:
        """The state of a wait of the workflow function, which is not a step."""
        if not self.waits:
            return "pending"
        return "waiting" if self.waits[-1].ended_at is None else "completed"

    def _start_attempt(self, event: WorkflowEvent) -> None:
        self.attempts.append(AttemptDetail(len(self.attempts) + 1, event.timestamp))

    def _end_attempt(self, event: WorkflowEvent, state: str) -> None:
        if not self.attempts or self.attempts[-1].ended_at is not None:
            return
        attempt, data = self.attempts[-1], event.data
        attempt.ended_at, attempt.state = event.timestamp, state
        attempt.is_interrupted = state == "interrupted"
        attempt.error, attempt.error_type = data.get("error"), data.get("error_type")
        attempt.location, attempt.traceback = data.get("location"), data.get("traceback")

    def _end_wait(self, event: WorkflowEvent) -> None:
        for wait in reversed(self.waits):
            if wait.path == event.path and wait.ended_at is None:
                wait.ended_at, wait.outcome = event.timestamp, event.data
                if wait.type == "gate" and not self.attempts and "answer" in event.data:
                    self._output = event.data["answer"]
                elif wait.type in ("signal", "message") and not self.attempts:
                    self._output = event.data.get("value", UNSET)
                return

    def _end_open_parts(self, event: WorkflowEvent) -> None:
        self._end_attempt(WorkflowEvent("", "", event.event_type, {}, event.timestamp), "cancelled")
        for wait in self.waits:
            wait.ended_at = wait.ended_at or event.timestamp
