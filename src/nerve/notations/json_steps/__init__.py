"""JSON step machines: read, written, and their context as immutable data."""

from nerve.notations.json_steps.context import Metadata, StepResult, WorkflowContext, create_context
from nerve.notations.json_steps.reader import read
from nerve.notations.json_steps.writer import write, write_steps

__all__ = [
    "Metadata",
    "StepResult",
    "WorkflowContext",
    "create_context",
    "read",
    "write",
    "write_steps",
]
