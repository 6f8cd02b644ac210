"""Formatting of events as lines, and the symbols of step and run states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nerve.core.events import STEP_END_EVENTS, WorkflowEvent, WorkflowEventType, continued_as
from nerve.core.limits import RunUsage
from nerve.core.step_names import step_label, step_name
from nerve.text import clip_text
from nerve.ui.failure_text import failure_line, traceback_lines
from nerve.ui.formatting import format_usage, format_value
from nerve.ui.gate_votes import describe_answerers
from nerve.ui.json_forms import format_form_hint
from nerve.ui.sanitize import indent_lines
from nerve.ui.tool_lines import format_tool_call
from nerve.ui.workspace_lines import describe_workspace_output, list_files

if TYPE_CHECKING:
    from nerve.api.models import EventResponse

STATE_SYMBOLS = {
    "pending": ("○", "dim"),
    "running": ("●", "yellow"),
    "waiting": ("⏸", "yellow"),
    "retrying": ("↻", "yellow"),
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", "dim"),
    "cancelled": ("✗", "dim"),
    "pausing": ("⏸", "yellow"),
    "paused": ("⏸", "blue"),
    "held": ("⏸", "red"),
    "stopping": ("✗", "yellow"),
    "round": ("↻", "bold"),
}
BUILTIN_EVENT_TYPES = {event_type.value for event_type in WorkflowEventType}
"""Event types of the engine; all others are emitted by workflows."""
MAX_USER_EVENT_CHARS = 200
"""Maximum characters of a user event on its line."""
COMMAND_STREAMS = ("stdout", "stderr")
"""Streams whose chunks may end mid-line; agent output arrives in complete messages."""
RUN_LIST_SYMBOLS = STATE_SYMBOLS | {"running": ("●", "blue"), "waiting": ("⏸", "bold yellow")}
"""Symbols for run lists, which distinguish running from waiting."""
ROOT_SYMBOLS = STATE_SYMBOLS | {"running": ("🔄", "blue")}


def event_duration_s(event: WorkflowEvent) -> float:
    duration_s: float = event.data.get("duration_ms", 0) / 1000
    return duration_s


def result_attributes(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of the result in the data of an event; none if it has no result."""
    result = data.get("result")
    attributes = result.get("attributes") if isinstance(result, Mapping) else None
    return attributes if isinstance(attributes, Mapping) else {}


def changed_files(event: WorkflowEvent) -> str:
    """Return what a step has changed in its workspace: `changed a.py, b.py and 3 more`; empty for nothing."""
    record = result_attributes(event.data).get("workspace")
    if not isinstance(record, Mapping) or not (files := record.get("files")):
        return ""
    return f"changed {list_files(files, int(record.get('more_files', 0)))}"


def summarize_result(event: WorkflowEvent) -> str:
    """Return the last line of a step's output, or its failure on one line, and the files that it changed."""
    return " · ".join(filter(None, [summarize_output(event), changed_files(event)]))


def summarize_output(event: WorkflowEvent) -> str:
    result = event.data.get("result") or {}
    output = result.get("output")
    if (text := describe_workspace_output(output)) is not None:
        return (
            text if event.data.get("success") else failure_line({"error": result.get("error"), **event.data})
        )
    if output or (event.data.get("success") and output not in (None, "")):
        return last_nonempty_line(format_value(output))
    return failure_line({"error": result.get("error"), **event.data})


def nonempty_lines(text: str) -> Iterator[str]:
    """Yield the stripped nonblank lines of a text."""
    return (line.strip() for line in text.splitlines() if line.strip())


def last_nonempty_line(text: str) -> str:
    """Return the last nonblank line of a text."""
    return next(iter(list(nonempty_lines(text))[-1:]), "")


def is_user_event(event: WorkflowEvent) -> bool:
    """Return whether a workflow, not the engine, emitted the event."""
    return event.event_type not in BUILTIN_EVENT_TYPES


def is_round_event(event: WorkflowEvent) -> bool:
    """Return whether a workflow announces a round of its loop and how many there are at most."""
    return event.event_type == "outer_round" and event.data.keys() >= {"round", "max"}


def format_user_event(event: WorkflowEvent) -> str:
    """Format a user event on one line."""
    data = event.data
    if is_round_event(event):
        return f"[round] {data['round']}/{data['max']}"
    match list(data.values()):
        case [str() as text]:
            pass
        case _:
            text = ", ".join(f"{name} {format_value(value)}" for name, value in data.items())
    return f"[{event.event_type}] {shorten_to_line(text)}".rstrip()


def shorten_to_line(text: str) -> str:
    """Return the start of a text on one line."""
    return clip_text(" ".join(text.split()), MAX_USER_EVENT_CHARS)


def format_event(event: WorkflowEvent) -> str | None:
    """Format an event for pipes and files; None for events that are not shown there."""
    line = format_event_text(event)
    return indent_lines(line) if line is not None else None


def format_event_text(event: WorkflowEvent) -> str | None:
    if is_user_event(event):
        return format_user_event(event)
    data = event.data
    if is_internal_call(data):
        return None
    name = log_step_name(event.path)
    match event.event_type:
        case WorkflowEventType.STARTED:
            # The next run of a chain is the same work: it was started once.
            return None if data.get("continued_from") else f"[workflow] {event.workflow_id} started"
        case WorkflowEventType.GATE_WAITING:
            return format_gate_line(data)
        case WorkflowEventType.GATE_ANSWERED:
            return f"[gate] answered: {format_value(data['answer'])}"
        case WorkflowEventType.NODE_RETRYING:
            reason = failure_line(data)
            return f"[{name}] ↻ retrying" + (f" after: {reason}" if reason else "")
        case WorkflowEventType.PROVIDER_LIMITED:
            return f"[{name}] ⏸ {data['message']}"
        case (
            WorkflowEventType.NODE_COMPLETED
            | WorkflowEventType.NODE_ERROR
            | WorkflowEventType.NODE_TIMEOUT
            | WorkflowEventType.STEP_COMPLETED
            | WorkflowEventType.STEP_FAILED
        ):
            symbol = "✓" if data.get("success") else "✗"
            runner = f"{who}, " if (who := format_runner(event)) else ""
            summary = f" {text}" if (text := summarize_result(event)) else ""
            return f"[{name}] {symbol}{summary} ({runner}{event_duration_s(event):.1f}s)"
    return None


def format_runner(event: WorkflowEvent) -> str:
    """Return what executed a step, if its name does not tell: a node, or the agent that took over from it."""
    node_id, attributes = str(event.data.get("node_id", "")), result_attributes(event.data)
    if limited := attributes.get("instead_of"):
        return f"{attributes.get('provider')} instead of {limited}"
    return node_id if node_id not in ("", step_name(event.path)) else ""


def format_gate_line(gate: Mapping[str, Any]) -> str:
    """Format a gate with its possible answers on one line."""
    answers = ""
    if choices := gate["choices"] or gate.get("options"):
        answers = f" ({'' if gate['choices'] else 'such as '}{' or '.join(choices)})"
    note = f"\n{gate['note']}" if gate.get("note") else ""
    return f"[gate] {gate['prompt']}{answers or format_form_hint(gate.get('form'))}{note}"


def is_internal_call(data: dict[str, object]) -> bool:
    """Return whether a call is internal to the notation."""
    name = str(data.get("node_id", ""))
    return name.startswith("_") or name == "expect"


class LogLines:
    """Formats the events of a run as log lines; output chunks are joined to complete lines."""

    def __init__(self) -> None:
        self._partial_lines: dict[tuple[str, str], str] = {}
        """Text after the last line break, by path and stream."""
        self._streamed: dict[str, str] = {}
        """The part of an unfinished message that is already in lines, by path."""

    def apply_event(self, event: WorkflowEvent) -> list[str]:
        """Return the lines that an event completes."""
        if event.event_type == WorkflowEventType.OUTPUT_CHUNK:
            return self._apply_chunk(event)
        lines = self._flush_path(event.path) if event.event_type in STEP_END_EVENTS else []
        line = format_event_log_line(event)
        return [*lines, line] if line is not None else lines

    def apply_output(self, event: WorkflowEvent) -> list[str]:
        """Return the lines of what a function prints and logs that an event completes; none for others."""
        data, path = event.data, event.path
        if event.event_type in STEP_END_EVENTS:
            return self._flush_path(path)
        if event.event_type == WorkflowEventType.OUTPUT_CHUNK and data.get("printed"):
            return self._apply_chunk(event)
        line = format_event_log_line(event) if event.event_type == WorkflowEventType.LOG else None
        return [line] if line is not None and "thread" not in data else []

    def flush_all(self) -> list[str]:
        """Return the incomplete last line of each output."""
        return [line for path in {path for path, _ in self._partial_lines} for line in self._flush_path(path)]

    def _apply_chunk(self, event: WorkflowEvent) -> list[str]:
        stream, text = str(event.data.get("stream")), str(event.data.get("text", ""))
        key = (event.path, stream)
        if stream == "partial":
            *complete_lines, rest = (self._partial_lines.pop(key, "") + text).split("\n")
            self._partial_lines[key] = rest
            streamed = "".join(f"{line}\n" for line in complete_lines)
            self._streamed[event.path] = self._streamed.get(event.path, "") + streamed
            return [f"[{log_step_name(event.path)}] {line}".rstrip() for line in complete_lines]
        if stream == "assistant":  # the complete message: its first lines may be known
            self._partial_lines.pop((event.path, "partial"), None)
            text = text.removeprefix(self._streamed.pop(event.path, ""))
            if not text:
                return []
        *complete_lines, rest = (self._partial_lines.pop(key, "") + text).split("\n")
        if rest and stream in COMMAND_STREAMS:
            self._partial_lines[key] = rest
        elif rest:
            complete_lines.append(rest)
        return [f"[{log_step_name(event.path)}] {line}".rstrip() for line in complete_lines]

    def _flush_path(self, path: str) -> list[str]:
        self._streamed.pop(path, None)
        keys = [key for key in self._partial_lines if key[0] == path]
        ends = [self._partial_lines.pop(key) for key in keys]
        return [f"[{log_step_name(path)}] {end}" for end in ends if end]


def log_step_name(path: str) -> str:
    return step_label(path) or "workflow"


def summarize_tool_call(data: dict[str, Any]) -> str:
    """Format the tool call of an agent on one line."""
    return f"⚒ {format_tool_call(data)}"


def format_turn_usage(data: Mapping[str, Any]) -> str:
    """Format the usage of one turn of an agent: `claude-x: 1.2k tokens · $0.02`."""
    used = format_usage(RunUsage.of(data))
    model = data.get("model")
    return f"{model}: {used}" if used and model else used


def format_event_log_line(event: WorkflowEvent) -> str | None:
    """Format an event for a log; None for events that are not logged."""
    line = format_event_log_text(event)
    if line is None:
        return None
    return "\n".join([indent_lines(line), *traceback_lines(event.data.get("traceback"))])


def format_event_log_text(event: WorkflowEvent) -> str | None:
    data, step = event.data, log_step_name(event.path)
    match event.event_type:
        case WorkflowEventType.TOOL_CALL if "name" in data:
            return f"[{step}] {summarize_tool_call(data)}"
        case WorkflowEventType.USAGE if used := format_turn_usage(data):
            return f"[{step}] {used}"
        case WorkflowEventType.LOG:
            level = f"{name}: " if (name := data.get("level")) not in (None, "info", "debug") else ""
            return f"[{step}] {level}{format_value(data.get('message') or data)}"
        case WorkflowEventType.GATE_ANSWERED:
            return f"[gate] answered: {format_value(data['answer'])}{describe_answer(data)}"
        case WorkflowEventType.GATE_VOTED:
            answer = f"{format_value(data.get('answer'))}{describe_answer(data)}"
            return f"[gate] one answer: {answer}"
        case WorkflowEventType.STARTED if data.get("continued_from"):
            return f"[workflow] {event.workflow_id} continued from {data['continued_from']['run']}"
        case (
            WorkflowEventType.COMPLETED
            | WorkflowEventType.FAILED
            | WorkflowEventType.CANCELLED
            | WorkflowEventType.HELD
        ):
            if (next_run := continued_as(event)) is not None:
                return f"[workflow] continued as {next_run}"
            reason = failure_line(data) if data.get("location") else data.get("error")
            reason = reason or data.get("reason") or data.get("message")
            return f"[workflow] {event.event_type.removeprefix('workflow_')}" + (
                f": {reason}" if reason else ""
            )
    return format_event_text(event)


def describe_answer(data: Mapping[str, Any]) -> str:
    """Return who has given an answer, by which way, from where and why, as the end of a line."""
    who, reason = describe_answerers(data), data.get("reason")
    return (f" by {who}" if who else "") + (f", because {reason}" if reason else "")


def to_workflow_event(event: EventResponse) -> WorkflowEvent:
    """Return an event of the API as the event that a journal has."""
    return WorkflowEvent(
        event.run_id,
        event.workflow_id,
        event.event_type,
        event.data,
        event.timestamp,
        seq=event.seq,
        path=event.path,
    )
