"""`nerve run`: a workflow in this process, with live progress and its gates on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from nerve.cli.answers import Answers
from nerve.cli.bounds import of_run
from nerve.cli.common import DEFAULT, Common
from nerve.cli.defined import document_of
from nerve.cli.flags import Flag, Many
from nerve.cli.inputs import Given, given, params
from nerve.cli.launch import Launch
from nerve.cli.outcome import Outcome
from nerve.cli.project import Code, Project
from nerve.cli.providing import load
from nerve.cli.starting import started
from nerve.cli.usage import NotThere, UsageError, stopped
from nerve.client import server_of
from nerve.core.session import Session, loading
from nerve.core.workflow.workflow import Workflow
from nerve.spec.source import Unreadable
from nerve.spec.workflow import DefinedWorkflow


def run(
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    answer: Many = (),
    input: Many = (),
    limit: Many = (),
    dry_run: Flag = False,
    label: str | None = None,
    key: str | None = None,
    common: Common = DEFAULT,
) -> int:
    """Run a workflow in this process, and show it to its end.

    Parameters
    ----------
    answer
        GATE=TEXT answers a gate, or sends a signal that is waited for; can be given several times.
    input
        NAME=VALUE is --NAME=VALUE for an input that has the name of an option.
    limit
        NAME=NUMBER bounds the run: tokens, cost, turns, agents, steps …; can be given several times.
    dry_run
        Walk through the workflow with stub answers; nothing is executed, spent or stored.
    label
        What the run is called: `run.label`, and @workflow-id in Lisp.
    key
        Start once: the same key gives the same run.
    """
    told = given(arguments, input)
    if dry_run:
        from nerve.cli.dry_run import walk_through

        return walk_through(told, answer, common.json, common.quiet)
    about = {"label": label, "key": key, "limits": of_run(limit)}
    if common.store is None and server_of(Path()) is not None:
        return started(told, Answers(answer), about, True, common)
    project, options = Project(), {"label": label, "limits": of_run(limit)}
    try:
        start = Start(Launch(project, common), told, Answers(answer), key, options)
    except NotThere:
        document_of(project, told.target, common)  # raises, unless it was defined
        return started(told, Answers(answer), about, True, common)
    return start.go()


class Start:
    """A run that is to be started."""

    def __init__(
        self, launch: Launch, told: Given, answers: Answers, key: str | None, options: dict[str, Any]
    ) -> None:
        self.launch, self.told, self.answers, self.key = launch, told, answers, key
        self.options = {name: value for name, value in options.items() if value is not None}
        self.target = launch.project.target(told.target)

    def go(self) -> int:
        return self.launch.go(self.drive)

    async def drive(self, session: Session) -> Outcome:
        workflow = load(session, self.launch.project, self.target)
        if isinstance(self.target, Code):
            self.launch.needs(self.target.file)
        check_answers(session, workflow, self.answers)
        given = params(workflow, self.told.pairs)
        loading.check_start(session, workflow, given)
        self.launch.open_store(session)
        try:
            run = await session.start(workflow.name, self.told.input, given, self.key, **self.options)
        except Unreadable:
            raise
        except ValueError as error:
            raise UsageError(stopped(str(error))) from None
        return await self.launch.to_end(session, run, self.answers)


def check_answers(session: Session, workflow: Workflow, answers: Answers) -> None:
    """Refuse answers to gates that are not there; what Python asks for is only known when it asks."""
    known = [each for each in session.workflows.values() if isinstance(each, DefinedWorkflow)]
    if isinstance(workflow, DefinedWorkflow) and len(known) == len(session.workflows):
        answers.check([workflow.spec, *(each.spec for each in known)])
