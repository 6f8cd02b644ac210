"""Commands to a run: `nerve pause`, `steer`, `send`, `update`, `query`, `stop`, `retry`, `skip`, `fork`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from nerve.api import ApiError
from nerve.cli.completion import RunArgument
from nerve.cli.context import CliContext, format_api_error, run_with_api
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED, REFUSED
from nerve.cli.limit_options import parse_limit_options
from nerve.cli.operations import (
    KeyOption,
    ReasonOption,
    ValueArgument,
    execute_operation,
    format_run_state,
    parse_value,
)
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Parameter, TextList, WaitOption
from nerve.ui.sanitize import dump_safe_json


def pause_command(
    run: RunArgument, /, *, key: KeyOption = None, common: CommonOptions = DEFAULT_OPTIONS
) -> int:
    """Pause a run: running steps finish, and no new steps start. Resume it with `nerve resume`."""
    return execute_operation(common, "pause", {"run": run, "key": key}, format_run_state)


def steer_command(
    run: RunArgument,
    text: Annotated[str, Parameter(name="TEXT", help="The message.", allow_leading_hyphen=True)],
    /,
    *,
    path: str | None = None,
    key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Send a message to a working agent on the project server.

    Parameters
    ----------
    path
        Path of the step. Optional if only one agent is working.
    """
    request = {"run": run, "text": text, "path": path, "key": key}
    return execute_operation(
        common, "steer", request, lambda sent: f"Sent to {sent.path} of run {sent.run_id}"
    )


def send_command(
    run: RunArgument,
    channel: Annotated[str, Parameter(name="CHANNEL", help="The channel that the run receives from.")],
    value: ValueArgument = None,
    /,
    *,
    key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Send a message to the mailbox of a run; it is kept until the run receives it.

    VALUE is JSON, or plain text.
    """
    request = {"run": run, "channel": channel, "value": parse_value(value), "key": key}
    return execute_operation(common, "send", request, format_sent, wakes_runs=True)


def format_sent(response: Any) -> str:
    return f"Sent to channel '{response.channel}' of run {response.run_id}"


def update_command(
    run: RunArgument,
    update: Annotated[str, Parameter(name="UPDATE", help="The name of the update.")],
    value: ValueArgument = None,
    /,
    *,
    key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Let the code of a run handle an update, and print its reply as JSON.

    VALUE is JSON, or plain text.
    """
    request = {"run": run, "update": update, "value": parse_value(value), "key": key}
    return execute_operation(common, "update", request, format_reply, wakes_runs=True)


def query_command(
    run: RunArgument,
    query: Annotated[str, Parameter(name="QUERY", help="The name of the query.")],
    /,
    *,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Ask the code of a run about its state, and print the answer as JSON."""
    return execute_operation(common, "query", {"run": run, "query": query}, format_reply)


def format_reply(response: Any) -> str:
    """Return the result of a query or an update as JSON."""
    return dump_safe_json(response.result)


def stop_command(
    run: RunArgument,
    /,
    *,
    reason: ReasonOption = "",
    key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Stop a run and everything it started."""
    return execute_operation(common, "stop", {"run": run, "reason": reason, "key": key}, format_run_state)


def retry_command(
    run: RunArgument,
    /,
    *,
    path: str = "",
    key: KeyOption = None,
    wait: WaitOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Retry a held run, or start a copy of a failed run from its first failure.

    Parameters
    ----------
    path
        Path of the step to run again, if the run is held.
    """
    request = {"run": run, "path": path, "key": key}
    return continue_run(common, "retry", request, wait, "Retried. The run continues")


def skip_command(
    run: RunArgument,
    /,
    *,
    path: str = "",
    output: str | None = None,
    key: KeyOption = None,
    wait: WaitOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Skip the step that a run is held at, as if it had completed.

    Parameters
    ----------
    path
        Path of the step. Default: the step the run is held at.
    output
        Output of the skipped step: JSON, or plain text.
    """
    request = {"run": run, "path": path, "output": parse_value(output), "key": key}
    return continue_run(common, "skip", request, wait, "Skipped. The run continues")


def fork_command(
    run: RunArgument,
    /,
    *,
    at: str | None = None,
    input: str | None = None,
    override: TextList = (),
    limit: TextList = (),
    definition: str | None = None,
    dry_run: bool = False,
    key: KeyOption = None,
    wait: WaitOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Start a run that reuses the completed steps of another run up to a path.

    Parameters
    ----------
    at
        Path of the first step to run again.
    input
        New input of that step, or of the workflow: JSON, or plain text.
    override
        PATH:NAME=VALUE changes a setting of a step, which then runs again. Repeatable.
    limit
        NAME=NUMBER raises a limit of the run, /STEP:NAME=NUMBER that of a step. Repeatable.
    definition
        Hash of another definition of the workflow, or `current`. Default: that of the run.
    dry_run
        Only show which steps would be reused and which would run again.
    """
    request: dict[str, Any] = {"run": run, "at": at}
    if definition is not None:
        request["definition"] = definition
    if input is not None:
        request["input"] = parse_value(input)
    if override:
        request["overrides"] = parse_overrides(override)
    if dry_run:
        return run_with_api(common, partial(show_fork_preview, request=request))
    if limit:
        request["limits"] = parse_limit_options(limit)
    return continue_run(common, "fork", {**request, "key": key}, wait, "Started")


FATE_TEXTS = {
    "reused": "reused",
    "reused_if_same": "reused if its input stays the same",
    "continues": "continues",
    "again": "runs again",
    "held": "held: its outcome is unknown",
}


async def show_fork_preview(context: CliContext, request: dict[str, Any]) -> int:
    """Print what a fork would reuse and run again."""
    overrides, has_input = request.pop("overrides", {}), "input" in request
    if has_input and request["at"] is None:
        has_input = request["input"] != (await context.client.run(run=request["run"])).input
    request.pop("input", None)
    preview = await context.client.preview_fork(**request, new_input=has_input, overridden=list(overrides))
    width = max((len(step.path) for step in preview.steps), default=0)
    lines = [f"{step.path:<{width}}  {FATE_TEXTS[step.fate]}" for step in preview.steps]
    if preview.refusal is not None:
        error = ApiError.from_dict(preview.refusal)
        context.info(f"The fork would be refused: {format_api_error(error)}")
    context.print_result(preview, lines)
    return COMPLETED if preview.refusal is None else REFUSED


def continue_run(
    common: CommonOptions, operation: str, request: dict[str, Any], wait: bool, action_text: str
) -> int:
    """Execute an operation after which a run continues, or a new run starts; report or follow it."""

    async def do(context: CliContext) -> int:
        before = await context.client.run(run=request["run"])
        if operation == "skip" and not request["path"]:
            request["path"] = str((before.held or {}).get("path") or "")
        run: Any = await context.client.perform(operation, request)
        known_seq = before.last_seq if run.run_id == before.run_id else 0
        return await context.follow_or_report(run, wait, known_seq=known_seq, action_text=action_text)

    return run_with_api(common, do, serves_as=operation)


def parse_overrides(options: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    parsed: dict[str, dict[str, Any]] = {}
    for option in options:
        target, equals, value = option.partition("=")
        path, colon, name = target.rpartition(":")
        if not (equals and colon and path and name):
            raise UsageError(f"--override must be PATH:NAME=VALUE, got '{option}'.")
        parsed.setdefault(path, {})[name] = parse_value(value)
    return parsed
