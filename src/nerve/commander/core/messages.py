"""The messages in which the router tells of the run that it has started."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nerve.api.models import WorkflowTold
from nerve.core.event import WorkflowEvent

TOLD_ELSEWHERE = ("output_chunk", "tool_call", "gate_waiting")
"""What a screen shows in its own way."""


@dataclass(frozen=True, slots=True)
class Named:
    """A workflow as its messages know it."""

    name: str
    description: str = ""
    steps: tuple[str, ...] = ()


class Messages:
    """One run's messages: that it starts, its steps, and how it ends."""

    def __init__(self, workflow: Named) -> None:
        from nerve.router.messages import Messages as Told

        self._told: Any = Told(workflow)

    @classmethod
    def of(cls, name: str, workflows: Iterable[WorkflowTold]) -> Messages:
        for each in workflows:
            if each.id == name:
                return cls(Named(name, each.description, tuple(each.steps)))
        return cls(Named(name))

    def take(self, event: WorkflowEvent) -> list[str]:
        """The messages that tell of an event."""
        told: list[str] = [] if event.event_type in TOLD_ELSEWHERE else self._told.of(event)
        return told
