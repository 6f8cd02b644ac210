"""The open waits of a run, derived from its events."""

from __future__ import annotations

from typing import Any

from nerve.core.events import WorkflowEvent

WAIT_OPEN_EVENTS = ("gate_waiting", "signal_waiting", "timer_started")
WAIT_CLOSE_EVENTS = (
    *("gate_answered", "gate_timeout", "gate_cancelled"),
    *("signal_received", "signal_timeout", "signal_cancelled"),
    *("timer_fired", "timer_cancelled"),
)
"""The events that end a wait; listed explicitly because workflows may emit similar names."""
STEP_START_EVENTS = ("node_started", "step_started")
STEP_END_EVENTS = (
    "node_completed",
    "node_error",
    "node_timeout",
    "node_cancelled",
    "step_completed",
    "step_failed",
)


def update_open_waits(waits: dict[str, WorkflowEvent], event: WorkflowEvent) -> None:
    """Add the wait that an event opens, or remove those that it ends."""
    path, type = event.path, event.event_type
    if type in WAIT_OPEN_EVENTS and not event.data.get("guard"):
        waits[path] = event
    elif type in WAIT_CLOSE_EVENTS:
        waits.pop(path, None)
    elif type == "path_reset":
        for reset_path in [wait_path for wait_path in waits if f"{wait_path}/".startswith(f"{path}/")]:
            del waits[reset_path]


def has_no_deadline(data: dict[str, Any]) -> bool:
    """Return whether a wait lasts until an external event."""
    return data.get("deadline") is None
