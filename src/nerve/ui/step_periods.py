"""What the steps of a run did in time: attempts, waits and tool calls as periods, from its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from nerve.core.events import (
    RUN_END_EVENTS,
    STEP_END_EVENTS,
    STEP_START_EVENTS,
    WAIT_END_EVENTS,
    WAIT_OPEN_EVENTS,
    WorkflowEvent,
    WorkflowEventType,
)
from nerve.core.step_names import is_internal_path, step_path
from nerve.journal.paths import is_within_step
from nerve.lazy_dataclass import dataclass
from nerve.ui.event_lines import summarize_tool_call

BarKind = Literal[
    "run", "control", "gate", "timer", "signal", "message", "queue", "child", "retry", "limit", "pause",
    "hold", "down", "tool", "group",
]  # fmt: skip
"""What a step does in a period: it runs, or waits for something. `down` means that no process ran it."""

WAIT_KINDS: dict[str, BarKind] = {
    WorkflowEventType.GATE_WAITING: "gate",
    WorkflowEventType.TIMER_STARTED: "timer",
    WorkflowEventType.SIGNAL_WAITING: "signal",
    WorkflowEventType.MESSAGE_WAITING: "message",
    WorkflowEventType.QUEUE_WAITING: "queue",
}
CALL_KINDS = ("run", "control", "child")
ENDED_TOOL_STATES = ("completed", "failed", "cancelled")


@dataclass(slots=True)
class Period:
    """A period of a step: an attempt or a part of it, or a wait."""

    kind: BarKind
    start: float
    end: float | None = None
    """None while it lasts."""
    state: str = "running"
    attempt: int = 1
    label: str = ""


@dataclass(slots=True)
class StepPeriods:
    """The periods of one step, in order and without overlap."""

    periods: list[Period] = field(default_factory=list)
    tool_calls: dict[str, Period] = field(default_factory=dict)
    """The tool calls of an agent, by id."""
    _call_kind: BarKind | None = None
    """What the step does when it waits for nothing; None if no call is open."""
    _attempt: int = 0
    _waits: dict[str, tuple[BarKind, str]] = field(default_factory=dict)
    """The kinds and labels of the open waits, by path."""

    @property
    def is_open(self) -> bool:
        return self._call_kind is not None or bool(self._waits)

    def start_call(self, kind: BarKind, at: float) -> None:
        if self.is_open:
            self._end_attempt(at, "interrupted", "")
        self._attempt += 1
        self._call_kind = kind
        self._continue(at)

    def retry_call(self, attempt: int, delay: float, label: str, at: float) -> None:
        """End an attempt; the next one starts after the delay."""
        self._end_attempt(at, "failed", label)
        self._attempt = attempt
        self._call_kind = self._call_kind or "run"
        if delay > 0:
            self.periods.append(Period("retry", at, at + delay, "waiting", attempt, "delay before a retry"))
        self._continue(at + max(0.0, delay))

    def recover_call(self, alive_until: float, attempt: int, at: float) -> None:
        """Note that the process that ran the attempt ended, and that the attempt starts again."""
        current = self._current
        down_since = at if current is None else min(max(current.start, alive_until), at)
        self._end_attempt(down_since, "interrupted", "the process ended")
        if down_since < at:
            self.periods.append(Period("down", down_since, at, "waiting", attempt, "no process"))
        self._attempt, self._call_kind = attempt, self._call_kind or "run"
        self._continue(at)

    def end_call(self, state: str, at: float, label: str = "") -> None:
        self._end_attempt(at, state, label)
        self._call_kind = None
        self._waits.clear()
        self._end_tool_calls(at, state)

    def open_wait(self, path: str, kind: BarKind, label: str, at: float) -> None:
        self._end_current(at)
        self._waits[path] = kind, label
        self._continue(at)

    def end_wait(self, path: str, state: str, at: float) -> None:
        if self._waits.pop(path, None) is not None:
            self._end_current(at, state)
            self._continue(at)

    def cancel_all(self, at: float) -> None:
        """End everything that is open, because the run has ended or the step is requested again."""
        if self.is_open:
            self.end_call("cancelled", at)

    def add_tool_call(self, data: Mapping[str, Any], at: float) -> None:
        """Note a tool call, or how one proceeds."""
        call_id = str(data.get("id") or "")
        known = self.tool_calls.get(call_id) if call_id else None
        if known is None and "name" in data:
            self.end_unnumbered_call(at)
            call_id = call_id or f"call {len(self.tool_calls) + 1}"
            self.tool_calls[call_id] = Period("tool", at, label=summarize_tool_call(dict(data)))
        elif known is not None and known.end is None and data.get("status") in ENDED_TOOL_STATES:
            known.end, known.state = at, str(data["status"])

    @property
    def _current(self) -> Period | None:
        return self.periods[-1] if self.periods and self.periods[-1].end is None else None

    def _continue(self, at: float) -> None:
        """Start the next period: of the latest open wait, or of the call."""
        if self._waits:
            kind, label = next(reversed(self._waits.values()))
            self.periods.append(Period(kind, at, state="waiting", attempt=max(1, self._attempt), label=label))
        elif self._call_kind is not None:
            self.periods.append(Period(self._call_kind, at, attempt=max(1, self._attempt)))

    def _end_current(self, at: float, state: str | None = None) -> None:
        """End the current period; without a state, the call continues after a wait that starts now."""
        if (current := self._current) is None:
            return
        if current.start > at:  # an attempt that has not started: its delay has not passed
            self.periods.pop()
            if self.periods and self.periods[-1].kind == "retry":
                self.periods[-1].end = at
        elif state is None and current.start == at:
            self.periods.pop()
        else:
            current.end = at
            current.state = state or current.state

    def _end_attempt(self, at: float, state: str, label: str) -> None:
        """End the current period, and with it all parts of the attempt, which waits may have divided."""
        attempt = max(1, self._attempt)
        self._end_current(at, state)
        for period in reversed(self.periods):
            if period.attempt != attempt:
                break
            if period.kind in CALL_KINDS and period.state == "running":
                period.state = state
        if label and self.periods:
            self.periods[-1].label = label

    def end_unnumbered_call(self, at: float) -> None:
        """End the last tool call if it has no id: the agent has said something, or called another tool."""
        last_id = next(reversed(self.tool_calls), "")
        if last_id.startswith("call ") and self.tool_calls[last_id].end is None:
            self.tool_calls[last_id].end, self.tool_calls[last_id].state = at, "completed"

    def _end_tool_calls(self, at: float, state: str) -> None:
        for call in self.tool_calls.values():
            if call.end is None:
                call.end, call.state = at, "completed" if state == "completed" else "cancelled"


class RunPeriods:
    """The periods of the steps of one run, by path; the run itself has the empty path."""

    def __init__(self) -> None:
        self.steps: dict[str, StepPeriods] = {"": StepPeriods()}
        self.added_paths: dict[str, list[str]] = {}
        """The rows that only waits have, by the path of their parent."""
        self._wait_rows: dict[str, str] = {}
        """The row of each open wait, by the path of the wait."""
        self._last_at = self._alive_until = 0.0

    def apply_event(self, event: WorkflowEvent) -> None:
        type, path, data = event.event_type, event.path, event.data
        # The clock of the machine may have been set back; a period does not end before it starts.
        at = self._last_at = max(self._last_at, event.timestamp.timestamp())
        is_recovery = type == WorkflowEventType.NODE_RETRYING and bool(data.get("recovered"))
        if type in STEP_START_EVENTS:
            kind: BarKind = "child" if data.get("child") else "control" if data.get("control") else "run"
            self._step(path).start_call(kind, at)
        elif type in STEP_END_EVENTS:
            state = "cancelled" if type == WorkflowEventType.NODE_CANCELLED else None
            state = state or ("completed" if data.get("success") else "failed")
            self._step(path).end_call(state, at, str(data.get("error") or ""))
        elif is_recovery:
            self._step(path).recover_call(self._alive_until, read_int(data.get("attempt")), at)
        elif type == WorkflowEventType.NODE_RETRYING:
            delay = data.get("delay")
            seconds = float(delay) if isinstance(delay, int | float) and delay < 1e9 else 0.0
            attempt = read_int(data.get("attempt")) + 1
            self._step(path).retry_call(attempt, seconds, str(data.get("error") or ""), at)
        elif type in WAIT_OPEN_EVENTS:
            if not data.get("guard") and not data.get("background"):
                row = self._wait_rows[path] = self._row_of_wait(path, data)
                self._step(row).open_wait(path, WAIT_KINDS[type], describe_wait(type, data), at)
        elif type in WAIT_END_EVENTS:
            if (wait_row := self._wait_rows.pop(path, None)) is not None:
                self._step(wait_row).end_wait(path, wait_end_state(type, data), at)
        elif type == WorkflowEventType.TOOL_CALL:
            self._step(path).add_tool_call(data, at)
        elif type == WorkflowEventType.OUTPUT_CHUNK:
            if (step := self.steps.get(path)) is not None:
                step.end_unnumbered_call(at)
        elif type == WorkflowEventType.PROVIDER_LIMITED:
            self._step(path).open_wait("limit", "limit", str(data.get("message") or ""), at)
        elif type == WorkflowEventType.PROVIDER_OPEN:
            self._step(path).end_wait("limit", "completed", at)
        elif type == WorkflowEventType.PATH_RESET:
            for step_path, step in self.steps.items():
                if step_path and is_within_step(step_path, path):
                    step.cancel_all(at)
        else:
            self._apply_run_event(type, data, at)
        if not is_recovery:
            self._alive_until = at

    def _apply_run_event(self, type: str, data: Mapping[str, Any], at: float) -> None:
        run = self.steps[""]
        if type == WorkflowEventType.STARTED:
            run.start_call("control", at)
        elif type == WorkflowEventType.PAUSED:
            run.open_wait("pause", "pause", "paused", at)
        elif type == WorkflowEventType.HELD:
            run.open_wait("hold", "hold", str(data.get("message") or "held"), at)
        elif type == WorkflowEventType.RESUMED:
            run.end_wait("pause", "completed", at)
            run.end_wait("hold", "completed", at)
            if not run.is_open:  # a run that had ended is continued
                run.start_call("control", at)
        elif type in RUN_END_EVENTS:
            state = type.removeprefix("workflow_")
            run.end_call(state, at)
            for step in self.steps.values():
                step.cancel_all(at)
            self._wait_rows.clear()

    def _step(self, path: str) -> StepPeriods:
        step = self.steps.get(path)
        if step is None:
            step = self.steps[path] = StepPeriods()
        return step

    def _row_of_wait(self, path: str, data: Mapping[str, Any]) -> str:
        """Return the path of the row that shows a wait: the step that it belongs to, or the wait itself."""
        name, _, aside = path.rpartition("/")[2].partition("~")
        if name and aside and "prompt" in data and is_internal_path(path):
            row = path  # a question beside a step, about a conflict, has a node of its own
        elif aside:
            row = step_path(path)
        elif not (row := path.rpartition("/")[0]):
            row = f"/{data['node_id']}" if data.get("node_id") else path
        if row and row not in self.steps:
            self.added_paths.setdefault(row.rpartition("/")[0], []).append(row)
        return row


def read_int(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and 0 < value < 1e9 else 1


def describe_wait(type: str, data: Mapping[str, Any]) -> str:
    match type:
        case WorkflowEventType.GATE_WAITING:
            return str(data.get("prompt") or "gate")
        case WorkflowEventType.SIGNAL_WAITING:
            return f"signal {data.get('label') or ''}".strip() if not data.get("patterns") else "a fact"
        case WorkflowEventType.MESSAGE_WAITING:
            return f"message {data.get('channel') or ''}".strip()
        case WorkflowEventType.QUEUE_WAITING:
            return f"queue {data.get('queue') or ''}".strip()
    return "timer"


def wait_end_state(type: str, data: Mapping[str, Any]) -> str:
    if type.endswith("_cancelled"):
        return "cancelled"
    # A timeout of 0 polls, so its expiry is the answer.
    return "failed" if type.endswith("_timeout") and data.get("timeout") != 0 else "completed"
