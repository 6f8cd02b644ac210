"""`nerve notify`: the channels of the project with what they have sent, and a message to try one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from nerve.cli.context import CliContext, run_with_api
from nerve.cli.errors import UsageError, check_action
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Parameter
from nerve.ui.formatting import count_noun, format_duration_between, format_table

if TYPE_CHECKING:
    from nerve.api.models import ChannelResponse, ChatPage, FailedMessageResponse, NotificationsResponse

ACTIONS = ("test",)
HEADINGS = ("channel", "kind", "to", "sent", "last", "waiting", "")
NO_CHANNELS = 'No channels. Add "notify" to .nerve/config.json: docs/guides/notifications.md'
NO_LINKS = 'Messages have no links. Set "public_url" in .nerve/config.json to the address of the page.'
MAX_LISTED_FAILURES = 10


def notify_command(
    action: Annotated[str | None, Parameter(name="ACTION", help="test.")] = None,
    channel: Annotated[str | None, Parameter(name="CHANNEL", help="The channel to test.")] = None,
    /,
    *,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """List the channels of notifications, what waits to be sent, and what could not be delivered.

    `nerve notify test CHANNEL` sends a message now, and says what went wrong.
    """
    check_action(action, ACTIONS, "test CHANNEL")
    if action is not None and channel is None:
        raise UsageError("The name of the channel is missing: nerve notify test CHANNEL.")

    async def do(context: CliContext) -> int:
        if action is not None:
            sent = await context.client.test_channel(channel=channel)
            text = f"Sent a test message to {sent.channel}: {sent.target}."
            context.print_result(sent, text)
            return COMPLETED
        state = await context.client.notifications()
        context.print_result(state, format_notifications(state))
        return COMPLETED

    return run_with_api(common, do, writes=False, read_only=action is None)


def format_notifications(state: NotificationsResponse) -> list[str] | str:
    """Return the lines about channels and failures."""
    if not state.channels:
        return NO_CHANNELS
    table = format_table([HEADINGS, *map(format_channel, state.channels)])
    return [*table, *format_message_notes(state, format_failed_message)]


def format_message_notes(
    page: NotificationsResponse | ChatPage, format_failure: Callable[[Any], str]
) -> list[str]:
    """Return the lines below a table of channels or chats: messages have no links, or were not delivered."""
    lines = ["", NO_LINKS] if page.public_url is None else []
    if page.failures:
        lines += ["", f"{count_noun(len(page.failures), 'message')} not delivered:"]
        lines += map(format_failure, page.failures[:MAX_LISTED_FAILURES])
    return lines


def format_ago(at: datetime | None) -> str:
    """Return how long ago a time was: `3m 05s ago`; "" for None."""
    return "" if at is None else f"{format_duration_between(at, None, datetime.now(UTC))} ago"


def format_channel(channel: ChannelResponse) -> tuple[str, ...]:
    return (
        channel.name,
        channel.kind,
        channel.target,
        str(channel.sent),
        format_ago(channel.last_sent),
        str(channel.pending),
        channel.problem or channel.error or "",
    )


def format_failed_message(failure: FailedMessageResponse) -> str:
    return f"  {format_ago(failure.failed_at)} to {failure.channel}: {failure.title}. {failure.error}"
