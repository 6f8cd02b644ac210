"""`nerve run --dry-run`: simulate a workflow with stub answers. Nothing is executed or stored."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

from nerve.api.responses import workflow_response
from nerve.cli.dry_run_builder import DryRun, DryRunBuilder, DryRunSession
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import exit_code_for_state
from nerve.cli.gate_answers import PresetAnswers
from nerve.cli.session_setup import check_preset_answers, load_target_workflow
from nerve.cli.targets import FileTarget, Project, PythonTarget
from nerve.cli.workflow_inputs import RunArguments, bind_run_arguments
from nerve.core.workflow import WorkflowEvent, WorkflowRun
from nerve.spec.defined_workflow import DefinedWorkflow
from nerve.testing.trace import trace
from nerve.ui.sanitize import dump_safe_json, sanitize_text


def execute_dry_run(
    arguments: RunArguments, answers: Iterable[str], as_json: bool, quiet: bool = False
) -> int:
    """Simulate the run and print its trace: one line of JSON per entry, or one JSON object."""
    project = Project()
    target = project.resolve_target(arguments.target)
    if isinstance(target, PythonTarget):
        raise UsageError(f"A dry run cannot execute Python code: {arguments.target}.")
    dry_run = DryRun(PresetAnswers(answers))
    run, entries = asyncio.run(trace_dry_run(project, target, arguments, dry_run))
    state = run.state.value
    if as_json:
        summary = {"workflow": run.workflow_id, "state": state, "trace": entries, "notes": dry_run.notes}
        print(dump_safe_json(summary))
    else:
        for entry in entries:
            print(dump_safe_json(entry))
    for note in [*([] if quiet else dry_run.notes), *describe_dry_run_end(run)]:
        print(sanitize_text(f"dry run: {note}"), file=sys.stderr)
    return exit_code_for_state(state)


async def trace_dry_run(
    project: Project, target: FileTarget, arguments: RunArguments, dry_run: DryRun
) -> tuple[WorkflowRun, list[dict[str, Any]]]:
    """Return the simulated run and its trace, with the traces of child runs in place."""
    async with DryRunSession(dry_run, project.folder) as session:
        workflow = load_target_workflow(session, project, target)
        check_preset_answers(session, workflow, dry_run.answers)
        input, params = bind_run_arguments(arguments, workflow_response(workflow))
        checked_params = workflow.check_params(params)
        for definition in session.workflows.values():
            if isinstance(definition, DefinedWorkflow):
                definition.builder_class, definition.has_log = DryRunBuilder, False
        run = WorkflowRun(workflow, input, checked_params, run_id="dry-run")
        await run.start()
        await asyncio.wait([asyncio.ensure_future(run.wait_until_ended())])

        def events_of(run_id: str) -> list[WorkflowEvent]:
            child = session.get_workflow_run(run_id)
            return child.events if child is not None else []

        return run, trace(run.events, events_of)


def describe_dry_run_end(run: WorkflowRun) -> list[str]:
    """Return how the simulation ended, if it did not complete."""
    info = run.to_info()
    if info.state.value == "completed":
        return []
    reason = f": {info.error.splitlines()[0]}" if info.error else ""
    return [f"the run ends as {info.state.value}{reason}"]
