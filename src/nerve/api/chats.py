"""The chats of a project: what was received and sent there, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nerve.api import models
from nerve.api.notifications import to_time

if TYPE_CHECKING:
    from nerve.chat.adapter import ChatAdapter
    from nerve.notifications.outbox import MessageOutbox
    from nerve.session import Session


async def chats(session: Session, request: models.EmptyRequest) -> models.ChatPage:
    settings = session.config.chat
    if not settings:
        return models.ChatPage()
    from nerve.chat.adapter_table import make_chats
    from nerve.chat.threads import CHANNEL_PREFIX
    from nerve.notifications.outbox import MessageOutbox, property_name

    outbox = MessageOutbox.from_json(session.engine.store.read_property(property_name(session.name)))
    adapters = make_chats(settings, session.project, session.config.public_url, session.name)
    return models.ChatPage(
        chats=[
            chat_response(session, name, settings[name].kind, adapter, outbox)
            for name, adapter in adapters.items()
        ],
        failures=[
            models.FailedChatMessageResponse(
                id=failure.message.id,
                chat=failure.message.channel.removeprefix(CHANNEL_PREFIX),
                thread=failure.message.thread,
                event=failure.message.event,
                failed_at=to_time(failure.failed_at),
                error=failure.message.error,
            )
            for failure in reversed(outbox.failures)
            if failure.message.thread is not None
        ],
        public_url=session.config.public_url,
    )


def chat_response(
    session: Session, name: str, kind: str, adapter: ChatAdapter, outbox: MessageOutbox
) -> models.ChatResponse:
    from nerve.chat.threads import channel_of

    channel = channel_of(name)
    waiting, count = list(outbox.messages_to(channel)), outbox.counts.get(channel)
    return models.ChatResponse(
        name=name,
        kind=kind,
        target=adapter.describe(),
        delivery="polling" if adapter.is_polled else "webhook",
        content=adapter.has_content,
        problem=adapter.find_problem() or session.chat_problems.get(name),
        received=sum(message.channel == channel for message in outbox.received),
        sent=0 if count is None else count.sent,
        last_sent=None if count is None or count.last_at is None else to_time(count.last_at),
        pending=len(waiting),
        error=next((message.error for message in waiting if message.error), None),
    )
