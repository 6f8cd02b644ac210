"""Re-export of `nerve.core.events` under the documented import path."""

from nerve.core.events import EventSink, WorkflowEvent, WorkflowEventType

__all__ = ["EventSink", "WorkflowEvent", "WorkflowEventType"]
