"""The chats of a project by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from nerve.notifications.delivery import HttpSender, SecretReader
from nerve.notifications.messages import MessageWriter

if TYPE_CHECKING:
    from nerve.chat.adapter import ChatAdapter
    from nerve.project.notify_settings import ChannelSettings

ADAPTERS = {
    "github": ("nerve.chat.github", "GithubAdapter"),
    "slack": ("nerve.chat.slack", "SlackAdapter"),
    "telegram": ("nerve.chat.telegram", "TelegramAdapter"),
}
"""The modules and classes of the services, by kind; only those that a project uses are imported."""


def make_chats(
    settings: Mapping[str, ChannelSettings], project: Path, public_url: str | None, session: str
) -> dict[str, ChatAdapter]:
    """Return the chats of a project, which open connections when they send."""
    secrets, writer, http = SecretReader(project), MessageWriter(public_url), HttpSender()
    chats = {}
    for name, chat in settings.items():
        module, adapter = ADAPTERS[chat.kind]
        chats[name] = getattr(import_module(module), adapter)(chat.values, secrets, writer, session, http)
    return chats
