"""`nerve resume`: goes on with a run that waits, is parked, paused or held."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from nerve.cli.answers import Answers
from nerve.cli.launch import Launch, load_called
from nerve.cli.project import Project
from nerve.cli.run import Files, Flag, Many
from nerve.cli.usage import UsageError
from nerve.cli.watch import Outcome
from nerve.core.session import Session
from nerve.core.workflow import WorkflowRun, WorkflowState

if TYPE_CHECKING:
    from nerve.store.port import RunRow

HOW_MANY = 5
"""Runs that an error lists."""


def resume(
    run: Annotated[str, Parameter(name="RUN")],
    /,
    *,
    with_changes: Flag = False,
    answer: Many = (),
    json: Flag = False,
    modules: Files = (),
    store: Path | None = None,
) -> int:
    """Go on with a run of this project, and show it to its end.

    RUN is its id, or the beginning of it that no other run has.

    Parameters
    ----------
    with_changes
        Go on although the workflow has changed: what it asks for differently is run again.
    answer
        GATE=TEXT answers a gate, or sends a signal that is waited for; can be given several times.
    json
        Print one JSON object with the outcome, and nothing else, on standard output.
    modules
        A Python file that has register(session), or a workflow file, that the run needs.
    store
        The file of the store, instead of .nerve/nerve.db.
    """
    launch = Launch(Project(), store, modules, json)
    if not launch.file.is_file():
        raise UsageError(f"there are no runs: {launch.file} does not exist.")
    answers = Answers(answer)

    async def drive(session: Session) -> Outcome:
        row = row_of(session, run)
        provide(session, launch.project, row.workflow)
        known = session.engine.store.events(row.run)[-1].seq
        found = await (changed if with_changes else taken_up)(session, row)
        return await launch.to_end(session, found, answers, known)

    return launch.go(drive)


def row_of(session: Session, prefix: str) -> RunRow:
    """The run of an id, or of the beginning of one."""
    rows = session.engine.store.runs(session=session.name, prefix=prefix)
    exact = [row for row in rows if row.run == prefix] or rows
    if len(exact) != 1:
        newest = ", ".join(row.run for row in rows[-HOW_MANY:])
        many = f"{len(rows)} runs begin with '{prefix}', among them {newest}: write more of the id."
        raise UsageError(many if rows else f"there is no run '{prefix}'. `nerve runs` lists them.")
    return exact[0]


async def taken_up(session: Session, row: RunRow) -> WorkflowRun:
    """The run as it was started, driven again."""
    try:
        run = session.engine.take_up(row)
    except ValueError as error:
        raise UsageError(f"{error}: name the file that has it, --with FILE.") from None
    if run.state in (WorkflowState.PAUSED, WorkflowState.HELD):
        await go_on(run)
    return run


async def changed(session: Session, row: RunRow) -> WorkflowRun:
    """The run with the workflow as it is today; what that asks for differently is run again."""
    workflow = session.get_workflow(row.workflow)
    if workflow is None:
        raise UsageError(f"workflow '{row.workflow}' is not in this project: name its file, --with FILE.")
    run = session.engine.handle(row)
    run._workflow = workflow
    if run.state in (WorkflowState.RUNNING, WorkflowState.WAITING):
        await run.pause()
    if not run.is_complete:
        await go_on(run, with_changes=True)
    return run


async def go_on(run: WorkflowRun, with_changes: bool = False) -> None:
    try:
        await run.resume(with_changes=with_changes)
    except RuntimeError as error:
        raise UsageError(str(error)) from None


def provide(session: Session, project: Project, name: str) -> None:
    """Load the workflow of a run from the project, if it is there and not known yet."""
    if session.get_workflow(name) is None and (found := project.enabled(name)) is not None:
        load_called(session, project, session.load(found.path))
