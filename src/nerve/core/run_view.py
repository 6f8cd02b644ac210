"""RunView: the state of a run for display."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from typing import Any

from nerve.core.limits import RunUsage
from nerve.core.usage_ledger import UsageLedger
from nerve.lazy_dataclass import dataclass

ACTIVE_RUN_STATES = frozenset({"running", "waiting", "pausing", "paused"})
BUSY_NODE_STATES = ("running", "waiting", "retrying")
"""States of steps that have started and not ended."""


@dataclass(slots=True)
class NodeView:
    """A node of the progress tree."""

    path: str
    name: str
    state: str = "pending"
    """pending, running, waiting, retrying, completed, failed, skipped or cancelled."""
    is_control: bool = False
    has_own_events: bool = False
    """Whether the journal has events of this node; otherwise its state is derived from its children."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    iteration: int | None = None
    max_iterations: int | None = None
    attempts: int = 1
    error: str | None = None
    """Why it failed, or why its last attempt did."""
    error_type: str | None = None
    location: str | None = None
    """The last frame of the user's code, if it raised: `flow.py:12 in charge`."""
    traceback: str | None = None
    held: str | None = None
    """Why the running step waits: its provider is rate-limited, and until when."""
    thread_running: bool = False
    """Whether a sync function still runs in its thread although its step has ended."""
    children: list[NodeView] = field(default_factory=list)

    @property
    def seconds(self) -> float | None:
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


@dataclass(slots=True)
class RunView:
    """State, tree, open gates and usage of a run; any prefix of its events gives a valid view."""

    run_id: str = ""
    workflow_id: str = ""
    state: str = "pending"
    tags: dict[str, str] = field(default_factory=dict)
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: Any = None
    error: str | None = None
    error_type: str | None = None
    location: str | None = None
    """The last frame of the user's code, if it raised: `flow.py:12 in charge`."""
    traceback: str | None = None
    held: dict[str, Any] | None = None
    tree: list[NodeView] = field(default_factory=list)
    nodes: dict[str, NodeView] = field(default_factory=dict)
    gates: dict[str, dict[str, Any]] = field(default_factory=dict)
    usage: RunUsage = field(default_factory=RunUsage)
    ledger: UsageLedger = field(default_factory=UsageLedger)
    """Usage of agents by step and model."""
    continued_as: str | None = None
    """The next run of the chain, if the run continued as new."""
    continued_from: str | None = None
    """The previous run of the chain."""
    used_before: dict[str, Any] = field(default_factory=dict)
    """What the earlier runs of the chain have used of its budget, and the models."""
    last_seq: int = 0

    @property
    def limited_steps(self) -> dict[str, str]:
        """The steps that wait for a rate-limited provider, and until when, by path."""
        if self.state not in ACTIVE_RUN_STATES:
            return {}
        return {path: node.held for path, node in self.nodes.items() if node.held}
