"""What is the same for every chat: who is addressed, what is said about gates, and how requests are sent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from nerve.lazy_dataclass import dataclass
from nerve.notifications.http_channels import HttpChannel
from nerve.notifications.messages import REPLY_EVENT, NotifyMessage

if TYPE_CHECKING:
    from nerve.core.workflow.state import GateInfo

BUTTON_HASH_CHARS = 16
"""The characters of the hash of a question that a button has: services limit what a button can carry."""
MAX_BUTTONS = 10
MAX_BUTTON_CHARS = 60
MAX_TEXT_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message that a service has delivered."""

    key: str
    """The same for every delivery of the message."""
    thread: str
    account: str
    text: str
    """Without what addresses Nerve."""
    is_addressed: bool
    gate: str | None = None
    """The gate that a button answers, the number of the answer, and the beginning of the hash."""
    choice: int | None = None
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class ChatDelivery:
    """What a request of a service delivers, and the body that it expects back."""

    messages: tuple[ChatMessage, ...] = ()
    reply: Mapping[str, Any] | None = None


class ChatAdapter(HttpChannel):
    """A chat: reads what a service delivers, and writes messages into threads."""

    max_chars: ClassVar[int] = 3000
    """The longest content of one message."""
    places_key: ClassVar[str] = ""
    """The setting with the places that may be used."""
    signature: ClassVar[str] = ""
    """The scheme of the signatures of the service."""
    has_buttons: ClassVar[bool] = False

    @property
    def has_content(self) -> bool:
        """Whether messages have questions, results and other free text."""
        return bool(self._settings["content"])

    @property
    def bot(self) -> str:
        """The account that writes the messages, as the service names it."""
        return str(self._settings["bot"]).removeprefix("@")

    def read_secret(self) -> str:
        """Return the secret that signs deliveries; DeliveryFailed if it is missing."""
        return self._secrets.read(self._settings["secret"])

    @property
    def is_polled(self) -> bool:
        """Whether the service has to be asked for messages."""
        return False

    def read_delivery(self, headers: Mapping[str, str], body: Any) -> ChatDelivery:
        """Return what a signed request delivers. Headers are in lower case."""
        raise NotImplementedError

    def is_place_allowed(self, thread: str) -> bool:
        """Whether messages in a thread are read and written."""
        places = self._settings.get(self.places_key)
        return places is None or self.place_of(thread).casefold() in [place.casefold() for place in places]

    def place_of(self, thread: str) -> str:
        """Return the repository, the channel or the chat of a thread."""
        return thread.partition("/")[0]

    def mention_pattern(self) -> re.Pattern[str]:
        """Return what mentions the bot in a text."""
        return re.compile(rf"(?<![\w@/.-])@{re.escape(self.bot)}\b(?!-)", re.IGNORECASE)

    def mention(self) -> str:
        """Return how people mention the bot."""
        return f"@{self.bot}"

    def read_address(self, text: str) -> tuple[str, bool]:
        """Return a text without what addresses the bot, and whether it does: a mention, or the prefix."""
        prefix = self._settings.get("prefix")
        stripped = text.strip()
        if prefix and re.match(rf"{re.escape(prefix)}(\s|$)", stripped, re.IGNORECASE):
            return stripped[len(prefix) :].strip(), True
        pattern = self.mention_pattern()
        if pattern.search(stripped) is None:
            return stripped, False
        return pattern.sub("", stripped, count=1).strip(" \t\n:,"), True

    def explain_answer(self, gate: GateInfo) -> str:
        """Return how a person answers a gate in the thread."""
        name = gate.node_id or gate.gate_id
        answers = gate.choices or gate.options
        address = self._settings.get("prefix") or self.mention()
        if answers and self.has_buttons and len(answers) <= MAX_BUTTONS:
            return f"Press a button, or write: {address} {answers[0]}"
        return f"Answer with: {address} {answers[0] if answers else f'answer {name} TEXT'}"

    def compose(self, message: NotifyMessage) -> tuple[str, Sequence[str]]:
        """Return the title of a message, "" for a reply, and its other lines."""
        text = self._writer.write(message)
        lines = [*text.lines, *([text.link] if text.link is not None else [])]
        return ("" if message.event == REPLY_EVENT else text.title), lines

    def list_buttons(self, message: NotifyMessage) -> list[tuple[str, str]]:
        """Return the labels of the buttons of a message with what they carry."""
        event = message.events[0]
        choices = event.choices or []
        if event.hash is None or event.gate is None or len(choices) > MAX_BUTTONS:
            return []
        begin = event.hash[:BUTTON_HASH_CHARS]
        return [
            (choice[:MAX_BUTTON_CHARS], f"{event.gate}:{number}:{begin}")
            for number, choice in enumerate(choices)
        ]

    def describe(self) -> str:
        places = self._settings.get(self.places_key)
        where = f" in {', '.join(places)}" if places else ""
        return f"{self.service}, as {self.mention()}{where}"

    def find_problem(self) -> str:
        return self._secrets.find_problem(self._settings.get("token"), self._settings.get("secret"))


def read_button(data: Any) -> dict[str, Any] | None:
    """Return the fields of a message from what a button carries; None if Nerve has not made the button."""
    parts = data.split(":") if isinstance(data, str) else []
    if len(parts) != 3 or not parts[1].isdecimal() or len(parts[2]) != BUTTON_HASH_CHARS:
        return None
    return {"gate": parts[0], "choice": int(parts[1]), "hash": parts[2]}


def find_value(data: Any, *path: str) -> Any:
    """Return a value inside objects; None if an object on the way is missing."""
    for name in path:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def find_text(data: Any, *path: str) -> str:
    """Return a text inside objects, shortened to what a message can have; "" if it is missing."""
    value = find_value(data, *path)
    return value[:MAX_TEXT_CHARS] if isinstance(value, str) else ""
