"""Agent threads of a run: its conversations with agents, read from its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from nerve.core.result import Result
from nerve.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class InheritedThread:
    """The current state of a conversation that belongs to another run."""

    totals: Mapping[str, Any]
    """The usage totals that its provider reported."""
    has_grown: bool
    """Whether it has continued since this run inherited it."""


def no_inherited_thread(thread: str) -> InheritedThread | None:
    """Return None: the run inherits no conversations."""
    return None


@dataclass(slots=True)
class AgentThreads:
    """The last conversation of each agent with each provider, and the usage totals of each conversation."""

    find_inherited: Callable[[str], InheritedThread | None] = no_inherited_thread
    """Return the conversation if the run inherited it from the run it was forked from."""
    last: dict[tuple[str, str], str] = field(default_factory=dict)
    totals: dict[str, dict[str, Any]] = field(default_factory=dict)
    reported_contexts: set[tuple[str, str]] = field(default_factory=set)
    """The providers and folders of which the run has reported what agents read there."""

    def record_result(self, agent: str, result: Result) -> None:
        """Record the conversation of a call, if an agent executed it."""
        attributes = result["attributes"]
        thread = attributes.get("thread")
        if thread is not None:
            self.last[agent, attributes.get("provider") or ""] = thread
            self.totals[thread] = attributes.get("totals") or {}
