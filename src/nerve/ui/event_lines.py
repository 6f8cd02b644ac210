"""Formatting of events as lines, and the symbols of step and run states."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from nerve.core.events import WorkflowEvent, WorkflowEventType
from nerve.core.step_names import event_step_name, step_label
from nerve.ui.json_forms import format_form_hint, format_form_value
from nerve.ui.sanitize import indent_lines

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
}
BUILTIN_EVENT_TYPES = {event_type.value for event_type in WorkflowEventType}
"""Event types of the engine; all others are emitted by workflows."""
MAX_USER_EVENT_CHARS = 200
"""Maximum characters of a user event on its line."""
OUTPUT_END_EVENTS = (
    "node_completed",
    "node_error",
    "node_timeout",
    "node_cancelled",
    "step_completed",
    "step_failed",
)
COMMAND_STREAMS = ("stdout", "stderr")
"""Streams whose chunks may end mid-line; agent output arrives in complete messages."""
RUN_LIST_SYMBOLS = STATE_SYMBOLS | {"running": ("●", "blue"), "waiting": ("⏸", "bold yellow")}
"""Symbols for run lists, which distinguish running from waiting."""
ROOT_SYMBOLS = STATE_SYMBOLS | {"running": ("🔄", "blue")}


def event_duration_s(event: WorkflowEvent) -> float:
    duration_s: float = event.data.get("duration_ms", 0) / 1000
    return duration_s


def summarize_result(event: WorkflowEvent) -> str:
    """Return the last line of a step's output, or the first line of its error."""
    result = event.data.get("result") or {}
    output = result.get("output")
    if output or (event.data.get("success") and output not in (None, "")):
        return last_nonempty_line(format_event_value(output))
    error = event.data.get("error") or result.get("error") or ""
    return next(nonempty_lines(str(error)), "")


def nonempty_lines(text: str) -> Iterator[str]:
    """Yield the stripped nonblank lines of a text."""
    return (line.strip() for line in text.splitlines() if line.strip())


def last_nonempty_line(text: str) -> str:
    """Return the last nonblank line of a text."""
    return next(iter(list(nonempty_lines(text))[-1:]), "")


def is_user_event(event: WorkflowEvent) -> bool:
    """Return whether a workflow, not the engine, emitted the event."""
    return event.event_type not in BUILTIN_EVENT_TYPES


def format_user_event(event: WorkflowEvent) -> str:
    """Format a user event on one line."""
    data = event.data
    if event.event_type == "outer_round" and data.keys() >= {"round", "max"}:
        return f"[round] {data['round']}/{data['max']}"
    match list(data.values()):
        case [str() as text]:
            pass
        case _:
            text = ", ".join(f"{name} {format_event_value(value)}" for name, value in data.items())
    return f"[{event.event_type}] {shorten_to_line(text)}".rstrip()


def shorten_to_line(text: str) -> str:
    """Return the start of a text on one line."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_USER_EVENT_CHARS else f"{text[: MAX_USER_EVENT_CHARS - 1]}…"


def format_event_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def format_event(event: WorkflowEvent) -> str | None:
    """Format an event for pipes and files; None for events that are not shown there."""
    line = format_event_text(event)
    return indent_lines(line) if line is not None else None


def format_event_text(event: WorkflowEvent) -> str | None:
    if is_user_event(event):
        return format_user_event(event)
    data = event.data
    node_id = data.get("node_id", "")
    if is_internal_call(data):
        return None
    name = step_label(event.path)
    match event.event_type:
        case "workflow_started":
            return f"[workflow] {event.workflow_id} started"
        case "gate_waiting":
            return format_gate_line(data)
        case "gate_answered":
            return f"[gate] answered: {format_form_value(data['answer'])}"
        case "node_retrying":
            return f"[{name}] ↻ retrying"
        case "provider_limited":
            return f"[{name}] ⏸ {data['message']}"
        case "node_completed" | "node_error" | "node_timeout" | "step_completed" | "step_failed":
            symbol = "✓" if data.get("success") else "✗"
            runner = f"{node_id}, " if node_id not in ("", event_step_name(event)) else ""
            summary = f" {text}" if (text := summarize_result(event)) else ""
            return f"[{name}] {symbol}{summary} ({runner}{event_duration_s(event):.1f}s)"
    return None


def format_gate_line(gate: Mapping[str, Any]) -> str:
    """Format a gate with its possible answers on one line."""
    answers = ""
    if choices := gate["choices"] or gate.get("options"):
        answers = f" ({'' if gate['choices'] else 'such as '}{' or '.join(choices)})"
    return f"[gate] {gate['prompt']}{answers or format_form_hint(gate.get('form'))}"


def is_internal_call(data: dict[str, object]) -> bool:
    """Return whether a call is internal to the notation."""
    name = str(data.get("node_id", ""))
    return name.startswith("_") or name == "expect"


class LogLines:
    """Formats the events of a run as log lines; output chunks are joined to complete lines."""

    def __init__(self) -> None:
        self._partial_lines: dict[tuple[str, str], str] = {}
        """Text after the last line break, by path and stream."""

    def apply_event(self, event: WorkflowEvent) -> list[str]:
        """Return the lines that an event completes."""
        if event.event_type == "output_chunk":
            return self._apply_chunk(event)
        lines = self._flush_path(event.path) if event.event_type in OUTPUT_END_EVENTS else []
        line = format_event_log_line(event)
        return [*lines, line] if line is not None else lines

    def flush_all(self) -> list[str]:
        """Return the incomplete last line of each output."""
        return [line for path in {path for path, _ in self._partial_lines} for line in self._flush_path(path)]

    def _apply_chunk(self, event: WorkflowEvent) -> list[str]:
        stream, text = str(event.data.get("stream")), str(event.data.get("text", ""))
        if stream == "partial":
            return []  # the complete message follows
        key = (event.path, stream)
        *complete_lines, rest = (self._partial_lines.pop(key, "") + text).split("\n")
        if rest and stream in COMMAND_STREAMS:
            self._partial_lines[key] = rest
        elif rest:
            complete_lines.append(rest)
        return [f"[{log_step_name(event.path)}] {line}".rstrip() for line in complete_lines]

    def _flush_path(self, path: str) -> list[str]:
        keys = [key for key in self._partial_lines if key[0] == path]
        return [f"[{log_step_name(path)}] {self._partial_lines.pop(key)}" for key in keys]


def log_step_name(path: str) -> str:
    return step_label(path) or "workflow"


def summarize_tool_call(data: dict[str, Any]) -> str:
    """Format the tool call of an agent on one line."""
    return f"⚒ {data['name']} {json.dumps(data.get('input'), ensure_ascii=False)}"


def format_event_log_line(event: WorkflowEvent) -> str | None:
    """Format an event for a log; None for events that are not logged."""
    line = format_event_log_text(event)
    return indent_lines(line) if line is not None else None


def format_event_log_text(event: WorkflowEvent) -> str | None:
    data, step = event.data, log_step_name(event.path)
    match event.event_type:
        case "tool_call" if "name" in data:
            return f"[{step}] {summarize_tool_call(data)}"
        case "log":
            return f"[{step}] {format_event_value(data.get('message') or data)}"
        case "gate_answered" if data.get("reason"):
            return (
                f"[gate] answered: {format_form_value(data['answer'])} ({data.get('by')}: {data['reason']})"
            )
        case "workflow_completed" | "workflow_failed" | "workflow_cancelled" | "workflow_held":
            reason = data.get("error") or data.get("reason") or data.get("message")
            return f"[workflow] {event.event_type.removeprefix('workflow_')}" + (
                f": {reason}" if reason else ""
            )
    return format_event_text(event)
