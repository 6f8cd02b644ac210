"""Events as lines, and the symbols of what steps and runs come to."""

from __future__ import annotations

import json
from typing import Any

from nerve.commander.core.forms import takes, written
from nerve.core.event import WorkflowEvent, WorkflowEventType
from nerve.core.steps import step_name

SYMBOLS = {
    "pending": ("○", "dim"),
    "running": ("●", "yellow"),
    "waiting": ("⏸", "yellow"),
    "retrying": ("↻", "yellow"),
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("○", "dim"),
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
ROOTS = SYMBOLS | {"running": ("🔄", "blue")}


def seconds(event: WorkflowEvent) -> float:
    took: float = event.data.get("duration_ms", 0) / 1000
    return took


def gist(event: WorkflowEvent) -> str:
    """The last line of what a step gave back."""
    result = event.data.get("result") or {}
    text = str(result.get("output") or event.data.get("error") or "")
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


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
    text = " ".join(text.split())
    return f"[{event.event_type}] {text if len(text) <= LONGEST else f'{text[: LONGEST - 1]}…'}".rstrip()


def shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def plain(event: WorkflowEvent) -> str | None:
    """An event as a line of its own, for pipes and files; None for those nobody needs there."""
    if is_own(event):
        return own(event)
    data = event.data
    done_by = data.get("node_id", "")
    if internal(data):
        return None
    name = step_name(event)
    match event.event_type:
        case "workflow_started":
            return f"[workflow] {event.workflow_id} started"
        case "gate_waiting":
            choices = f" ({' or '.join(data['choices'])})" if data["choices"] else ""
            return f"[gate] {data['prompt']}{choices or takes(data.get('form'))}"
        case "gate_answered":
            return f"[gate] answered: {written(data['answer'])}"
        case "node_retrying":
            return f"[{name}] ↻ again"
        case "provider_limited":
            return f"[{name}] ⏸ {data['message']}"
        case "node_completed" | "node_error" | "node_timeout" | "step_completed" | "step_failed":
            symbol = "✓" if data.get("success") else "✗"
            by = f"{done_by}, " if done_by not in ("", name) else ""
            said = f" {text}" if (text := gist(event)) else ""
            return f"[{name}] {symbol}{said} ({by}{seconds(event):.1f}s)"
    return None


def internal(data: dict[str, object]) -> bool:
    """Whether a call is the notation's own affair."""
    name = str(data.get("node_id", ""))
    return name.startswith("_") or name == "expect"


def logged(event: WorkflowEvent) -> str | None:
    """An event as a line of a log; None for those that nobody reads there."""
    data, step = event.data, event.path.rpartition("/")[2] or "workflow"
    match event.event_type:
        case "output_chunk" if data.get("stream") != "partial":
            return f"[{step}] {str(data.get('text', '')).rstrip()}"
        case "tool_call" if "name" in data:
            return f"[{step}] ⚒ {data['name']} {json.dumps(data.get('input'), ensure_ascii=False)}"
        case "log":
            return f"[{step}] {data.get('message') or json.dumps(data, ensure_ascii=False)}"
        case "gate_answered" if data.get("reason"):
            return f"[gate] answered: {written(data['answer'])} ({data.get('by')}: {data['reason']})"
        case "workflow_completed" | "workflow_failed" | "workflow_cancelled" | "workflow_held":
            why = data.get("error") or data.get("reason") or data.get("message")
            return f"[workflow] {event.event_type.removeprefix('workflow_')}" + (f": {why}" if why else "")
    return plain(event)
