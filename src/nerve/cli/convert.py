"""`nerve convert`: convert a workflow to another notation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.outcome import print_result_text
from nerve.cli.parameters import Flag
from nerve.cli.targets import Project, PythonTarget
from nerve.core.notation_table import NotationName
from nerve.notations import get_notation, open_document, read_notation_file, read_source
from nerve.notations.yaml_prompts.prompt_files import iter_nodes
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
    """Convert a workflow to another notation. Nothing is executed or imported.

    Uses the dialect of the notation if it can express the whole workflow, otherwise the full form.

    Parameters
    ----------
    file
        A workflow file, or a workflow name.
    to
        The target notation.
    output
        The file to write. Default: standard output.
    json
        Print one JSON object: `notation`, `text`, `remarks`, and `file` with --output.
    quiet
        Do not print remarks.
    """
    project = Project()
    target = project.resolve_target(file)
    if isinstance(target, PythonTarget):
        raise UsageError(f"{file} is Python code and cannot be converted to another notation.")
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
    """Return the spec of a file. Prompt files are not inlined, except those in the form of another tool."""
    document = read_source(read_notation_file(path), str(path))
    if document.dialect is not None:
        document, _ = open_document(path, Path())
        if errors := [problem for problem in document.warnings if problem.severity == "error"]:
            raise InvalidDefinition(errors)
        for node in iter_nodes(document.data.get("body")):
            if "text" in node:
                node.pop("file", None)
    spec, problems = validate_document(document)
    if spec is None:
        raise InvalidDefinition(problems)
    return spec


def render_notation(data: dict[str, Any], to: str) -> tuple[str, list[str]]:
    """Return the converted text and remarks about it."""
    if to != "json":
        return get_notation(to).write(data), []
    from nerve.notations.json_steps import write_steps

    text, unsupported = write_steps(data)
    if not unsupported:
        return text, []
    remarks = [f"Steps cannot express {what}" for what in unsupported]
    return get_notation("json").write(data), [*remarks, "Wrote the full form instead."]


def prompt_file_remarks(spec: models.WorkflowSpec) -> list[str]:
    files = {
        step.spec.file
        for step in walk_spec(spec.body)
        if isinstance(step.spec, models.PromptSpec) and step.spec.file
    }
    if not files:
        return []
    names = ", ".join(f"{name}.md" for name in sorted(files))
    return [f"Prompts stay in their files ({names}). Keep the new file in the same folder as the old one."]


def write_output_file(output: Path, text: str) -> None:
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"Cannot write {output}: {error.strerror}.") from None
