"""`nerve run`: a workflow in this process, with live progress and its gates on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nerve.cli.context import DEFAULT_OPTIONS, CommonOptions
from nerve.cli.errors import AmbiguousName, NameNotFound, UsageError, with_full_stop
from nerve.cli.gate_answers import PresetAnswers
from nerve.cli.limit_options import parse_run_limit_options
from nerve.cli.local_run import LocalRun
from nerve.cli.outcome import RunOutcome
from nerve.cli.parameters import Flag, TextList
from nerve.cli.session_setup import load_target_workflow
from nerve.cli.start import TargetArguments, start_run_with_api
from nerve.cli.target_source import load_target_document
from nerve.cli.targets import FileTarget, Project, PythonTarget
from nerve.cli.workflow_inputs import ParsedArguments, parse_run_arguments, parse_workflow_params
from nerve.client import find_server
from nerve.core.suggest import did_you_mean_hint
from nerve.core.workflow.workflow import Workflow
from nerve.session import Session, loader
from nerve.spec.defined_workflow import DefinedWorkflow
from nerve.text.source import InvalidDefinition


def run_workflow_command(
    *arguments: TargetArguments,
    answer: TextList = (),
    input: TextList = (),
    limit: TextList = (),
    dry_run: Flag = False,
    label: str | None = None,
    key: str | None = None,
    common: CommonOptions = DEFAULT_OPTIONS,
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
    parsed = parse_run_arguments(arguments, input)
    if dry_run:
        from nerve.cli.dry_run import execute_dry_run

        return execute_dry_run(parsed, answer, common.json, common.quiet)
    start_options = {"label": label, "key": key, "limits": parse_run_limit_options(limit)}
    if common.store is None and find_server(Path()) is not None:
        return start_run_with_api(parsed, PresetAnswers(answer), start_options, True, common)
    project, options = Project(), {"label": label, "limits": parse_run_limit_options(limit)}
    try:
        return RunLauncher(LocalRun(project, common), parsed, PresetAnswers(answer), key, options).execute()
    except NameNotFound as missing:
        try:
            load_target_document(project, parsed.target, common)  # raises, unless it was defined
        except NameNotFound:
            raise missing from None
        return start_run_with_api(parsed, PresetAnswers(answer), start_options, True, common)


class RunLauncher:
    """A run that is to be started."""

    def __init__(
        self,
        local_run: LocalRun,
        arguments: ParsedArguments,
        answers: PresetAnswers,
        key: str | None,
        options: dict[str, Any],
    ) -> None:
        self.local_run, self.arguments, self.answers, self.key = local_run, arguments, answers, key
        self.options = {name: value for name, value in options.items() if value is not None}
        self.target: FileTarget | PythonTarget | None = None
        try:
            self.target = local_run.project.resolve_target(arguments.target)
        except NameNotFound:
            if not local_run.common.modules:  # which may register a workflow of that name
                raise

    def execute(self) -> int:
        return self.local_run.execute(self.start_and_follow)

    async def start_and_follow(self, session: Session) -> RunOutcome:
        if self.target is None:
            workflow = find_registered(session, self.arguments.target)
        else:
            workflow = load_target_workflow(session, self.local_run.project, self.target)
        if isinstance(self.target, PythonTarget):
            self.local_run.require_file(self.target.file)
        check_preset_answers(session, workflow, self.answers)
        typed_params = parse_workflow_params(workflow, self.arguments.pairs)
        loader.check_start_params(session, workflow, typed_params)
        self.local_run.open_store(session)
        try:
            run = await session.start(
                workflow.name, self.arguments.input, typed_params, self.key, **self.options
            )
        except InvalidDefinition:
            raise
        except ValueError as error:
            raise UsageError(with_full_stop(str(error))) from None
        return await self.local_run.follow(session, run, self.answers)


def find_registered(session: Session, name: str) -> Workflow:
    """Return the workflow that a file given by --with registered under a name, or a prefix of it."""
    registered = session.list_workflows()
    matches = (
        [name]
        if name in registered
        else [candidate for candidate in registered if candidate.startswith(name)]
    )
    if len(matches) > 1:
        raise AmbiguousName(f"'{name}' can be {', '.join(matches)}: write more of the name.")
    if not matches:
        files = ", ".join(session.modules)
        raise NameNotFound(
            with_full_stop(
                f"Workflow '{name}' not found in this project or in {files}"
                f"{did_you_mean_hint(name, registered)}"
            )
        )
    workflow = session.get_workflow(matches[0])
    assert workflow is not None
    return workflow


def check_preset_answers(session: Session, workflow: Workflow, answers: PresetAnswers) -> None:
    """Refuse answers to gates that are not there; what Python asks for is only known when it asks."""
    definitions = [
        definition for definition in session.workflows.values() if isinstance(definition, DefinedWorkflow)
    ]
    if isinstance(workflow, DefinedWorkflow) and len(definitions) == len(session.workflows):
        answers.validate_against([workflow.spec, *(definition.spec for definition in definitions)])
