"""The project of a command: its workflows, configuration and store."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from nerve.cli.errors import AmbiguousName, NameNotFound, UsageError
from nerve.cli.parameters import DEFAULT_OPTIONS, require_no_folder
from nerve.core.slugs import slugify
from nerve.core.suggest import did_you_mean_hint
from nerve.errors import StoreInUse
from nerve.lazy_dataclass import dataclass
from nerve.notations import NOTATIONS, SUFFIXES, open_document, read_source
from nerve.notations.workflow_files import DiscoveredWorkflow, DiscoveredWorkflows, discover
from nerve.notations.yaml_prompts import attach_prompts
from nerve.project.config import Config, project_config
from nerve.project.safe_files import FileRefused, read_file_inside
from nerve.text import clip_names, with_full_stop
from nerve.text.source import Document, InvalidDefinition

if TYPE_CHECKING:
    from nerve.api.models import WorkflowResponse

MAX_LISTED_NAMES = 20
"""Maximum number of names in an error message."""


@dataclass(frozen=True, slots=True)
class PythonTarget:
    """A Python file, and optionally the name of a workflow that it registers."""

    file: Path
    workflow: str | None = None


@dataclass(frozen=True, slots=True)
class FileTarget:
    """A workflow file; `discovered` is set if the project knows it by name."""

    path: Path
    discovered: DiscoveredWorkflow | None = None


class Project:
    """A project folder. Reading it executes nothing."""

    def __init__(self, folder: Path = Path()) -> None:
        self.folder = folder

    @cached_property
    def config(self) -> Config:
        """The configuration. Raises InvalidDefinition if it is not valid."""
        return project_config(self.folder)

    @cached_property
    def discovered(self) -> DiscoveredWorkflows:
        extra = self.config.workflows_dir
        return discover(self.folder, [self.folder / extra] if extra else ())

    def resolve_target(self, text: str, other_names: Iterable[str] = ()) -> FileTarget | PythonTarget:
        """Return the target for a file path, a workflow name or a unique prefix of a name.

        An error lists `other_names` with the workflows of the project.
        """
        file, colon, workflow = text.rpartition(":")
        if colon and file.endswith(".py"):
            return PythonTarget(Path(file), workflow)
        path = Path(text)
        if path.suffix == ".py":
            return PythonTarget(path)
        if path.is_file():
            return FileTarget(path)
        if path.suffix.lower() in SUFFIXES:
            require_no_folder(path)
            suggestion = did_you_mean_hint(path.name, workflow_file_names(path.parent))
            raise NameNotFound(with_full_stop(f"File not found: {text}{suggestion}"))
        try:
            match = self.find_workflow(text, other_names)
        except NameNotFound:
            require_no_folder(path)
            raise
        return FileTarget(match.path, match)

    def find_workflow(self, name: str, other_names: Iterable[str] = ()) -> DiscoveredWorkflow:
        """Return the workflow with this name or unique prefix."""
        workflows = self.discovered.workflows
        exact = [candidate for candidate in workflows if name in (candidate.name, slugify(candidate.name))]
        matching = exact or [candidate for candidate in workflows if slugify(candidate.name).startswith(name)]
        if len(matching) == 1:
            return matching[0]
        names = [slugify(candidate.name) for candidate in matching or workflows]
        names += [other for other in other_names if not matching and other not in names]
        name_list = clip_names(names, MAX_LISTED_NAMES)
        if matching:
            raise AmbiguousName(f"'{name}' is ambiguous: {name_list}. Use a longer prefix.")
        if broken := [
            problem for problem in self.discovered.problems if may_define(name, Path(problem.file))
        ]:
            raise InvalidDefinition(broken)
        suggestion = did_you_mean_hint(name, names)
        empty_hint = "The project has no workflows. Create one with `nerve init` or `nerve new NAME`."
        known_names = f"Workflows: {name_list}." if names else empty_hint
        message = with_full_stop(f"File or workflow '{name}' not found{suggestion}")
        unreadable_files = ", ".join(
            sorted({problem.file for problem in self.discovered.problems})[:MAX_LISTED_NAMES]
        )
        unreadable_hint = (
            f" Invalid files: {unreadable_files}. To see the problems: nerve check."
            if unreadable_files
            else ""
        )
        raise NameNotFound(f"{message} {known_names}{unreadable_hint}")

    def find_exact_workflow(self, name: str) -> DiscoveredWorkflow | None:
        """Return the workflow with exactly this id, or None."""
        return next(
            (workflow for workflow in self.discovered.workflows if name == slugify(workflow.name)), None
        )


def may_define(name: str, file: Path) -> bool:
    """Whether an invalid file appears to define the workflow with this name."""
    try:
        text = read_file_inside(file.parent, file)
    except (OSError, FileRefused, InvalidDefinition):
        text = ""
    name_pattern = rf"""(?:\b(?:name|id)\b["']?\s*:|\(workflow)\s*["']?{re.escape(name)}(?![\w-])"""
    return file.stem == name or re.search(name_pattern, text) is not None


def workflow_file_names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file()]
    except OSError:
        return []


# -- definitions ---------------------------------------------------------------------------------------


def load_target_document(project: Project, name: str) -> Document:
    """Return the definition of a target without executing it; UsageError for Python code."""
    document = load_target(project, name)
    if isinstance(document, Document):
        return document
    raise python_target_error(document.id)


def load_target(project: Project, name: str) -> Document | WorkflowResponse:
    """Return the definition of a target, or the description of Python code that the server knows."""
    try:
        target = project.resolve_target(name)
    except NameNotFound:
        import asyncio

        if (stored := asyncio.run(load_stored_definition(project, name))) is None:
            raise
        return stored
    if isinstance(target, PythonTarget):
        raise python_target_error(name)
    return open_document(target.path, project.folder)[0]


async def load_stored_definition(project: Project, name: str) -> Document | WorkflowResponse | None:
    """Return the stored definition with this name or unique prefix, or None."""
    from nerve.api.errors import ApiError
    from nerve.cli.context import open_context
    from nerve.client import find_server

    if not DEFAULT_OPTIONS.has_store and find_server(Path()) is None:
        return None
    try:
        async with open_context(DEFAULT_OPTIONS, writes=False) as context:
            response = await context.client.workflow(workflow=name)
    except StoreInUse:
        return None
    except ApiError as error:
        if error.code in ("not_found", "conflict", "bad_request"):
            return None
        raise
    if response.kind not in NOTATIONS:
        return response
    document = read_source(response.source or "", f"<{response.id}>", response.kind)
    document.warnings += attach_prompts(document, project.folder, project.folder, response.prompts)
    return document


def python_target_error(name: str) -> UsageError:
    file = name.rpartition(":")[0] or name
    with_file = "" if file.endswith(".py") else ", with --with FILE for the file that registers it"
    return UsageError(
        f"Workflow {name} is Python code and has no definition file."
        f" To see its inputs: nerve run {name} --help{with_file}."
    )
