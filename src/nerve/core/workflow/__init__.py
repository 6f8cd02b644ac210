"""Workflows, their runs, and the context of workflow functions."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nerve.core.events import WorkflowEvent, WorkflowEventType
    from nerve.core.limits import Limits
    from nerve.core.workflow.context import WorkflowContext
    from nerve.core.workflow.run import WorkflowRun
    from nerve.core.workflow.state import GateInfo, WorkflowInfo, WorkflowRunInfo, WorkflowState
    from nerve.core.workflow.workflow import Workflow

__all__ = [
    "GateInfo",
    "Limits",
    "Workflow",
    "WorkflowContext",
    "WorkflowEvent",
    "WorkflowEventType",
    "WorkflowInfo",
    "WorkflowRun",
    "WorkflowRunInfo",
    "WorkflowState",
]

_MODULES = {
    "WorkflowEvent": "nerve.core.events",
    "WorkflowEventType": "nerve.core.events",
    "Limits": "nerve.core.limits",
    "WorkflowContext": "nerve.core.workflow.context",
    "WorkflowRun": "nerve.core.workflow.run",
    "GateInfo": "nerve.core.workflow.state",
    "WorkflowInfo": "nerve.core.workflow.state",
    "WorkflowRunInfo": "nerve.core.workflow.state",
    "WorkflowState": "nerve.core.workflow.state",
    "Workflow": "nerve.core.workflow.workflow",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: lists of runs need the states, and not what executes runs."""
    if name not in _MODULES:
        raise AttributeError(f"module 'nerve.core.workflow' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
