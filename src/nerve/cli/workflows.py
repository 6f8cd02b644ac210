"""`nerve workflow`: definitions and their runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from nerve.cli.common import DEFAULT, Common, Door, answering
from nerve.cli.exits import COMPLETED, FAILED
from nerve.cli.flags import Flag
from nerve.cli.showing import opened
from nerve.commander.core.harmless import on_one_line
from nerve.notations import definition_in
from nerve.spec.source import Problem, Unreadable

NONE = "No workflows found. Create workflows in .nerve/workflows/, or begin with: nerve init"


def define(
    file: Annotated[Path, Parameter(name="FILE", help="In JSON, YAML or Lisp.")],
    /,
    *,
    common: Common = DEFAULT,
) -> int:
    """Define the workflow of a file, for this project and its server; it stays defined."""
    checked = opened(str(file))
    if checked.errors:
        raise Unreadable(checked.errors)

    async def do(door: Door) -> int:
        defined = await door.client.define(**definition_in(file))
        told = await door.client.workflow(workflow=defined.id)
        door.tell(told, f"{told.id} defined")
        return COMPLETED

    return answering(common, do, writes=True)


def list_(*, all: Flag = False, common: Common = DEFAULT) -> int:
    """List the workflows that can be started, with their steps and their open runs.

    Parameters
    ----------
    all
        Also list those that .nerve/config.json switches off.
    """

    async def do(door: Door) -> int:
        found = (await door.client.workflows(all=all)).workflows
        runs = [run for run in (await door.client.runs(limit=1000, largest=0)).runs if run.ended_at is None]
        lines = []
        for each in found:
            off = "" if each.enabled else "  (switched off)"
            lines.append(f"{each.id}{off}  {on_one_line(' '.join(each.description.split()))}".rstrip())
            lines += [f"  Steps: {on_one_line(' → '.join(each.steps))}"] if each.steps else []
            lines += [
                f"  {run.run_id} {on_one_line(run.label or '')} {run.state}"
                for run in runs
                if run.workflow == each.id
            ]
        for problem in door.problems:
            door.say(str(Problem.read(problem)))
        told = [each.model_dump(mode="json") for each in found]
        open_ = [run.model_dump(mode="json") for run in runs]
        door.tell({"workflows": told, "runs": open_, "problems": door.problems}, lines or NONE)
        return COMPLETED

    return answering(common, do, looks=True)


def reload(*, common: Common = DEFAULT) -> int:
    """Read the definitions of the project again; open runs keep theirs. Exit code 1 if some are wrong."""

    async def do(door: Door) -> int:
        told = await door.client.reload()
        for problem in told.problems:
            door.say(str(Problem.read(problem)))
        for name in told.removed:
            door.say(f"{name} is gone, and so is its file; runs that are open go on")
        if told.python_files and door.session is None:
            files = ", ".join(told.python_files)
            door.say(f"Not reloaded, because Python code is loaded when the server starts: {files}.")
            door.say("Load it with: nerve server restart")
        door.tell(told, f"Reloaded {told.workflows} workflow(s).")
        return FAILED if told.problems else COMPLETED

    return answering(common, do)
