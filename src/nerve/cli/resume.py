"""`nerve resume`: resume a waiting, parked, paused or held run."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerve.api.responses import find_run_row
from nerve.cli.context import DEFAULT_OPTIONS, CommonOptions, RunArgument
from nerve.cli.errors import NameNotFound, UsageError
from nerve.cli.gate_answers import PresetAnswers
from nerve.cli.limit_options import parse_limit_options
from nerve.cli.local_run import LocalRun
from nerve.cli.outcome import RunOutcome
from nerve.cli.parameters import Flag, TextList
from nerve.cli.run import check_preset_answers
from nerve.cli.session_setup import load_called_workflows
from nerve.cli.targets import Project
from nerve.client import find_server
from nerve.core.workflow import WorkflowRun, WorkflowState
from nerve.core.workflow.workflow import Workflow
from nerve.session import Session
from nerve.spec.defined_workflow import DefinedWorkflow
from nerve.text.source import InvalidDefinition, Problem

if TYPE_CHECKING:
    from nerve.store.port import RunRow

WITH_FILE_HINT = "If a Python file registers it, add --with FILE."


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
    if common.store is None and find_server(Path()) is not None:
        from nerve.cli.remote_runs import resume_on_server

        return resume_on_server(
            run, {"with_changes": with_changes, "limits": parse_limit_options(limit)}, answer, common
        )
    local_run = LocalRun(Project(), common)
    if not local_run.store_file.is_file():
        raise NameNotFound(f"Run '{run}' not found: {local_run.store_file} does not exist.")
    answers = PresetAnswers(answer)

    async def drive(session: Session) -> RunOutcome:
        row = find_run_row(session, run)
        known_seq = session.engine.store.events(row.run)[-1].seq
        resume_function = resume_with_changes if with_changes else resume_in_process
        workflow_run = await resume_function(
            session, local_run.project, row, answers, parse_limit_options(limit)
        )
        return await local_run.follow(session, workflow_run, answers, known_seq)

    return local_run.execute(drive)


async def resume_in_process(
    session: Session, project: Project, row: RunRow, answers: PresetAnswers, limits: dict[str, Any]
) -> WorkflowRun:
    """Resume a run in this process with the definition it was started with."""
    try:
        workflow = session.engine.workflow_of(row)
        if isinstance(workflow, DefinedWorkflow):
            load_called_workflows(session, project, workflow)
        if row.ended is None:
            check_run_names(session, workflow)
            check_preset_answers(session, workflow, answers)
        run = session.engine.resume_run(row)
    except InvalidDefinition:
        raise
    except ValueError as error:
        raise UsageError(f"{error}. Add the file that registers it: --with FILE.") from None
    if run.state in (WorkflowState.PAUSED, WorkflowState.HELD):
        await resume_if_possible(run, limits)
    return run


async def resume_with_changes(
    session: Session, project: Project, row: RunRow, answers: PresetAnswers, limits: dict[str, Any]
) -> WorkflowRun:
    """Resume a run with the current workflow definition; steps whose calls changed run again."""
    if (
        session.get_workflow(row.workflow) is None
        and (match := project.find_exact_workflow(row.workflow)) is not None
    ):
        load_called_workflows(session, project, session.load(match.path))
    workflow = session.get_workflow(row.workflow)
    if workflow is None:
        raise UsageError(f"Workflow '{row.workflow}' not found in this project. Add its file: --with FILE.")
    run = session.engine.run_handle(row)
    if not run.is_complete:
        check_run_names(session, workflow)
        check_preset_answers(session, workflow, answers)
    run._workflow = workflow
    if run.state in (WorkflowState.RUNNING, WorkflowState.WAITING):
        await run.pause()
    if not run.is_complete:
        await resume_if_possible(run, limits, with_changes=True)
    return run


def check_run_names(session: Session, workflow: Workflow) -> None:
    """Raise InvalidDefinition if agents of the workflow are missing, before the run changes."""
    try:
        session.check_names(workflow)
    except InvalidDefinition as error:
        raise InvalidDefinition([add_file_hint(problem) for problem in error.problems]) from None


def add_file_hint(problem: Problem) -> Problem:
    is_missing_agent = problem.message.startswith("Agent not found")
    return replace(problem, fix=f"{problem.fix} {WITH_FILE_HINT}") if is_missing_agent else problem


async def resume_if_possible(run: WorkflowRun, limits: dict[str, Any], with_changes: bool = False) -> None:
    """Resume a paused or held run. A run that needs another decision stays held, with its reason."""
    with contextlib.suppress(RuntimeError):
        await run.resume(limits=limits, with_changes=with_changes)
