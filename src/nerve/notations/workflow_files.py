"""Find and read the workflow files of a project."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from pathlib import Path

from nerve.core.slugs import slugify
from nerve.lazy_dataclass import dataclass
from nerve.notations import MAX_FILE_BYTES, SUFFIXES
from nerve.project.discovery import (
    ShadowedFile,
    explain_open_error,
    is_inside_root,
    list_project_files,
    project_of_file,
    subfolders,
    unique_directories,
)
from nerve.project.paths import PROJECT_FOLDER_NAMES
from nerve.project.safe_files import FileRefused, read_file_inside
from nerve.text.source import Document, InvalidDefinition, Problem


@dataclass(frozen=True, slots=True)
class DiscoveredWorkflow:
    """A workflow read from a file."""

    name: str
    path: Path
    folder: Path
    """The folder that contains `workflows`, `steps`, `commands`, `artifacts` and `logs`."""
    notation: str
    document: Document


@dataclass(slots=True)
class DiscoveredWorkflows:
    """The workflows of a project, with problems and shadowed files."""

    workflows: list[DiscoveredWorkflow] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    shadowed: list[ShadowedFile] = field(default_factory=list)

    def get(self, name: str) -> DiscoveredWorkflow | None:
        return next(
            (workflow for workflow in self.workflows if name in (workflow.name, slugify(workflow.name))), None
        )


def discover(project: Path, extra: Iterable[Path] = ()) -> DiscoveredWorkflows:
    """Return all workflows of a project, `extra` folders first; an invalid file adds a problem."""
    discovered = DiscoveredWorkflows()
    extra_directories = [*extra]
    workflow_by_slug: dict[str, DiscoveredWorkflow] = {}
    for directory in unique_directories(
        [*extra_directories, *(project / folder / "workflows" for folder in PROJECT_FOLDER_NAMES)]
    ):
        root = (
            directory.parent
            if directory in extra_directories and not is_inside_root(project, directory)
            else project
        )
        for path in (
            path
            for folder in subfolders(root, directory)
            for path in list_project_files(root, folder, SUFFIXES, discovered.problems)
        ):
            try:
                workflow = read_workflow_file(root, path)
            except InvalidDefinition as error:
                discovered.problems += error.problems
                continue
            if (first := workflow_by_slug.setdefault(slugify(workflow.name), workflow)) is not workflow:
                other_name = first.name if first.name != workflow.name else ""
                discovered.shadowed.append(ShadowedFile(workflow.name, path, first.path, other_name))
            else:
                discovered.workflows.append(workflow)
    return discovered


def read_workflow_file(root: Path, path: Path) -> DiscoveredWorkflow:
    """Return the workflow of a file; raises `InvalidDefinition`."""
    try:
        text = read_file_inside(root, path, MAX_FILE_BYTES)
    except (OSError, FileRefused) as error:
        raise InvalidDefinition([explain_open_error(path, error)]) from None
    document = SUFFIXES[path.suffix.lower()].read(text, str(path))
    name = document.data.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidDefinition([document.problem((), "'name' is missing", "Add a name.")])
    return DiscoveredWorkflow(name, path, project_of_file(path)[0], document.notation, document)
