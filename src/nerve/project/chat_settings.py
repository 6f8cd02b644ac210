"""The settings of chats in `.nerve/config.json`: services whose threads are conversations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nerve.project.notify_settings import (
    SECRET,
    TEXT,
    URL,
    ChannelSettings,
    KeysByKind,
    NotifySettingsParser,
    ParseValue,
    RequiredByKind,
    make_word_parser,
)
from nerve.text.source import Position

if TYPE_CHECKING:
    from nerve.project.config import ConfigReader

CHAT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
UNKNOWN_ACCOUNTS = ("ignore", "refuse")
"""What happens to messages of accounts that belong to no person of the project."""
ANSWER_PLACES = ("addressed", "thread")
"""Which messages can answer a gate: those that address Nerve, or every one in the thread."""


def parse_chats(reader: ConfigReader, source: Any, position: Position) -> Mapping[str, ChannelSettings]:
    """Return the chats by name; the reader gets the problems."""
    parser, chats = NotifySettingsParser(reader), {}
    for name, settings, at in reader.known_entries(source, "'chat'", None, position):
        if not CHAT_NAME.fullmatch(name):
            problem = (
                f"The name of a chat must have up to 64 lower-case letters, digits, '-' and '_', got '{name}'"
            )
            reader.add(at, problem)
        chat = parser.parse_service(f"chat '{name}'", settings, at, CHAT_KEYS, REQUIRED_CHAT_KEYS)
        chats[name] = ChannelSettings(chat.kind, MappingProxyType({**CHAT_DEFAULTS, **chat.values}))
    return MappingProxyType(chats)


TEXTS = NotifySettingsParser.parse_texts
COMMON_KEYS: dict[str, ParseValue] = {
    "token": SECRET,
    "secret": SECRET,
    "bot": TEXT,
    "prefix": TEXT,
    "content": NotifySettingsParser.parse_flag,
    "unknown": make_word_parser(UNKNOWN_ACCOUNTS),
    "answers": make_word_parser(ANSWER_PLACES),
    "url": URL,
}
CHAT_KEYS: KeysByKind = {
    "github": {**COMMON_KEYS, "repositories": TEXTS},
    "slack": {**COMMON_KEYS, "channels": TEXTS},
    "telegram": {**COMMON_KEYS, "chats": TEXTS},
}
"""The settings of each kind of chat."""
REQUIRED_CHAT_KEYS: RequiredByKind = {
    "github": (("token",), ("secret",), ("bot",), ("repositories",)),
    "slack": (("token",), ("secret",), ("bot",)),
    "telegram": (("token",), ("bot",)),
}
"""The settings that each kind needs; Telegram without a secret is asked for its messages."""
CHAT_DEFAULTS = MappingProxyType({"content": False, "unknown": "ignore", "answers": "addressed"})
