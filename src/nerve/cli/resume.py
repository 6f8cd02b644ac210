"""`nerve resume`: goes on with a run that waits, is parked, paused or held."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerve.api.telling import named
from nerve.cli.answers import Answers
from nerve.cli.bounds import bounds
from nerve.cli.common import DEFAULT, Common, Run
from nerve.cli.flags import Flag, Many
from nerve.cli.launch import Launch
from nerve.cli.outcome import Outcome
from nerve.cli.project import Project
from nerve.cli.providing import load_called
from nerve.cli.run import check_answers
from nerve.cli.usage import NotThere, UsageError
from nerve.client import server_of
from nerve.core.session import Session
from nerve.core.workflow import WorkflowRun, WorkflowState
from nerve.core.workflow.workflow import Workflow
from nerve.spec.source import Problem, Unreadable
from nerve.spec.workflow import DefinedWorkflow

if TYPE_CHECKING:
    from nerve.store.port import RunRow

NAMED = "If a file has it, name that: --with FILE."


def resume(
    run: Run,
    /,
    *,
    with_changes: Flag = False,
    limit: Many = (),
    answer: Many = (),
    common: Common = DEFAULT,
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
    if common.store is None and server_of(Path()) is not None:
        from nerve.cli.served import resumed

        return resumed(run, {"with_changes": with_changes, "limits": bounds(limit)}, answer, common)
    launch = Launch(Project(), common)
    if not launch.file.is_file():
        raise NotThere(f"there are no runs: {launch.file} does not exist.")
    answers = Answers(answer)

    async def drive(session: Session) -> Outcome:
        row = named(session, run)
        known = session.engine.store.events(row.run)[-1].seq
        take = changed if with_changes else taken_up
        found = await take(session, launch.project, row, answers, bounds(limit))
        return await launch.to_end(session, found, answers, known)

    return launch.go(drive)


async def taken_up(
    session: Session, project: Project, row: RunRow, answers: Answers, limits: dict[str, Any]
) -> WorkflowRun:
    """The run as it was started, driven again."""
    try:
        workflow = session.engine.workflow(row)
        if isinstance(workflow, DefinedWorkflow):
            load_called(session, project, workflow)
        if row.ended is None:
            check_names(session, workflow)
            check_answers(session, workflow, answers)
        run = session.engine.take_up(row)
    except Unreadable:
        raise
    except ValueError as error:
        raise UsageError(f"{error}: name the file that has it, --with FILE.") from None
    if run.state in (WorkflowState.PAUSED, WorkflowState.HELD):
        await go_on(run, limits)
    return run


async def changed(
    session: Session, project: Project, row: RunRow, answers: Answers, limits: dict[str, Any]
) -> WorkflowRun:
    """The run with the workflow as it is today; what that asks for differently is run again."""
    if session.get_workflow(row.workflow) is None and (found := project.exactly(row.workflow)) is not None:
        load_called(session, project, session.load(found.path))
    workflow = session.get_workflow(row.workflow)
    if workflow is None:
        raise UsageError(f"workflow '{row.workflow}' is not in this project: name its file, --with FILE.")
    run = session.engine.handle(row)
    if not run.is_complete:
        check_names(session, workflow)
        check_answers(session, workflow, answers)
    run._workflow = workflow
    if run.state in (WorkflowState.RUNNING, WorkflowState.WAITING):
        await run.pause()
    if not run.is_complete:
        await go_on(run, limits, with_changes=True)
    return run


def check_names(session: Session, workflow: Workflow) -> None:
    """Say which agents of a run are missing, before anything is done to it."""
    try:
        session.check_names(workflow)
    except Unreadable as error:
        raise Unreadable([hinted(problem) for problem in error.problems]) from None


def hinted(problem: Problem) -> Problem:
    missing = problem.message.startswith("Agent not found")
    return replace(problem, fix=f"{problem.fix} {NAMED}") if missing else problem


async def go_on(run: WorkflowRun, limits: dict[str, Any], with_changes: bool = False) -> None:
    """Let a paused or held run go on; one that needs another decision stays held, and says which."""
    with contextlib.suppress(RuntimeError):
        await run.resume(limits=limits, with_changes=with_changes)
