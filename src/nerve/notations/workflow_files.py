"""The workflow files of a project, found and read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from nerve.core.slugs import slugify
from nerve.notations import MAX_FILE_BYTES, SUFFIXES
from nerve.project.discovery import (
    PROJECT_FOLDER_NAMES,
    ShadowedFile,
    explain_open_error,
    is_inside_root,
    list_project_files,
    unique_directories,
)
from nerve.project.safe_files import FileRefused, read_file_inside
from nerve.text.source import Document, InvalidDefinition, Problem


@dataclass(frozen=True, slots=True)
class DiscoveredWorkflow:
    """A workflow in a file that can be read."""

    name: str
    path: Path
    folder: Path
    """The folder that has `workflows`, and beside it `steps`, `commands`, `artifacts` and `logs`."""
    notation: str
    document: Document


@dataclass(slots=True)
class DiscoveredWorkflows:
    """What a project has, what could not be read, and what shadows what."""

    workflows: list[DiscoveredWorkflow] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    shadowed: list[ShadowedFile] = field(default_factory=list)

    def get(self, name: str) -> DiscoveredWorkflow | None:
        return next(
            (workflow for workflow in self.workflows if name in (workflow.name, slugify(workflow.name))), None
        )


def discover(project: Path, extra: Iterable[Path] = ()) -> DiscoveredWorkflows:
    """All workflows of a project, those in the `extra` folders first; a bad file is a problem and no more."""
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
        for path in list_project_files(root, directory, SUFFIXES, discovered.problems):
            workflow = read_workflow_file(root, path, discovered.problems)
            if workflow is None:
                continue
            if (by := workflow_by_slug.setdefault(slugify(workflow.name), workflow)) is not workflow:
                like = by.name if by.name != workflow.name else ""
                discovered.shadowed.append(ShadowedFile(workflow.name, path, by.path, like))
            else:
                discovered.workflows.append(workflow)
    return discovered


def read_workflow_file(root: Path, path: Path, problems: list[Problem]) -> DiscoveredWorkflow | None:
    """The workflow in a file, or nothing and a problem."""
    try:
        document = SUFFIXES[path.suffix.lower()].read(read_file_inside(root, path, MAX_FILE_BYTES), str(path))
    except InvalidDefinition as error:
        problems.extend(error.problems)
        return None
    except (OSError, FileRefused) as error:
        problems.append(explain_open_error(path, error))
        return None
    name = document.data.get("name")
    if not isinstance(name, str) or not name:
        problems.append(document.problem((), "'name' is missing", "Add a name."))
        return None
    return DiscoveredWorkflow(name, path, path.parent.parent, document.notation, document)
