"""Stand-ins of the APIs of GitHub, Slack and Telegram on loopback, as their documentation describes them.

Each keeps what was posted, refuses what the service refuses, and delivers events with signatures. A delivery
that is not answered with 200 is repeated, as the services do.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import httpx2

from nerve.triggers.webhook_signatures import sign_request
from notifications.receiver import PlannedReply, ReceivedRequest, Receiver, receiving

SECRET = "a-secret-for-tests"
TOKEN = "12345:a-token-for-tests"
PATIENCE_S, DELIVERY_PATIENCE_S = 20.0, 120.0
JSON = "application/json"


class StandIn:
    """What the three services have in common."""

    signature = ""

    def __init__(self, receiver: Receiver) -> None:
        self.url, self.receiver = receiver.url, receiver
        receiver.reply = self.answer
        self.posts: list[dict[str, Any]] = []
        """The messages that the service has accepted, oldest first."""
        self.refusals: list[PlannedReply] = []
        """What the next messages are refused with."""
        self.lock = threading.Lock()
        self.statuses: list[int] = []
        """The statuses with which deliveries were answered."""

    def answer(self, request: ReceivedRequest) -> PlannedReply:
        raise NotImplementedError

    def accept(self, post: dict[str, Any]) -> PlannedReply | None:
        """Keep a message; return a refusal instead if one is planned."""
        with self.lock:
            if self.refusals:
                return self.refusals.pop(0)
            self.posts.append(post)
        return None

    async def wait_for_posts(self, count: int) -> list[dict[str, Any]]:
        """Return the messages as soon as there are so many."""
        return await self.wait_until(lambda posts: len(posts) >= count)

    async def wait_for_text(self, text: str) -> dict[str, Any]:
        """Return the first message with a text as soon as there is one."""
        posts = await self.wait_until(lambda posts: any(text in post["text"] for post in posts))
        return next(post for post in posts if text in post["text"])

    async def wait_until(self, is_enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        deadline = time.monotonic() + PATIENCE_S
        while not is_enough(self.posts):
            assert time.monotonic() < deadline, self.posts
            await asyncio.sleep(0.01)
        return self.posts

    async def send(
        self, client: httpx2.AsyncClient, path: str, body: bytes, kind: str = JSON, **headers: str
    ) -> httpx2.Response:
        """Deliver an event once."""
        signed = sign_request(self.signature, SECRET, body, time.time())
        response = await client.post(path, content=body, headers={"content-type": kind, **signed, **headers})
        self.statuses.append(response.status_code)
        return response

    async def deliver(
        self, client: httpx2.AsyncClient, path: str, body: bytes, kind: str = JSON, **headers: str
    ) -> httpx2.Response:
        """Deliver an event until it is answered with 200."""
        deadline = time.monotonic() + DELIVERY_PATIENCE_S
        for number in itertools.count():
            retry = {"x-slack-retry-num": str(number)} if number and self.signature == "slack" else {}
            try:
                response = await self.send(client, path, body, kind, **headers, **retry)
                if response.status_code == 200:
                    return response
            except (httpx2.HTTPError, OSError):
                pass
            assert time.monotonic() < deadline, self.statuses[-5:]
            await asyncio.sleep(0.05)
        raise AssertionError


class GithubStandIn(StandIn):
    """Comments of issues and reviews. A comment of the bot is delivered as every other one."""

    signature = "github"

    def __init__(self, receiver: Receiver, login: str = "nerve-bot", kind: str = "User") -> None:
        super().__init__(receiver)
        self._numbers = itertools.count(100)
        self._login, self._kind = login, kind
        self.own_deliveries: list[tuple[str, bytes]] = []
        """The deliveries about comments of the bot, with their events."""

    def answer(self, request: ReceivedRequest) -> PlannedReply:
        parts = request.path.strip("/").split("/")
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return PlannedReply(401, {"message": "Bad credentials"})
        if request.headers.get("x-github-api-version") != "2022-11-28" or parts[0] != "repos":
            return PlannedReply(400, {"message": "Bad request"})
        body = request.json["body"]
        if not 0 < len(body) <= 65_536:
            return PlannedReply(422, {"message": "Validation Failed"})
        repository, rest = "/".join(parts[1:3]), parts[3:]
        is_review = len(rest) == 5 and rest[0] == "pulls" and rest[4] == "replies"
        if not is_review and (len(rest) != 3 or rest[::2] != ["issues", "comments"]):
            return PlannedReply(404, {"message": "Not Found"})
        number = next(self._numbers)
        refusal = self.accept({"path": request.path, "text": body, "id": number})
        if refusal is not None:
            return refusal
        place = {"pull_request": int(rest[1])} if is_review else {"issue": int(rest[1])}
        event, data = self.make_comment(self._login, body, repository, number, kind=self._kind, **place)
        self.own_deliveries.append((event, data))
        return PlannedReply(201, {"id": number})

    def make_comment(
        self,
        login: str,
        body: str,
        repository: str = "ada/tools",
        id: int | None = None,
        *,
        issue: int = 12,
        pull_request: int | None = None,
        in_reply_to: int | None = None,
        action: str = "created",
        kind: str = "User",
    ) -> tuple[str, bytes]:
        """Return the event and the body of the delivery about a comment."""
        comment = {
            "id": next(self._numbers) if id is None else id,
            "body": body,
            "user": {"login": login, "type": kind},
        }
        data: dict[str, Any] = {"action": action, "comment": comment, "repository": {"full_name": repository}}
        if pull_request is None:
            return "issue_comment", json.dumps({**data, "issue": {"number": issue}}).encode()
        if in_reply_to is not None:
            comment["in_reply_to_id"] = in_reply_to
        return "pull_request_review_comment", json.dumps(
            {**data, "pull_request": {"number": pull_request}}
        ).encode()

    async def comment(self, client: httpx2.AsyncClient, login: str, body: str, **place: Any) -> bytes:
        """Deliver a comment of a person; return the body of the delivery."""
        event, data = self.make_comment(login, body, **place)
        await self.redeliver(client, event, data)
        return data

    async def redeliver(self, client: httpx2.AsyncClient, event: str, data: bytes) -> None:
        headers = {"x-github-event": event, "x-github-delivery": f"d-{next(self._numbers)}"}
        await self.deliver(client, "/chat/code", data, **headers)


class SlackStandIn(StandIn):
    """Channels with threads. An event that is not answered in time is delivered again with its number."""

    signature = "slack"
    bot = "U0BOT"

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(receiver)
        self._stamps = itertools.count(1)

    def make_ts(self) -> str:
        return f"1763570496.{next(self._stamps):06}"

    def answer(self, request: ReceivedRequest) -> PlannedReply:
        if request.path != "/chat.postMessage":
            return PlannedReply(200, {"ok": False, "error": "unknown_method"})
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return PlannedReply(200, {"ok": False, "error": "invalid_auth"})
        content = request.json
        if len(content["text"]) > 40_000 or any(
            len(block["text"]["text"]) > 3000 for block in content.get("blocks", ()) if "text" in block
        ):
            return PlannedReply(200, {"ok": False, "error": "msg_too_long"})
        if content["channel"] == "CGONE":
            return PlannedReply(200, {"ok": False, "error": "channel_not_found"})
        if (
            refusal := self.accept({**content, "id": content["metadata"]["event_payload"]["id"]})
        ) is not None:
            return refusal
        return PlannedReply(200, {"ok": True, "channel": content["channel"], "ts": self.make_ts()})

    def make_event(self, user: str, text: str, **fields: Any) -> dict[str, Any]:
        ts = self.make_ts()
        event = {"type": "message", "user": user, "text": text, "ts": ts, "channel": "C1", **fields}
        return {
            "type": "event_callback",
            "team_id": "T1",
            "event_id": f"Ev{ts}",
            "event": {"channel_type": "channel", **event},
        }

    async def say(self, client: httpx2.AsyncClient, user: str, text: str, **fields: Any) -> dict[str, Any]:
        """Deliver a message, as a mention and as a message if it mentions the bot; return the event."""
        data = self.make_event(user, text, **fields)
        await self.deliver(client, "/chat/team", json.dumps(data).encode())
        if f"<@{self.bot}>" in text and "type" not in fields:
            mention = {**data, "event_id": f"{data['event_id']}m"}
            mention["event"] = {**data["event"], "type": "app_mention"}
            await self.deliver(client, "/chat/team", json.dumps(mention).encode())
        return dict(data["event"])

    async def press(self, client: httpx2.AsyncClient, user: str, post: dict[str, Any], label: str) -> None:
        """Press a button of a message."""
        elements = post["blocks"][1]["elements"]
        value = next(each["value"] for each in elements if each["text"]["text"] == label)
        payload = {
            "type": "block_actions",
            "user": {"id": user},
            "channel": {"id": post["channel"]},
            "message": {"ts": self.make_ts(), "thread_ts": post["thread_ts"]},
            "actions": [{"type": "button", "value": value, "action_ts": self.make_ts()}],
        }
        body = urlencode({"payload": json.dumps(payload)}).encode()
        await self.deliver(client, "/chat/team", body, "application/x-www-form-urlencoded")


class TelegramStandIn(StandIn):
    """Chats of a bot, which is asked for updates or has a webhook."""

    signature = "telegram"
    bot = "nerve_bot"

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(receiver)
        self._numbers = itertools.count(1)
        self.updates: list[dict[str, Any]] = []
        """The updates that were not confirmed."""
        self.answered_buttons: list[str] = []
        self.has_webhook = False
        self.most_polls = self._polls = 0
        """The most requests for updates that came at the same time."""

    def answer(self, request: ReceivedRequest) -> PlannedReply:
        token, _, method = request.path.removeprefix("/bot").partition("/")
        if token != TOKEN:
            return self._refuse(401, "Unauthorized")
        content = request.json
        if method == "getUpdates":
            return self._answer_poll(content)
        if method == "answerCallbackQuery":
            self.answered_buttons.append(content["callback_query_id"])
            return PlannedReply(200, {"ok": True, "result": True})
        if method != "sendMessage":
            return self._refuse(404, "Not Found")
        if not 0 < len(content["text"]) <= 4096:
            return self._refuse(400, "Bad Request: message is too long")
        for row in content.get("reply_markup", {}).get("inline_keyboard", ()):
            if any(not 0 < len(button["callback_data"].encode()) <= 64 for button in row):
                return self._refuse(400, "Bad Request: BUTTON_DATA_INVALID")
        post = {**content, "id": request.headers["nerve-message-id"]}
        if (refusal := self.accept(post)) is not None:
            return refusal
        return PlannedReply(200, {"ok": True, "result": {"message_id": next(self._numbers)}})

    def _refuse(self, status: int, description: str) -> PlannedReply:
        return PlannedReply(status, {"ok": False, "error_code": status, "description": description})

    def _answer_poll(self, content: dict[str, Any]) -> PlannedReply:
        if self.has_webhook:
            return self._refuse(409, "Conflict: can't use getUpdates method while webhook is active")
        end = time.monotonic() + min(content["timeout"], 0.2)
        with self.lock:
            self._polls += 1
            self.most_polls = max(self._polls, self.most_polls)
            self.updates = [each for each in self.updates if each["update_id"] >= content["offset"]]
        while not self.updates and time.monotonic() < end:
            time.sleep(0.01)
        with self.lock:
            self._polls -= 1
        return PlannedReply(200, {"ok": True, "result": self.updates[: content["limit"]]})

    def say(self, user: int, text: str, chat: int | None = None, **fields: Any) -> dict[str, Any]:
        """Add the update about a message of a person; return it."""
        kind = "private" if chat is None else "supergroup"
        message = {
            "message_id": next(self._numbers),
            "from": {"id": user, "is_bot": False},
            "chat": {"id": user if chat is None else chat, "type": kind},
            "text": text,
            **fields,
        }
        return self.add_update({"message": message})

    def press(self, user: int, post: dict[str, Any], label: str) -> dict[str, Any]:
        """Add the update about a button of a message."""
        buttons = [button for row in post["reply_markup"]["inline_keyboard"] for button in row]
        data = next(button["callback_data"] for button in buttons if button["text"] == label)
        kind = "supergroup" if post["chat_id"] < 0 else "private"
        message: dict[str, Any] = {
            "message_id": next(self._numbers),
            "chat": {"id": post["chat_id"], "type": kind},
            "from": {"id": 1, "is_bot": True, "username": self.bot},
        }
        if "message_thread_id" in post:
            message |= {"message_thread_id": post["message_thread_id"], "is_topic_message": True}
        elif "reply_parameters" in post:
            message["reply_to_message"] = {"message_id": post["reply_parameters"]["message_id"]}
        query = {"id": str(next(self._numbers)), "from": {"id": user, "is_bot": False}, "data": data}
        return self.add_update({"callback_query": {**query, "message": message}})

    def add_update(self, update: dict[str, Any]) -> dict[str, Any]:
        update = {"update_id": next(self._numbers), **update}
        with self.lock:
            self.updates.append(update)
        return update

    async def push(self, client: httpx2.AsyncClient, update: dict[str, Any]) -> httpx2.Response:
        """Deliver an update to the webhook; execute the method in the response."""
        response = await self.deliver(client, "/chat/phone", json.dumps(update).encode())
        if response.json().get("method") == "answerCallbackQuery":
            self.answered_buttons.append(response.json()["callback_query_id"])
        return response


@contextmanager
def github() -> Iterator[GithubStandIn]:
    with receiving() as receiver:
        yield GithubStandIn(receiver)


@contextmanager
def slack() -> Iterator[SlackStandIn]:
    with receiving() as receiver:
        yield SlackStandIn(receiver)


@contextmanager
def telegram() -> Iterator[TelegramStandIn]:
    with receiving() as receiver:
        yield TelegramStandIn(receiver)
