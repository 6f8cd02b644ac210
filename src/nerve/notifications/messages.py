"""Messages: what happened in runs, by names, ids, counts and times; and their text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Self
from urllib.parse import quote

from nerve.lazy_dataclass import dataclass
from nerve.text import clip_text

MAX_LISTED_EVENTS = 10
"""Events that one message names; it counts the others."""
REPLY_EVENT = "reply"
"""A text in the thread of a chat that reports no event, such as the reply to a message."""
SHOWN_ID_CHARS = 8
MAX_NAME_CHARS = 100
TEST_EVENT = "test"

TITLES: dict[str, tuple[str, str]] = {
    # event: title for one event, which names the workflow; title for several
    "gate_opened": ("{workflow} waits for an answer{gate}", "{count} gates wait for an answer"),
    "gate_reminded": ("{workflow} still waits for an answer{gate}", "{count} gates still wait"),
    "gate_escalated": (
        "{workflow} has waited for long, and further people may answer{gate}",
        "{count} gates have waited for long",
    ),
    "gate_delegated": ("{workflow} waits for a delegated answer{gate}", "{count} gates were delegated"),
    "run_completed": ("{workflow} completed", "{count} runs completed"),
    "run_failed": ("{workflow} failed", "{count} runs failed"),
    "run_cancelled": ("{workflow} was stopped", "{count} runs were stopped"),
    "run_held": ("{workflow} is held and needs a decision", "{count} runs are held and need a decision"),
    "budget_held": (
        "{workflow} is held: its budget is exhausted",
        "{count} runs are held: their budget is exhausted",
    ),
    TEST_EVENT: ("Test message from Nerve", "{count} test messages from Nerve"),
    REPLY_EVENT: ("Reply", "{count} replies"),
}
"""The first line of a message about each event."""


@dataclass(frozen=True, slots=True)
class NotifiedEvent:
    """An event of a run that a message reports."""

    event: str
    run: str
    seq: int
    workflow: str
    at: float
    label: str | None = None
    gate: str | None = None
    """The id of the gate."""
    name: str | None = None
    """The name of the gate; a question of `ctx.gate` has none."""
    content: str | None = None
    """The question of the gate, or why the run failed or is held, if a rule allows it."""
    part: int | None = None
    """The number of a text among those that report the event, from the second on."""
    hash: str | None = None
    """Stands for what the gate asks, if the content has all of it."""
    choices: list[str] | None = None
    """The answers that a chat offers as buttons."""

    @property
    def key(self) -> tuple[str, int, int | None]:
        """The event of the journal, and the part of its report."""
        return self.run, self.seq, self.part


@dataclass(slots=True)
class NotifyMessage:
    """A message to one channel about events of the same kind, with the state of its delivery."""

    channel: str
    event: str
    events: list[NotifiedEvent]
    """The first events."""
    count: int = 1
    created_at: float = 0.0
    attempts: int = 0
    next_at: float = 0.0
    """The earliest time of the next attempt."""
    error: str = ""
    """Why the last attempt failed."""
    is_sealed: bool = field(default=False, compare=False)
    """Whether an attempt may have been made, after which the content stays the same."""
    thread: str | None = None
    """The thread of a chat that gets the message; such a message has one event."""

    @property
    def id(self) -> str:
        """The same for every attempt, also by another process, so that receivers can drop a repetition."""
        first = self.events[0]
        place = "" if first.part is None else f"\n{first.part}"
        name = f"{self.channel}\n{self.event}\n{first.run}\n{first.seq}{place}"
        return sha256(name.encode()).hexdigest()[:24]

    def add(self, event: NotifiedEvent) -> None:
        """Add an event to a message that was not sent yet."""
        self.count += 1
        if len(self.events) < MAX_LISTED_EVENTS:
            self.events.append(event)

    def to_data(self) -> dict[str, Any]:
        """Return plain data that `from_data` reads."""
        events = [
            {name: value for name, value in asdict(event).items() if value is not None and name != "event"}
            for event in self.events
        ]
        return {
            "channel": self.channel,
            "event": self.event,
            "events": events,
            "count": self.count,
            "created_at": self.created_at,
            "attempts": self.attempts,
            "next_at": self.next_at,
            "error": self.error,
            **({} if self.thread is None else {"thread": self.thread}),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return a message of an earlier process, which may have tried to send it."""
        events = [NotifiedEvent(event=data["event"], **event) for event in data["events"]]
        return cls(**{**data, "events": events}, is_sealed=True)


@dataclass(frozen=True, slots=True)
class MessageText:
    """What a channel shows of a message."""

    title: str
    lines: tuple[str, ...]
    link: str | None
    """Where the page shows what the message is about."""

    @property
    def body(self) -> str:
        """The lines without the title, with the link at the end."""
        return "\n".join([*self.lines, *([self.link] if self.link else ())])


class MessageWriter:
    """Writes messages with links to the page at a public address; without an address, they have no links."""

    def __init__(self, public_url: str | None) -> None:
        self._url = public_url

    def write(self, message: NotifyMessage) -> MessageText:
        """Return the text of a message."""
        single, several = TITLES[message.event]
        if message.event == TEST_EVENT:
            link = self._link("/inbox")
            return MessageText(single, (f"The channel '{message.channel}' works.",), link)
        if message.event == REPLY_EVENT:
            return MessageText(single, (message.events[0].content or "",), None)
        if message.count == 1:
            event = message.events[0]
            gate = f": {shorten(event.name)}" if event.name else ""
            title = single.format(workflow=shorten(event.workflow), gate=gate)
            lines = (f"Run {describe_run(event)}", *([event.content] if event.content else ()))
            return MessageText(title, lines, self.link_of(event))
        title = several.format(count=message.count)
        lines = tuple(self._describe_line(event) for event in message.events)
        if hidden := message.count - len(message.events):
            lines = (*lines, f"and {hidden} more")
        is_about_gates = message.event.startswith("gate_")
        return MessageText(title, lines, self._link("/inbox" if is_about_gates else "/runs"))

    def _describe_line(self, event: NotifiedEvent) -> str:
        gate = f": {shorten(event.name)}" if event.name else ""
        return f"{shorten(event.workflow)}{gate}, run {describe_run(event)}"

    def link_of(self, event: NotifiedEvent) -> str | None:
        """Return the address of the page about an event. It has no token, and opening it changes nothing."""
        if event.gate is not None:
            return self._link(f"/inbox/{quote(event.run, safe='')}/{quote(event.gate, safe='')}")
        return self._link(f"/runs/{quote(event.run, safe='')}")

    def _link(self, path: str) -> str | None:
        return None if self._url is None else self._url + path

    def to_json(self, message: NotifyMessage, session: str) -> dict[str, Any]:
        """Return a message as plain data for programs."""
        text = self.write(message)
        return {
            "id": message.id,
            "event": message.event,
            "session": session,
            "count": message.count,
            "created_at": format_time(message.created_at),
            "title": text.title,
            "url": text.link,
            "events": []
            if message.event == TEST_EVENT
            else [self._event_json(each) for each in message.events],
        }

    def _event_json(self, event: NotifiedEvent) -> dict[str, Any]:
        values = {
            "run": event.run,
            "seq": event.seq,
            "workflow": event.workflow,
            "at": format_time(event.at),
            "label": event.label,
            "gate": event.gate,
            "gate_name": event.name,
            "url": self.link_of(event),
            "content": event.content,
        }
        return {name: value for name, value in values.items() if value is not None}


def describe_run(event: NotifiedEvent) -> str:
    """Return the start of the id of a run, and its label."""
    label = f" ({shorten(event.label)})" if event.label else ""
    return event.run[:SHOWN_ID_CHARS] + label


def shorten(name: str) -> str:
    """Return a name in one line without control characters."""
    line = "".join(char if char.isprintable() else " " for char in name)
    return clip_text(line, MAX_NAME_CHARS)


def format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
