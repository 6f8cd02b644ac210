"""The channels of a project by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nerve.notifications.delivery import Channel, HttpSender, SecretReader
from nerve.notifications.messages import MessageWriter

if TYPE_CHECKING:
    from nerve.project.notify_settings import ChannelSettings, NotifySettings

DESKTOP = "desktop"
HTTP_CHANNELS = {
    "webhook": "WebhookChannel",
    "ntfy": "NtfyChannel",
    "slack": "SlackChannel",
    "telegram": "TelegramChannel",
}
"""The classes of the channels over HTTP, by kind."""


def make_channels(
    settings: NotifySettings, project: Path, public_url: str | None, session: str
) -> dict[str, Channel]:
    """Return the channels of a project; `desktop` is one of them if a rule names it."""
    secrets, writer, http = SecretReader(project), MessageWriter(public_url), HttpSender()
    channels = {
        name: make_channel(channel, secrets, writer, session, http)
        for name, channel in settings.channels.items()
    }
    if any(DESKTOP in rule.to for rule in settings.rules):
        from nerve.notifications.desktop_channel import DesktopChannel

        channels[DESKTOP] = DesktopChannel(writer)
    return channels


def make_channel(
    settings: ChannelSettings, secrets: SecretReader, writer: MessageWriter, session: str, http: HttpSender
) -> Channel:
    """Return a channel. Its module is imported now, because no project uses all of them."""
    if settings.kind == "email":
        from nerve.notifications.email_channel import EmailChannel

        return EmailChannel(settings.values, secrets, writer)
    if settings.kind == DESKTOP:
        from nerve.notifications.desktop_channel import DesktopChannel

        return DesktopChannel(writer)
    from nerve.notifications import http_channels

    channel: Channel = getattr(http_channels, HTTP_CHANNELS[settings.kind])(
        settings.values, secrets, writer, session, http
    )
    return channel
