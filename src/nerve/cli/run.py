"""`nerve run`: a workflow in this process, with live progress and its gates on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nerve.cli.answers import Answers
from nerve.cli.bounds import of_run
from nerve.cli.common import DEFAULT, Common
from nerve.cli.defined import document_of
from nerve.cli.flags import Flag, Many
from nerve.cli.inputs import Given, given, params
from nerve.cli.launch import Launch
from nerve.cli.outcome import Outcome
from nerve.cli.project import Code, File, Project
from nerve.cli.providing import load
from nerve.cli.starting import Arguments, started
from nerve.cli.usage import NotThere, Several, UsageError, stopped
from nerve.client import server_of
from nerve.core.session import Session, loading
from nerve.core.suggest import suggest
from nerve.core.workflow.workflow import Workflow
from nerve.spec.source import Unreadable
from nerve.spec.workflow import DefinedWorkflow


def run(
    *arguments: Arguments,
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
        return Start(Launch(project, common), told, Answers(answer), key, options).go()
    except NotThere as missing:
        try:
            document_of(project, told.target, common)  # raises, unless it was defined
        except NotThere:
            raise missing from None
        return started(told, Answers(answer), about, True, common)


class Start:
    """A run that is to be started."""

    def __init__(
        self, launch: Launch, told: Given, answers: Answers, key: str | None, options: dict[str, Any]
    ) -> None:
        self.launch, self.told, self.answers, self.key = launch, told, answers, key
        self.options = {name: value for name, value in options.items() if value is not None}
        self.target: File | Code | None = None
        try:
            self.target = launch.project.target(told.target)
        except NotThere:
            if not launch.common.modules:  # which may register a workflow of that name
                raise

    def go(self) -> int:
        return self.launch.go(self.drive)

    async def drive(self, session: Session) -> Outcome:
        if self.target is None:
            workflow = find_registered(session, self.told.target)
        else:
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


def find_registered(session: Session, name: str) -> Workflow:
    """Return the workflow that a file given by --with registered under a name, or a prefix of it."""
    known = session.list_workflows()
    matches = [name] if name in known else [each for each in known if each.startswith(name)]
    if len(matches) > 1:
        raise Several(f"'{name}' can be {', '.join(matches)}: write more of the name.")
    if not matches:
        files = ", ".join(session.modules)
        raise NotThere(
            stopped(f"Workflow '{name}' not found in this project or in {files}{suggest(name, known)}")
        )
    workflow = session.get_workflow(matches[0])
    assert workflow is not None
    return workflow


def check_answers(session: Session, workflow: Workflow, answers: Answers) -> None:
    """Refuse answers to gates that are not there; what Python asks for is only known when it asks."""
    known = [each for each in session.workflows.values() if isinstance(each, DefinedWorkflow)]
    if isinstance(workflow, DefinedWorkflow) and len(known) == len(session.workflows):
        answers.check([workflow.spec, *(each.spec for each in known)])
