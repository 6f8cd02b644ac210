"""`nerve chat`: the chats whose threads are conversations, and what was received and sent there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nerve.cli.context import CliContext, run_with_api
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.notify import NO_LINKS
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions
from nerve.cli.queues import format_table
from nerve.ui.formatting import count_noun, format_duration_between

if TYPE_CHECKING:
    from nerve.api.models import ChatPage, ChatResponse, FailedChatMessageResponse

HEADINGS = ("chat", "kind", "as", "by", "sent", "last", "waiting", "")
NO_CHATS = 'No chats. Add "chat" to .nerve/config.json: docs/guides/chat.md'
MAX_LISTED_FAILURES = 10


def chat_command(*, common: CommonOptions = DEFAULT_OPTIONS) -> int:
    """List the chats of the project, what waits to be sent, and what could not be delivered."""

    async def do(context: CliContext) -> int:
        page = await context.client.chats()
        context.print_result(page.model_dump(mode="json"), format_chats(page))
        return COMPLETED

    return run_with_api(common, do, writes=False, read_only=True)


def format_chats(page: ChatPage) -> list[str] | str:
    """Return the lines about chats and failures."""
    if not page.chats:
        return NO_CHATS
    lines = format_table([HEADINGS, *map(format_chat, page.chats)])
    if page.public_url is None:
        lines += ["", NO_LINKS]
    if page.failures:
        lines += ["", f"{count_noun(len(page.failures), 'message')} not delivered:"]
        lines += map(format_failure, page.failures[:MAX_LISTED_FAILURES])
    return lines


def format_chat(chat: ChatResponse) -> tuple[str, ...]:
    last = chat.last_sent
    ago = "" if last is None else f"{format_duration_between(last, None, datetime.now(UTC))} ago"
    return (
        chat.name,
        chat.kind,
        chat.target,
        chat.delivery,
        str(chat.sent),
        ago,
        str(chat.received + chat.pending),
        chat.problem or chat.error or "",
    )


def format_failure(failure: FailedChatMessageResponse) -> str:
    ago = format_duration_between(failure.failed_at, None, datetime.now(UTC))
    return f"  {ago} ago to {failure.chat}, thread {failure.thread}: {failure.event}. {failure.error}"
