"""The runtime port: everything that leaves a workflow's body goes through these few methods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from nerve.core.agent_threads import AgentThreads
from nerve.core.policy import NO_POLICY, Policy
from nerve.core.result import Result

if TYPE_CHECKING:
    from nerve.core.nodes.base import Node
    from nerve.core.nodes.context import ExecutionContext


@dataclass(slots=True)
class NodeCall:
    """A node to be executed at a path."""

    path: str
    node: Node
    node_id: str
    input: Any
    policy: Policy = NO_POLICY
    is_graph_step: bool = False
    """Whether this is a step of a graph; its events are then named for steps."""
    context: ExecutionContext | None = None
    params: dict[str, Any] = field(default_factory=dict)
    """For a workflow: the parameters of the child run."""


@dataclass(slots=True)
class GateWait:
    """A wait that a person settles."""

    path: str
    prompt: str
    choices: list[str] | None = None
    options: list[str] | None = None
    timeout: float | None = None
    node_id: str | None = None
    input_preview: str | None = None
    note: str | None = None
    """Why the last answer was not good enough, when the gate asks again."""
    auto_answer: str | None = None
    """The answer the gate gives itself at once."""
    receivers: list[Any] | None = None
    """Where a context without a run leaves the future that `receive_input` settles."""
    action: Mapping[str, Any] | None = None
    """Exactly what is to be allowed, with its hash; the answer counts for nothing else."""
    form: Mapping[str, Any] | None = None
    """A JSON Schema that the answer fits."""


@dataclass(slots=True)
class TimerWait:
    """A wait that the clock settles; a `guard` only bounds other work and keeps nobody waiting."""

    path: str
    seconds: float
    guard: bool = False
    around: str | None = None
    """For a guard, the place whose time it bounds: it stands still while that waits for somebody else."""


@dataclass(slots=True)
class SignalWait:
    """A wait that a fact settles: a signal with this label and key, or the first that fits a pattern."""

    path: str
    label: str
    key: str | None = None
    timeout: float | None = None
    patterns: Mapping[str, Sequence[Any]] | None = None
    """By the names under which the outcome says which it was; the label does not count then."""


Wait = GateWait | TimerWait | SignalWait

SteeringQueue = asyncio.Queue[str]


class Runtime(Protocol):
    """What a context needs of the engine that drives its run."""

    def call(self, call: NodeCall) -> Awaitable[Result]:
        """Execute a node; settled once, the journal answers from then on."""

    def wait(self, wait: Wait) -> Awaitable[Any]:
        """The value the wait was settled with; `TimeoutError` when its time ran out."""

    def interrupted_step(self, path: str) -> str | None:
        """The path of a step at a place or in there that must happen once, was begun, and was given up."""

    def emit(self, path: str, type: str, data: dict[str, Any]) -> None:
        """A fact for watchers."""

    def now(self, path: str) -> datetime: ...

    def random(self, path: str) -> float: ...

    def new_id(self, path: str) -> str: ...


class LeafServices(Protocol):
    """What a leaf may ask of the engine while it is executed."""

    is_restarted: bool
    """Whether it had begun in an earlier process, and did not end."""

    steering: SteeringQueue | None
    """What people say to it meanwhile, while it listens."""

    @property
    def threads(self) -> AgentThreads: ...

    async def record(self, path: str, type: str, data: dict[str, Any]) -> None:
        """Tell watchers something, and wait until it is on disk."""

    def last_recorded(self, type: str) -> dict[str, Any] | None:
        """What it told last under that name, also in an earlier process."""

    def steering_so_far(self) -> list[str]:
        """What people said to it so far, also in an earlier process."""

    async def ask(self, gate: GateWait) -> Any:
        """Ask a person, in the middle of what it does."""

    async def wait_for_budget(self, used: Mapping[str, Any]) -> None:
        """Return when there is room for a turn; `used` is what the step has taken so far."""

    def begin_turn(self, used: Mapping[str, Any]) -> bool:
        """Whether there is still room for a turn; if so, it is taken."""

    def end_turn(self, used: Mapping[str, Any]) -> None:
        """The turn is over; `used` is what the step has taken with it."""

    def timers_paused(self, path: str) -> AbstractContextManager[None]:
        """Time that does not count for the step: it waits for a person, a budget, or a limit to end."""
