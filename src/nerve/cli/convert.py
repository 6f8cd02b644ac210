"""`nerve convert`: a workflow written down in another notation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.outcome_output import print_result_text
from nerve.cli.parameters import Flag
from nerve.cli.targets import Project, PythonTarget
from nerve.core.notation_table import NotationName
from nerve.notations import get_notation, read_notation_file, read_source
from nerve.spec import models
from nerve.spec.validation import plain_form, validate_document
from nerve.spec.walk import walk_spec
from nerve.text.source import InvalidDefinition
from nerve.ui.sanitize import dump_safe_json, sanitize_text


def convert_command(
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
    target = project.resolve_target(file)
    if isinstance(target, PythonTarget):
        raise UsageError(f"{file} is Python, which cannot be written in another notation.")
    spec = load_file_spec(target.path)
    text, remarks = render_notation(plain_form(spec), to)
    remarks += prompt_file_remarks(spec)
    for remark in () if quiet else remarks:
        print(sanitize_text(f"nerve: {remark}"), file=sys.stderr)
    if output is not None:
        write_output_file(output, text)
    if json:
        report = {"notation": to, "text": text, "remarks": remarks}
        print(dump_safe_json(report | ({"file": str(output)} if output else {})))
    elif output is None:
        print_result_text(text)
    return COMPLETED


def load_file_spec(path: Path) -> models.WorkflowSpec:
    """The spec of a file; its prompts stay in theirs."""
    spec, problems = validate_document(read_source(read_notation_file(path), str(path)))
    if spec is None:
        raise InvalidDefinition(problems)
    return spec


def render_notation(data: dict[str, Any], to: str) -> tuple[str, list[str]]:
    """The text, and what is to be said about it."""
    if to != "json":
        return get_notation(to).write(data), []
    from nerve.notations.json_steps import write_steps

    text, unsupported = write_steps(data)
    if not unsupported:
        return text, []
    remarks = [f"steps cannot say it: {what}" for what in unsupported]
    return get_notation("json").write(data), [*remarks, "so it is written in the full form."]


def prompt_file_remarks(spec: models.WorkflowSpec) -> list[str]:
    files = {
        step.spec.file
        for step in walk_spec(spec.body)
        if isinstance(step.spec, models.PromptSpec) and step.spec.file
    }
    if not files:
        return []
    names = ", ".join(f"{name}.md" for name in sorted(files))
    return [f"its prompts stay in their files ({names}): keep the new file beside the old one."]


def write_output_file(output: Path, text: str) -> None:
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.") from None
