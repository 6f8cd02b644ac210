"""Execute one operation of the API as a command, and print its response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from nerve.cli.context import CliContext, run_with_api
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import CommonOptions, Parameter, format_resume_command

KeyOption = Annotated[
    str | None, Parameter(help="Idempotency key: a repeated command with the same key has no further effect.")
]
ReasonOption = Annotated[str, Parameter(help="Reason, stored with the run.")]
ValueArgument = Annotated[str | None, Parameter(name="VALUE", help="JSON, or plain text.")]
NO_SERVER_NOTICE = (
    "No server is running. To resume runs that wait for this: `nerve resume RUN`, or `nerve serve`."
)
ResponseLines = Callable[[Any], str | list[str]]
"""Returns the output lines of a response."""


def execute_operation(
    common: CommonOptions,
    operation: str,
    request: dict[str, Any],
    format_response: ResponseLines,
    *,
    wakes_runs: bool = False,
    read_only: bool = False,
) -> int:
    """Execute one operation of the API and print its response, or the list in it; return the exit code.

    An operation that `wakes_runs` creates the store if necessary. Without a server, the runs that it wakes
    continue in this process until they are idle.
    """

    async def do(context: CliContext) -> int:
        response: Any = await context.client.perform(operation, request)
        context.print_result(result_payload(response), format_response(response))
        if wakes_runs and context.session is not None:
            from nerve.cli.session_setup import wait_until_idle

            await wait_until_idle(context.session)
            context.info(await describe_woken_run(context, request.get("run")))
        return COMPLETED

    return run_with_api(common, do, writes=wakes_runs, read_only=read_only)


async def describe_woken_run(context: CliContext, run_name: str | None) -> str:
    """Return the state in which this process leaves the run, or all runs that an operation has woken."""
    if run_name is None:
        return NO_SERVER_NOTICE
    from nerve.cli.outcome import PARKED, state_when_idle

    run = await context.client.run(run=run_name)
    state = state_when_idle(run)
    if state == PARKED:
        resume = format_resume_command(context.common, run.run_id)
        return f"Run {run.run_id} is parked. Resume with: {resume}"
    return f"Run {run.run_id} is {state}" + (f" {run.waiting_for}" if run.waiting_for else "")


def result_payload(response: Any) -> Any:
    """Return the JSON form of a response: a run as its outcome, a page of facts as their list."""
    from nerve.api.models import FactPage, RunResponse

    if isinstance(response, RunResponse):
        from nerve.cli.outcome import outcome_from_run

        return outcome_from_run(response).to_dict()
    if isinstance(response, FactPage):
        return response.facts
    return response


def format_run_state(run: Any) -> str:
    return f"{run.run_id} {run.state}"


def parse_value(text: str | None) -> Any:
    """Return an optional argument that is JSON, or plain text."""
    from nerve.ui.typed_options import parse_json_or_text

    return None if text is None else parse_json_or_text(text)
