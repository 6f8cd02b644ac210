"""Notifications: the channels of a project, what waits and what has failed, and messages that try them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING

from nerve.api import models
from nerve.api.errors import ApiError
from nerve.core.suggest import did_you_mean_hint

if TYPE_CHECKING:
    from nerve.notifications.delivery import Channel
    from nerve.notifications.outbox import FailedMessage, MessageOutbox
    from nerve.session import Session

BELL = "bell"


async def notifications(session: Session, request: models.EmptyRequest) -> models.NotificationsResponse:
    settings = session.config.notify
    if settings is None:
        return models.NotificationsResponse()
    from nerve.notifications.outbox import MessageOutbox, property_name

    outbox = MessageOutbox.from_json(session.engine.store.read_property(property_name(session.name)))
    channels = [
        channel_response(name, settings.kind_of(name), channel, outbox)
        for name, channel in open_channels(session).items()
    ]
    if any(BELL in rule.to for rule in settings.rules):
        channels.append(models.ChannelResponse(name=BELL, kind=BELL, target="the terminals that follow runs"))
    rules = [
        models.NotifyRuleResponse(
            events=list(rule.events),
            to=list(rule.to),
            workflows=None if rule.workflows is None else list(rule.workflows),
            tags=dict(rule.tags),
            content=rule.content,
        )
        for rule in settings.rules
    ]
    return models.NotificationsResponse(
        channels=channels,
        rules=rules,
        pending=sum(message.thread is None for message in outbox.messages),
        failures=[
            failure_response(session, failure)
            for failure in reversed(outbox.failures)
            if failure.message.thread is None
        ],
        public_url=session.config.public_url,
    )


async def test_channel(session: Session, request: models.ChannelTestRequest) -> models.ChannelTestResponse:
    """Send a test message now, from the process that sends the others."""
    from nerve.notifications.delivery import DeliveryFailed
    from nerve.notifications.messages import TEST_EVENT, NotifiedEvent, NotifyMessage

    channels = open_channels(session)
    channel = channels.get(request.channel)
    if channel is None:
        hint = did_you_mean_hint(request.channel, channels)
        known = f"Channels: {', '.join(channels)}." if channels else "The configuration has no channels."
        raise ApiError("not_found", f"Channel '{request.channel}' not found{hint}", known)
    now = time.time()
    event = NotifiedEvent(TEST_EVENT, token_hex(8), 0, "", now)
    message = NotifyMessage(request.channel, TEST_EVENT, [event], created_at=now)
    try:
        await channel.send(message)
    except DeliveryFailed as error:
        fix = "Check the settings of the channel in .nerve/config.json, and its secret."
        problem = f"The message to '{request.channel}' was not delivered. {error}"
        raise ApiError("refused", problem, fix) from None
    finally:
        await channel.close()
    return models.ChannelTestResponse(channel=request.channel, id=message.id, target=channel.describe())


def open_channels(session: Session) -> dict[str, Channel]:
    """Return the channels of the project, which open connections when they send."""
    from nerve.notifications.channel_table import make_channels

    config = session.config
    if config.notify is None:
        return {}
    return make_channels(config.notify, session.project, config.public_url, session.name)


def channel_response(name: str, kind: str, channel: Channel, outbox: MessageOutbox) -> models.ChannelResponse:
    waiting = list(outbox.messages_to(name))
    count = outbox.counts.get(name)
    return models.ChannelResponse(
        name=name,
        kind=kind,
        target=channel.describe(),
        problem=channel.find_problem() or None,
        sent=0 if count is None else count.sent,
        last_sent=None if count is None or count.last_at is None else to_time(count.last_at),
        pending=len(waiting),
        error=next((message.error for message in waiting if message.error), None),
    )


def failure_response(session: Session, failure: FailedMessage) -> models.FailedMessageResponse:
    from nerve.notifications.messages import MessageWriter

    message = failure.message
    text = MessageWriter(session.config.public_url).write(message)
    return models.FailedMessageResponse(
        id=message.id,
        channel=message.channel,
        event=message.event,
        title=text.title,
        count=message.count,
        created_at=to_time(message.created_at),
        failed_at=to_time(failure.failed_at),
        attempts=message.attempts,
        error=message.error,
    )


def to_time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
