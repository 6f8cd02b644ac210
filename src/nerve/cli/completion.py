"""Shell completion of argument values: workflows, runs and states of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from nerve.cli.parameters import Parameter

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from nerve.api.models import RunResponse

MAX_RUNS = 50
"""Number of runs offered, newest first."""


def complete_workflow(context: CompletionContext) -> dict[str, str]:
    """Return the workflows of the project with their descriptions. Executes no file."""
    from nerve.cli.targets import Project
    from nerve.core.slugs import slugify

    workflows = Project().discovered.workflows
    return {
        slugify(workflow.name): " ".join(str(workflow.document.data.get("description", "")).split())
        for workflow in workflows
    }


def complete_target(context: CompletionContext) -> dict[str, str]:
    """Return the workflows of the project for the first argument; after it comes the input."""
    return complete_workflow(context) if context.index == 0 else {}


def complete_run(context: CompletionContext) -> dict[str, str]:
    """Return the labels of the newest runs, or their ids, with workflow and state."""
    import asyncio

    from nerve.cli.context import open_context
    from nerve.cli.parameters import DEFAULT_OPTIONS
    from nerve.cli.runs import list_root_runs

    async def read_runs() -> list[RunResponse]:
        async with open_context(DEFAULT_OPTIONS, writes=False, definitions=False) as opened:
            return (await list_root_runs(opened, limit=MAX_RUNS))[0]

    runs = asyncio.run(read_runs())
    return {run.label or run.run_id: f"{run.workflow}, {run.state}" for run in runs}


def complete_state(context: CompletionContext) -> list[str]:
    """Return the possible states of a run."""
    from nerve.cli.runs import RUN_STATES

    return RUN_STATES


WorkflowName = Annotated[str, Parameter(completer=complete_workflow)]
RUN_PARAMETER = Parameter(
    name="RUN", help="Run id, a unique prefix of it, or the label of the run.", completer=complete_run
)
RunArgument = Annotated[str, RUN_PARAMETER]
