"""The definition of a target: from a file, or from the store for workflows without a file."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nerve.api.models import WorkflowResponse
from nerve.cli.context import open_context
from nerve.cli.errors import NameNotFound, UsageError
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions
from nerve.cli.targets import Project, PythonTarget
from nerve.client import find_server
from nerve.errors import StoreInUse
from nerve.notations import NOTATIONS, open_document, read_source
from nerve.notations.yaml_prompts import attach_prompts
from nerve.text.source import Document


def load_target_document(project: Project, name: str, common: CommonOptions = DEFAULT_OPTIONS) -> Document:
    """Return the definition of a target without executing it; UsageError for Python code."""
    document = load_target(project, name, common)
    if isinstance(document, Document):
        return document
    raise python_target_error(document.id)


def load_target(
    project: Project, name: str, common: CommonOptions = DEFAULT_OPTIONS
) -> Document | WorkflowResponse:
    """Return the definition of a target, or the description of Python code that the server knows."""
    try:
        target = project.resolve_target(name)
    except NameNotFound:
        if (stored := asyncio.run(load_stored_definition(project, name, common))) is None:
            raise
        return stored
    if isinstance(target, PythonTarget):
        raise python_target_error(name)
    return open_document(target.path, project.folder)[0]


async def load_stored_definition(
    project: Project, name: str, common: CommonOptions
) -> Document | WorkflowResponse | None:
    """Return the stored definition with this name or unique prefix, or None."""
    if not common.store_file.is_file() and find_server(Path()) is None:
        return None
    try:
        async with open_context(common, writes=False) as context:
            workflow_ids = [candidate.id for candidate in (await context.client.workflows()).workflows]
            matches = (
                [name]
                if name in workflow_ids
                else [candidate for candidate in workflow_ids if candidate.startswith(name)]
            )
            if len(matches) != 1:
                return None
            response = await context.client.workflow(workflow=matches[0])
    except StoreInUse:
        return None
    if response.kind not in NOTATIONS:
        return response
    document = read_source(response.source or "", f"<{response.id}>", response.kind)
    document.warnings += attach_prompts(document, project.folder, project.folder, response.prompts)
    return document


def python_target_error(name: str) -> UsageError:
    return UsageError(
        f"Workflow {name} is Python code and has no definition file."
        f" To see its inputs: nerve run {name} --help, with --with FILE for the file that registers it."
    )
