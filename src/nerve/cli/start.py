"""`nerve start`: start a run on the project server, or in this process until it ends or waits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from nerve.api.models import RunResponse, WorkflowResponse
from nerve.cli.completion import complete_target
from nerve.cli.context import DEFAULT_OPTIONS, PYTHON_TARGET_REFUSED, CliContext, CommonOptions, run_with_api
from nerve.cli.errors import AmbiguousName, NameNotFound, UsageError, with_full_stop
from nerve.cli.gate_answers import PresetAnswers
from nerve.cli.limit_options import parse_run_limit_options
from nerve.cli.parameters import TextList
from nerve.cli.run_reporting import WaitOption, follow_or_report
from nerve.cli.session_setup import load_python_target
from nerve.cli.targets import Project, PythonTarget
from nerve.cli.workflow_inputs import (
    ParsedArguments,
    parse_cli_input_value,
    parse_json_or_text,
    parse_run_arguments,
    suggest_input,
)
from nerve.core.suggest import did_you_mean_hint
from nerve.notations import NOTATIONS, SUFFIXES, definition_in

TARGET_PARAMETER = Parameter(
    name="TARGET",
    help="The workflow, followed by the input of the run.",
    allow_leading_hyphen=True,
    completer=complete_target,
)
TargetArguments = Annotated[str, TARGET_PARAMETER]


def start_run_command(
    *arguments: TargetArguments,
    answer: TextList = (),
    input: TextList = (),
    label: str | None = None,
    branch: str | None = None,
    limit: TextList = (),
    key: str | None = None,
    wait: WaitOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Start a run.

    Parameters
    ----------
    answer
        GATE=TEXT answers a gate, or sends a signal that the run waits for. Repeatable.
    input
        NAME=VALUE sets an input whose name is also an option of this command. Repeatable.
    label
        Label of the run. Commands accept it as RUN.
    branch
        Name of a branch, passed to the workflow.
    key
        Idempotency key: the same key returns the same run.
    limit
        NAME=NUMBER limits the run: tokens, cost, turns, agents, steps and others. Repeatable.
    """
    options = {"label": label, "branch": branch, "key": key, "limits": parse_run_limit_options(limit)}
    return start_run_with_api(
        parse_run_arguments(arguments, input), PresetAnswers(answer), options, wait, common
    )


def start_run_with_api(
    arguments: ParsedArguments,
    answers: PresetAnswers,
    options: Mapping[str, Any],
    wait: bool,
    common: CommonOptions,
) -> int:
    async def do(context: CliContext) -> int:
        run = await start_target(
            context, arguments, {name: value for name, value in options.items() if value is not None}
        )
        return await follow_or_report(
            context, run, wait or bool(answers.remaining), answers, action_text="Started"
        )

    return run_with_api(common, do, writes=True)


async def start_target(
    context: CliContext, arguments: ParsedArguments, options: dict[str, Any]
) -> RunResponse:
    """Start the workflow of a target. A workflow file is defined first."""
    target = await resolve_api_target(context, arguments.target)
    params = (
        parse_declared_params(target, arguments.pairs)
        if isinstance(target, WorkflowResponse)
        else parse_undeclared_params(arguments.pairs)
    )
    name = target.id if isinstance(target, WorkflowResponse) else target
    if (
        isinstance(target, WorkflowResponse)
        and is_workflow_file(arguments.target)
        and context.session is None
    ):
        options = {**options, "definition": target.hash}
    for problem in context.problems:
        context.info(f"{problem['file']}: {problem['message']}")
    return await context.client.start(workflow=name, input=arguments.input, params=params, **options)


async def resolve_api_target(context: CliContext, target: str) -> WorkflowResponse | str:
    """Return the workflow of a target, or its name if only the API can resolve it."""
    file, colon, _ = target.rpartition(":")
    path = Path(target)
    if path.suffix == ".py" or (colon and file.endswith(".py")):
        return register_python_target(context, target)
    if is_workflow_file(target):
        return await define_workflow_file(context, path)
    workflows = {workflow.id: workflow for workflow in (await context.client.workflows()).workflows}
    matches = [target] if target in workflows else [name for name in workflows if name.startswith(target)]
    if len(matches) > 1:
        raise AmbiguousName(f"'{target}' is ambiguous: {', '.join(matches)}. Use a longer prefix.")
    if not matches and (suggestion := did_you_mean_hint(target, workflows)):
        raise NameNotFound(f"Workflow '{target}' not found{suggestion} List workflows: nerve workflow list.")
    return workflows[matches[0]] if matches else target


def is_workflow_file(target: str) -> bool:
    return Path(target).suffix.lower() in SUFFIXES


def register_python_target(context: CliContext, text: str) -> str:
    target = Project().resolve_target(text)
    assert isinstance(target, PythonTarget)
    if context.session is None:
        raise UsageError(PYTHON_TARGET_REFUSED.format(file=target.file))
    return load_python_target(context.session, target).name


async def define_workflow_file(context: CliContext, path: Path) -> WorkflowResponse:
    """Define the workflow of a file for one run. Other runs of the same name are not affected."""
    Project().resolve_target(str(path))  # raises if the path is not valid
    if context.session is not None:
        workflow = context.session.load(path)
        return await context.client.workflow(workflow=workflow.name)
    return await context.client.define(**definition_in(path), keep=False)


def parse_declared_params(workflow: WorkflowResponse, pairs: Mapping[str, str | bool]) -> dict[str, Any]:
    """Return the parameters of a run, parsed as the types that the workflow declares."""
    declared = {declaration.name: declaration for declaration in workflow.inputs}
    if workflow.kind not in NOTATIONS:
        return parse_undeclared_params(pairs)
    for name in pairs:
        if name not in declared:
            suggestion = suggest_input(name, declared)
            message = with_full_stop(
                f"Unknown input or option '{name}' for workflow '{workflow.id}'{suggestion}"
            )
            raise UsageError(f"{message} {describe_response_inputs(workflow)}")
    return {name: parse_cli_input_value(name, declared[name].type, value) for name, value in pairs.items()}


def parse_undeclared_params(pairs: Mapping[str, str | bool]) -> dict[str, Any]:
    return {name: parse_json_or_text(value) for name, value in pairs.items()}


def describe_response_inputs(workflow: WorkflowResponse) -> str:
    descriptions = [
        f"--{declaration.name.replace('_', '-')} ({declaration.type}"
        f"{', required' if declaration.required else ''})"
        for declaration in workflow.inputs
    ]
    return f"Inputs: {', '.join(descriptions)}." if descriptions else "The workflow declares no inputs."
