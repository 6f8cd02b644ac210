"""`nerve resume`: goes on with a run that waits, is parked, paused or held."""

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

WITH_FILE_HINT = "If a file has it, name that: --with FILE."


def resume_command(
    run: RunArgument,
    /,
    *,
    with_changes: Flag = False,
    limit: TextList = (),
    answer: TextList = (),
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Go on with a run of this project, and show it to its end.

    RUN is its id, the beginning of it, or its label.

    Parameters
    ----------
    with_changes
        Go on although the workflow has changed: what it asks for differently is run again.
    limit
        NAME=NUMBER raises a budget of the run, /STEP:NAME=NUMBER that of a step; can be given several times.
    answer
        GATE=TEXT answers a gate, or sends a signal that is waited for; can be given several times.
    """
    if common.store is None and find_server(Path()) is not None:
        from nerve.cli.remote_runs import resume_on_server

        return resume_on_server(
            run, {"with_changes": with_changes, "limits": parse_limit_options(limit)}, answer, common
        )
    local_run = LocalRun(Project(), common)
    if not local_run.store_file.is_file():
        raise NameNotFound(f"there are no runs: {local_run.store_file} does not exist.")
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
    """The run as it was started, driven again."""
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
        raise UsageError(f"{error}: name the file that has it, --with FILE.") from None
    if run.state in (WorkflowState.PAUSED, WorkflowState.HELD):
        await resume_if_possible(run, limits)
    return run


async def resume_with_changes(
    session: Session, project: Project, row: RunRow, answers: PresetAnswers, limits: dict[str, Any]
) -> WorkflowRun:
    """The run with the workflow as it is today; what that asks for differently is run again."""
    if (
        session.get_workflow(row.workflow) is None
        and (match := project.find_exact_workflow(row.workflow)) is not None
    ):
        load_called_workflows(session, project, session.load(match.path))
    workflow = session.get_workflow(row.workflow)
    if workflow is None:
        raise UsageError(f"workflow '{row.workflow}' is not in this project: name its file, --with FILE.")
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
    """Say which agents of a run are missing, before anything is done to it."""
    try:
        session.check_names(workflow)
    except InvalidDefinition as error:
        raise InvalidDefinition([add_file_hint(problem) for problem in error.problems]) from None


def add_file_hint(problem: Problem) -> Problem:
    is_missing_agent = problem.message.startswith("Agent not found")
    return replace(problem, fix=f"{problem.fix} {WITH_FILE_HINT}") if is_missing_agent else problem


async def resume_if_possible(run: WorkflowRun, limits: dict[str, Any], with_changes: bool = False) -> None:
    """Let a paused or held run go on; one that needs another decision stays held, and says which."""
    with contextlib.suppress(RuntimeError):
        await run.resume(limits=limits, with_changes=with_changes)
