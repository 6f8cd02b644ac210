"""`nerve resume`: resume a waiting, parked, paused or held run."""

from __future__ import annotations

from nerve.api import ApiError
from nerve.cli.completion import RunArgument
from nerve.cli.context import CliContext, run_with_api
from nerve.cli.errors import NameNotFound
from nerve.cli.gate_answers import PresetAnswers
from nerve.cli.limit_options import parse_limit_options
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Flag, TextList

ACTIVE_STATES = ("running", "waiting")
STOPPED_STATES = ("pausing", "paused", "held")


def resume_command(
    run: RunArgument,
    /,
    *,
    with_changes: Flag = False,
    limit: TextList = (),
    answer: TextList = (),
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Resume a run of this project and follow it until it ends.

    Parameters
    ----------
    with_changes
        Resume with the current workflow definition; steps whose calls changed run again.
    limit
        NAME=NUMBER raises a limit of the run, /STEP:NAME=NUMBER that of a step. Repeatable.
    answer
        GATE=TEXT answers a gate, or sends a signal that the run waits for. Repeatable.
    """
    answers, limits = PresetAnswers(answer), parse_limit_options(limit)

    async def do(context: CliContext) -> int:
        if context.session is not None and not common.has_store:
            raise NameNotFound(f"Run '{run}' not found: {common.store_file} does not exist.")
        before = await context.client.run(run=run)
        if context.session is not None:
            from nerve.cli.session_setup import check_resumable

            check_resumable(context.session, before.run_id, with_changes, answers)
        if not with_changes:
            await context.ensure_driven(before.run_id, until_idle=False)
            if context.command_server is not None and before.state in ACTIVE_STATES:
                await context.client.resume(run=before.run_id)  # the command drives only its own runs
        elif before.state in ACTIVE_STATES:
            await context.client.pause(run=before.run_id)
        if before.state in STOPPED_STATES or (with_changes and before.state in ACTIVE_STATES):
            try:
                await context.client.resume(run=before.run_id, limits=limits, with_changes=with_changes)
            except ApiError as error:
                if error.code != "conflict":  # a run that needs another decision stays held, with its reason
                    raise
        return await context.follow_or_report(before, True, answers, before.last_seq)

    return run_with_api(common, do, serves_as="resume")
