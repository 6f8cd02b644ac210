"""`nerve run`: run a workflow in this process, with live progress and gate prompts."""

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
    """Run a workflow in this process and follow it until it ends.

    Parameters
    ----------
    answer
        GATE=TEXT answers a gate, or sends a signal that the run waits for. Repeatable.
    input
        NAME=VALUE sets an input whose name is also an option of this command. Repeatable.
    limit
        NAME=NUMBER limits the run: tokens, cost, turns, agents, steps and others. Repeatable.
    dry_run
        Simulate the workflow with stub answers. Nothing is executed or stored.
    label
        Label of the run: `run.label`, and @workflow-id in Lisp.
    key
        Idempotency key: the same key returns the same run.
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
            load_target_document(project, parsed.target, common)  # raises unless the store has a definition
        except NameNotFound:
            raise missing from None
        return start_run_with_api(parsed, PresetAnswers(answer), start_options, True, common)


class RunLauncher:
    """Starts a run in this process."""

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
            if not local_run.common.modules:  # a --with file may register the workflow
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
    """Return the workflow that a --with file registered under a name or a unique prefix of it."""
    registered = session.list_workflows()
    matches = (
        [name]
        if name in registered
        else [candidate for candidate in registered if candidate.startswith(name)]
    )
    if len(matches) > 1:
        raise AmbiguousName(f"'{name}' is ambiguous: {', '.join(matches)}. Use a longer prefix.")
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
    """Raise UsageError for answers to unknown gates. The gates of Python workflows are not known."""
    definitions = [
        definition for definition in session.workflows.values() if isinstance(definition, DefinedWorkflow)
    ]
    if isinstance(workflow, DefinedWorkflow) and len(definitions) == len(session.workflows):
        answers.validate_against([workflow.spec, *(definition.spec for definition in definitions)])
