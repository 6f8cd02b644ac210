"""The messages of the router about a run that it started."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nerve.api.models import WorkflowResponse
from nerve.core.events import WorkflowEvent

SEPARATELY_SHOWN_EVENTS = ("output_chunk", "tool_call", "gate_waiting")
"""Events that the screen shows itself."""


@dataclass(frozen=True, slots=True)
class WorkflowName:
    """The attributes of a workflow that the messages use."""

    name: str
    description: str = ""
    steps: tuple[str, ...] = ()


class RouterMessages:
    """The messages of one run: its start, its steps and its end."""

    def __init__(self, workflow: WorkflowName) -> None:
        from nerve.router.run_messages import RunMessages

        self._messages: Any = RunMessages(workflow)

    @classmethod
    def for_workflow(cls, name: str, workflows: Iterable[WorkflowResponse]) -> RouterMessages:
        for workflow in workflows:
            if workflow.id == name:
                return cls(WorkflowName(name, workflow.description, tuple(workflow.steps)))
        return cls(WorkflowName(name))

    def messages_for(self, event: WorkflowEvent) -> list[str]:
        """Return the messages for an event."""
        messages: list[str] = [] if event.event_type in SEPARATELY_SHOWN_EVENTS else self._messages.of(event)
        return messages
