"""`nerve run` and `nerve start`: start a run on the project server, or in this process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace  # noqa: TID251 - cyclopts reads the signature
from pathlib import Path
from typing import Annotated

from nerve.api.models import WorkflowResponse
from nerve.cli.completion import complete_target
from nerve.cli.context import BUSY_COMMAND, CliContext, run_with_api
from nerve.cli.errors import AmbiguousName, UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.gate_answers import PresetAnswers
from nerve.cli.limit_options import parse_run_limit_options
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Flag, Parameter, TextList, WaitOption
from nerve.cli.session_setup import check_preset_answers, load_python_target
from nerve.cli.targets import Project, PythonTarget
from nerve.cli.workflow_inputs import bind_run_arguments, describe_workflow_lines, parse_run_arguments
from nerve.core.notation_table import NOTATION_NAMES
from nerve.core.tags import parse_tag
from nerve.notations import SUFFIXES, definition_in
from nerve.text import with_full_stop

PYTHON_TARGET_REFUSED = (
    "The running project server cannot load Python files."
    " Start it with the file (nerve serve --with {file}) and pass the workflow name,"
    " or use another store: --store FILE."
)
PYTHON_NAME_MARK = ".py:"
"""Separates a Python file from the name of a workflow in it."""
TARGET_PARAMETER = Parameter(
    name="TARGET",
    help="The workflow, followed by the input of the run.",
    allow_leading_hyphen=True,
    completer=complete_target,
)
TargetArguments = Annotated[str, TARGET_PARAMETER]


@Parameter(name="*")
@dataclass(frozen=True)
class StartOptions:
    """Options of `nerve run` and `nerve start`.

    Parameters
    ----------
    answer
        GATE=TEXT answers a gate, or sends a signal that the run waits for. Repeatable.
    input
        The input of the run as JSON, or NAME=VALUE for one whose name is also an option. Repeatable.
    limit
        NAME=NUMBER limits the run: tokens, cost, turns, agents, steps and others. Repeatable.
    label
        Label of the run: `run.label`, and @workflow-id in Lisp. Commands accept it as RUN.
    tag
        NAME=VALUE is a tag, by which `nerve runs --tag` finds the run. Repeatable.
    queue
        The queue that the run is in, instead of that of the workflow.
    key
        Idempotency key: the same key returns the same run.
    """

    answer: TextList = ()
    input: TextList = ()
    limit: TextList = ()
    label: str | None = None
    tag: TextList = ()
    queue: str | None = None
    key: str | None = None


DEFAULT_START_OPTIONS = StartOptions()


HelpOption = Annotated[Flag, Parameter(help="Show this help. After TARGET, show the inputs of the workflow.")]


def run_workflow_command(
    *arguments: TargetArguments,
    help: HelpOption = False,
    dry_run: Flag = False,
    options: StartOptions = DEFAULT_START_OPTIONS,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Run a workflow in this process and follow it until it ends.

    Parameters
    ----------
    dry_run
        Simulate the workflow with stub answers. Nothing is executed or stored.
    """
    if help or "-h" in arguments:
        return print_start_help("run", arguments, common)
    if dry_run:
        from nerve.cli.dry_run import execute_dry_run

        parsed = parse_run_arguments(arguments, options.input)
        return execute_dry_run(parsed, options.answer, common.json, common.quiet)
    return start_run(arguments, options, common, wait=True)


def start_run_command(
    *arguments: TargetArguments,
    help: HelpOption = False,
    branch: str | None = None,
    wait: WaitOption = False,
    options: StartOptions = DEFAULT_START_OPTIONS,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Start a run.

    Parameters
    ----------
    branch
        Name of the branch that the worktree of the run gets; it must not exist.
    """
    if help or "-h" in arguments:
        return print_start_help("start", arguments, common)
    return start_run(arguments, options, common, wait, branch)


def print_start_help(command: str, arguments: tuple[str, ...], common: CommonOptions) -> int:
    """Print the help of a start command; with a target, the description and the inputs of the workflow."""
    if not any(not argument.startswith("-") for argument in arguments):
        from nerve.cli.parser import app

        app.help_print([command])
        return COMPLETED
    parsed = parse_run_arguments(argument for argument in arguments if argument != "-h")

    async def do(context: CliContext) -> int:
        workflow, _ = await resolve_start_target(context, parsed.target)
        if workflow.kind in NOTATION_NAMES and workflow.source is None:
            # A list of workflows has no prompts, whose hints belong to the help.
            workflow = await context.client.workflow(workflow=workflow.id)
        lines = [
            f"Usage: nerve {command} {parsed.target} [INPUT] [--name value …] [OPTIONS]",
            *describe_workflow_lines(workflow),
            "",
            f"To see the options of the command: nerve {command} --help",
        ]
        context.print_result(workflow, lines)
        return COMPLETED

    return run_with_api(common, do)


def start_run(
    arguments: tuple[str, ...],
    options: StartOptions,
    common: CommonOptions,
    wait: bool,
    branch: str | None = None,
) -> int:
    """Start a run, and follow it or report that it continues on the server; return the exit code."""
    parsed, answers = parse_run_arguments(arguments, options.input), PresetAnswers(options.answer)
    fields = {
        "label": options.label,
        "key": options.key,
        "branch": branch,
        "limits": parse_run_limit_options(options.limit),
        "tags": parse_tag_options(options.tag),
        "queue": options.queue,
    }

    async def do(context: CliContext) -> int:
        workflow, is_defined = await resolve_start_target(context, parsed.target)
        if context.session is not None:
            check_preset_answers(context.session, context.session.get_workflow(workflow.id), answers)
        input, params = bind_run_arguments(parsed, workflow)
        pinned = {"definition": workflow.hash} if is_defined else {}
        run = await context.client.start(
            workflow=workflow.id,
            input=input,
            params=params,
            **pinned,
            **{name: value for name, value in fields.items() if value is not None},
        )
        wait_for_run = wait or bool(answers.remaining)
        return await context.follow_or_report(run, wait_for_run, answers, action_text="Started")

    return run_with_api(common, do, writes=True, serves_as="run")


async def resolve_start_target(context: CliContext, text: str) -> tuple[WorkflowResponse, bool]:
    """Return the workflow of a target, and whether only this run uses it: that of a file on a server."""
    by_name: dict[str, WorkflowResponse] = {}
    if not is_file_target(text):
        page = await context.client.workflows(all=True)
        startable = [WorkflowResponse(id=name, kind="node") for name in (*page.nodes, *page.graphs)]
        by_name = {workflow.id: workflow for workflow in (*startable, *page.workflows)}
        matches = [text] if text in by_name else sorted(name for name in by_name if name.startswith(text))
        if len(matches) > 1:
            raise AmbiguousName(f"'{text}' is ambiguous: {', '.join(matches)}. Use a longer prefix.")
        if matches:
            return by_name[matches[0]], False
    target = Project().resolve_target(text, by_name)
    if context.session is None:
        if isinstance(target, PythonTarget):
            if (server := context.command_server) is not None:
                raise UsageError(BUSY_COMMAND.format(server))
            raise UsageError(PYTHON_TARGET_REFUSED.format(file=target.file))
        return await context.client.define(**definition_in(target.path), keep=False), True
    workflow = (
        load_python_target(context.session, target)
        if isinstance(target, PythonTarget)
        else context.session.load(target.path)
    )
    if isinstance(target, PythonTarget) and target.file not in context.common.modules:
        # The command that resumes the run must name the file.
        context.common = replace(context.common, modules=(*context.common.modules, target.file))
    return await context.client.workflow(workflow=workflow.name), False


def is_file_target(text: str) -> bool:
    return Path(text).suffix.lower() in (*SUFFIXES, ".py") or Path(text).is_file() or PYTHON_NAME_MARK in text


def parse_tag_options(texts: Iterable[str]) -> dict[str, str] | None:
    """Return the tags in `name=value` options; None without any, UsageError for another form."""
    try:
        return dict(map(parse_tag, texts)) or None
    except ValueError as error:
        raise UsageError(f"--tag: {with_full_stop(str(error))}") from None
