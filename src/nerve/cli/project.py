"""The project a command works in: its workflows by name, its configuration and its store."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nerve.cli.usage import NotThere, Several, UsageError, stopped
from nerve.core.suggest import suggest
from nerve.notations import SUFFIXES
from nerve.notations.config import Config, project_config
from nerve.notations.discovery import Found, FoundWorkflow, discover
from nerve.notations.files import Refused, read_inside
from nerve.places import Places
from nerve.spec.source import Unreadable
from nerve.spec.workflow import slug

STORE = Path(".nerve/nerve.db")
SHOWN = 20
"""Names that an error lists."""


@dataclass(frozen=True, slots=True)
class Code:
    """A Python file, and the workflow in it that is meant."""

    file: Path
    workflow: str | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A workflow file in one of the notations; `found` says how it is known to the project."""

    path: Path
    found: FoundWorkflow | None = None


def store_of(folder: Path = Path()) -> Path:
    """The store of a project. One that leads elsewhere is refused: a project may come from anywhere."""
    if elsewhere := Places.of(folder).elsewhere:
        raise UsageError(f"{elsewhere}, or name the store that is meant: --store FILE")
    return plain(folder / STORE)


def plain(store: Path) -> Path:
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
    def found(self) -> Found:
        extra = self.config.workflows_dir
        return discover(self.folder, [self.folder / extra] if extra else ())

    def target(self, given: str) -> File | Code:
        """What a target means: a file, or a workflow of the project by its name or the beginning of it."""
        file, colon, workflow = given.rpartition(":")
        if colon and file.endswith(".py"):
            return Code(Path(file), workflow)
        path = Path(given)
        if path.suffix == ".py":
            return Code(path)
        if path.is_file():
            return File(path)
        if path.suffix.lower() in SUFFIXES:
            if path.is_dir():
                raise UsageError(f"{given} is a folder: name a file in it.")
            close = suggest(path.name, names_in(path.parent))
            raise NotThere(stopped(f"there is no file {given}{close}"))
        found = self.named(given)
        return File(found.path, found)

    def named(self, name: str) -> FoundWorkflow:
        """The workflow of a name, or of the only name that begins so."""
        known = self.found.workflows
        exact = [each for each in known if name in (each.name, slug(each.name))]
        matching = exact or [each for each in known if slug(each.name).startswith(name)]
        if len(matching) == 1:
            return matching[0]
        names = [slug(each.name) for each in matching or known]
        listed = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
        if matching:
            raise Several(f"'{name}' can be {listed}: write more of the name.")
        if meant := [problem for problem in self.found.problems if may_be(name, Path(problem.file))]:
            raise Unreadable(meant)
        close = suggest(name, names)
        none = "There are none; make a project with `nerve init`, or put files into .nerve/workflows/."
        there = f"There are: {listed}." if names else none
        told = stopped(f"there is no file and no workflow '{name}'{close}")
        torn = ", ".join(sorted({problem.file for problem in self.found.problems})[:SHOWN])
        unread = f" Not readable: {torn}; `nerve check` says why." if torn else ""
        raise NotThere(f"{told} {there}{unread}")

    def exactly(self, name: str) -> FoundWorkflow | None:
        """The workflow of exactly that id."""
        return next((each for each in self.found.workflows if name == slug(each.name)), None)


def may_be(name: str, file: Path) -> bool:
    """Whether a file that cannot be read seems to be the workflow of a name."""
    try:
        text = read_inside(file.parent, file)
    except (OSError, Refused, Unreadable):
        text = ""
    called = rf"""(?:\b(?:name|id)\b["']?\s*:|\(workflow)\s*["']?{re.escape(name)}(?![\w-])"""
    return file.stem == name or re.search(called, text) is not None


def names_in(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file()]
    except OSError:
        return []


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
