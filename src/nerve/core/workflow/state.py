"""The states of a run, and what is told about workflows, runs and gates."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any


class WorkflowState(Enum):
    """Waiting is for a person, a signal or a time; paused is the operator's; held needs a decision."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSING = "pausing"
    PAUSED = "paused"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HELD = "held"


FINAL_STATES = (WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED)
"""A tuple, since asking whether a state is in it is then a matter of identity and needs no hash."""


@dataclass(frozen=True)
class WorkflowInfo:
    """What is told about a workflow."""

    id: str
    description: str
    created_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"id": self.id, "description": self.description, "created_at": self.created_at.isoformat()}


@dataclass(slots=True)
class GateInfo:
    """A gate that waits for its answer; `future` is settled when the answer is on disk."""

    gate_id: str
    prompt: str
    choices: list[str] | None
    future: asyncio.Future[Any] | None = field(default=None, repr=False, compare=False)
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    path: str = ""
    node_id: str | None = None
    options: list[str] | None = None
    note: str | None = None
    input_preview: str | None = None
    """The beginning of what is to be judged."""
    deadline: float | None = None
    action: dict[str, Any] | None = None
    """Exactly what is to be allowed, if the gate is about that."""
    form: dict[str, Any] | None = None
    """A JSON Schema that the answer fits."""
    key: str | None = None
    """The key with which it was answered."""
    about: dict[str, str] = field(default_factory=dict)
    """What is recorded with its answer, beside who gave it."""
    reply: Any = field(default=None, repr=False, compare=False)
    """What a store keeps for whoever gives the answer again."""

    def to_dict(self) -> dict[str, Any]:
        """The question and what it takes, as plain data; what it does not have is left out."""
        data: dict[str, Any] = {"gate_id": self.gate_id, "prompt": self.prompt, "choices": self.choices}
        names = ("path", "node_id", "options", "note", "input_preview", "form")
        extra = {name: getattr(self, name) for name in names}
        return data | {name: value for name, value in extra.items() if value}


@dataclass(frozen=True)
class WorkflowRunInfo:
    """What is told about a run."""

    run_id: str
    workflow_id: str
    state: WorkflowState
    started_at: datetime | None
    completed_at: datetime | None
    result: Any
    error: str | None
    pending_gate: dict[str, Any] | None
    pending_gates: list[dict[str, Any]] = field(default_factory=list)
    held: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, times as ISO 8601 text."""
        return {
            "run_id": self.run_id,
            "workflow_id": self.workflow_id,
            "state": self.state.value,
            "started_at": self.started_at.isoformat() if self.started_at else None,
            "completed_at": self.completed_at.isoformat() if self.completed_at else None,
            "result": self.result,
            "error": self.error,
            "pending_gate": self.pending_gate,
            "pending_gates": self.pending_gates,
            "held": self.held,
        }
