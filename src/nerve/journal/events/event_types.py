"""All types of events: their classes by name, and what each means to a body and to clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any

from nerve.core.events import (
    LONG_TEXT_EVENTS,
    MAX_SHOWN_CHARS,
    JournalRow,
    WorkflowEvent,
    WorkflowEventType,
    truncate_event_data,
)
from nerve.core.json_codec import decode_json
from nerve.journal.events import bodies, calls, emitted, runs, waits
from nerve.journal.events.calls import CallSettled, CallStarted
from nerve.journal.events.known_event import KnownEvent, encode_event_data
from nerve.journal.events.waits import (
    GateAnswered,
    GateTimeout,
    MessageReceived,
    MessageTimeout,
    SignalReceived,
    SignalTimeout,
    WaitOpened,
)
from nerve.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class EmittedEvent:
    """An event that a node emitted, with its data as it is; decoded, one under a name of the user's own."""

    type: str
    data: dict[str, Any] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        return self.data

    def copy(self) -> EmittedEvent:
        """Return the event as it will be read back; its data does not change with that of the emitter."""
        return EmittedEvent(self.type, decode_json(self.encode()))

    def encode(self) -> str:
        event_class = EVENT_CLASSES.get(self.type)
        has_foreign_text = event_class is not None and getattr(event_class, "has_foreign_text", False)
        return encode_event_data(self.data, has_foreign_text=has_foreign_text)


CallEvent = CallStarted | CallSettled
Request = CallStarted | WaitOpened
"""What a body asks for and waits for."""
Event = KnownEvent | CallEvent | EmittedEvent


EVENT_CLASSES: dict[str, type[KnownEvent | CallEvent]] = {
    value.type: value
    for module in (runs, calls, waits, bodies, emitted)
    for value in vars(module).values()
    if isinstance(getattr(value, "type", None), WorkflowEventType)
}
"""The class of each event type."""


def decode_event(row: JournalRow) -> Event:
    """Return the event of a row."""
    event_class = EVENT_CLASSES.get(row.type)
    if event_class is None:
        return EmittedEvent(row.type, decode_json(row.data))
    return event_class.decode(row.data)


def event_from_data(type: str, data: Mapping[str, Any]) -> Event:
    """Return the event of data as clients get it."""
    event_class = EVENT_CLASSES.get(type)
    return EmittedEvent(type, dict(data)) if event_class is None else event_class.from_data(data)


def outcome_of(event: Event) -> Any:
    """Return the outcome for the body: a result, an answer, or a timeout."""
    match event:
        case CallSettled():
            return event.result
        case GateAnswered(answer=answer):
            return answer
        case SignalReceived(value=value):
            return value
        case MessageReceived():
            return event
        case GateTimeout(timeout=seconds):
            return wait_timeout_error("gate", seconds)
        case SignalTimeout(timeout=seconds):
            return wait_timeout_error("signal", seconds)
        case MessageTimeout(channel=channel, timeout=seconds):
            return wait_timeout_error(f"message '{channel}'", seconds)
    return None


def make_event(run_id: str, workflow_id: str, row: JournalRow, untruncated: bool = False) -> WorkflowEvent:
    """Return the event of a row as clients get it; long output is truncated unless `untruncated` is set."""
    at, data = datetime.fromtimestamp(row.at, UTC), decode_json(row.data)
    if row.type in LONG_TEXT_EVENTS and not untruncated and len(row.data) > MAX_SHOWN_CHARS:
        data = truncate_event_data(data)
    return WorkflowEvent(run_id, workflow_id, row.type, data, at, seq=row.seq, path=row.path)


def wait_timeout_error(kind: str, seconds: float | None) -> TimeoutError:
    """Return the error for a wait that timed out."""
    return TimeoutError(f"{kind} timed out" + (f" after {seconds:g} s" if seconds is not None else ""))
