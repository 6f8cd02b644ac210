"""JSON step machines: reader, writer and an immutable context."""

from nerve.notations.json_steps.context import Metadata, StepContext, StepResult, create_context
from nerve.notations.json_steps.reader import read_document
from nerve.notations.json_steps.writer import write_document, write_steps

__all__ = [
    "STARTER_TEXT",
    "Metadata",
    "StepContext",
    "StepResult",
    "WorkflowContext",
    "create_context",
    "read_document",
    "write_document",
    "write_steps",
]

WorkflowContext = StepContext
"""The name of the step context in the step machine format."""

STARTER_TEXT = """{
  "name": "NAME",
  "description": "What it does, and when to use it.",
  "body": {"kind": "sequence", "steps": [
    {"kind": "bash", "id": "first", "command": "echo hello"}
  ]}
}
"""
