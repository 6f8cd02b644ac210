"""Events of runs, and the table of their names."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import UTC, date, datetime, time
from enum import StrEnum
from typing import Any, Protocol

from nerve.core.validation import describe_value
from nerve.lazy_dataclass import dataclass

log = logging.getLogger("nerve")


class WorkflowEventType(StrEnum):
    """Names of events; users can emit events of any other name."""

    STARTED = "workflow_started"
    COMPLETED = "workflow_completed"
    FAILED = "workflow_failed"
    CANCELLED = "workflow_cancelled"
    PAUSED = "workflow_paused"
    RESUMED = "workflow_resumed"
    HELD = "workflow_held"
    CHANGED = "workflow_changed"
    STOPPING = "workflow_stopping"

    NODE_STARTED = "node_started"
    NODE_COMPLETED = "node_completed"
    NODE_ERROR = "node_error"
    NODE_TIMEOUT = "node_timeout"
    NODE_CANCELLED = "node_cancelled"
    NODE_RETRYING = "node_retrying"
    STEP_STARTED = "step_started"
    STEP_COMPLETED = "step_completed"
    STEP_FAILED = "step_failed"

    GATE_WAITING = "gate_waiting"
    GATE_ANSWERED = "gate_answered"
    GATE_RESOLVED = "gate_answered"
    GATE_TIMEOUT = "gate_timeout"
    GATE_VOTED = "gate_voted"
    GATE_DELEGATED = "gate_delegated"
    GATE_CLAIMED = "gate_claimed"
    GATE_RELEASED = "gate_released"
    GATE_REMINDED = "gate_reminded"
    GATE_ESCALATED = "gate_escalated"
    GATE_CANCELLED = "gate_cancelled"
    TIMER_STARTED = "timer_started"
    TIMER_MOVED = "timer_moved"
    TIMER_FIRED = "timer_fired"
    TIMER_CANCELLED = "timer_cancelled"
    SIGNAL_WAITING = "signal_waiting"
    SIGNAL_RECEIVED = "signal_received"
    SIGNAL_TIMEOUT = "signal_timeout"
    SIGNAL_CANCELLED = "signal_cancelled"
    MESSAGE_SENT = "message_sent"
    MESSAGE_WAITING = "message_waiting"
    MESSAGE_RECEIVED = "message_received"
    MESSAGE_TIMEOUT = "message_timeout"
    MESSAGE_CANCELLED = "message_cancelled"
    UPDATE_COMPLETED = "update_completed"
    QUEUE_WAITING = "queue_waiting"
    QUEUE_ENTERED = "queue_entered"
    QUEUE_CANCELLED = "queue_cancelled"

    LOOP_ITERATION = "loop_iteration"
    BRANCH_TAKEN = "branch_taken"
    MAP_ITEM_START = "map_item_start"
    MAP_ITEM_COMPLETE = "map_item_complete"
    STATE_ENTERED = "state_entered"
    OUTPUT_CHUNK = "output_chunk"
    TOOL_CALL = "tool_call"
    USAGE = "usage"
    PLAN = "plan"
    PERMISSION = "permission"
    AGENT_THREAD = "agent_thread"
    STEERED = "steered"
    PROVIDER_LIMITED = "provider_limited"
    PROVIDER_OPEN = "provider_open"
    SKIPPED = "skipped"
    LOG = "log"

    CLOCK_READ = "clock_read"
    PATH_RESET = "path_reset"
    CHILD_STOPPED = "child_stopped"
    TAGS_CHANGED = "tags_changed"
    PATCH_EVALUATED = "patch_evaluated"
    FACTS_COPIED = "facts_copied"

    @classmethod
    def _missing_(cls, value: object) -> WorkflowEventType | None:
        name = EVENT_ALIASES.get(str(value))
        return cls(name) if name else None


EVENT_ALIASES = {
    "started": WorkflowEventType.STARTED,
    "completed": WorkflowEventType.COMPLETED,
    "failed": WorkflowEventType.FAILED,
    "cancelled": WorkflowEventType.CANCELLED,
    "paused": WorkflowEventType.PAUSED,
    "resumed": WorkflowEventType.RESUMED,
    "gate_resolved": WorkflowEventType.GATE_ANSWERED,
    "workflow_start": WorkflowEventType.STARTED,
    "workflow_complete": WorkflowEventType.COMPLETED,
    "workflow_error": WorkflowEventType.FAILED,
    "step_start": WorkflowEventType.STEP_STARTED,
    "step_complete": WorkflowEventType.STEP_COMPLETED,
    "step_error": WorkflowEventType.STEP_FAILED,
}
"""Accepted aliases, and the name that is recorded for each."""

RUN_END_EVENTS = (WorkflowEventType.COMPLETED, WorkflowEventType.FAILED, WorkflowEventType.CANCELLED)
"""The events that end a run."""

STEP_START_EVENTS = (WorkflowEventType.NODE_STARTED, WorkflowEventType.STEP_STARTED)
STEP_FAILURE_EVENTS = (
    WorkflowEventType.NODE_ERROR,
    WorkflowEventType.NODE_TIMEOUT,
    WorkflowEventType.STEP_FAILED,
)
STEP_SETTLED_EVENTS = (
    WorkflowEventType.NODE_COMPLETED,
    WorkflowEventType.STEP_COMPLETED,
    *STEP_FAILURE_EVENTS,
)
STEP_END_EVENTS = (*STEP_SETTLED_EVENTS, WorkflowEventType.NODE_CANCELLED)

WAIT_OPEN_EVENTS = (
    WorkflowEventType.GATE_WAITING,
    WorkflowEventType.SIGNAL_WAITING,
    WorkflowEventType.MESSAGE_WAITING,
    WorkflowEventType.TIMER_STARTED,
    WorkflowEventType.QUEUE_WAITING,
)
GATE_END_EVENTS = (
    WorkflowEventType.GATE_ANSWERED,
    WorkflowEventType.GATE_TIMEOUT,
    WorkflowEventType.GATE_CANCELLED,
)
GATE_PROGRESS_EVENTS = (
    WorkflowEventType.GATE_VOTED,
    WorkflowEventType.GATE_DELEGATED,
    WorkflowEventType.GATE_CLAIMED,
    WorkflowEventType.GATE_RELEASED,
    WorkflowEventType.GATE_REMINDED,
    WorkflowEventType.GATE_ESCALATED,
)
"""What happens at an open gate with a policy before it is answered."""
WAIT_END_EVENTS = (
    *GATE_END_EVENTS,
    WorkflowEventType.SIGNAL_RECEIVED,
    WorkflowEventType.SIGNAL_TIMEOUT,
    WorkflowEventType.SIGNAL_CANCELLED,
    WorkflowEventType.MESSAGE_RECEIVED,
    WorkflowEventType.MESSAGE_TIMEOUT,
    WorkflowEventType.MESSAGE_CANCELLED,
    WorkflowEventType.TIMER_FIRED,
    WorkflowEventType.TIMER_CANCELLED,
    WorkflowEventType.QUEUE_ENTERED,
    WorkflowEventType.QUEUE_CANCELLED,
)
GATE_EVENTS = frozenset({WorkflowEventType.GATE_WAITING, *GATE_PROGRESS_EVENTS, *GATE_END_EVENTS})
"""The events of child runs that are also delivered with the events of their parent runs."""

END_EVENTS = frozenset({WorkflowEventType.COMPLETED, WorkflowEventType.FAILED, WorkflowEventType.CANCELLED})
"""The last events of runs."""

SHOWN_IN_KEY = "shown_in"
"""The key for the parent run of such an event, and the path of the gate in that run."""

USER_EVENT_PREFIX = "user:"
"""Prefix for an event that a user emitted under a name reserved for the engine."""

_ENGINE_EVENT_PREFIXES = (
    "workflow_",
    "node_",
    "step_",
    "gate_",
    "timer_",
    "signal_",
    "message_",
    "update_",
    "queue_",
    "clock_",
    "path_",
    "child_",
    "tags_",
    "patch_",
)


def canonical_event_name(name: str) -> str:
    return EVENT_ALIASES.get(name, name)


def is_reserved_event(name: str) -> bool:
    """Return whether only the engine may record events of this name."""
    return name.startswith(_ENGINE_EVENT_PREFIXES) and name in _EVENT_NAMES


def emitted_event_name(name: str) -> str:
    """Return the name under which an emitted event is recorded; reserved names get a prefix."""
    return f"{USER_EVENT_PREFIX}{name}" if is_reserved_event(name) else name


def times_to_iso(value: Any) -> Any:
    """Return event data with dates and times as ISO 8601 strings."""
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: times_to_iso(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [times_to_iso(item) for item in value]
    return value


_EVENT_NAMES = frozenset(member.value for member in WorkflowEventType)

RUN_LEVEL_EVENTS = frozenset(name for name in _EVENT_NAMES if name.startswith("workflow_"))
"""The events about the run itself, not about steps of its body."""

_ALIASES_BY_NAME: dict[str, tuple[str, ...]] = {
    name: tuple(alias for alias, target in EVENT_ALIASES.items() if target == name)
    for name in EVENT_ALIASES.values()
}


class HasEventData(Protocol):
    """An event, in the form of the engine or of the API."""

    @property
    def event_type(self) -> str: ...

    @property
    def data(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class WorkflowEvent:
    """One fact about a run. `seq` orders the events of a run; it is 0 without a journal."""

    run_id: str
    workflow_id: str
    event_type: str
    data: dict[str, Any] = field(default_factory=dict)
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))
    seq: int = field(default=0, kw_only=True)
    path: str = field(default="", kw_only=True)

    def with_shown_in(self, run_id: str, path: str) -> WorkflowEvent:
        """Return the event as the parent run shows it; `path` is where the parent called the child run."""
        return replace(self, data={**self.data, SHOWN_IN_KEY: {"run_id": run_id, "path": path + self.path}})

    @property
    def aliases(self) -> tuple[str, ...]:
        """Aliases of the event type."""
        return _ALIASES_BY_NAME.get(self.event_type, ())

    def is_a(self, name: str) -> bool:
        """Return whether the event has this name or alias."""
        return self.event_type in (name, canonical_event_name(name))

    def to_dict(self) -> dict[str, Any]:
        """Return the event as plain data, with the timestamp as an ISO 8601 string."""
        return {
            "run_id": self.run_id,
            "workflow_id": self.workflow_id,
            "event_type": str(self.event_type),
            "data": self.data,
            "timestamp": self.timestamp.isoformat(),
            "seq": self.seq,
            "path": self.path,
        }


MAX_SHOWN_CHARS = 100_000
"""Characters of a leaf's output that an event shows; the journal keeps all of it."""
LONG_TEXT_EVENTS = (WorkflowEventType.OUTPUT_CHUNK, WorkflowEventType.TOOL_CALL)
"""Events that can contain long strings."""


def continued_as(event: HasEventData) -> str | None:
    """Return the next run of the chain, if an event ends a run that continues as new."""
    if event.event_type != WorkflowEventType.COMPLETED:
        return None
    next_run = event.data.get("continued_as")
    return next_run if isinstance(next_run, str) else None


def truncate_event_data(data: dict[str, Any]) -> dict[str, Any]:
    """Return event data for subscribers with long strings cut; `cut_characters` counts the rest."""
    room = MAX_SHOWN_CHARS
    left_out = 0

    def cut(value: Any) -> Any:
        nonlocal room, left_out
        match value:
            case str():
                prefix = value[:room]
                room, left_out = room - len(prefix), left_out + len(value) - len(prefix)
                return prefix
            case dict():
                return {key: cut(item) for key, item in value.items()}
            case list():
                return [cut(item) for item in value]
        return value

    truncated = cut(data)
    return {**truncated, "cut_characters": left_out} if left_out else data


class EventSink(Protocol):
    """An object with an `emit` method, sync or async. A callable is accepted, too."""

    def emit(self, event: WorkflowEvent) -> Any:
        """Receive one event; an awaitable return value is awaited."""


Sink = EventSink | Callable[[WorkflowEvent], Any]


def validate_sink(sink: Sink) -> Sink:
    """Return the sink; ValueError for an object that cannot receive events."""
    if not callable(sink) and not callable(getattr(sink, "emit", None)):
        raise ValueError(f"event_sink must be callable or have an emit method, got {describe_value(sink)}")
    return sink


def deliver_event(sink: Sink, event: WorkflowEvent) -> Any:
    """Pass an event to a sink and return what the caller must await, or None. Log a failing sink."""
    try:
        answer = sink(event) if callable(sink) and not hasattr(sink, "emit") else sink.emit(event)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException:
        log.exception("event sink failed on %s", event.event_type)
        return None
    return answer if inspect.isawaitable(answer) else None


class JournalRow(Protocol):
    """A recorded event, as a store returns it."""

    @property
    def seq(self) -> int: ...
    @property
    def at(self) -> float: ...
    @property
    def type(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def settles(self) -> str | None: ...
    @property
    def data(self) -> str: ...
