"""`nerve start`: a run in the server of the project, or else in this process for as long as it can go on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from nerve.api.models import RunTold, WorkflowTold
from nerve.cli.answers import Answers
from nerve.cli.bounds import of_run
from nerve.cli.common import CODE, DEFAULT, Common, Door, answering
from nerve.cli.completion import complete_target
from nerve.cli.flags import Many
from nerve.cli.going import Wait, gone_on
from nerve.cli.inputs import Given, anything, given, suggest_input, value_of
from nerve.cli.project import Code, Project
from nerve.cli.providing import from_code
from nerve.cli.usage import NotThere, Several, UsageError, stopped
from nerve.core.suggest import suggest
from nerve.notations import NOTATIONS, SUFFIXES, definition_in

TARGET = Parameter(
    name="TARGET",
    help="The workflow, then the input of the run.",
    allow_leading_hyphen=True,
    completer=complete_target,
)
Arguments = Annotated[str, TARGET]


def start(
    *arguments: Arguments,
    answer: Many = (),
    input: Many = (),
    label: str | None = None,
    branch: str | None = None,
    limit: Many = (),
    key: str | None = None,
    wait: Wait = False,
    common: Common = DEFAULT,
) -> int:
    """Start a run.

    Parameters
    ----------
    answer
        GATE=TEXT answers a gate, or sends a signal that is waited for; can be given several times.
    input
        NAME=VALUE is --NAME=VALUE for an input that has the name of an option.
    label
        What the run is called; it can be named by it.
    branch
        The branch it works on, for the workflow to read.
    key
        Start once: the same key gives the same run.
    limit
        NAME=NUMBER bounds the run: tokens, cost, turns, agents, steps …; can be given several times.
    """
    about = {"label": label, "branch": branch, "key": key, "limits": of_run(limit)}
    return started(given(arguments, input), Answers(answer), about, wait, common)


def started(told: Given, answers: Answers, about: Mapping[str, Any], wait: bool, common: Common) -> int:
    async def do(door: Door) -> int:
        run = await begun(door, told, {name: value for name, value in about.items() if value is not None})
        return await gone_on(door, run, wait or bool(answers.left), answers, did="It runs")

    return answering(common, do, writes=True)


async def begun(door: Door, told: Given, about: dict[str, Any]) -> RunTold:
    """Start what a target means: a workflow by its name, or one in a file, which is defined first."""
    target = await named(door, told.target)
    params = typed(target, told.pairs) if isinstance(target, WorkflowTold) else untyped(told.pairs)
    name = target.id if isinstance(target, WorkflowTold) else target
    if isinstance(target, WorkflowTold) and by_file(told.target) and door.session is None:
        about = {**about, "definition": target.hash}
    for problem in door.problems:
        door.say(f"{problem['file']}: {problem['message']}")
    return await door.client.start(workflow=name, input=told.input, params=params, **about)


async def named(door: Door, given: str) -> WorkflowTold | str:
    """The workflow of a target; a text is the name of something that only the api knows."""
    file, colon, _ = given.rpartition(":")
    path = Path(given)
    if path.suffix == ".py" or (colon and file.endswith(".py")):
        return by_code(door, given)
    if by_file(given):
        return await defined(door, path)
    there = {each.id: each for each in (await door.client.workflows()).workflows}
    close = [given] if given in there else [name for name in there if name.startswith(given)]
    if len(close) > 1:
        raise Several(f"'{given}' can be {', '.join(close)}: write more of the name.")
    if not close and (near := suggest(given, there)):
        raise NotThere(f"there is no workflow '{given}'{near} See the list: nerve workflow list.")
    return there[close[0]] if close else given


def by_file(given: str) -> bool:
    return Path(given).suffix.lower() in SUFFIXES


def by_code(door: Door, given: str) -> str:
    target = Project().target(given)
    assert isinstance(target, Code)
    if door.session is None:
        raise UsageError(CODE.format(file=target.file))
    return from_code(door.session, target).name


async def defined(door: Door, path: Path) -> WorkflowTold:
    """Define the workflow of a file for one run; for others its name means what it did."""
    Project().target(str(path))  # says what is wrong with the name
    if door.session is not None:
        workflow = door.session.load(path)
        return await door.client.workflow(workflow=workflow.name)
    return await door.client.define(**definition_in(path), keep=False)


def typed(workflow: WorkflowTold, pairs: Mapping[str, str | bool]) -> dict[str, Any]:
    """The parameters of a run, of the types that the workflow declares."""
    declared = {each.name: each for each in workflow.inputs}
    if workflow.kind not in NOTATIONS:
        return untyped(pairs)
    for name in pairs:
        if name not in declared:
            told = stopped(
                f"workflow '{workflow.id}' has no input or option '{name}'{suggest_input(name, declared)}"
            )
            raise UsageError(f"{told} {inputs_of(workflow)}")
    return {name: value_of(name, declared[name].type, value) for name, value in pairs.items()}


def untyped(pairs: Mapping[str, str | bool]) -> dict[str, Any]:
    return {name: anything(value) for name, value in pairs.items()}


def inputs_of(workflow: WorkflowTold) -> str:
    told = [
        f"--{each.name.replace('_', '-')} ({each.type}{', required' if each.required else ''})"
        for each in workflow.inputs
    ]
    return f"Its inputs: {', '.join(told)}." if told else "It declares no inputs."
