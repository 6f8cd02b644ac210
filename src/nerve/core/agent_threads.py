"""Threads: the conversations with agents that a run has had, read from its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nerve.core.result import Result


@dataclass(frozen=True, slots=True)
class InheritedThread:
    """A conversation of another run, as it is there by now."""

    totals: Mapping[str, Any]
    """What its provider has counted in it."""
    has_grown: bool
    """Whether it has gone on since it was taken over."""


def no_inherited_thread(thread: str) -> InheritedThread | None:
    """All conversations are the run's own."""
    return None


@dataclass(slots=True)
class AgentThreads:
    """Which conversation each agent was last in with each provider, and what that has counted there."""

    find_inherited: Callable[[str], InheritedThread | None] = no_inherited_thread
    """Says of a conversation whether it is that of the run that this was forked from."""
    last: dict[tuple[str, str], str] = field(default_factory=dict)
    totals: dict[str, dict[str, Any]] = field(default_factory=dict)

    def record_result(self, agent: str, result: Result) -> None:
        """Take in how a call ended; most calls have nothing to do with agents."""
        attributes = result["attributes"]
        thread = attributes.get("thread")
        if thread is not None:
            self.last[agent, attributes.get("provider") or ""] = thread
            self.totals[thread] = attributes.get("totals") or {}
