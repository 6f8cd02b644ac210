"""The provider port: how any kind of agent is asked, and what it says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Assistant:
    """One message of the agent."""

    content: str


@dataclass(frozen=True, slots=True)
class Tool:
    """The agent calls a tool."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """The agent has finished its turn; `thread` is what to resume to go on with the conversation."""

    thread: str
    usage: Mapping[str, Any] | None = None
    """`tokens`, or `input_tokens` and `output_tokens`, and `cost`, of this turn alone."""


Chunk = Assistant | Tool | Done


class Provider(Protocol):
    """Drives one kind of agent; it never knows that there is a workflow.

    A turn that ends well ends with `Done`. Anything else is a failure, by an exception if there is a reason
    to tell. Closing the iterator stops the agent.
    """

    def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: Mapping[str, Any]
    ) -> AsyncIterator[Chunk]:
        """Ask in a new conversation, or go on with `resume`; `options` may have `model` and `system`."""
        ...
