"""Which thread of which chat a conversation is, and what happens in runs that the thread gets to know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from nerve.chat.texts import describe_gate, describe_result, split_text
from nerve.core.gates import gate_hash
from nerve.engine.stored_gates import gate_of_wait
from nerve.journal.events import GateWaiting, RunCompleted
from nerve.notifications.event_filter import ReportedEvent, Selection, find_open_wait, read_event
from nerve.notifications.messages import REPLY_EVENT, NotifiedEvent
from nerve.store.port import StreamedEvent

if TYPE_CHECKING:
    from nerve.chat.adapter import ChatAdapter
    from nerve.core.workflow.state import GateInfo
    from nerve.store.port import Store

CHANNEL_PREFIX = "chat "
"""Begins the names of chats among the channels of notifications."""


def channel_of(chat: str) -> str:
    """Return the name under which a chat is a channel of notifications."""
    return CHANNEL_PREFIX + chat


def conversation_of(chat: str, thread: str) -> str:
    """Return the conversation of a thread."""
    return f"{chat}:{thread}"


def find_thread(conversation: str | None, chats: Mapping[str, ChatAdapter]) -> tuple[str, str] | None:
    """Return the chat and the thread of a conversation; None if it is not one of a chat."""
    chat, colon, thread = (conversation or "").partition(":")
    if not colon or chat not in chats or not chats[chat].is_place_allowed(thread):
        return None
    return chat, thread


class ThreadFilter:
    """Selects the events of runs whose conversation is a thread of a chat."""

    def __init__(
        self, store: Store, chats: Mapping[str, ChatAdapter], redact: Callable[[str], str] | None
    ) -> None:
        """Without `redact`, no message has content, because the store is encoded."""
        self._store, self._chats, self._redact = store, chats, redact

    def select(self, event: StreamedEvent) -> Iterator[Selection]:
        """Yield the messages about an event to the thread of its run."""
        reported = read_event(self._store, event)
        place = None if reported is None else find_thread(reported.conversation, self._chats)
        if reported is None or place is None:
            return
        chat, thread = place
        adapter = self._chats[chat]
        for notified in self._write(reported, event, adapter):
            yield Selection(channel_of(chat), notified, thread)

    def _write(
        self, reported: ReportedEvent, streamed: StreamedEvent, adapter: ChatAdapter
    ) -> Iterator[NotifiedEvent]:
        if not adapter.has_content or self._redact is None:
            yield reported.notified
        elif isinstance(reported.event, GateWaiting):
            if (wait := find_open_wait(self._store, streamed)) is not None:
                yield show_gate(reported.notified, gate_of_wait(wait), self._redact, adapter)
        else:
            text = reported.text
            if isinstance(reported.event, RunCompleted):
                text = describe_result(reported.event.result_json)
            parts = split_text(self._redact(text), adapter.max_chars)
            yield replace(reported.notified, content=parts[0] if parts else None)
            for number, part in enumerate(parts[1:], 2):
                yield replace(reported.notified, event=REPLY_EVENT, content=part, part=number)


def show_gate(
    notified: NotifiedEvent, gate: GateInfo, redact: Callable[[str], str], adapter: ChatAdapter
) -> NotifiedEvent:
    """Return the message about a gate. It can be answered in the chat if the message has all of it."""
    question = describe_gate(gate)
    text = redact(question)
    if text != question or len(text) > adapter.max_chars:
        note = "The question is not shown in full. Answer it in the page."
        return replace(notified, content=f"{text[: adapter.max_chars - len(note) - 10]} …\n\n{note}")
    answers = gate.choices or gate.options
    how = adapter.explain_answer(gate)
    return replace(
        notified,
        content=f"{text}\n\n{how}" if how else text,
        hash=gate_hash(gate),
        choices=list(answers) if answers else None,
    )
