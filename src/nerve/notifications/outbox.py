"""The messages that are not delivered yet, and how far the events were read: one property of the store."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from nerve.lazy_dataclass import dataclass
from nerve.notifications.messages import NotifiedEvent, NotifyMessage

MAX_FAILURES = 100
"""Undeliverable messages that are kept for people to see."""


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

    def add(self, channel: str, event: NotifiedEvent, now: float) -> None:
        """Add an event to the next message to a channel about events of its kind."""
        for message in self.messages_to(channel):
            if event.key in [each.key for each in message.events] and message.event == event.event:
                return
            if message.event == event.event and not message.is_sealed:
                message.add(event)
                return
        self.messages.append(NotifyMessage(channel, event.event, [event], created_at=now))

    def messages_to(self, channel: str) -> Iterator[NotifyMessage]:
        """Yield the messages to a channel, oldest first."""
        return (message for message in self.messages if message.channel == channel)

    def on_sent(self, message: NotifyMessage, now: float) -> None:
        """Remove a message that was delivered."""
        self.messages.remove(message)
        count = self.counts.setdefault(message.channel, ChannelCount())
        count.sent, count.last_at = count.sent + 1, now

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
        )


def property_name(session: str) -> str:
    """Return the name of the property of the store that has the outbox of a session."""
    return f"notifications {session}"
