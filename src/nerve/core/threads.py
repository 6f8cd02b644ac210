"""Threads: the conversations with agents that a run has had, read from its results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nerve.core.result import Result


@dataclass(slots=True)
class Threads:
    """Which conversation each agent was last in, and what its provider has counted there so far."""

    last: dict[str, str] = field(default_factory=dict)
    totals: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, agent: str, result: Result) -> None:
        """Take in how a call ended; most calls have nothing to do with agents."""
        thread = result["attributes"].get("thread")
        if thread is not None:
            self.last[agent] = thread
            self.totals[thread] = result["attributes"].get("totals") or {}
