"""`nerve route`: find the workflow for a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from nerve.cli.context import CliContext, run_with_api
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Flag, Parameter, WaitOption, format_command

if TYPE_CHECKING:
    from nerve.api.models import RouteResponse


def route_command(
    text: Annotated[str, Parameter(name="TEXT", help="A request in plain language.")],
    /,
    *,
    start: Flag = False,
    wait: WaitOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Find the workflow for a text.

    Parameters
    ----------
    start
        Start the workflow.
    """

    async def do(context: CliContext) -> int:
        response = await context.client.route(text=text, start=start)
        for warning in (response.model_extra or {}).get("warnings", ()):
            context.info(f"warning: {warning}")
        if response.run is not None:
            context.info(f"{response.workflow}: {response.reason or 'selected by an agent'}")
            return await context.follow_or_report(response.run, wait, action_text="Started")
        context.print_result(response, format_route(response))
        if response.reason and not common.json:
            context.info(f"({response.reason})")
        return COMPLETED

    return run_with_api(common, do, writes=start)


def format_route(response: RouteResponse) -> list[str]:
    """Return the selected workflow, or the question of the router with the commands that start candidates."""
    if response.kind == "workflow":
        return [f"{response.workflow}  {response.text}".rstrip()]
    extra = response.model_extra or {}
    start_commands = [format_command("start", name, response.text) for name in extra.get("candidates", ())]
    return [
        f"{response.kind}  {extra.get('question') or extra.get('reply') or response.text}".rstrip(),
        *start_commands,
    ]
