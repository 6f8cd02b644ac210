"""`nerve gc`: list old runs, and delete them with --yes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nerve.cli.completion import RunArgument
from nerve.cli.context import CliContext, run_with_api
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.operations import KeyOption
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Flag, format_command
from nerve.cli.trust import confirm, is_at_terminal

if TYPE_CHECKING:
    from nerve.api.models import DeleteRunsResponse, KeptRun

DAYS_PER_UNIT = {"h": 1 / 24, "d": 1, "w": 7}
MAX_AGE_DAYS = 36_500
"""Upper limit of age options, in days."""
MAX_LISTED_RUNS = 20
"""Number of runs the report lists."""


def gc_command(
    *,
    older_than: str = "30d",
    output_older_than: str | None = None,
    yes: Flag = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """List runs that ended long ago. With --yes, delete them with their logs and artifacts.

    Open runs and their child runs are kept, whatever their age. For a run with work in a workspace, the
    command asks on a terminal, and otherwise prints how to look at the work and how to give it up.

    Parameters
    ----------
    older_than
        Minimum age of ended runs, such as 30d, 2w or 36h; at least one day.
    output_older_than
        In the remaining runs, clear agent output older than this.
    yes
        Delete. Without it, nothing changes.
    """
    request = {"older_than": parse_age_days(older_than, "--older-than", 1), "dry_run": not yes}
    if output_older_than is not None:
        request["output_older_than"] = parse_age_days(output_older_than, "--output-older-than")

    async def do(context: CliContext) -> int:
        report = await context.client.collect(**request)
        if report.kept and yes and is_at_terminal() and not (context.common.json or context.common.quiet):
            given_up = [run.run_id for run in report.kept if ask_to_discard(run)]
            if given_up:
                report = add_reports(report, await context.client.collect(**request, discard=given_up))
        context.print_result(report, format_gc_report(report))
        if report.dry_run and (report.runs or report.chunks):
            context.info("Nothing was changed. To delete, add --yes")
        return COMPLETED

    return run_with_api(common, do)


def ask_to_discard(run: KeptRun) -> bool:
    """Ask the user whether to delete a run with work that is not merged. Only "y" and "yes" accept."""
    names = ", ".join(run.workspaces)
    return confirm(f"Run {run.run_id} of {run.workflow} has work that is not merged in {names}. Delete both?")


def add_reports(one: DeleteRunsResponse, other: DeleteRunsResponse) -> DeleteRunsResponse:
    """Return what two requests have deleted, and the runs that stay after the second."""
    counts = ("runs", "events", "bytes", "files", "chunks", "chunk_bytes", "replies")
    sums = {name: getattr(one, name) + getattr(other, name) for name in counts}
    return other.model_copy(update={**sums, "oldest": [*one.oldest, *other.oldest]})


def delete_command(
    run: RunArgument, /, *, key: KeyOption = None, common: CommonOptions = DEFAULT_OPTIONS
) -> int:
    """Delete a run that has ended, with its child runs, logs and artifacts."""

    async def do(context: CliContext) -> int:
        report = await context.client.delete(run=run, key=key)
        context.print_result(report, format_gc_report(report))
        return COMPLETED

    return run_with_api(common, do)


def parse_age_days(text: str, option: str, min_days: int = 0) -> float:
    """Parse an age such as 30d and return it in days."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", text.strip())
    if match is None:
        raise UsageError(f"{option} must be a duration such as 30d, 2w or 36h, got '{text}'.")
    number = float(match[1]) * DAYS_PER_UNIT[match[2]]
    if not min_days <= number <= MAX_AGE_DAYS:
        between = (
            f"between {min_days} and {MAX_AGE_DAYS:,} days" if min_days else f"at most {MAX_AGE_DAYS:,} days"
        )
        raise UsageError(f"{option} must be {between}, got '{text}'.")
    return number


def format_gc_report(report: DeleteRunsResponse) -> list[str]:
    would = "would be " if report.dry_run else ""
    rows = [
        f"{run.run_id}  {run.workflow}  {run.state}  {run.ended_at.astimezone():%Y-%m-%d}"
        for run in report.oldest[:MAX_LISTED_RUNS]
    ]
    if report.runs > len(rows):
        rows.append(f"… and {report.runs - len(rows)} more")
    details = f"{report.events} events, {report.bytes:,} bytes, {report.files} logs and artifacts"
    rows.append(f"{report.runs} runs {would}deleted ({details})" if report.runs else "No old runs.")
    for run in report.kept[:MAX_LISTED_RUNS]:
        names = ", ".join(run.workspaces)
        rows.append(f"{run.run_id}  {run.workflow}  stays: its work in {names} is not merged")
        rows.append(f"    {format_command('workspaces', 'diff', f'{run.run_id}/{run.workspaces[0]}')}")
        rows += [
            f"    {format_command('workspaces', 'remove', f'{run.run_id}/{name}', '--discard')}"
            for name in run.workspaces
        ]
    if report.chunks:
        rows.append(f"{report.chunks} output chunks {would}cleared ({report.chunk_bytes:,} bytes)")
    return rows
