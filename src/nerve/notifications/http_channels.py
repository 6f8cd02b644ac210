"""Channels over HTTP: signed webhooks, ntfy, Slack and Telegram."""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from hashlib import sha256
from hmac import digest
from typing import Any
from urllib.parse import quote, urlsplit

from nerve.notifications.delivery import (
    ERROR_CODE,
    DeliveryFailed,
    HttpSender,
    Reply,
    SecretReader,
    check_status,
    parse_retry_after,
)
from nerve.notifications.messages import MessageText, MessageWriter, NotifyMessage

ID_HEADER = "Nerve-Message-Id"
"""Has the id of the message, by which receivers can drop a repetition."""
JSON_HEADERS = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "Nerve"}
WEBHOOK_SECRET_PREFIX = "whsec_"
NTFY_URL, SLACK_URL, TELEGRAM_URL = "https://ntfy.sh", "https://slack.com/api", "https://api.telegram.org"
NTFY_TAGS = {
    "gate_opened": "raising_hand",
    "gate_reminded": "hourglass",
    "gate_escalated": "warning",
    "gate_delegated": "raising_hand",
    "run_completed": "white_check_mark",
    "run_failed": "x",
    "run_cancelled": "stop_sign",
    "run_held": "warning",
    "budget_held": "moneybag",
}
NTFY_PRIORITIES = {"min": 1, "low": 2, "default": 3, "high": 4, "max": 5}
SLACK_TEMPORARY_ERRORS = frozenset(
    {"ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout"}
)
"""Errors in replies of Slack after which the same request may succeed later."""
MAX_SLACK_CHARS, MAX_TELEGRAM_CHARS = 3500, 4000


class HttpChannel:
    """A service that takes messages as JSON."""

    service = ""

    def __init__(
        self,
        settings: Mapping[str, Any],
        secrets: SecretReader,
        writer: MessageWriter,
        session: str,
        http: HttpSender,
    ) -> None:
        self._settings, self._secrets, self._writer = settings, secrets, writer
        self._session, self._http = session, http

    async def send(self, message: NotifyMessage) -> None:
        url, content, headers = self.make_request(message)
        data = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        named = {**JSON_HEADERS, ID_HEADER: message.id, **headers}
        self.check_reply(await self._http.post(url, data, {**named, **self.sign(message.id, data)}))

    def make_request(self, message: NotifyMessage) -> tuple[str, Any, Mapping[str, str]]:
        """Return the URL, the body and further headers of the request for a message."""
        raise NotImplementedError

    def authorize(self) -> dict[str, str]:
        """Return the header with the token of the settings; none without a token."""
        token = self._settings.get("token")
        return {} if token is None else {"Authorization": f"Bearer {self._secrets.read(token)}"}

    def sign(self, id: str, data: bytes) -> Mapping[str, str]:
        """Return headers that prove who sends a body."""
        return {}

    def check_reply(self, reply: Reply) -> None:
        """Raise DeliveryFailed unless the service has accepted the message."""
        check_status(reply, self.service)

    async def close(self) -> None:
        await self._http.close()

    def describe(self) -> str:
        raise NotImplementedError

    def find_problem(self) -> str:
        return self._secrets.find_problem(
            *(self._settings.get(key) for key in ("secret", "token", "webhook"))
        )


class WebhookChannel(HttpChannel):
    """A program that gets messages as JSON, signed as the specification of Standard Webhooks says."""

    service = "The receiver"

    def make_request(self, message: NotifyMessage) -> tuple[str, Any, Mapping[str, str]]:
        return self._settings["url"], self._writer.to_json(message, self._session), {}

    def sign(self, id: str, data: bytes) -> Mapping[str, str]:
        return sign_webhook(self._secrets.read(self._settings["secret"]), id, int(time.time()), data)

    def describe(self) -> str:
        parts = urlsplit(self._settings["url"])
        return f"{parts.scheme}://{parts.netloc}"  # the path of an address is often its secret


class NtfyChannel(HttpChannel):
    """A topic of ntfy, for phones and browsers."""

    service = "ntfy"

    def make_request(self, message: NotifyMessage) -> tuple[str, Any, Mapping[str, str]]:
        text = self._writer.write(message)
        content: dict[str, Any] = {
            "topic": self._settings["topic"],
            "title": text.title,
            "message": "\n".join(text.lines),
            "sequence_id": message.id,  # a server of 2.16 or newer shows a repetition in place of the first
            "priority": NTFY_PRIORITIES[self._settings.get("priority", "default")],
        }
        if text.link is not None:
            content["click"] = text.link
        if message.event in NTFY_TAGS:
            content["tags"] = [NTFY_TAGS[message.event]]
        return self._settings.get("url", NTFY_URL), content, self.authorize()

    def describe(self) -> str:
        return f"topic {self._settings['topic']} at {self._settings.get('url', NTFY_URL)}"


class SlackChannel(HttpChannel):
    """A channel of Slack: with the URL of an incoming webhook, or with the token of a bot."""

    service = "Slack"

    def make_request(self, message: NotifyMessage) -> tuple[str, Any, Mapping[str, str]]:
        content: dict[str, Any] = {
            "text": format_slack(self._writer.write(message)),
            "unfurl_links": False,
            "unfurl_media": False,
        }
        if (webhook := self._settings.get("webhook")) is not None:
            return self._secrets.read(webhook), content, {}
        content["channel"] = self._settings.get("channel", "")
        content["metadata"] = {"event_type": "nerve_message", "event_payload": {"id": message.id}}
        return f"{self._settings.get('url', SLACK_URL)}/chat.postMessage", content, self.authorize()

    def check_reply(self, reply: Reply) -> None:
        check_status(reply, self.service)
        if "webhook" not in self._settings:
            check_slack_reply(reply)

    def describe(self) -> str:
        name = self._settings.get("channel")
        if "webhook" in self._settings:
            return "incoming webhook"
        return f"channel {name}"

    def find_problem(self) -> str:
        if "webhook" not in self._settings and "channel" not in self._settings:
            return "A bot needs the channel to write to"
        return super().find_problem()


class TelegramChannel(HttpChannel):
    """A chat of Telegram, with the token of a bot."""

    service = "Telegram"

    def make_request(self, message: NotifyMessage) -> tuple[str, Any, Mapping[str, str]]:
        text = self._writer.write(message)
        content = {
            "chat_id": self._settings["chat"],
            "text": f"{text.title}\n{text.body}"[:MAX_TELEGRAM_CHARS],
            "link_preview_options": {"is_disabled": True},
        }
        token = quote(self._secrets.read(self._settings["token"]), safe=":")
        return f"{self._settings.get('url', TELEGRAM_URL)}/bot{token}/sendMessage", content, {}

    def check_reply(self, reply: Reply) -> None:
        check_telegram_reply(reply)

    def describe(self) -> str:
        return f"chat {self._settings['chat']}"


def sign_webhook(secret: str, id: str, timestamp: int, data: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks for a body. A secret with `whsec_` is base64."""
    key = secret.encode()
    if secret.startswith(WEBHOOK_SECRET_PREFIX):
        try:
            key = b64decode(secret.removeprefix(WEBHOOK_SECRET_PREFIX), validate=True)
        except (Base64Error, ValueError):
            raise DeliveryFailed("The secret starts with whsec_ but is not base64") from None
    signature = digest(key, f"{id}.{timestamp}.".encode() + data, sha256)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{b64encode(signature).decode()}",
    }


def format_slack(text: MessageText) -> str:
    """Return a text in the format of Slack, in which three characters are escaped."""
    lines = [f"*{escape_slack(text.title).replace('*', '∗')}*", *map(escape_slack, text.lines)]
    return "\n".join([*lines, *([text.link] if text.link else ())])[:MAX_SLACK_CHARS]


def escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def check_slack_reply(reply: Reply) -> dict[str, Any]:
    """Return the reply of a method of Slack; DeliveryFailed if it names an error."""
    data = parse_object(reply, "Slack")
    if data.get("ok") is True:
        return data
    code = str(data.get("error", ""))
    named = code if ERROR_CODE.fullmatch(code) else "unknown error"
    raise DeliveryFailed(f"Slack answered: {named}", is_final=code not in SLACK_TEMPORARY_ERRORS)


def check_telegram_reply(reply: Reply) -> Any:
    """Return the result of a method of Telegram; DeliveryFailed if it has failed."""
    if reply.status >= 500:
        check_status(reply, "Telegram")
    data = parse_object(reply, "Telegram")
    if data.get("ok") is True:
        return data.get("result")
    parameters = data.get("parameters")
    retry_after = parse_retry_after(parameters.get("retry_after")) if isinstance(parameters, dict) else None
    raise DeliveryFailed(
        f"Telegram answered {reply.status}",
        is_final=reply.status != 429 and retry_after is None,
        retry_after=retry_after,
    )


def parse_object(reply: Reply, service: str) -> dict[str, Any]:
    """Return the JSON object of a reply; DeliveryFailed for anything else."""
    try:
        data = json.loads(reply.text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise DeliveryFailed(f"{service} answered {reply.status} without a JSON object")
    return data
