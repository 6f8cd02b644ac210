"""The notifier of a project, as its configuration says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from nerve.agents.redaction import Redactor
from nerve.notifications.channel_table import make_channels
from nerve.notifications.event_filter import EventFilter
from nerve.notifications.notifier import Notifier
from nerve.project.notify_settings import NotifySettings

if TYPE_CHECKING:
    from nerve.project.config import Config
    from nerve.store.port import EventStream, Store


def open_notifier(
    store: Store, stream: EventStream, session: str, config: Config, project: Path, is_encoded: bool
) -> Notifier:
    """Return what sends the messages of a session. A store with a codec gives no content to them."""
    settings = config.notify or NotifySettings()
    redact = None if is_encoded else Redactor(os.environ).redact_text
    channels = make_channels(settings, project, config.public_url, session)
    return Notifier(store, stream, session, channels, EventFilter(store, session, settings.rules, redact))
