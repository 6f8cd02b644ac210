"""`nerve chat`: the chats whose threads are conversations, and what was received and sent there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nerve.cli.context import CliContext, run_with_api
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.notify import format_ago, format_message_notes
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions
from nerve.ui.formatting import format_table

if TYPE_CHECKING:
    from nerve.api.models import ChatPage, ChatResponse, FailedChatMessageResponse

HEADINGS = ("chat", "kind", "as", "by", "sent", "last", "waiting", "")
NO_CHATS = 'No chats. Add "chat" to .nerve/config.json: docs/guides/chat.md'


def chat_command(*, common: CommonOptions = DEFAULT_OPTIONS) -> int:
    """List the chats of the project, what waits to be sent, and what could not be delivered."""

    async def do(context: CliContext) -> int:
        page = await context.client.chats()
        context.print_result(page, format_chats(page))
        return COMPLETED

    return run_with_api(common, do, writes=False, read_only=True)


def format_chats(page: ChatPage) -> list[str] | str:
    """Return the lines about chats and failures."""
    if not page.chats:
        return NO_CHATS
    table = format_table([HEADINGS, *map(format_chat, page.chats)])
    return [*table, *format_message_notes(page, format_failure)]


def format_chat(chat: ChatResponse) -> tuple[str, ...]:
    return (
        chat.name,
        chat.kind,
        chat.target,
        chat.delivery,
        str(chat.sent),
        format_ago(chat.last_sent),
        str(chat.received + chat.pending),
        chat.problem or chat.error or "",
    )


def format_failure(failure: FailedChatMessageResponse) -> str:
    place = f"{failure.chat}, thread {failure.thread}"
    return f"  {format_ago(failure.failed_at)} to {place}: {failure.event}. {failure.error}"
