"""Workflows, their runs, and the context of workflow functions."""

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
