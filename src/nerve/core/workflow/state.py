"""The states of a run, and information about workflows, runs and gates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from nerve.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import asyncio

    from nerve.core.gate_policy import GatePolicy, GateTally, Voter


GateAction = Literal["answer", "delegate", "claim", "release"]
"""What a person can do at a gate; all but the answer need a policy."""


NO_CALLER: Mapping[str, Any] = MappingProxyType({})
"""Stands for the fields that say who gives a command, if that is not known."""


class WorkflowState(Enum):
    """States of a run.

    WAITING: for a person, signal or timer. PAUSED: by an operator. HELD: needs a decision.
    """

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
"""A tuple, because `in` then compares by identity, which is faster than hashing an Enum."""
FINAL_STATE_VALUES = frozenset(state.value for state in FINAL_STATES)
ACTIVE_STATES = (WorkflowState.RUNNING, WorkflowState.WAITING)
EXECUTED_STATES = (*ACTIVE_STATES, WorkflowState.STOPPING)
"""The states of a run whose body is executed, or rebuilt when something happens to it."""
EXECUTED_STATE_VALUES = [state.value for state in EXECUTED_STATES]
OPEN_STATE_VALUES = [state.value for state in WorkflowState if state not in FINAL_STATES]


@dataclass(frozen=True)
class WorkflowInfo:
    """Information about a workflow."""

    id: str
    description: str
    created_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """Return the information as plain data."""
        return {"id": self.id, "description": self.description, "created_at": self.created_at.isoformat()}


@dataclass(slots=True)
class GateInfo:
    """An open gate; `future` is settled when the answer is on disk."""

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
    """The beginning of the input to judge."""
    deadline: float | None = None
    action: dict[str, Any] | None = None
    """The exact action to approve, if the gate asks for permission."""
    form: dict[str, Any] | None = None
    """A JSON Schema that the answer must match."""
    policy: GatePolicy | None = None
    """Who decides it, if not the first answer does."""
    tally: GateTally | None = None
    """What people have done at it so far, if it has a policy."""

    def to_dict(self) -> dict[str, Any]:
        """Return the gate as plain data, without unset optional fields."""
        data: dict[str, Any] = {"gate_id": self.gate_id, "prompt": self.prompt, "choices": self.choices}
        names = ("path", "node_id", "options", "note", "input_preview", "form")
        extra = {name: getattr(self, name) for name in names}
        return data | {name: value for name, value in extra.items() if value}


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """An accepted answer to a gate."""

    value: Any
    by: str = ""
    """The person who gave it."""
    key: str | None = None
    """Its idempotency key."""
    about: dict[str, str] = field(default_factory=dict)
    """Further data that is recorded with it, such as `via` and `reason`."""
    reply: Any = None
    """The reply that the store keeps for a repeated request with the same key."""
    voter: Voter | None = None
    """The person who answers a gate with a policy."""
    action: GateAction = "answer"
    """What the person does at a gate with a policy; the value of `delegate` is the name of another person."""


@dataclass(frozen=True)
class WorkflowRunInfo:
    """Information about a run."""

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
        """Return the information as plain data, with times as ISO 8601 strings."""
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
