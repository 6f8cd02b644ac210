"""The messages that are not delivered yet, and how far the events were read: one property of the store.

With them are the messages that people have written in chats and that have no reply yet.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, field
from typing import Any

from nerve.lazy_dataclass import dataclass
from nerve.notifications.messages import NotifiedEvent, NotifyMessage

MAX_FAILURES = 100
"""Undeliverable messages that are kept for people to see."""
MAX_SHOWN_GATES = 1000
"""Gates of which it is kept what chats have shown."""


@dataclass(slots=True)
class ChannelCount:
    """What was sent to a channel."""

    sent: int = 0
    last_at: float | None = None


@dataclass(slots=True)
class FailedMessage:
    """A message that is not sent any more."""

    message: NotifyMessage
    failed_at: float


@dataclass(frozen=True, slots=True)
class UnansweredMessage:
    """A message that a person has written in a chat, or a button that they have pressed."""

    key: str
    """The same for every delivery of the message by the service."""
    channel: str
    thread: str
    account: str
    """The id of the person at the service."""
    text: str
    at: float = 0.0
    gate: str | None = None
    """The gate that the button answers."""
    choice: int | None = None
    """The number of the answer of the button, from 0."""
    hash: str | None = None
    """The beginning of the hash of what the message with the button has shown."""

    def to_data(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(slots=True)
class MessageOutbox:
    """The state of the notifications of one session. The position and the messages change together."""

    position: int = 0
    """The last event of the stream that was read."""
    read_at: float = 0.0
    """When the position was stored."""
    messages: list[NotifyMessage] = field(default_factory=list)
    """The messages to send, oldest first."""
    failures: deque[FailedMessage] = field(default_factory=lambda: deque(maxlen=MAX_FAILURES))
    counts: dict[str, ChannelCount] = field(default_factory=dict)
    received: list[UnansweredMessage] = field(default_factory=list)
    """The messages of people that have no reply yet, oldest first."""
    shown: dict[str, str] = field(default_factory=dict)
    """The hashes of what chats have shown of gates, by the id of the gate."""

    def add(self, channel: str, event: NotifiedEvent, now: float, thread: str | None = None) -> None:
        """Add an event to the next message to a channel about events of its kind.

        In a thread of a chat, each event has a message of its own.
        """
        for message in self.messages_to(channel):
            if event.key in [each.key for each in message.events] and message.event == event.event:
                return
            if thread is None and message.event == event.event and not message.is_sealed:
                message.add(event)
                return
        message = NotifyMessage(channel, event.event, [event], created_at=now, thread=thread)
        message.is_sealed = thread is not None
        self.messages.append(message)

    def messages_to(self, channel: str) -> Iterator[NotifyMessage]:
        """Yield the messages to a channel, oldest first."""
        return (message for message in self.messages if message.channel == channel)

    def on_sent(self, message: NotifyMessage, now: float) -> None:
        """Remove a message that was delivered."""
        self.messages.remove(message)
        count = self.counts.setdefault(message.channel, ChannelCount())
        count.sent, count.last_at = count.sent + 1, now
        event = message.events[0]
        if message.thread is not None and event.gate is not None and event.hash is not None:
            self.shown.pop(event.gate, None)
            self.shown[event.gate] = event.hash
            while len(self.shown) > MAX_SHOWN_GATES:
                del self.shown[next(iter(self.shown))]

    def settle(self, key: str) -> None:
        """Remove a message of a person, because it has its reply."""
        self.received = [message for message in self.received if message.key != key]

    def give_up(self, message: NotifyMessage, now: float) -> None:
        """Remove a message that cannot be delivered, and keep it among the failures."""
        self.messages.remove(message)
        self.failures.append(FailedMessage(message, now))

    def to_json(self) -> str:
        """Return the text that `from_json` reads."""
        counts = {name: [count.sent, count.last_at] for name, count in self.counts.items()}
        return json.dumps(
            {
                "position": self.position,
                "read_at": self.read_at,
                "messages": [message.to_data() for message in self.messages],
                "failures": [
                    {"message": failure.message.to_data(), "failed_at": failure.failed_at}
                    for failure in self.failures
                ],
                "counts": counts,
                "received": [message.to_data() for message in self.received],
                "shown": self.shown,
            }
        )

    @classmethod
    def from_json(cls, text: str | None) -> MessageOutbox:
        """Return the outbox of an earlier process; an empty one without a text."""
        if not text:
            return cls()
        data: dict[str, Any] = json.loads(text)
        failures = [
            FailedMessage(NotifyMessage.from_data(each["message"]), each["failed_at"])
            for each in data["failures"]
        ]
        return cls(
            data["position"],
            data["read_at"],
            [NotifyMessage.from_data(each) for each in data["messages"]],
            deque(failures, MAX_FAILURES),
            {name: ChannelCount(*count) for name, count in data["counts"].items()},
            [UnansweredMessage(**each) for each in data.get("received", ())],
            data.get("shown", {}),
        )


def property_name(session: str) -> str:
    """Return the name of the property of the store that has the outbox of a session."""
    return f"notifications {session}"
