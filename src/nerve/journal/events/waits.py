"""Events of waits for persons, timers, signals, messages and queues; and what ends a wait or a call early."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from nerve.core.events import WorkflowEventType
from nerve.journal.events.calls import CallStarted
from nerve.journal.events.known_event import KnownEvent
from nerve.lazy_dataclass import dataclass


class WaitOpened(KnownEvent):
    """The body, or a leaf, waits for a person, a timer, a signal or a fact."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class GateWaiting(WaitOpened):
    type = WorkflowEventType.GATE_WAITING
    written_nulls = ("choices", "options")
    gate_id: str = ""
    prompt: str = ""
    choices: list[str] | None = None
    options: list[str] | None = None
    node_id: str | None = None
    input_preview: Any = None
    note: str | None = None
    action: dict[str, Any] | None = None
    form: dict[str, Any] | None = None
    timeout: float | None = None
    deadline: float | None = None
    hash: str = ""
    typed: bool = False
    """Whether choices and form come from the type of the answer."""
    policy: dict[str, Any] | None = None
    """Who decides the gate, if not the first answer does: see `GatePolicy`."""
    progress: dict[str, Any] | None = None
    """What people have done at it so far, in the stored wait only: see `GateTally`."""


@dataclass(frozen=True, slots=True)
class TimerStarted(WaitOpened):
    type = WorkflowEventType.TIMER_STARTED
    written_nulls = ("seconds", "deadline")
    seconds: float | None = None
    deadline: float | None = None
    guard: bool = False
    """Whether it bounds other steps; the run does not count as waiting for it."""
    hash: str = ""


@dataclass(frozen=True, slots=True)
class SignalWaiting(WaitOpened):
    """The body waits for a signal with a label, or for facts that match patterns."""

    type = WorkflowEventType.SIGNAL_WAITING
    written_nulls = ("label", "key", "deadline")
    patterns: dict[str, Any] | None = None
    label: str | None = None
    key: str | None = None
    deadline: float | None = None
    hash: str = ""

    def to_data(self) -> dict[str, Any]:
        data = KnownEvent.to_data(self)
        if self.patterns is not None:
            del data["label"], data["key"]
        return data

    @property
    def awaits_agent(self) -> bool:
        """Whether the response of an agent to a request can settle it."""
        from nerve.dataspace.builtin_records import RESPONSE_LABEL  # few runs wait for facts

        return any(pattern and pattern[0] == RESPONSE_LABEL for pattern in (self.patterns or {}).values())


@dataclass(frozen=True, slots=True)
class MessageWaiting(WaitOpened):
    """The body waits for the next message of a channel."""

    type = WorkflowEventType.MESSAGE_WAITING
    written_nulls = ("deadline",)
    channel: str = ""
    deadline: float | None = None
    background: bool = False
    """Whether it waits for updates beside the body; the run does not count as waiting for it."""
    hash: str = ""


@dataclass(frozen=True, slots=True)
class QueueWaiting(WaitOpened):
    """A step or the run waits for a slot of a queue. The engine opens this wait, not the body."""

    type = WorkflowEventType.QUEUE_WAITING
    written_nulls = ("key",)
    queue: str = ""
    key: str | None = None
    priority: int = 0


class WaitSettled(KnownEvent):
    """A wait has its outcome."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class GateAnswered(WaitSettled):
    type = WorkflowEventType.GATE_ANSWERED
    written_nulls = ("answer", "response")
    gate_id: str = ""
    node_id: str | None = None
    answer: Any = None
    response: Any = None
    """The answer again, for readers of older versions."""
    by: str = ""
    via: str | None = None
    reason: str | None = None
    key: str | None = None
    votes: list[dict[str, Any]] | None = None
    """The votes that have decided a gate with a policy."""


@dataclass(frozen=True, slots=True)
class GateProgress(KnownEvent):
    """Something has happened at an open gate with a policy, which does not answer it."""

    gate_id: str = ""
    node_id: str | None = None


@dataclass(frozen=True, slots=True)
class GateVoted(GateProgress):
    """A person has answered; of their votes, the last one counts."""

    type = WorkflowEventType.GATE_VOTED
    written_nulls = ("answer",)
    person: str = ""
    answer: Any = None
    names: list[str] = field(default_factory=list)
    """The name and the roles that the person had."""
    hash: str = ""
    """The hash of what the gate asked."""
    by: str = ""
    via: str | None = None
    reason: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class GateDelegated(GateProgress):
    """A person lets another one answer in their place."""

    type = WorkflowEventType.GATE_DELEGATED
    person: str = ""
    to: str = ""
    names: list[str] = field(default_factory=list)
    by: str = ""
    via: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class GateClaimed(GateProgress):
    """A person answers the gate, and no other until they release it."""

    type = WorkflowEventType.GATE_CLAIMED
    person: str = ""
    by: str = ""
    via: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class GateReleased(GateProgress):
    """The person who had claimed the gate has released it."""

    type = WorkflowEventType.GATE_RELEASED
    person: str = ""
    by: str = ""
    via: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class GateReminded(GateProgress):
    """The people who have not answered are to be reminded."""

    type = WorkflowEventType.GATE_REMINDED
    number: int = 0
    """Which reminder it is, from 1."""
    to: list[str] = field(default_factory=list)
    """People and roles who may answer."""


@dataclass(frozen=True, slots=True)
class GateEscalated(GateProgress):
    """Further people may answer, because the gate has been open for some time."""

    type = WorkflowEventType.GATE_ESCALATED
    number: int = 0
    to: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GateTimeout(WaitSettled):
    type = WorkflowEventType.GATE_TIMEOUT
    written_nulls = ("timeout",)
    gate_id: str | None = None
    node_id: str | None = None
    timeout: float | None = None


class TimerFired(WaitSettled):
    __slots__ = ()
    type = WorkflowEventType.TIMER_FIRED


@dataclass(frozen=True, slots=True)
class SignalReceived(WaitSettled):
    """A signal was received; for a wait with patterns, the value has the matched fact and its captures."""

    type = WorkflowEventType.SIGNAL_RECEIVED
    written_nulls = ("label", "key", "value")
    label: str | None = None
    key: str | None = None
    value: Any = None

    def to_data(self) -> dict[str, Any]:
        data = KnownEvent.to_data(self)
        if self.label is None:
            del data["label"], data["key"]
        return data


@dataclass(frozen=True, slots=True)
class SignalTimeout(WaitSettled):
    type = WorkflowEventType.SIGNAL_TIMEOUT
    written_nulls = ("timeout",)
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class MessageReceived(WaitSettled):
    """The body has received a message; `message` is the sequence number of the event that sent it."""

    type = WorkflowEventType.MESSAGE_RECEIVED
    written_nulls = ("value",)
    channel: str = ""
    message: int = 0
    value: Any = None


@dataclass(frozen=True, slots=True)
class MessageTimeout(WaitSettled):
    type = WorkflowEventType.MESSAGE_TIMEOUT
    written_nulls = ("timeout",)
    channel: str = ""
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class QueueEntered(WaitSettled):
    """A step or the run got a slot of a queue that it had to wait for, or needs for another attempt."""

    type = WorkflowEventType.QUEUE_ENTERED
    written_nulls = ("key",)
    queue: str = ""
    key: str | None = None


@dataclass(frozen=True, slots=True)
class TimerMoved(KnownEvent):
    """A timer that bounds other steps was paused, or continues."""

    type = WorkflowEventType.TIMER_MOVED
    left: float | None = None
    """The remaining seconds of a paused timer."""
    deadline: float | None = None
    guard: bool = True


@dataclass(frozen=True, slots=True)
class RequestAbandoned(KnownEvent):
    """The body has abandoned a call or wait, or a stop has ended it."""

    gate_id: str | None = None
    node_id: str | None = None
    step_id: str | None = None
    stopped: bool = False
    """Whether a stop caused it, and not the body."""
    result: dict[str, Any] | None = None
    """A result with the `attributes` of the abandoned call, if it has used something."""

    def attribute(self, name: str) -> Any:
        """Return an attribute of the result; None if it has no such attribute."""
        return self.attributes.get(name)

    @property
    def attributes(self) -> dict[str, Any]:
        return (self.result or {}).get("attributes") or {}

    @property
    def usage(self) -> Any:
        return self.attribute("usage")


class NodeCancelled(RequestAbandoned):
    __slots__ = ()
    type = WorkflowEventType.NODE_CANCELLED


class GateCancelled(RequestAbandoned):
    __slots__ = ()
    type = WorkflowEventType.GATE_CANCELLED


class TimerCancelled(RequestAbandoned):
    __slots__ = ()
    type = WorkflowEventType.TIMER_CANCELLED


class SignalCancelled(RequestAbandoned):
    __slots__ = ()
    type = WorkflowEventType.SIGNAL_CANCELLED


class MessageCancelled(RequestAbandoned):
    __slots__ = ()
    type = WorkflowEventType.MESSAGE_CANCELLED


class QueueCancelled(RequestAbandoned):
    __slots__ = ()
    type = WorkflowEventType.QUEUE_CANCELLED


def abandon_by_stop(request: CallStarted | WaitOpened) -> RequestAbandoned:
    """Return the event that ends a call or wait because its run stops."""
    match request:
        case CallStarted(node_id=node_id, step_id=step_id):
            return NodeCancelled(node_id=node_id, step_id=step_id, stopped=True)
        case GateWaiting(gate_id=gate_id, node_id=node_id):
            return GateCancelled(gate_id=gate_id, node_id=node_id, stopped=True)
        case TimerStarted():
            return TimerCancelled(stopped=True)
        case MessageWaiting():
            return MessageCancelled(stopped=True)
        case QueueWaiting():
            return QueueCancelled(stopped=True)
    return SignalCancelled(stopped=True)
