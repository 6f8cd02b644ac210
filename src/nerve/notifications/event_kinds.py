"""Which events of a journal can be reported, under the names that rules use."""

from __future__ import annotations

from nerve.core.events import WorkflowEventType
from nerve.journal.events import (
    Event,
    GateDelegated,
    GateEscalated,
    GateReminded,
    GateWaiting,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunOnHold,
)

GATE_TYPES = frozenset(
    {
        WorkflowEventType.GATE_WAITING,
        WorkflowEventType.GATE_REMINDED,
        WorkflowEventType.GATE_ESCALATED,
        WorkflowEventType.GATE_DELEGATED,
    }
)
"""The types of events that are about an open gate."""
NOTIFIED_TYPES = GATE_TYPES | frozenset(
    {
        WorkflowEventType.COMPLETED,
        WorkflowEventType.FAILED,
        WorkflowEventType.CANCELLED,
        WorkflowEventType.HELD,
    }
)
"""The types of journal events that can be reported."""


def notified_event(event: Event, is_child: bool) -> tuple[str, str]:
    """Return the name of an event for rules, and its text; empty if it is not reported.

    The end of a run that another has called is not reported: its caller handles it.
    """
    match event:
        case GateWaiting(prompt=prompt):
            return "gate_opened", prompt
        case GateReminded():
            return "gate_reminded", ""
        case GateEscalated():
            return "gate_escalated", ""
        case GateDelegated():
            return "gate_delegated", ""
        case RunOnHold(reason=reason, message=message):
            return "budget_held" if reason == "budget" else "run_held", message
        case _ if is_child:
            return "", ""
        case RunCompleted() if event.continued_as is None:
            return "run_completed", ""
        case RunFailed(error=error):
            return "run_failed", error or ""
        case RunCancelled(reason=reason) if event.moved_to is None:
            return "run_cancelled", reason
    return "", ""
