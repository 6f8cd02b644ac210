"""Telegram: private chats, topics and threads of replies in groups, by a webhook or by asking.

A thread is `CHAT` for a private chat or a small group, `CHAT/TOPIC` for a topic, and `CHAT/rMESSAGE` for the
replies to a message of a group.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from nerve.chat.adapter import ChatAdapter, ChatDelivery, ChatMessage, find_text, find_value, read_button
from nerve.notifications.delivery import Reply
from nerve.notifications.http_channels import JSON_HEADERS, TELEGRAM_URL, check_telegram_reply
from nerve.notifications.messages import NotifyMessage

POLL_S = 25
"""Seconds for which Telegram waits for a message before it answers."""
POLL_LIMIT = 20
MAX_UPDATES_BYTES = 8 * 1024 * 1024
UPDATE_KINDS = ["message", "callback_query"]


class TelegramAdapter(ChatAdapter):
    """The chats of a bot. Without a secret for a webhook, Telegram is asked for messages."""

    service = "Telegram"
    max_chars = 3500
    places_key = "chats"
    signature = "telegram"
    has_buttons = True

    @property
    def is_polled(self) -> bool:
        return "secret" not in self._settings

    def read_delivery(self, headers: Mapping[str, str], body: Any) -> ChatDelivery:
        if isinstance(query := find_value(body, "callback_query"), Mapping):
            return self._read_button(query)
        message = find_value(body, "message")
        text = find_text(message, "text")
        thread = find_thread(message)
        if not text or thread is None or find_value(message, "from", "is_bot") is not False:
            return ChatDelivery()
        if find_value(message, "via_bot") is not None or not self.is_place_allowed(thread):
            return ChatDelivery()
        clean, is_addressed = self.read_address(text)
        replied_to = find_text(message, "reply_to_message", "from", "username")
        is_direct = find_text(message, "chat", "type") == "private"
        said = ChatMessage(
            f"{find_value(message, 'chat', 'id')}/{find_value(message, 'message_id')}",
            thread,
            str(find_value(message, "from", "id")),
            clean,
            is_addressed or is_direct or replied_to.casefold() == self.bot.casefold(),
        )
        return ChatDelivery((said,))

    def _read_button(self, query: Mapping[str, Any]) -> ChatDelivery:
        button, thread = read_button(query.get("data")), find_thread(query.get("message"), is_own=True)
        id = find_text(query, "id")
        reply = {"method": "answerCallbackQuery", "callback_query_id": id}
        if button is None or thread is None or not self.is_place_allowed(thread):
            return ChatDelivery(reply=reply)
        account = str(find_value(query, "from", "id"))
        return ChatDelivery((ChatMessage(f"button:{id}", thread, account, "", True, **button),), reply)

    def make_request(self, message: NotifyMessage) -> tuple[str, Any, Mapping[str, str]]:
        title, lines = self.compose(message)
        content: dict[str, Any] = {
            "text": "\n".join([*([title] if title else []), *lines]),
            "link_preview_options": {"is_disabled": True},
            **place_message(message.thread or ""),
        }
        if buttons := self.list_buttons(message):
            keyboard = [[{"text": label, "callback_data": value}] for label, value in buttons]
            content["reply_markup"] = {"inline_keyboard": keyboard}
        return self._method_url("sendMessage"), content, {}

    def _method_url(self, method: str) -> str:
        token = quote(self._secrets.read(self._settings["token"]), safe=":")
        return f"{self._settings.get('url', TELEGRAM_URL)}/bot{token}/{method}"

    def check_reply(self, reply: Reply) -> None:
        check_telegram_reply(reply)

    async def ask_for_updates(self, offset: int) -> list[Mapping[str, Any]]:
        """Return the updates from a number on; DeliveryFailed says why they are missing.

        Telegram forgets the updates before that number, so those must be stored.
        """
        content = {
            "offset": offset,
            "timeout": POLL_S,
            "limit": POLL_LIMIT,
            "allowed_updates": UPDATE_KINDS,
        }
        updates = check_telegram_reply(await self._call("getUpdates", content, POLL_S + 15.0))
        return [update for update in updates or [] if isinstance(update, Mapping)]

    async def send_reply(self, content: Mapping[str, Any]) -> None:
        """Send what a webhook would have answered."""
        fields = {name: value for name, value in content.items() if name != "method"}
        check_telegram_reply(await self._call(str(content["method"]), fields, 10.0))

    async def _call(self, method: str, content: Mapping[str, Any], timeout: float) -> Reply:
        data = json.dumps(content).encode()
        return await self._http.request(
            "POST", self._method_url(method), data, JSON_HEADERS, timeout, MAX_UPDATES_BYTES
        )


def find_thread(message: Any, *, is_own: bool = False) -> str | None:
    """Return the thread of a message; None without a chat. A message of a person can begin a thread."""
    chat, id = find_value(message, "chat", "id"), find_value(message, "message_id")
    if not isinstance(chat, int) or not isinstance(id, int):
        return None
    root = find_value(message, "message_thread_id")
    if find_value(message, "is_topic_message") is True and isinstance(root, int):
        return f"{chat}/{root}"
    if find_text(message, "chat", "type") != "supergroup":
        return str(chat)
    if not isinstance(root, int):
        replied_to = find_value(message, "reply_to_message", "message_id")
        root = replied_to if is_own and isinstance(replied_to, int) else id
    return f"{chat}/r{root}"


def place_message(thread: str) -> dict[str, Any]:
    """Return the fields that put a message into a thread."""
    chat, _, root = thread.partition("/")
    place: dict[str, Any] = {"chat_id": int(chat) if chat.lstrip("-").isdecimal() else chat}
    if root.startswith("r"):
        place["reply_parameters"] = {"message_id": int(root[1:]), "allow_sending_without_reply": True}
    elif root:
        place["message_thread_id"] = int(root)
    return place
