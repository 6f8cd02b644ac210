"""Commands that change a run: `nerve answer`, `approve`, `reject`, `pause`, `steer`, `stop` and others."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from nerve.api import ApiError
from nerve.api.models import GateResponse
from nerve.cli.context import (
    DEFAULT_OPTIONS,
    CliContext,
    CommonOptions,
    RunArgument,
    format_command,
    run_with_api,
)
from nerve.cli.errors import UsageError, with_full_stop
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.gate_answers import gate_display_name, gate_names
from nerve.cli.limit_options import parse_limit_options
from nerve.cli.parameters import TextList
from nerve.cli.run_follower import outcome_from_run
from nerve.cli.run_reporting import WaitOption, follow_or_report
from nerve.cli.workflow_inputs import parse_json_or_text
from nerve.commander.core import gate_selection
from nerve.ui.gate_names import APPROVE_WORDS, REJECT_WORDS, resolve_typed_choice

GateOption = Annotated[
    str | None, Parameter(help="Gate id, name or path. Required if several gates are open.")
]
KeyOption = Annotated[
    str | None, Parameter(help="Idempotency key: a repeated command with the same key has no further effect.")
]
ReasonOption = Annotated[str, Parameter(help="Reason, stored with the run.")]


def answer_gate_command(
    run: RunArgument,
    answer: Annotated[
        str,
        Parameter(name="ANSWER", help="The answer, the number of a choice, or JSON for a form."),
    ],
    /,
    *,
    gate: GateOption = None,
    reason: ReasonOption = "",
    key: KeyOption = None,
    wait: WaitOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Answer an open gate of a run. A choice can be given by its number."""
    metadata = {"key": key, "reason": reason}
    return run_with_api(
        common, lambda context: submit_choice(context, run, gate, metadata, wait, lambda open_gate: answer)
    )


def approve_gate_command(
    run: RunArgument,
    /,
    *,
    gate: GateOption = None,
    reason: ReasonOption = "",
    key: KeyOption = None,
    wait: WaitOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Answer an open gate of a run with its approving choice."""
    metadata = {"key": key, "reason": reason}
    return run_with_api(
        common,
        lambda context: submit_choice(
            context, run, gate, metadata, wait, lambda open_gate: choice_for_words(open_gate, APPROVE_WORDS)
        ),
    )


def reject_gate_command(
    run: RunArgument,
    /,
    *,
    gate: GateOption = None,
    reason: ReasonOption = "",
    key: KeyOption = None,
    wait: WaitOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Answer an open gate of a run with its rejecting choice."""
    metadata = {"key": key, "reason": reason}
    return run_with_api(
        common,
        lambda context: submit_choice(
            context, run, gate, metadata, wait, lambda open_gate: choice_for_words(open_gate, REJECT_WORDS)
        ),
    )


def choice_for_words(gate: GateResponse, words: tuple[str, ...]) -> str:
    """Return the only choice of a gate that matches one of the words, or raise UsageError."""
    try:
        return gate_selection.match_choice(
            gate, words, lambda gate, text: format_command("answer", gate.run_id, text)
        )
    except gate_selection.AmbiguousAnswer as error:
        raise UsageError(with_full_stop(str(error))) from None


async def submit_choice(
    context: CliContext, run: str, gate: str | None, metadata: dict[str, str | None], wait: bool, choose: Any
) -> int:
    run_id = await context.ensure_driven(run)
    before = await context.client.run(run=run_id)
    request: dict[str, Any] = {"run": run_id, **metadata}
    matching = exact = [
        candidate for candidate in before.gates if gate is None or gate in gate_names(candidate)
    ]
    if gate is not None and not exact:
        matching = [
            candidate
            for candidate in before.gates
            if any(name.startswith(gate) for name in gate_names(candidate))
        ]
    if len(matching) == 1:
        text = choose(matching[0])
        # For a prefix, the API checks that no closed gate has exactly this name.
        request |= {
            "gate": matching[0].gate_id if exact else gate,
            "answer": resolve_typed_choice(text, matching[0].choices or []),
        }
    elif len(matching) > 1:
        names = ", ".join(f"{candidate.gate_id} ({gate_display_name(candidate)})" for candidate in matching)
        raise ApiError("conflict", f"Several gates are open: {names}", "Select one: --gate GATE")
    else:  # the API reports why: answered, closed or unknown
        request |= {
            "gate": gate,
            "answer": choose(
                GateResponse(gate_id="", run_id=run_id, path="/", prompt="", options=["yes", "no"])
            ),
        }
    await context.client.answer(**request)
    after = await context.client.run(run=run_id)
    return await follow_or_report(
        context, after, wait, known_seq=before.last_seq, action_text="Answered. The run continues"
    )


def pause_command(
    run: RunArgument, /, *, key: KeyOption = None, common: CommonOptions = DEFAULT_OPTIONS
) -> int:
    """Pause a run: running steps finish, and no new steps start. Resume it with `nerve resume`."""

    async def do(context: CliContext) -> int:
        response = await context.client.pause(run=run, key=key)
        context.print_result(outcome_from_run(response).to_dict(), f"{response.run_id} {response.state}")
        return COMPLETED

    return run_with_api(common, do)


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

    async def do(context: CliContext) -> int:
        response = await context.client.steer(run=run, text=text, path=path, key=key)
        context.print_result(response, f"Sent to {response.path} of run {response.run_id}")
        return COMPLETED

    return run_with_api(common, do)


def stop_command(
    run: RunArgument,
    /,
    *,
    reason: ReasonOption = "",
    key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Stop a run and everything it started."""

    async def do(context: CliContext) -> int:
        response = await context.client.stop(run=run, reason=reason, key=key)
        context.print_result(outcome_from_run(response).to_dict(), f"{response.run_id} {response.state}")
        return COMPLETED

    return run_with_api(common, do)


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

    async def do(context: CliContext) -> int:
        before = await context.client.run(run=run)
        response = await context.client.retry(run=run, path=path, key=key)
        is_same_run = response.run_id == before.run_id
        return await follow_or_report(
            context,
            response,
            wait,
            known_seq=before.last_seq if is_same_run else 0,
            action_text="Retried. The run continues",
        )

    return run_with_api(common, do)


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

    async def do(context: CliContext) -> int:
        before = await context.client.run(run=run)
        held_path = path or str((before.held or {}).get("path") or "")
        parsed_output = None if output is None else parse_json_or_text(output)
        response = await context.client.skip(run=run, path=held_path, output=parsed_output, key=key)
        return await follow_or_report(
            context, response, wait, known_seq=before.last_seq, action_text="Skipped. The run continues"
        )

    return run_with_api(common, do)


def fork_command(
    run: RunArgument,
    /,
    *,
    at: str | None = None,
    input: str | None = None,
    override: TextList = (),
    limit: TextList = (),
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
    """
    changes: dict[str, Any] = {} if input is None else {"input": parse_json_or_text(input)}
    if override:
        changes["overrides"] = parse_overrides(override)
    if limit:
        changes["limits"] = parse_limit_options(limit)

    async def do(context: CliContext) -> int:
        response = await context.client.fork(run=run, at=at, key=key, **changes)
        return await follow_or_report(context, response, wait, action_text="Started")

    return run_with_api(common, do)


def parse_overrides(options: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    parsed: dict[str, dict[str, Any]] = {}
    for option in options:
        target, equals, value = option.partition("=")
        path, colon, name = target.rpartition(":")
        if not (equals and colon and path and name):
            raise UsageError(f"--override must be PATH:NAME=VALUE, got '{option}'.")
        parsed.setdefault(path, {})[name] = parse_json_or_text(value)
    return parsed
