"""`nerve notify`: the channels of the project with what they have sent, and a message to try one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from nerve.cli.context import CliContext, run_with_api
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Parameter
from nerve.cli.queues import format_table
from nerve.core.suggest import did_you_mean_hint
from nerve.ui.formatting import count_noun, format_duration_between

if TYPE_CHECKING:
    from nerve.api.models import ChannelResponse, FailedMessageResponse, NotificationsResponse

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
    if action is not None and action not in ACTIONS:
        hint = did_you_mean_hint(action, ACTIONS)
        raise UsageError(f"Unknown action '{action}'{hint or '. Use test CHANNEL.'}")
    if action is not None and channel is None:
        raise UsageError("The name of the channel is missing: nerve notify test CHANNEL.")

    async def do(context: CliContext) -> int:
        if action is not None:
            sent = await context.client.test_channel(channel=channel)
            text = f"Sent a test message to {sent.channel}: {sent.target}."
            context.print_result(sent.model_dump(mode="json"), text)
            return COMPLETED
        state = await context.client.notifications()
        context.print_result(state.model_dump(mode="json"), format_notifications(state))
        return COMPLETED

    return run_with_api(common, do, writes=False, read_only=action is None)


def format_notifications(state: NotificationsResponse) -> list[str] | str:
    """Return the lines about channels and failures."""
    if not state.channels:
        return NO_CHANNELS
    lines = format_table([HEADINGS, *map(format_channel, state.channels)])
    if state.public_url is None:
        lines += ["", NO_LINKS]
    if state.failures:
        lines += ["", f"{count_noun(len(state.failures), 'message')} not delivered:"]
        lines += map(format_failure, state.failures[:MAX_LISTED_FAILURES])
    return lines


def format_channel(channel: ChannelResponse) -> tuple[str, ...]:
    last = channel.last_sent
    ago = "" if last is None else f"{format_duration_between(last, None, datetime.now(UTC))} ago"
    return (
        channel.name,
        channel.kind,
        channel.target,
        str(channel.sent),
        ago,
        str(channel.pending),
        channel.problem or channel.error or "",
    )


def format_failure(failure: FailedMessageResponse) -> str:
    ago = format_duration_between(failure.failed_at, None, datetime.now(UTC))
    return f"  {ago} ago to {failure.channel}: {failure.title}. {failure.error}"
