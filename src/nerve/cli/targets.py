"""The project a command works in: its workflows by name, its configuration and its store."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nerve.cli.errors import AmbiguousName, NameNotFound, UsageError, with_full_stop
from nerve.core.suggest import did_you_mean_hint
from nerve.notations import SUFFIXES
from nerve.notations.workflow_files import DiscoveredWorkflow, DiscoveredWorkflows, discover
from nerve.project.config import Config, project_config
from nerve.project.paths import ProjectPaths
from nerve.project.safe_files import FileRefused, read_file_inside
from nerve.spec.defined_workflow import slugify
from nerve.text.source import InvalidDefinition

STORE_FILE = Path(".nerve/nerve.db")
MAX_LISTED_NAMES = 20
"""Names that an error lists."""


@dataclass(frozen=True, slots=True)
class PythonTarget:
    """A Python file, and the workflow in it that is meant."""

    file: Path
    workflow: str | None = None


@dataclass(frozen=True, slots=True)
class FileTarget:
    """A workflow file in one of the notations; `found` says how it is known to the project."""

    path: Path
    discovered: DiscoveredWorkflow | None = None


def project_store_file(folder: Path = Path()) -> Path:
    """The store of a project. One that leads elsewhere is refused: a project may come from anywhere."""
    if elsewhere := ProjectPaths.of(folder).symlink_problem:
        raise UsageError(f"{elsewhere}, or name the store that is meant: --store FILE")
    return require_store_file(folder / STORE_FILE)


def require_store_file(store: Path) -> Path:
    """The file of a store. What stands there and can be none is refused, and is not taken for no runs."""
    if store.parent.exists() and not store.parent.is_dir():
        raise UsageError(f"{store.parent} is no folder. Move it away, or name another store.")
    if store.exists() and not store.is_file():
        raise UsageError(f"{store} is no file. Move it away, or name another store.")
    return store


class Project:
    """One folder. Nothing in it is executed by looking at it."""

    def __init__(self, folder: Path = Path()) -> None:
        self.folder = folder

    @cached_property
    def config(self) -> Config:
        """The configuration; Unreadable if it is wrong."""
        return project_config(self.folder)

    @cached_property
    def discovered(self) -> DiscoveredWorkflows:
        extra = self.config.workflows_dir
        return discover(self.folder, [self.folder / extra] if extra else ())

    def resolve_target(self, text: str) -> FileTarget | PythonTarget:
        """What a target means: a file, or a workflow of the project by its name or the beginning of it."""
        file, colon, workflow = text.rpartition(":")
        if colon and file.endswith(".py"):
            return PythonTarget(Path(file), workflow)
        path = Path(text)
        if path.suffix == ".py":
            return PythonTarget(path)
        if path.is_file():
            return FileTarget(path)
        if path.suffix.lower() in SUFFIXES:
            if path.is_dir():
                raise UsageError(f"{text} is a folder: name a file in it.")
            suggestion = did_you_mean_hint(path.name, workflow_file_names(path.parent))
            raise NameNotFound(with_full_stop(f"there is no file {text}{suggestion}"))
        match = self.find_workflow(text)
        return FileTarget(match.path, match)

    def find_workflow(self, name: str) -> DiscoveredWorkflow:
        """The workflow of a name, or of the only name that begins so."""
        workflows = self.discovered.workflows
        exact = [candidate for candidate in workflows if name in (candidate.name, slugify(candidate.name))]
        matching = exact or [candidate for candidate in workflows if slugify(candidate.name).startswith(name)]
        if len(matching) == 1:
            return matching[0]
        names = [slugify(candidate.name) for candidate in matching or workflows]
        name_list = ", ".join(names[:MAX_LISTED_NAMES]) + (", …" if len(names) > MAX_LISTED_NAMES else "")
        if matching:
            raise AmbiguousName(f"'{name}' can be {name_list}: write more of the name.")
        if broken := [
            problem for problem in self.discovered.problems if may_define(name, Path(problem.file))
        ]:
            raise InvalidDefinition(broken)
        suggestion = did_you_mean_hint(name, names)
        empty_hint = "There are none; make a project with `nerve init`, or put files into .nerve/workflows/."
        known_names = f"There are: {name_list}." if names else empty_hint
        message = with_full_stop(f"there is no file and no workflow '{name}'{suggestion}")
        unreadable_files = ", ".join(
            sorted({problem.file for problem in self.discovered.problems})[:MAX_LISTED_NAMES]
        )
        unreadable_hint = (
            f" Not readable: {unreadable_files}; `nerve check` says why." if unreadable_files else ""
        )
        raise NameNotFound(f"{message} {known_names}{unreadable_hint}")

    def find_exact_workflow(self, name: str) -> DiscoveredWorkflow | None:
        """The workflow of exactly that id."""
        return next(
            (workflow for workflow in self.discovered.workflows if name == slugify(workflow.name)), None
        )


def may_define(name: str, file: Path) -> bool:
    """Whether a file that cannot be read seems to be the workflow of a name."""
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


def join_target_names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
