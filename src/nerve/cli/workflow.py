"""`nerve workflow`: define, list and reload workflows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from nerve.cli.context import CliContext, run_with_api
from nerve.cli.exit_codes import COMPLETED, FAILED
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Flag, Parameter
from nerve.text.source import InvalidDefinition, Problem
from nerve.ui.sanitize import sanitize_line

NO_WORKFLOWS_MESSAGE = "No workflows found. Create workflows in .nerve/workflows/, or run: nerve init"


def workflow_define_command(
    file: Annotated[Path, Parameter(name="FILE", help="A workflow file in JSON, YAML or Lisp.")],
    /,
    *,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Define a workflow from a file in this project and its server, permanently."""
    from nerve.cli.show import load_checked_target
    from nerve.notations import definition_in

    checked = load_checked_target(str(file))
    if checked.errors:
        raise InvalidDefinition(checked.errors)

    async def do(context: CliContext) -> int:
        defined = await context.client.define(**definition_in(file))
        response = await context.client.workflow(workflow=defined.id)
        context.print_result(response, f"{response.id} defined")
        return COMPLETED

    return run_with_api(common, do, writes=True)


def workflow_list_command(*, all: Flag = False, common: CommonOptions = DEFAULT_OPTIONS) -> int:
    """List the workflows of the project with their steps and open runs.

    Parameters
    ----------
    all
        Include workflows that .nerve/config.json disables.
    """

    async def do(context: CliContext) -> int:
        workflows = (await context.client.workflows(all=all)).workflows
        runs = [
            run for run in (await context.client.runs(limit=1000, largest=0)).runs if run.ended_at is None
        ]
        lines = []
        for workflow in workflows:
            off = "" if workflow.enabled else "  (disabled)"
            lines.append(
                f"{workflow.id}{off}  {sanitize_line(' '.join(workflow.description.split()))}".rstrip()
            )
            lines += [f"  Steps: {sanitize_line(' → '.join(workflow.steps))}"] if workflow.steps else []
            lines += [
                f"  {run.run_id} {sanitize_line(run.label or '')} {run.state}"
                for run in runs
                if run.workflow == workflow.id
            ]
        for problem in context.problems:
            context.info(str(Problem.from_dict(problem)))
        payload = [workflow.model_dump(mode="json") for workflow in workflows]
        open_runs = [run.model_dump(mode="json") for run in runs]
        context.print_result(
            {"workflows": payload, "runs": open_runs, "problems": context.problems},
            lines or NO_WORKFLOWS_MESSAGE,
        )
        return COMPLETED

    return run_with_api(common, do, read_only=True, definitions=True)


def workflow_reload_command(*, common: CommonOptions = DEFAULT_OPTIONS) -> int:
    """Reload the workflow definitions. Open runs keep theirs. The exit code is 1 if there are problems."""

    async def do(context: CliContext) -> int:
        response = await context.client.reload()
        for problem in response.problems:
            context.info(str(Problem.from_dict(problem)))
        for name in response.removed:
            context.info(f"{name} removed, because its file was deleted; its open runs continue")
        if response.python_files and context.session is None:
            files = ", ".join(response.python_files)
            context.info(f"Not reloaded: {files}. The server loads Python code only at startup.")
            context.info("Restart it: nerve server restart")
        context.print_result(response, f"Reloaded {response.workflows} workflow(s).")
        return FAILED if response.problems else COMPLETED

    return run_with_api(common, do)
