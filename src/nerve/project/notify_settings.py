"""The settings of notifications in `.nerve/config.json`: channels, and the rules that use them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nerve.core.people import NAME_PATTERN
from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass
from nerve.text.source import LocatedList, LocatedMap, Position

if TYPE_CHECKING:
    from nerve.project.config import ConfigReader

NOTIFIED_EVENTS = (
    "gate_opened",
    "gate_reminded",
    "gate_escalated",
    "gate_delegated",
    "run_completed",
    "run_failed",
    "run_cancelled",
    "run_held",
    "budget_held",
)
"""What a rule can name; `budget_held` is a run that is held because a budget is exhausted."""
PERSON_MARK = "@"
"""The beginning of a name in `to` that is a person or a role, not a channel."""
PERSON_KINDS = ("email", "slack", "telegram", "ntfy")
"""The kinds of channels that reach a person at the address in their contacts."""
BUILTIN_CHANNELS = ("bell", "desktop")
"""Channels that need no settings."""
SECURITY_KINDS = ("starttls", "tls", "none")
PRIORITIES = ("min", "low", "default", "high", "max")
MAX_PORT = 65_535
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
EMAIL_ADDRESS = re.compile(r"[^@\s<>,;\x00-\x1f]+@[^@\s<>,;\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class SecretSource:
    """Where a secret is: in an environment variable, or in a file."""

    env: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        return f"variable {self.env}" if self.env is not None else f"file {self.file}"


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """A way to reach people, such as a topic of ntfy or a chat."""

    kind: str
    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class NotifyRule:
    """Which events are sent to which channels."""

    events: tuple[str, ...]
    to: tuple[str, ...]
    workflows: tuple[str, ...] | None = None
    """The workflows whose runs count; None for all."""
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Tags that a run must have."""
    content: bool = False
    """Whether messages have the question of a gate and the error of a run."""


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """The channels by name, and the rules."""

    channels: Mapping[str, ChannelSettings] = field(default_factory=lambda: MappingProxyType({}))
    rules: tuple[NotifyRule, ...] = ()

    def kind_of(self, name: str) -> str:
        """Return the kind of a channel; one without settings is its own kind."""
        return self.channels[name].kind if name in self.channels else name


class NotifySettingsParser:
    """Parses the key `notify`; reports problems to the reader of the configuration."""

    def __init__(self, reader: ConfigReader) -> None:
        self.reader = reader

    def parse(self, source: Any, position: Position) -> NotifySettings:
        channels: dict[str, ChannelSettings] = {}
        rules: list[NotifyRule] = []
        parts = {
            key: (value, at)
            for key, value, at in self.reader.known_entries(
                source, "'notify'", NotifySettings.__slots__, position
            )
        }
        if "channels" in parts:
            value, at = parts["channels"]
            for name, settings, where in self.reader.known_entries(value, "'channels'", None, at):
                channels[name] = self._parse_channel(name, settings, where)
        if "rules" in parts:
            value, at = parts["rules"]
            for number, (rule, where) in enumerate(self._items(value, "rules of 'notify'", at), 1):
                rules.append(self._parse_rule(f"rule {number} of 'notify'", rule, where, channels))
        return NotifySettings(MappingProxyType(channels), tuple(rules))

    # -- channels ------------------------------------------------------------------------------------

    def _parse_channel(self, name: str, source: Any, position: Position) -> ChannelSettings:
        if name in BUILTIN_CHANNELS:
            self.reader.add(position, f"The channel '{name}' needs no settings", "Use another name.")
        return self.parse_service(f"channel '{name}'", source, position, CHANNEL_KEYS, REQUIRED_KEYS)

    def parse_service(
        self,
        what: str,
        source: Any,
        position: Position,
        keys_by_kind: KeysByKind,
        required_by_kind: RequiredByKind,
    ) -> ChannelSettings:
        """Return the settings of a service of one of several kinds."""
        kind = source.get("kind") if isinstance(source, LocatedMap) else None
        if isinstance(source, LocatedMap) and kind not in keys_by_kind:
            hint = did_you_mean_hint(kind, keys_by_kind) if isinstance(kind, str) else ""
            at = source.value_positions.get("kind", position)
            problem = (
                f"Unknown kind '{kind}' of {what}" if kind is not None else f"The kind of {what} is missing"
            )
            self.reader.add(at, f"{problem}{hint}", f"Valid kinds: {', '.join(keys_by_kind)}.")
            return ChannelSettings("")
        keys = keys_by_kind.get(str(kind), {})
        values: dict[str, Any] = {}
        for key, value, at in self.reader.known_entries(source, what, ("kind", *keys), position):
            if key != "kind":
                values[key] = keys[key](self, value, at, f"{key} of {what}")
        for needed in required_by_kind.get(str(kind), ()):
            if not any(alternative in values for alternative in needed):
                self.reader.add(position, f"{what[:1].upper()}{what[1:]} needs {' or '.join(needed)}")
        return ChannelSettings(str(kind), MappingProxyType(values))

    def parse_text(self, value: Any, position: Position, what: str) -> str:
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            self.reader.add(position, f"{what} must be a non-empty string in one line")
            return ""
        return value.strip()

    def parse_url(self, value: Any, position: Position, what: str) -> str:
        text = self.parse_text(value, position, what)
        if text and (problem := find_url_problem(text)):
            self.reader.add(position, f"{what} {problem}")
        return text.rstrip("/")

    def parse_secret(self, value: Any, position: Position, what: str) -> SecretSource:
        fix = 'Write {"env": "VARIABLE"} or {"file": "PATH"}.'
        if not isinstance(value, LocatedMap) or len(value) != 1 or next(iter(value)) not in ("env", "file"):
            self.reader.add(position, f"{what} must say where the secret is", fix)
            return SecretSource()
        [(key, name)] = value.items()
        return SecretSource(**{key: self.parse_text(name, position, f"{key} in {what}")})

    def parse_port(self, value: Any, position: Position, what: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_PORT:
            self.reader.add(position, f"{what} must be an integer from 1 to {MAX_PORT}")
            return 1
        return value

    def parse_addresses(self, value: Any, position: Position, what: str) -> tuple[str, ...]:
        items = value if isinstance(value, LocatedList) else [value]
        addresses = tuple(self.parse_address(item, position, what) for item in items)
        if not addresses:
            self.reader.add(position, f"{what} must name an address")
        return addresses

    def parse_address(self, value: Any, position: Position, what: str) -> str:
        if not isinstance(value, str) or not EMAIL_ADDRESS.fullmatch(value):
            self.reader.add(position, f"{what} must be an e-mail address, such as ada@example.com")
            return ""
        return value

    def parse_flag(self, value: Any, position: Position, what: str) -> bool:
        return self.reader.parse_flag(value, position, what)

    def parse_texts(self, value: Any, position: Position, what: str) -> tuple[str, ...]:
        return tuple(self.parse_text(item, at, what) for item, at in self._items(value, what, position))

    # -- rules ---------------------------------------------------------------------------------------

    def _parse_rule(
        self, what: str, source: Any, position: Position, channels: Mapping[str, ChannelSettings]
    ) -> NotifyRule:
        values: dict[str, Any] = {"events": (), "to": ()}
        keys = NotifyRule.__slots__
        for key, value, at in self.reader.known_entries(source, what, keys, position):
            name = f"{key} of {what}"
            if key == "events":
                values[key] = self._parse_names(value, at, name, "event", NOTIFIED_EVENTS)
            elif key == "to":
                values[key] = self._parse_names(value, at, name, "channel", (*channels, *BUILTIN_CHANNELS))
                self._check_people(values[key], at, name, channels)
            elif key == "workflows":
                values[key] = self._parse_names(value, at, name, "workflow")
            elif key == "tags":
                values[key] = self._parse_tags(value, at, name)
            else:
                values[key] = self.reader.parse_flag(value, at, name)
        if isinstance(source, LocatedMap):
            for key in ("events", "to"):
                if key not in source:
                    self.reader.add(position, f"{what[:1].upper()}{what[1:]} needs {key}")
        return NotifyRule(**values)

    def _parse_names(
        self, value: Any, position: Position, what: str, noun: str, known: tuple[str, ...] | None = None
    ) -> tuple[str, ...]:
        names: list[str] = []
        for name, at in self._items(value, what, position):
            if not isinstance(name, str) or not name:
                self.reader.add(at, f"{what} must be a list of names")
            elif known is not None and name not in known and not is_person_target(name):
                hint = did_you_mean_hint(name, known)
                self.reader.add(at, f"Unknown {noun} '{name}' in {what}{hint}", f"Valid: {', '.join(known)}.")
            else:
                names.append(name)
        return tuple(names)

    def _check_people(
        self, to: tuple[str, ...], position: Position, what: str, channels: Mapping[str, ChannelSettings]
    ) -> None:
        """Report people and roles in `to` that no channel can reach."""
        people = [name for name in to if is_person_target(name)]
        if people and not any(channel.kind in PERSON_KINDS for channel in channels.values()):
            self.reader.add(
                position,
                f"{what} names '{people[0]}', but no channel reaches single people",
                f"Add a channel of the kind {', '.join(PERSON_KINDS)}.",
            )

    def _parse_tags(self, value: Any, position: Position, what: str) -> Mapping[str, str]:
        tags: dict[str, str] = {}
        for name, text, at in self.reader.known_entries(value, what, None, position):
            if isinstance(text, str):
                tags[name] = text
            else:
                self.reader.add(at, f"{name} in {what} must be a string")
        return MappingProxyType(tags)

    def _items(self, value: Any, what: str, position: Position) -> Iterator[tuple[Any, Position]]:
        if not isinstance(value, LocatedList) or not value:
            self.reader.add(position, f"{what[:1].upper()}{what[1:]} must be a list with at least one entry")
            return
        for index, item in enumerate(value):
            yield item, value.value_positions.get(index, position)


def is_person_target(name: str) -> bool:
    """Whether a name in `to` is a person or a role, such as `@lead`."""
    return name.startswith(PERSON_MARK) and NAME_PATTERN.fullmatch(name[1:]) is not None


def find_url_problem(text: str) -> str:
    """Return why a text is not the address of a service; "" if it is."""
    try:
        parts = urlsplit(text)
        is_complete = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_complete = False
    if not is_complete:
        return "must be a URL that starts with https:// or http://"
    if parts.username is not None or parts.password is not None:
        return "must not contain a user name or a password"
    return ""


def parse_public_url(reader: ConfigReader, value: Any, position: Position) -> str:
    """Return the address at which people open the web page, without a slash at its end."""
    text = NotifySettingsParser(reader).parse_url(value, position, "public_url")
    if text and (urlsplit(text).query or urlsplit(text).fragment):
        reader.add(position, "public_url must have neither a query nor a fragment")
    return text


ParseValue = Callable[[NotifySettingsParser, Any, Position, str], Any]
KeysByKind = Mapping[str, Mapping[str, ParseValue]]
RequiredByKind = Mapping[str, tuple[tuple[str, ...], ...]]


def make_word_parser(allowed: tuple[str, ...]) -> ParseValue:
    """Return the parser of a setting that is one of some words."""

    def parse_word(parser: NotifySettingsParser, value: Any, position: Position, what: str) -> str:
        if value not in allowed:
            parser.reader.add(position, f"{what} must be one of {', '.join(allowed)}")
            return allowed[0]
        return str(value)

    return parse_word


TEXT, URL, SECRET = (
    NotifySettingsParser.parse_text,
    NotifySettingsParser.parse_url,
    NotifySettingsParser.parse_secret,
)
CHANNEL_KEYS: KeysByKind = {
    "webhook": {"url": URL, "secret": SECRET},
    "ntfy": {"url": URL, "topic": TEXT, "token": SECRET, "priority": make_word_parser(PRIORITIES)},
    "slack": {"webhook": SECRET, "token": SECRET, "channel": TEXT, "url": URL},
    "telegram": {"token": SECRET, "chat": TEXT, "url": URL},
    "email": {
        "host": TEXT,
        "port": NotifySettingsParser.parse_port,
        "security": make_word_parser(SECURITY_KINDS),
        "user": TEXT,
        "password": SECRET,
        "from": NotifySettingsParser.parse_address,
        "to": NotifySettingsParser.parse_addresses,
    },
    "desktop": {},
}
"""The settings of each kind of channel."""
REQUIRED_KEYS: RequiredByKind = {
    "webhook": (("url",), ("secret",)),
    "ntfy": (("topic",),),
    "slack": (("webhook", "token"),),
    "telegram": (("token",), ("chat",)),
    "email": (("host",), ("from",), ("to",)),
}
"""The settings that each kind needs; one of several is enough."""
