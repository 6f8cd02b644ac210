"""GitHub: comments of issues, pull requests and reviews.

A thread is `OWNER/REPOSITORY#NUMBER`, followed by `:COMMENT` for a thread of a review, whose first comment
it names.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from nerve.chat.adapter import ChatAdapter, ChatDelivery, ChatMessage, find_text, find_value
from nerve.chat.texts import disarm_mentions
from nerve.notifications.delivery import DeliveryFailed, Reply, check_status
from nerve.notifications.messages import NotifyMessage

GITHUB_URL = "https://api.github.com"
MARKER = "<!-- nerve-message: "
"""Begins the comment in the source of each message, with its id; Nerve never answers such a message."""
LIMIT_PAUSE_S = 60.0
"""Seconds to wait for after a refusal for too many requests that does not say how long."""
THREAD = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)#(?P<number>\d+)(:(?P<comment>\d+))?")
QUOTED_LINE = re.compile(r"^[ ]{0,3}>.*$\n?", re.MULTILINE)
CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


class GithubAdapter(ChatAdapter):
    """Comments of repositories, with the token of a machine account or of an app."""

    service = "GitHub"
    max_chars = 30_000
    places_key = "repositories"
    signature = "github"

    def read_delivery(self, headers: Mapping[str, str], body: Any) -> ChatDelivery:
        kind, action = headers.get("x-github-event", ""), find_text(body, "action")
        names = {"issue_comment": "comment", "pull_request_review_comment": "comment", "issues": "issue"}
        is_new = action == ("opened" if kind == "issues" else "created")
        if kind not in names or not is_new:
            return ChatDelivery()
        written = find_value(body, names[kind])
        if self._is_own(written) or (thread := self._find_thread(kind, body)) is None:
            return ChatDelivery()
        text = find_text(written, "body")
        if kind == "issues":
            text = f"{find_text(body, 'issue', 'title')}\n\n{text}"
        # A mail can quote a message that has addressed Nerve before.
        said = QUOTED_LINE.sub("", text).strip()
        _, is_addressed = self.read_address(CODE.sub("", said))
        clean, _ = self.read_address(said)
        login = find_text(written, "user", "login")
        message = ChatMessage(f"{kind}:{find_value(written, 'id')}", thread, login, clean, is_addressed)
        return ChatDelivery((message,))

    def _is_own(self, written: Any) -> bool:
        """Whether a bot has written something, or this program with the account of a person."""
        login = find_text(written, "user", "login").casefold()
        own = self.bot.casefold()
        return (
            find_text(written, "user", "type") == "Bot"
            or login in ("", own, f"{own}[bot]")
            or find_value(written, "performed_via_github_app") is not None
            or MARKER in find_text(written, "body")
        )

    def _find_thread(self, kind: str, body: Any) -> str | None:
        place = "pull_request" if kind == "pull_request_review_comment" else "issue"
        thread = f"{find_text(body, 'repository', 'full_name')}#{find_value(body, place, 'number')}"
        if place == "pull_request":
            comment = find_value(body, "comment")
            thread += f":{find_value(comment, 'in_reply_to_id') or find_value(comment, 'id')}"
        is_known = THREAD.fullmatch(thread) is not None and self.is_place_allowed(thread)
        return thread if is_known else None

    def place_of(self, thread: str) -> str:
        return thread.partition("#")[0]

    def make_request(self, message: NotifyMessage) -> tuple[str, Any, Mapping[str, str]]:
        match = THREAD.fullmatch(message.thread or "")
        if match is None:
            raise DeliveryFailed(f"'{message.thread}' is not a thread of GitHub", is_final=True)
        base = f"{self._settings.get('url', GITHUB_URL)}/repos/{match['repository']}"
        if match["comment"]:
            url = f"{base}/pulls/{match['number']}/comments/{match['comment']}/replies"
        else:
            url = f"{base}/issues/{match['number']}/comments"
        title, lines = self.compose(message)
        text = disarm_mentions("\n\n".join([*([f"**{title}**"] if title else []), *lines]))
        own = text.replace(disarm_mentions(self.mention()), self.mention())
        headers = {
            **self.authorize(),
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        return url, {"body": f"{own}\n\n{MARKER}{message.id} -->"}, headers

    def check_reply(self, reply: Reply) -> None:
        """Raise DeliveryFailed; a refusal for too many requests has the status 403 or 429."""
        remaining = reply.headers.get("x-ratelimit-remaining")
        is_limit = reply.status == 403 and (
            reply.retry_after is not None or remaining == "0" or "secondary rate limit" in reply.text
        )
        if reply.status == 429 or is_limit:
            pause = reply.retry_after
            if pause is None and remaining == "0":
                pause = read_reset(reply.headers.get("x-ratelimit-reset"))
            raise DeliveryFailed(
                f"GitHub answered {reply.status}: too many requests", retry_after=pause or LIMIT_PAUSE_S
            )
        if reply.status == 401:
            # A token of an app is replaced every hour: the next attempt reads it again.
            raise DeliveryFailed("GitHub answered 401: the token is not valid")
        check_status(reply, self.service)


def read_reset(text: str | None) -> float | None:
    """Return the seconds until the time at which GitHub accepts requests again."""
    return max(1.0, int(text) - time.time()) if text is not None and text.isdecimal() else None
