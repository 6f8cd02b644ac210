"""The messages in which the router tells of the run that it has started."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nerve.api.models import WorkflowResponse
from nerve.core.events import WorkflowEvent

SEPARATELY_SHOWN_EVENTS = ("output_chunk", "tool_call", "gate_waiting")
"""What a screen shows in its own way."""


@dataclass(frozen=True, slots=True)
class WorkflowName:
    """A workflow as its messages know it."""

    name: str
    description: str = ""
    steps: tuple[str, ...] = ()


class RouterMessages:
    """One run's messages: that it starts, its steps, and how it ends."""

    def __init__(self, workflow: WorkflowName) -> None:
        from nerve.router.run_messages import RunMessages as Told

        self._messages: Any = Told(workflow)

    @classmethod
    def for_workflow(cls, name: str, workflows: Iterable[WorkflowResponse]) -> RouterMessages:
        for workflow in workflows:
            if workflow.id == name:
                return cls(WorkflowName(name, workflow.description, tuple(workflow.steps)))
        return cls(WorkflowName(name))

    def messages_for(self, event: WorkflowEvent) -> list[str]:
        """The messages that tell of an event."""
        messages: list[str] = [] if event.event_type in SEPARATELY_SHOWN_EVENTS else self._messages.of(event)
        return messages
