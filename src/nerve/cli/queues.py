"""`nerve queues`: list the queues of the project, pause and resume them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from nerve.cli.context import CliContext, run_with_api
from nerve.cli.errors import UsageError, check_action
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Parameter
from nerve.ui.formatting import format_duration_between, format_queue_limits, format_queue_notes, format_table

if TYPE_CHECKING:
    from nerve.api.models import QueueResponse

ACTIONS = ("pause", "resume")
HEADINGS = ("queue", "limits", "running", "waiting", "oldest", "")


def queues_command(
    action: Annotated[str | None, Parameter(name="ACTION", help="pause or resume.")] = None,
    name: Annotated[str | None, Parameter(name="NAME", help="The queue to pause or resume.")] = None,
    /,
    *,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """List the queues with their limits, what runs in them and what waits.

    `nerve queues pause NAME` starts nothing more that needs the queue, also after a restart, until
    `nerve queues resume NAME`.
    """
    check_action(action, ACTIONS, "pause NAME or resume NAME")
    if action is not None and name is None:
        raise UsageError(f"The name of the queue is missing: nerve queues {action} NAME.")

    async def do(context: CliContext) -> int:
        if action is not None:
            client, is_paused = context.client, action == "pause"
            changed = await (client.pause_queue(queue=name) if is_paused else client.resume_queue(queue=name))
            state = "paused" if changed.paused else "resumed"
            context.print_result(changed, f"Queue {changed.name} is {state}.")
            return COMPLETED
        queues = (await context.client.queues()).queues
        rows = format_table([HEADINGS, *map(format_queue, queues)]) if queues else "No queues."
        context.print_result(queues, rows)
        return COMPLETED

    return run_with_api(common, do, writes=action is not None, read_only=action is None)


def format_queue(queue: QueueResponse) -> tuple[str, ...]:
    oldest = queue.oldest_wait
    waited = "" if oldest is None else format_duration_between(oldest, None, datetime.now(UTC))
    return (
        queue.name,
        format_queue_limits(queue),
        str(queue.running),
        str(queue.waiting),
        waited,
        format_queue_notes(queue),
    )
