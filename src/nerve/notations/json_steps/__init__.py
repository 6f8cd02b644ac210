"""JSON step machines: read, written, and their context as immutable data."""

from nerve.notations.json_steps.context import Metadata, StepContext, StepResult, create_context
from nerve.notations.json_steps.reader import read
from nerve.notations.json_steps.writer import write, write_steps

__all__ = [
    "BEGINNING",
    "Metadata",
    "StepContext",
    "StepResult",
    "WorkflowContext",
    "create_context",
    "read",
    "write",
    "write_steps",
]

WorkflowContext = StepContext
"""The name of the step context in the step machine format."""

BEGINNING = """{
  "name": "NAME",
  "description": "What it does, and when to use it.",
  "body": {"kind": "sequence", "steps": [
    {"kind": "bash", "id": "first", "command": "echo hello"}
  ]}
}
"""
