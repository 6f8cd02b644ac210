"""Output of commands after which a run continues, on the server or in this process."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from nerve.api.models import RunResponse
from nerve.cli.context import CliContext, Flag, format_command, format_resume_command
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.gate_answers import PresetAnswers
from nerve.cli.outcome_output import print_outcome
from nerve.cli.run_follower import RunFollower, outcome_from_run

WaitOption = Annotated[
    Flag, Parameter(help="Follow the run until it ends or waits for an answer. Always on without a server.")
]


async def follow_or_report(
    context: CliContext,
    run: RunResponse,
    wait: bool,
    answers: PresetAnswers | None = None,
    known_seq: int = 0,
    action_text: str = "",
) -> int:
    """Report that a run continues on the server, or follow it; return the exit code."""
    if context.session is None and not wait:
        context.print_result(outcome_from_run(run).to_dict(), run.run_id)
        if not context.common.json:
            watch = format_command("watch", run.run_id)
            context.info(f"{action_text or 'The run continues'} on the server. Follow it: {watch}")
        return COMPLETED
    outcome = await RunFollower(context, run.run_id, answers, known_seq).follow()
    return print_outcome(
        outcome,
        format_resume_command(context.common, outcome.run_id),
        context.common.json,
        context.out,
        context.common.quiet,
    )
