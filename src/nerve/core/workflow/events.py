"""The seeds' import path of the events."""

from nerve.core.events import EventSink, WorkflowEvent, WorkflowEventType

__all__ = ["EventSink", "WorkflowEvent", "WorkflowEventType"]
