"""Slack: threads of channels and direct messages, by the Events API and the buttons of messages.

A thread is `CHANNEL/TS`, with the time stamp of its first message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from nerve.chat.adapter import ChatAdapter, ChatDelivery, ChatMessage, find_text, find_value, read_button
from nerve.notifications.delivery import Reply, check_status
from nerve.notifications.http_channels import SLACK_URL, check_slack_reply, escape_slack
from nerve.notifications.messages import NotifyMessage

SPOKEN_SUBTYPES = (None, "thread_broadcast", "file_share")
"""The subtypes of messages that people write; others are edits, deletions, joins and bots."""
LINK = re.compile(r"<(?P<address>[^<>|]+)(\|(?P<label>[^<>]*))?>")
MAX_FALLBACK_CHARS = 2900
"""The longest text of a section, and so of a message with buttons."""


class SlackAdapter(ChatAdapter):
    """A workspace, with the token and the signing secret of an app."""

    service = "Slack"
    max_chars = 2400
    places_key = "channels"
    signature = "slack"
    has_buttons = True

    def read_delivery(self, headers: Mapping[str, str], body: Any) -> ChatDelivery:
        if isinstance(body, Mapping) and isinstance(body.get("payload"), str):
            return self._read_action(body["payload"])
        if find_text(body, "type") == "url_verification":
            return ChatDelivery(reply={"challenge": find_text(body, "challenge")})
        event = find_value(body, "event")
        if find_text(body, "type") != "event_callback" or not self._is_spoken(event):
            return ChatDelivery()
        channel, ts = find_text(event, "channel"), find_text(event, "ts")
        thread = f"{channel}/{find_text(event, 'thread_ts') or ts}"
        if not self.is_place_allowed(thread):
            return ChatDelivery()
        text, is_addressed = self.read_address(find_text(event, "text"))
        is_direct = find_text(event, "channel_type") == "im"
        # A mention is delivered as two events, app_mention and message, with ids of their own.
        message = ChatMessage(
            f"{channel}/{ts}",
            thread,
            find_text(event, "user"),
            plain_text(text),
            is_addressed or is_direct or find_text(event, "type") == "app_mention",
        )
        return ChatDelivery((message,))

    def _is_spoken(self, event: Any) -> bool:
        """Whether a person has written a new message."""
        return (
            find_text(event, "type") in ("message", "app_mention")
            and find_value(event, "subtype") in SPOKEN_SUBTYPES
            and find_value(event, "bot_id") is None
            and find_text(event, "user") not in ("", self.bot)
            and find_value(event, "edited") is None
        )

    def _read_action(self, payload: str) -> ChatDelivery:
        """Return the message for a button that was pressed."""
        try:
            data = json.loads(payload)
        except ValueError:
            return ChatDelivery()
        actions = find_value(data, "actions")
        action = actions[0] if isinstance(actions, list) and actions else None
        button = read_button(find_value(action, "value"))
        channel = find_text(data, "channel", "id")
        root = find_text(data, "message", "thread_ts") or find_text(data, "message", "ts")
        thread = f"{channel}/{root}"
        if find_text(data, "type") != "block_actions" or button is None or not self.is_place_allowed(thread):
            return ChatDelivery()
        account, at = find_text(data, "user", "id"), find_text(action, "action_ts")
        return ChatDelivery((ChatMessage(f"action:{account}:{at}", thread, account, "", True, **button),))

    def mention_pattern(self) -> re.Pattern[str]:
        return re.compile(rf"<@{re.escape(self.bot)}(\|[^<>]*)?>")

    def mention(self) -> str:
        return f"<@{self.bot}>"

    def describe(self) -> str:
        return super().describe().replace(self.mention(), self.bot)

    def make_request(self, message: NotifyMessage) -> tuple[str, Any, Mapping[str, str]]:
        channel, _, root = (message.thread or "").partition("/")
        title, lines = self.compose(message)
        shown = [f"*{escape_slack(title).replace('*', '∗')}*"] if title else []
        text = "\n".join([*shown, *map(escape_slack, lines)])
        text = text.replace(escape_slack(self.mention()), self.mention())
        content: dict[str, Any] = {
            "channel": channel,
            "thread_ts": root,
            "text": text,
            "unfurl_links": False,
            "unfurl_media": False,
            "metadata": {"event_type": "nerve_message", "event_payload": {"id": message.id}},
        }
        if (buttons := self.list_buttons(message)) and len(text) <= MAX_FALLBACK_CHARS:
            elements = [
                {
                    "type": "button",
                    "text": {"type": "plain_text", "text": label},
                    "value": value,
                    "action_id": f"nerve-{number}",
                }
                for number, (label, value) in enumerate(buttons)
            ]
            section = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
            content["blocks"] = [section, {"type": "actions", "elements": elements}]
        return f"{self._settings.get('url', SLACK_URL)}/chat.postMessage", content, self.authorize()

    def check_reply(self, reply: Reply) -> None:
        check_status(reply, self.service)
        check_slack_reply(reply)


def plain_text(text: str) -> str:
    """Return a text as it was typed: Slack marks links and escapes three characters."""

    def show_link(match: re.Match[str]) -> str:
        address = match["address"]
        return str(match["label"] or address) if address[0] in "@#!" else str(address)

    shown = LINK.sub(show_link, text)
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()
