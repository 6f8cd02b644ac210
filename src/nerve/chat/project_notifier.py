"""The notifier of a project, as its configuration says."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nerve.agents.redaction import Redactor
from nerve.chat.adapter_table import make_chats
from nerve.chat.threads import ThreadFilter, channel_of
from nerve.notifications.channel_table import make_channel, make_channels
from nerve.notifications.delivery import Channel, HttpSender, SecretReader
from nerve.notifications.event_filter import EventFilter
from nerve.notifications.messages import MessageWriter
from nerve.notifications.notifier import Notifier
from nerve.notifications.person_channel import PersonChannel, ReadPeople
from nerve.project.notify_settings import PERSON_MARK, ChannelSettings, NotifySettings

if TYPE_CHECKING:
    from nerve.project.config import Config
    from nerve.store.port import EventStream, Store


def open_notifier(
    store: Store,
    stream: EventStream,
    session: str,
    config: Config,
    project: Path,
    read_people: ReadPeople,
    is_encoded: bool,
) -> Notifier:
    """Return what sends the messages of a session. A store with a codec gives no content to them."""
    settings = config.notify or NotifySettings()
    redact = None if is_encoded else Redactor(os.environ).redact_text
    channels: dict[str, Channel] = make_channels(settings, project, config.public_url, session)
    chats = make_chats(config.chat, project, config.public_url, session)
    channels |= {channel_of(name): chat for name, chat in chats.items()}
    return Notifier(
        store,
        stream,
        session,
        channels,
        partial(make_person_channel, settings, project, config.public_url, session, read_people),
        EventFilter(store, session, settings, redact, read_people),
        ThreadFilter(store, chats, redact),
    )


def make_person_channel(
    settings: NotifySettings,
    project: Path,
    public_url: str | None,
    session: str,
    read_people: ReadPeople,
    name: str,
) -> PersonChannel | None:
    """Return the way to one person by its name, such as `mail@ann`; None if there is none any more."""
    base, _, person = name.partition(PERSON_MARK)
    if not person or base not in settings.channels:
        return None
    secrets, writer = SecretReader(project), MessageWriter(public_url)

    def make(addressed: ChannelSettings) -> Channel:
        return make_channel(addressed, secrets, writer, session, HttpSender())

    return PersonChannel(settings.channels[base], person, read_people, make)
