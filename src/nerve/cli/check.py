"""`nerve check`: report all problems of a project."""

from __future__ import annotations

from nerve.cli.completion import WorkflowName
from nerve.cli.exit_codes import COMPLETED, FAILED
from nerve.cli.parameters import Flag
from nerve.ui.sanitize import dump_safe_json, sanitize_text

NO_WORKFLOWS_MESSAGE = "No workflows found. Create workflows in .nerve/workflows/, or name a file."


def check_command(*targets: WorkflowName, json: Flag = False, quiet: Flag = False) -> int:
    """Report all problems in workflows. The exit code is 1 if there are errors.

    Nothing is executed or imported.

    Parameters
    ----------
    targets
        Workflow files or workflow names. Default: all workflows of the project.
    json
        Print one JSON object with all problems.
    quiet
        Print only problems.
    """
    from nerve.cli.project_checker import check_project

    report = check_project(targets)
    if json:
        print(dump_safe_json(report.to_dict()))
    else:
        for problem in report.problems:
            print(sanitize_text(str(problem)))
        if not quiet:
            print(report.summary() if report.workflow_count or report.problems else NO_WORKFLOWS_MESSAGE)
    return FAILED if report.error_count else COMPLETED
