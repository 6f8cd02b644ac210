"""Events as lines, and the symbols of what steps and runs come to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from nerve.commander.core.forms import takes, written
from nerve.commander.core.harmless import indent_lines
from nerve.core.event import WorkflowEvent, WorkflowEventType
from nerve.core.steps import step_label, step_name

SYMBOLS = {
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
OURS = {each.value for each in WorkflowEventType}
"""Names of events that have a meaning of their own; any other is the workflow's."""
LONGEST = 200
"""Characters of what a workflow emitted that stand on its line."""
SETTLES = ("node_completed", "node_error", "node_timeout", "node_cancelled", "step_completed", "step_failed")
COMMAND_STREAMS = ("stdout", "stderr")
"""Outputs that arrive in chunks which end anywhere; what an agent says arrives in whole messages."""
RUNS = SYMBOLS | {"running": ("●", "blue"), "waiting": ("⏸", "bold yellow")}
"""Of runs in a list, in which what works is told from what waits."""
ROOTS = SYMBOLS | {"running": ("🔄", "blue")}


def seconds(event: WorkflowEvent) -> float:
    took: float = event.data.get("duration_ms", 0) / 1000
    return took


def gist(event: WorkflowEvent) -> str:
    """The last line of what a step returned; without it the first line of its error, which says why."""
    result = event.data.get("result") or {}
    output = result.get("output")
    if output or (event.data.get("success") and output not in (None, "")):
        return last_line(shown(output))
    error = event.data.get("error") or result.get("error") or ""
    return next(nonempty_lines(str(error)), "")


def nonempty_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text without those that are blank."""
    return (line.strip() for line in text.splitlines() if line.strip())


def last_line(text: str) -> str:
    """Return the last line of a text that is not blank."""
    return next(iter(list(nonempty_lines(text))[-1:]), "")


def is_own(event: WorkflowEvent) -> bool:
    """Whether the workflow emitted it under a name of its own."""
    return event.event_type not in OURS


def own(event: WorkflowEvent) -> str:
    """What a workflow emitted, on one line."""
    data = event.data
    if event.event_type == "outer_round" and data.keys() >= {"round", "max"}:
        return f"[round] {data['round']}/{data['max']}"
    match list(data.values()):
        case [str() as text]:
            pass
        case _:
            text = ", ".join(f"{name} {shown(value)}" for name, value in data.items())
    return f"[{event.event_type}] {shorten(text)}".rstrip()


def shorten(text: str) -> str:
    """Return the beginning of a text on one line."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def plain(event: WorkflowEvent) -> str | None:
    """An event as a line of its own, for pipes and files; None for those nobody needs there."""
    line = plain_line(event)
    return indent_lines(line) if line is not None else None


def plain_line(event: WorkflowEvent) -> str | None:
    if is_own(event):
        return own(event)
    data = event.data
    done_by = data.get("node_id", "")
    if internal(data):
        return None
    name = step_label(event.path)
    match event.event_type:
        case "workflow_started":
            return f"[workflow] {event.workflow_id} started"
        case "gate_waiting":
            return gate_line(data)
        case "gate_answered":
            return f"[gate] answered: {written(data['answer'])}"
        case "node_retrying":
            return f"[{name}] ↻ again"
        case "provider_limited":
            return f"[{name}] ⏸ {data['message']}"
        case "node_completed" | "node_error" | "node_timeout" | "step_completed" | "step_failed":
            symbol = "✓" if data.get("success") else "✗"
            by = f"{done_by}, " if done_by not in ("", step_name(event)) else ""
            said = f" {text}" if (text := gist(event)) else ""
            return f"[{name}] {symbol}{said} ({by}{seconds(event):.1f}s)"
    return None


def gate_line(gate: Mapping[str, Any]) -> str:
    """A question and what it takes, on a line of its own."""
    answers = ""
    if known := gate["choices"] or gate.get("options"):
        answers = f" ({'' if gate['choices'] else 'such as '}{' or '.join(known)})"
    return f"[gate] {gate['prompt']}{answers or takes(gate.get('form'))}"


def internal(data: dict[str, object]) -> bool:
    """Whether a call is the notation's own affair."""
    name = str(data.get("node_id", ""))
    return name.startswith("_") or name == "expect"


class LogLines:
    """Formats the events of a run as log lines; the chunks of an output are joined into whole lines."""

    def __init__(self) -> None:
        self._unfinished: dict[tuple[str, str], str] = {}
        """Text after the last line break, by path and stream."""

    def take(self, event: WorkflowEvent) -> list[str]:
        """Return the lines that an event completes."""
        if event.event_type == "output_chunk":
            return self._take_chunk(event)
        done = self._flush(event.path) if event.event_type in SETTLES else []
        line = logged(event)
        return [*done, line] if line is not None else done

    def rest(self) -> list[str]:
        """Return what was printed after the last line break of each output."""
        return [line for path in {path for path, _ in self._unfinished} for line in self._flush(path)]

    def _take_chunk(self, event: WorkflowEvent) -> list[str]:
        stream, text = str(event.data.get("stream")), str(event.data.get("text", ""))
        if stream == "partial":
            return []  # the complete message follows
        key = (event.path, stream)
        *whole, rest = (self._unfinished.pop(key, "") + text).split("\n")
        if rest and stream in COMMAND_STREAMS:
            self._unfinished[key] = rest
        elif rest:
            whole.append(rest)
        return [f"[{last_name(event.path)}] {line}".rstrip() for line in whole]

    def _flush(self, path: str) -> list[str]:
        keys = [key for key in self._unfinished if key[0] == path]
        return [f"[{last_name(path)}] {self._unfinished.pop(key)}" for key in keys]


def last_name(path: str) -> str:
    return step_label(path) or "workflow"


def tool_summary(data: dict[str, Any]) -> str:
    """A tool call of an agent on one line: the tool and its input."""
    return f"⚒ {data['name']} {json.dumps(data.get('input'), ensure_ascii=False)}"


def logged(event: WorkflowEvent) -> str | None:
    """An event as a line of a log; None for those that nobody reads there."""
    line = logged_line(event)
    return indent_lines(line) if line is not None else None


def logged_line(event: WorkflowEvent) -> str | None:
    data, step = event.data, last_name(event.path)
    match event.event_type:
        case "tool_call" if "name" in data:
            return f"[{step}] {tool_summary(data)}"
        case "log":
            return f"[{step}] {shown(data.get('message') or data)}"
        case "gate_answered" if data.get("reason"):
            return f"[gate] answered: {written(data['answer'])} ({data.get('by')}: {data['reason']})"
        case "workflow_completed" | "workflow_failed" | "workflow_cancelled" | "workflow_held":
            why = data.get("error") or data.get("reason") or data.get("message")
            return f"[workflow] {event.event_type.removeprefix('workflow_')}" + (f": {why}" if why else "")
    return plain_line(event)
