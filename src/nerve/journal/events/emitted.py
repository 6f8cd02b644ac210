"""Events that nodes emit; users can emit events of these names with any data."""

from __future__ import annotations

from typing import Any

from nerve.core.events import WorkflowEventType
from nerve.journal.events.known_event import KnownEvent
from nerve.lazy_dataclass import dataclass


class ForeignText(KnownEvent):
    """An event with text of an agent or a command."""

    __slots__ = ()
    has_foreign_text = True


class IterationStarted(KnownEvent):
    """An event that counts as an iteration."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LoopIteration(IterationStarted):
    type = WorkflowEventType.LOOP_ITERATION
    loop_id: str | None = None
    iteration: int | None = None
    max: int | None = None


@dataclass(frozen=True, slots=True)
class StateEntered(IterationStarted):
    type = WorkflowEventType.STATE_ENTERED
    node_id: str | None = None
    state: str | None = None
    transition: int | None = None
    previous: str | None = None
    """How the previous state ended: `completed` or `failed`."""


@dataclass(frozen=True, slots=True)
class BranchTaken(KnownEvent):
    type = WorkflowEventType.BRANCH_TAKEN
    node_id: str | None = None
    branch: str | None = None
    key: Any = None


@dataclass(frozen=True, slots=True)
class MapItemStart(KnownEvent):
    type = WorkflowEventType.MAP_ITEM_START
    node_id: str | None = None
    index: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class MapItemComplete(KnownEvent):
    type = WorkflowEventType.MAP_ITEM_COMPLETE
    node_id: str | None = None
    index: int | None = None
    success: bool | None = None


@dataclass(frozen=True, slots=True)
class OutputChunk(ForeignText):
    type = WorkflowEventType.OUTPUT_CHUNK
    stream: str | None = None
    text: str | None = None
    dropped_characters: int | None = None
    printed: bool = False
    """Whether a function printed it; it is not part of the output of the step."""


@dataclass(frozen=True, slots=True)
class ToolCalled(ForeignText):
    """An agent calls a tool, or reports how a call proceeds."""

    type = WorkflowEventType.TOOL_CALL
    name: str | None = None
    input: Any = None
    id: str | None = None
    status: str | None = None
    text: str | None = None
    dropped_characters: int | None = None


class UsageReported(ForeignText):
    """The usage of one turn of an agent; `extra` has the figures, which providers extend."""

    __slots__ = ()
    type = WorkflowEventType.USAGE


@dataclass(frozen=True, slots=True)
class PlanReported(ForeignText):
    type = WorkflowEventType.PLAN
    entries: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class PermissionDecided(ForeignText):
    type = WorkflowEventType.PERMISSION
    tool: str | None = None
    verdict: str | None = None


@dataclass(frozen=True, slots=True)
class AgentThreadRecorded(KnownEvent):
    """The conversation of an agent, and what the step has used so far."""

    type = WorkflowEventType.AGENT_THREAD
    thread: str | None = None
    provider: str | None = None
    totals: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    forks: str | None = None
    """The conversation that this one forks; a crash leaves it unknown whether the fork was created."""


@dataclass(frozen=True, slots=True)
class Steered(KnownEvent):
    """A message was sent to the agent of a step."""

    type = WorkflowEventType.STEERED
    text: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class ProviderLimited(KnownEvent):
    type = WorkflowEventType.PROVIDER_LIMITED
    provider: str | None = None
    until: float | None = None
    message: str | None = None
    reason: str | None = None
    """The words of the provider."""


@dataclass(frozen=True, slots=True)
class ProviderOpen(KnownEvent):
    type = WorkflowEventType.PROVIDER_OPEN
    provider: str | None = None
    over: bool | None = None
    """Whether the limit of the provider has ended."""


@dataclass(frozen=True, slots=True)
class StepSkipped(KnownEvent):
    type = WorkflowEventType.SKIPPED
    step_id: str | None = None
    path: str | None = None
    because: str | None = None


@dataclass(frozen=True, slots=True)
class LogWritten(ForeignText):
    type = WorkflowEventType.LOG
    message: str | None = None
    thread: str | None = None
    """`running` or `ended`: whether the thread of a sync function outlives its step."""
    level: str | None = None
    """The level of a record of `logging`, such as `warning`."""
    logger: str | None = None
