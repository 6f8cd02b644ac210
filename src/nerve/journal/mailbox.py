"""The messages for a run: each is received once, in the order in which they were sent."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

from nerve.core.json_codec import encode_json
from nerve.journal.events import UpdateCompleted
from nerve.journal.paths import is_within_step


class Message(NamedTuple):
    """A message that was sent to a run."""

    seq: int
    """The sequence number of the event that sent it."""
    channel: str
    value: Any
    key: str | None = None
    by: str | None = None


class Mailbox:
    """The unread messages of a run by channel, and those that its body has received."""

    def __init__(self) -> None:
        self._unread: dict[str, dict[int, Message]] = {}
        self._received: dict[str, Message] = {}
        """The messages by the paths of the waits that received them."""
        self._by_key: dict[tuple[str, str], Message] = {}
        self.replies: dict[int, tuple[int, UpdateCompleted]] = {}
        """The replies to updates and their events, by the messages that requested them."""
        self.carried: dict[int, int] = {}
        """The messages that the previous run of the chain did not read, by their numbers there."""

    def add(self, message: Message) -> None:
        self._unread.setdefault(message.channel, {})[message.seq] = message
        if message.key is not None:
            self._by_key[message.channel, message.key] = message

    def find(self, channel: str, key: str | None) -> Message | None:
        """Return the message that was sent to a channel with an idempotency key."""
        return None if key is None else self._by_key.get((channel, key))

    def find_same(self, channel: str, key: str | None, value: Any) -> Message | None:
        """Return the message with an idempotency key; ValueError if it has another value."""
        sent = self.find(channel, key)
        if sent is not None and encode_json(sent.value, canonical=True) != encode_json(value, canonical=True):
            raise ValueError(f"Key '{key}' belongs to another message of channel '{channel}'. Use a new key.")
        return sent

    def first_unread(self, channel: str) -> Message | None:
        """Return the oldest message of a channel that the body has not received."""
        return next(iter(self._unread.get(channel, {}).values()), None)

    @property
    def unread(self) -> list[Message]:
        """The messages that the body has not received, in the order in which they were sent."""
        return self.find_unread(())

    def find_unread(self, undelivered: Container[int]) -> list[Message]:
        """Return the unread messages and those that settled a wait whose task did not get them, in order."""
        unread = [message for messages in self._unread.values() for message in messages.values()]
        settled = [message for message in self._received.values() if message.seq in undelivered]
        return sorted([*unread, *settled], key=lambda message: message.seq)

    def take(self, channel: str, seq: int, path: str) -> None:
        """Note that the wait at a path has received a message."""
        if (message := self._unread.get(channel, {}).pop(seq, None)) is not None:
            self._received[path] = message

    def put_back(self, path: str) -> None:
        """Make a message unread again whose receiver did not get it; it keeps its place in the order."""
        if self._received and (message := self._received.pop(path, None)) is not None:
            messages = self._unread.get(message.channel, {}) | {message.seq: message}
            self._unread[message.channel] = dict(sorted(messages.items()))

    def put_back_below(self, path: str) -> None:
        """Make the messages unread again that were received at or below a path."""
        for receiver in [each for each in self._received if is_within_step(each, path)]:
            self.put_back(receiver)
