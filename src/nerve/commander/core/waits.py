"""What a run waits for, read from its events."""

from __future__ import annotations

from typing import Any

from nerve.core.event import WorkflowEvent

OPENS = ("gate_waiting", "signal_waiting", "timer_started")
CLOSES = (
    *("gate_answered", "gate_timeout", "gate_cancelled"),
    *("signal_received", "signal_timeout", "signal_cancelled"),
    *("timer_fired", "timer_cancelled"),
)
"""The events that end a wait; a workflow may emit others that are called much the same."""
STARTS = ("node_started", "step_started")
ENDS = ("node_completed", "node_error", "node_timeout", "node_cancelled", "step_completed", "step_failed")


def note_wait(waits: dict[str, WorkflowEvent], event: WorkflowEvent) -> None:
    """Add the wait that an event opens, and remove those that it ends."""
    path, type = event.path, event.event_type
    if type in OPENS and not event.data.get("guard"):
        waits[path] = event
    elif type in CLOSES:
        waits.pop(path, None)
    elif type == "path_reset":
        for each in [at for at in waits if f"{at}/".startswith(f"{path}/")]:
            del waits[each]


def needs_somebody(data: dict[str, Any]) -> bool:
    """Whether a wait would last for ever if nobody did anything."""
    return data.get("deadline") is None
