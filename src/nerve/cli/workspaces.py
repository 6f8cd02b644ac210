"""`nerve workspaces`: list the checkouts of runs, show their changes, and remove them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from nerve.cli.context import CliContext, run_with_api
from nerve.cli.errors import UsageError, check_action
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Flag, Parameter, format_command
from nerve.ui.formatting import count_noun
from nerve.ui.sanitize import sanitize_text
from nerve.ui.workspace_lines import list_files

if TYPE_CHECKING:
    from nerve.workspaces.checkout import Workspaces
    from nerve.workspaces.records import WorkspaceRecord

ACTIONS = ("diff", "remove")
ActionArgument = Annotated[str | None, Parameter(name="ACTION", help="diff or remove.")]
NameArgument = Annotated[
    str | None, Parameter(name="RUN/NAME", help="The workspace, as it is listed; or the run alone.")
]
DiscardOption = Annotated[Flag, Parameter(help="With remove: also discard work that is not merged.")]


def workspaces_command(
    action: ActionArgument = None,
    name: NameArgument = None,
    /,
    *,
    discard: DiscardOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """List the workspaces of this project: checkouts of runs that are open, or whose work is not merged.

    `diff` prints the work of one as a patch. `remove` removes one whose run has ended; its work must be
    merged, or --discard says to give it up. Its snapshots stay until the run is deleted.
    """
    check_action(action, ACTIONS, "diff NAME or remove NAME")
    if action is not None and name is None:
        raise UsageError(f"The name of the workspace is missing: nerve workspaces {action} RUN/NAME.")
    if discard and action != "remove":
        raise UsageError("--discard is for removing: nerve workspaces remove RUN/NAME --discard.")

    async def do(context: CliContext) -> int:
        from nerve.workspaces.checkout import Workspaces

        workspaces = Workspaces(Path())
        if action is None or name is None:
            report = [describe_workspace(workspaces, record) for record in workspaces.files.records()]
            lines = [line for each in report for line in format_workspace(each)]
            context.print_result(report, lines or "No workspaces.")
            return COMPLETED
        record = find_workspace(workspaces, name)
        if action == "diff":
            diff = workspaces.diff(record)
            text = sanitize_text(diff) if diff else "No changes."
            context.print_result({"run": record.run, "name": record.name, "diff": diff}, text.rstrip("\n"))
            return COMPLETED
        await check_run_has_ended(context, record.run)
        state = workspaces.close(record, discard=discard)
        if state.has_work and not discard:
            shown = format_command("workspaces", "remove", f"{record.run}/{record.name}", "--discard")
            work = state.problem or format_work(state.files, state.commits)
            raise UsageError(f"'{record.name}' has work that is not merged ({work}). To give it up: {shown}")
        if workspaces.files.load(record.run, record.name) is not None:
            raise UsageError(f"'{record.name}' cannot be removed: {state.problem}.")
        context.print_result({"run": record.run, "name": record.name, "removed": True}, "Removed.")
        return COMPLETED

    return run_with_api(common, do, read_only=True)


async def check_run_has_ended(context: CliContext, run: str) -> None:
    """Raise UsageError for a run that is open; a run that was deleted has ended."""
    from nerve.api.errors import ApiError

    try:
        status = await context.client.run(run=run)
    except ApiError:
        return
    if status.state not in ("completed", "failed", "cancelled"):
        raise UsageError(f"Run '{run}' is {status.state} and needs its workspace. Stop it: nerve stop {run}")


def describe_workspace(workspaces: Workspaces, record: WorkspaceRecord) -> dict[str, Any]:
    state = workspaces.state(record)
    return {
        "run": record.run,
        "name": record.name,
        "step": record.step,
        "kind": record.kind,
        "branch": record.branch,
        "folder": str(workspaces.directory(record).relative_to(workspaces.project)),
        "files": state.files,
        "commits": state.commits,
        "conflicts": record.unresolved,
        "problem": state.problem,
    }


def format_workspace(report: dict[str, Any]) -> list[str]:
    """Return its name, its work, and where both are; the names are too long for the columns of a table."""
    problem, has_work = report["problem"], report["files"] or report["commits"]
    work = format_work(report["files"], report["commits"]) if has_work or not problem else ""
    if report["conflicts"]:
        work += f", in conflict: {list_files(report['conflicts'])}"
    work = "; ".join(filter(None, (work, problem)))
    lines = [f"{report['run']}/{report['name']}  {work}", f"    folder {report['folder']}"]
    return [
        sanitize_text(line)
        for line in [*lines, *([f"    branch {report['branch']}"] * bool(report["branch"]))]
    ]


def format_work(files: list[str], commits: int) -> str:
    """Return how much work there is: `2 changed files, 1 commit`."""
    parts = [
        count_noun(len(files), "changed file") if files else "",
        count_noun(commits, "commit") if commits else "",
    ]
    return ", ".join(filter(None, parts)) or "no work of its own"


def find_workspace(workspaces: Workspaces, name: str) -> WorkspaceRecord:
    """Return the workspace of a name: RUN/NAME, or the run alone if it has only one."""
    run, _, workspace = name.partition("/")
    records = list(workspaces.files.records())
    found = [each for each in records if each.run.startswith(run) and workspace in ("", each.name)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{each.run}/{each.name}" for each in found or records) or "none"
    problem = "is the name of several workspaces" if found else "is not a workspace"
    raise UsageError(f"'{name}' {problem}. Workspaces: {known}.")
