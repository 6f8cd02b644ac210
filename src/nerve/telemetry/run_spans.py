"""The spans of one run, read from its journal: the run, its steps, its waits, the tools of its agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from nerve.core.events import STEP_START_EVENTS, WAIT_OPEN_EVENTS, WorkflowEventType
from nerve.core.json_codec import encode_json
from nerve.core.step_names import step_name
from nerve.core.trace_context import TraceParent
from nerve.journal.events import (
    AgentThreadRecorded,
    CallSettled,
    CallStarted,
    Event,
    GateTimeout,
    GateWaiting,
    MessageTimeout,
    MessageWaiting,
    NodeRetrying,
    QueueWaiting,
    RequestAbandoned,
    RunCancelled,
    RunCompleted,
    RunEnd,
    RunFailed,
    RunOnHold,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopping,
    SignalTimeout,
    ToolCalled,
    UsageReported,
    WaitOpened,
    decode_event,
)
from nerve.journal.index import PathResets, is_guard
from nerve.journal.paths import ROOT_PATH, is_within_step
from nerve.lazy_dataclass import dataclass
from nerve.store.port import EventRow
from nerve.telemetry.gen_ai import agent_attributes, message_attributes, provider_name, turn_attributes
from nerve.telemetry.run_trace import RunTrace
from nerve.telemetry.span_ids import span_id_of_call, span_id_of_event

MAX_SPAN_EVENTS = 128
"""Events of one span; later ones are dropped, and the span says how many."""
MAX_CONTENT_CHARS = 16_000
"""Characters of one input or output, if they are exported."""
MAX_ERROR_CHARS = 2_000
OPEN_EVENTS = frozenset((*STEP_START_EVENTS, *WAIT_OPEN_EVENTS))
RUN_EVENTS: dict[type, str] = {
    RunPaused: "paused",
    RunResumed: "resumed",
    RunOnHold: "held",
    RunStopping: "stopping",
}
"""The events of the run itself that its span shows."""
DETAIL_EVENTS = frozenset(
    {
        WorkflowEventType.NODE_RETRYING,
        WorkflowEventType.TOOL_CALL,
        WorkflowEventType.USAGE,
        WorkflowEventType.AGENT_THREAD,
        WorkflowEventType.PATH_RESET,
        *(event_class.type for event_class in RUN_EVENTS if hasattr(event_class, "type")),
    }
)
"""The events that neither start nor end a span, but change one."""
TOOL_END_STATUSES = ("completed", "failed")
WAIT_NAMES: dict[str, str] = {
    WorkflowEventType.GATE_WAITING: "gate",
    WorkflowEventType.TIMER_STARTED: "timer",
    WorkflowEventType.SIGNAL_WAITING: "signal",
    WorkflowEventType.MESSAGE_WAITING: "message",
    WorkflowEventType.QUEUE_WAITING: "queue",
}


class SpanEvent(NamedTuple):
    """Something that happened during a span."""

    name: str
    at: float
    attributes: dict[str, Any]


class SpanRecord(NamedTuple):
    """A span that has ended, as the journal recorded it."""

    name: str
    span: TraceParent
    parent: TraceParent | None
    start: float
    end: float
    attributes: dict[str, Any]
    events: Sequence[SpanEvent] = ()
    links: tuple[tuple[str, TraceParent], ...] = ()
    error: str | None = None
    """Why it failed; None if it did not."""
    is_parent_foreign: bool = False


@dataclass(frozen=True, slots=True)
class ContentPolicy:
    """Which contents of a run leave the process: masked, or not at all."""

    mask: Callable[[str], str]
    exports_content: bool = False
    """Whether inputs and outputs are exported."""
    hides_errors: bool = False
    """Whether messages of errors stay in the store, because its payloads are encoded."""

    def content(self, value: Any) -> str:
        text = value if isinstance(value, str) else encode_json(value, max_depth=None)
        return self.mask(text)[:MAX_CONTENT_CHARS]

    def error_attributes(self, failure: CallSettled | NodeRetrying | RunFailed) -> dict[str, Any]:
        """Return the attributes of an event `exception`."""
        attributes: dict[str, Any] = {"exception.type": failure.error_type or "Error"}
        if not self.hides_errors:
            attributes["exception.message"] = self.mask(failure.error or "")[:MAX_ERROR_CHARS]
            if failure.traceback:
                attributes["exception.stacktrace"] = self.mask(failure.traceback)
        return attributes


@dataclass(slots=True)
class OpenSpan:
    """A span that has not ended; the event that started it is decoded when it ends."""

    row: EventRow
    span_id: int
    events: list[SpanEvent] = field(default_factory=list)
    dropped_events: int = 0
    attempts: int = 1
    thread: AgentThreadRecorded | None = None
    tools: dict[str, OpenSpan] = field(default_factory=dict)
    """The tools that its agent uses now, by the ids of their calls."""

    def add_event(self, name: str, at: float, attributes: dict[str, Any]) -> None:
        if len(self.events) < MAX_SPAN_EVENTS:
            self.events.append(SpanEvent(name, at, attributes))
        else:
            self.dropped_events += 1


class RunSpans:
    """Reads the events of a run in order, and yields each span when it has ended."""

    def __init__(self, run_id: str, session: str, policy: ContentPolicy) -> None:
        self._run_id, self._session, self._policy = run_id, session, policy
        self.seq = 0
        """The last event that was read."""
        self.resets = PathResets()
        self._open: dict[str, OpenSpan] = {}
        self._root: OpenSpan | None = None
        self._start = RunStarted(run_id)
        self._trace: RunTrace | None = None

    def skip(self, rows: Iterable[EventRow]) -> None:
        """Read events whose spans were exported before."""
        for row in rows:
            self.seq = row.seq
            if row.type in OPEN_EVENTS:
                self._open_span(row)
            elif row.settles is not None:
                self._open.pop(row.path, None)
            elif row.type in DETAIL_EVENTS:
                # Of the tools of an agent only those count that are still in use.
                for _ in self._read_detail(row):
                    pass
            elif row.type == WorkflowEventType.STARTED:
                self._read_start(row)

    def read(self, row: EventRow, find_trace: Callable[[RunStarted], RunTrace]) -> Iterator[SpanRecord]:
        """Read the next event; yield the spans that it ends."""
        if self._trace is None and row.type != WorkflowEventType.STARTED:
            self._trace = find_trace(self._start)
        self.seq = row.seq
        if row.type in OPEN_EVENTS:
            self._open_span(row)
        elif row.settles == ROOT_PATH:
            yield from self._end_run(row)
        elif row.settles is not None:
            yield from self._end_span(row)
        elif row.type in DETAIL_EVENTS:
            yield from self._read_detail(row)
        elif row.type == WorkflowEventType.STARTED:
            self._read_start(row)
            self._trace = find_trace(self._start)

    @property
    def has_copied_events(self) -> bool:
        """Whether the next event was copied from the run that this one was forked from."""
        return self.seq < self._start.copied_events

    def _read_start(self, row: EventRow) -> None:
        event = decode_event(row)
        if isinstance(event, RunStarted):
            self._start, self._root = event, OpenSpan(row, 0)

    def _open_span(self, row: EventRow) -> None:
        span_id = span_id_of_call(self._run_id, self.resets.call_key(row.path))
        self._open[row.path] = OpenSpan(row, span_id)

    def _read_detail(self, row: EventRow) -> Iterator[SpanRecord]:
        event, opened = decode_event(row), self._open.get(row.path)
        match event:
            case NodeRetrying() if opened is not None:
                opened.attempts += 1
                attributes: dict[str, Any] = {"nerve.attempt": event.attempt, "nerve.delay": event.delay}
                if event.recovered:
                    attributes["nerve.recovered"] = True
                if event.error_type is not None:
                    attributes |= self._policy.error_attributes(event)
                opened.add_event("retry", row.at, attributes)
            case UsageReported() if opened is not None:
                opened.add_event("turn", row.at, turn_attributes(event.extra))
            case AgentThreadRecorded() if opened is not None:
                opened.thread = event
            case ToolCalled() if opened is not None:
                yield from self._read_tool(opened, row, event)
            case _ if row.type == WorkflowEventType.PATH_RESET:
                self.resets.add(row.path, row.seq)
                self._open = {
                    path: each for path, each in self._open.items() if not is_within_step(path, row.path)
                }
            case _ if type(event) in RUN_EVENTS and self._root is not None:
                reason = getattr(event, "reason", "")
                # The reason of a hold is one of a few words; that of a stop is a text of a person.
                attributes = {"nerve.reason": reason} if reason and isinstance(event, RunOnHold) else {}
                self._root.add_event(RUN_EVENTS[type(event)], row.at, attributes)

    # -- tools of agents ---------------------------------------------------------------------------

    def _read_tool(self, opened: OpenSpan, row: EventRow, event: ToolCalled) -> Iterator[SpanRecord]:
        if event.name is not None:
            tool = OpenSpan(row, span_id_of_event(self._run_id, row.seq))
            if event.id is None:
                yield from self._end_tool(opened, tool, row.at, event)
            else:
                opened.tools[event.id] = tool
        elif event.status in TOOL_END_STATUSES and (tool_used := opened.tools.pop(event.id or "", None)):
            yield from self._end_tool(opened, tool_used, row.at, event)

    def _end_tool(
        self, opened: OpenSpan, tool: OpenSpan, end: float, last: ToolCalled | None
    ) -> Iterator[SpanRecord]:
        call = decode_event(tool.row)
        if not isinstance(call, ToolCalled) or self._trace is None:
            return
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name or "",
            "nerve.run.id": self._run_id,
            "nerve.step.path": tool.row.path,
        }
        if call.id is not None:
            attributes["gen_ai.tool.call.id"] = call.id
        has_failed = last is not None and last.status == "failed"
        if has_failed:
            attributes["error.type"] = "tool_failed"
        if self._policy.exports_content:
            attributes["gen_ai.tool.call.arguments"] = self._policy.content(call.input)
            if last is not None and last.text is not None:
                attributes["gen_ai.tool.call.result"] = self._policy.content(last.text)
        yield SpanRecord(
            f"execute_tool {call.name}",
            self._trace.span_of(tool.span_id),
            self._trace.span_of(opened.span_id),
            tool.row.at,
            end,
            attributes,
            error="tool_failed" if has_failed else None,
        )

    # -- steps and waits ---------------------------------------------------------------------------

    def _end_span(self, row: EventRow) -> Iterator[SpanRecord]:
        opened = self._open.pop(row.path, None)
        if opened is None or self._trace is None:
            return
        for tool in opened.tools.values():
            yield from self._end_tool(opened, tool, row.at, None)
        start, end = decode_event(opened.row), decode_event(row)
        if isinstance(start, CallStarted):
            yield self._step_record(opened, row, start, end)
        elif (
            isinstance(start, WaitOpened) and not is_guard(start) and not getattr(start, "background", False)
        ):
            yield self._wait_record(opened, row, start, end)

    def _step_record(self, opened: OpenSpan, row: EventRow, start: CallStarted, end: Event) -> SpanRecord:
        assert self._trace is not None
        results = end.attributes if isinstance(end, CallSettled | RequestAbandoned) else {}
        kind = step_kind(opened, start, results)
        attributes: dict[str, Any] = {
            **self._common_attributes(row.path),
            "nerve.step.name": step_name(row.path),
            "nerve.step.kind": kind,
            "nerve.node.id": start.node_id,
            "nerve.outcome": outcome_of_step(end),
        }
        if opened.attempts > 1:
            attributes["nerve.attempts"] = opened.attempts
        if start.child is not None and isinstance(child_run := results.get("run_id"), str):
            attributes["nerve.child.run.id"] = child_run
        if isinstance(exit_code := results.get("exit_code"), int):
            attributes["process.exit.code"] = exit_code
        name = f"step {start.node_id}"
        if kind == "agent":
            thread = opened.thread
            provider = results.get("provider") or (thread.provider if thread is not None else None)
            name = f"invoke_agent {start.node_id}"
            attributes |= agent_attributes(
                start.node_id,
                provider_name(provider),
                results,
                results.get("usage") or (thread.usage if thread is not None else None) or {},
                results.get("thread") or (thread.thread if thread is not None else None),
            )
        if self._policy.exports_content:
            attributes |= self._content_attributes(kind, start.input, end)
        error = self._read_failure(end, opened, row.at, attributes)
        if opened.dropped_events:
            attributes["nerve.dropped_events"] = opened.dropped_events
        return SpanRecord(
            name,
            self._trace.span_of(opened.span_id),
            self._find_parent(row.path),
            opened.row.at,
            row.at,
            attributes,
            opened.events,
            (),
            error,
        )

    def _content_attributes(self, kind: str, input: Any, end: Event) -> dict[str, str]:
        output = end.result.output if isinstance(end, CallSettled) else None
        prompt, answer = self._policy.content(input), self._policy.content(output)
        if kind == "agent":
            return message_attributes(prompt, answer)
        return {"nerve.input": prompt, "nerve.output": answer}

    def _read_failure(
        self, end: Event, opened: OpenSpan, at: float, attributes: dict[str, Any]
    ) -> str | None:
        if not isinstance(end, CallSettled) or not end.has_failed:
            return None
        error_type = end.error_type or "Error"
        attributes["error.type"] = error_type
        details = self._policy.error_attributes(end)
        opened.add_event("exception", at, details)
        return describe_failure(details)

    def _wait_record(self, opened: OpenSpan, row: EventRow, start: WaitOpened, end: Event) -> SpanRecord:
        assert self._trace is not None
        kind = WAIT_NAMES[opened.row.type]
        match start:
            case GateWaiting():
                name = f"gate {step_name(row.path)}"
            case MessageWaiting(channel=channel):
                name = f"message {channel}"
            case QueueWaiting(queue=queue):
                name = f"queue {queue}"
            case _:
                name = kind
        attributes = {
            **self._common_attributes(row.path),
            "nerve.wait.kind": kind,
            "nerve.outcome": outcome_of_wait(end),
        }
        if isinstance(start, GateWaiting) and self._policy.exports_content:
            attributes["nerve.gate.prompt"] = self._policy.content(start.prompt)
            attributes["nerve.gate.answer"] = self._policy.content(getattr(end, "answer", None))
        return SpanRecord(
            name,
            self._trace.span_of(opened.span_id),
            self._find_parent(row.path),
            opened.row.at,
            row.at,
            attributes,
        )

    def _common_attributes(self, path: str) -> dict[str, Any]:
        return {
            "nerve.run.id": self._run_id,
            "nerve.session": self._session,
            "nerve.step.path": path,
            "gen_ai.workflow.name": self._start.workflow_id,
        }

    def _find_parent(self, path: str) -> TraceParent:
        """Return the span of the innermost open call around a path, or that of the run."""
        assert self._trace is not None
        cuts = [at for at, letter in enumerate(path) if letter in "/~" and at > 0]
        for at in reversed(cuts):
            if (around := self._open.get(path[:at])) is not None:
                return self._trace.span_of(around.span_id)
        return self._trace.span

    # -- the run -----------------------------------------------------------------------------------

    def _end_run(self, row: EventRow) -> Iterator[SpanRecord]:
        # Innermost first: the parent of each must still be open.
        for path in sorted(self._open, key=len, reverse=True):
            yield from self._end_span(
                row._replace(path=path, type=WorkflowEventType.NODE_CANCELLED, data="{}")
            )
        end, root, trace = decode_event(row), self._root, self._trace
        if root is None or trace is None or not isinstance(end, RunEnd):
            return
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": self._start.workflow_id,
            "nerve.run.id": self._run_id,
            "nerve.session": self._session,
            "nerve.run.state": row.type.removeprefix("workflow_"),
        }
        if self._start.conversation is not None:
            attributes["gen_ai.conversation.id"] = self._start.conversation
        if self._start.label is not None:
            attributes["nerve.run.label"] = self._start.label
        attributes |= {f"nerve.tag.{name}": value for name, value in (self._start.tags or {}).items()}
        error = None
        match end:
            case RunFailed():
                attributes["error.type"] = end.error_type or "Error"
                details = self._policy.error_attributes(end)
                root.add_event("exception", row.at, details)
                error = describe_failure(details)
            case RunCancelled(error_type=str() as error_type):
                attributes["error.type"] = error_type
            case RunCompleted(continued_as=str() as next_run):
                attributes["nerve.run.continued_as"] = next_run
        if self._policy.exports_content:
            attributes["nerve.input"] = self._policy.content(self._start.input)
            if isinstance(end, RunCompleted):
                attributes["nerve.output"] = self._policy.content(end.result)
        if root.dropped_events:
            attributes["nerve.dropped_events"] = root.dropped_events
        yield SpanRecord(
            f"invoke_workflow {self._start.workflow_id}",
            trace.span,
            trace.parent,
            root.row.at,
            row.at,
            attributes,
            root.events,
            trace.links,
            error,
            trace.is_parent_foreign,
        )


def step_kind(opened: OpenSpan, start: CallStarted, attributes: dict[str, Any]) -> str:
    """Return what kind of step a call was, as far as its journal says."""
    if start.is_control:
        return "control"
    if start.child is not None:
        return "child"
    if opened.thread is not None or ("provider" in attributes and "thread" in attributes):
        return "agent"
    return "command" if "exit_code" in attributes else "function"


def outcome_of_step(end: Event) -> str:
    match end:
        case CallSettled(settlement="timeout"):
            return "timeout"
        case CallSettled():
            return "failed" if end.has_failed else "completed" if end.success else "rejected"
    return "cancelled"


def outcome_of_wait(end: Event) -> str:
    match end:
        case GateTimeout() | SignalTimeout() | MessageTimeout():
            return "timeout"
        case RequestAbandoned():
            return "cancelled"
    return "completed"


def describe_failure(details: dict[str, Any]) -> str:
    message = details.get("exception.message")
    return f"{details['exception.type']}: {message}" if message else str(details["exception.type"])
