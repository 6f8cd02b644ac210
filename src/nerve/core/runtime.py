"""The runtime port: every effect of a workflow body goes through these methods."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from nerve.core.agent_threads import AgentThreads
from nerve.core.policy import NO_POLICY, Policy
from nerve.core.result import Result
from nerve.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from nerve.core.gate_policy import GatePolicy
    from nerve.core.nodes.base import Node
    from nerve.core.nodes.context import ExecutionContext
    from nerve.core.steering import SteeringQueue


@dataclass(slots=True)
class NodeCall:
    """A node to execute at a path."""

    path: str
    node: Node
    node_id: str
    input: Any
    policy: Policy = NO_POLICY
    is_graph_step: bool = False
    """Whether this is a step of a graph, which emits `step_…` instead of `node_…` events."""
    context: ExecutionContext | None = None
    params: Mapping[str, Any] | None = None
    """The parameters of the child run, if the node is a workflow that takes some."""


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
    """Why the last answer was not accepted, when the gate asks again."""
    auto_answer: str | None = None
    """The answer to use at once, without asking."""
    receivers: list[Any] | None = None
    """Receives the future that `receive_input` settles, in a context without a run."""
    action: Mapping[str, Any] | None = None
    """The exact action to approve, with its hash; the answer applies to no other action."""
    form: Mapping[str, Any] | None = None
    """A JSON Schema that the answer must match."""
    typed: bool = False
    """Whether a type gives choices and form, which may then differ on replay if the answer still fits."""
    policy: GatePolicy | None = None
    """Who decides it, if not the first answer does."""


@dataclass(slots=True)
class TimerWait:
    """A wait that the clock settles; a `guard` is a timeout of other work, not a wait of the run."""

    path: str
    seconds: float
    guard: bool = False
    around: str | None = None
    """For a guard, the path that it bounds; it is paused while that path waits for input or a budget."""


@dataclass(slots=True)
class SignalWait:
    """A wait that a fact settles: a signal with this label and key, or a fact that matches a pattern."""

    path: str
    label: str
    key: str | None = None
    timeout: float | None = None
    patterns: Mapping[str, Sequence[Any]] | None = None
    """Patterns by the names that the outcome reports; the label is ignored then."""


@dataclass(slots=True)
class MessageWait:
    """A wait that the next message of a channel settles."""

    path: str
    channel: str
    timeout: float | None = None
    background: bool = False
    """Whether it waits for updates beside the body; the run does not count as waiting for it."""


class ReceivedMessage(Protocol):
    """What settles a wait for a message."""

    @property
    def message(self) -> int:
        """The number of the message in the journal."""

    @property
    def value(self) -> Any: ...


Wait = GateWait | TimerWait | SignalWait | MessageWait


class Runtime(Protocol):
    """The services of the engine that a context uses."""

    def call(self, call: NodeCall) -> Awaitable[Result]:
        """Execute a node and return its result; on replay, the journal provides the recorded result."""

    def wait(self, wait: Wait) -> Awaitable[Any]:
        """Return the value that settled the wait; raise TimeoutError when it times out."""

    def interrupted_step(self, path: str) -> str | None:
        """Return the path of an interrupted step with effect="once" at or below a path, or None."""

    def begin_cleanup(self) -> None:
        """Note that the current task enters a cleanup block."""

    def end_cleanup(self) -> bool:
        """Note that the current task leaves a cleanup block; return whether a stop waits for that."""

    def emit(self, path: str, type: str, data: dict[str, Any]) -> None:
        """Emit an event to subscribers."""

    def now(self, path: str) -> datetime: ...

    def random(self, path: str) -> float: ...

    def new_id(self, path: str) -> str: ...

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags of the run."""

    def is_patched(self, name: str) -> bool:
        """Return whether the run takes the new branch of a patch."""

    def check_may_continue(self) -> None:
        """Raise RuntimeError if the code that runs now cannot end its run to continue it as new."""


class LeafServices(Protocol):
    """The services of the engine for a leaf that is being executed."""

    is_restarted: bool
    """Whether it was started in an earlier process and did not end there."""

    steering: SteeringQueue | None
    """Messages of users to the running leaf, while it accepts them."""

    @property
    def threads(self) -> AgentThreads: ...

    async def record(self, path: str, type: str, data: dict[str, Any]) -> None:
        """Emit an event and return when it is on disk."""

    def recorded_thread(self) -> dict[str, Any] | None:
        """Return the data of its last `agent_thread` event, also from an earlier process."""

    def derive_run_id(self) -> str:
        """Return the id of the run that the leaf starts, the same in every attempt."""

    def steering_so_far(self) -> list[str]:
        """Return the messages of users so far, also from an earlier process."""

    async def ask(self, gate: GateWait) -> Any:
        """Open a gate from inside the leaf and return the answer."""

    async def wait_for_budget(self, used: Mapping[str, Any]) -> None:
        """Return when the budget has room for a turn; `used` is the usage of the step so far."""

    async def begin_turn(self, used: Mapping[str, Any]) -> bool:
        """Reserve a turn in the budget and return whether there was room for it."""

    async def end_turn(self, used: Mapping[str, Any]) -> None:
        """Release the reserved turn; `used` is the usage of the step including it."""

    def is_silent(self, path: str) -> bool:
        """Return whether the idle timeout of the step has expired, and nothing else ends it."""

    def timers_paused(self, path: str) -> AbstractContextManager[None]:
        """Pause the timeouts of the step while it waits for a person, a budget, or a rate limit."""
