"""`nerve convert`: a workflow written down in another notation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from nerve.cli.exits import COMPLETED
from nerve.cli.flags import Flag
from nerve.cli.project import Code, Project
from nerve.cli.telling import result
from nerve.cli.usage import UsageError
from nerve.commander.core.harmless import harmless, in_json
from nerve.notations import contents, named, read
from nerve.spec import models
from nerve.spec.source import Unreadable
from nerve.spec.validate import plain_form, validate
from nerve.spec.walk import walk
from nerve.written import NotationName


def convert(
    file: str,
    /,
    *,
    to: NotationName,
    output: Path | None = None,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Write a workflow down in another notation. Nothing is executed or imported.

    It is written in the dialect of the notation where that can say everything, or else in the full form.

    Parameters
    ----------
    file
        A workflow file, or the name of a workflow of the project.
    to
        The notation.
    output
        The file to write; without it, standard output.
    json
        Print one JSON object: `notation`, `text`, `remarks`, and `file` if one was written.
    quiet
        Do not say what the notation cannot say.
    """
    project = Project()
    target = project.target(file)
    if isinstance(target, Code):
        raise UsageError(f"{file} is Python, which cannot be written in another notation.")
    spec = spec_of(target.path)
    text, remarks = written(plain_form(spec), to)
    remarks += files_of(spec)
    for remark in () if quiet else remarks:
        print(harmless(f"nerve: {remark}"), file=sys.stderr)
    if output is not None:
        save(output, text)
    if json:
        told = {"notation": to, "text": text, "remarks": remarks}
        print(in_json(told | ({"file": str(output)} if output else {})))
    elif output is None:
        result(text)
    return COMPLETED


def spec_of(path: Path) -> models.WorkflowSpec:
    """The spec of a file; its prompts stay in theirs."""
    spec, problems = validate(read(contents(path), str(path)))
    if spec is None:
        raise Unreadable(problems)
    return spec


def written(data: dict[str, Any], to: str) -> tuple[str, list[str]]:
    """The text, and what is to be said about it."""
    if to != "json":
        return named(to).write(data), []
    from nerve.notations.json_steps import write_steps

    text, cannot = write_steps(data)
    if not cannot:
        return text, []
    told = [f"steps cannot say it: {what}" for what in cannot]
    return named("json").write(data), [*told, "so it is written in the full form."]


def files_of(spec: models.WorkflowSpec) -> list[str]:
    files = {
        each.spec.file for each in walk(spec.body) if isinstance(each.spec, models.Prompt) and each.spec.file
    }
    if not files:
        return []
    names = ", ".join(f"{name}.md" for name in sorted(files))
    return [f"its prompts stay in their files ({names}): keep the new file beside the old one."]


def save(output: Path, text: str) -> None:
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.") from None
