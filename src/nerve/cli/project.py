"""The project a command works in: its workflows by name, its configuration and its store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nerve.cli.usage import UsageError
from nerve.core.nodes.graph import suggest
from nerve.notations import SUFFIXES
from nerve.notations.config import Config, read_config
from nerve.notations.discovery import Found, FoundWorkflow, discover
from nerve.notations.files import Refused, read_inside
from nerve.spec import models
from nerve.spec.walk import walk
from nerve.spec.workflow import slug

STORE = Path(".nerve/nerve.db")
CONFIG = ".nerve/config.json"
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


class Project:
    """One folder. Nothing in it is executed by looking at it."""

    def __init__(self, folder: Path = Path()) -> None:
        self.folder = folder

    @cached_property
    def config(self) -> Config:
        """The configuration; Unreadable if it is wrong."""
        try:
            return read_config(read_inside(self.folder, self.folder / CONFIG), CONFIG)
        except FileNotFoundError:
            return Config()
        except (OSError, Refused) as error:
            raise UsageError(f"{CONFIG} cannot be read: {error}.") from None

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
            raise UsageError(f"there is no file {given}{suggest(path.name, names_in(path.parent))}.")
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
            raise UsageError(f"'{name}' can be {listed}: write more of the name.")
        close = suggest(name, names)
        there = f"There are: {listed}." if names else "There are none: put files into .nerve/workflows/."
        stop = "" if close.endswith("?") else "."
        raise UsageError(f"there is no file and no workflow '{name}'{close}{stop} {there}")

    def enabled(self, name: str) -> FoundWorkflow | None:
        """The workflow of exactly that id, if the project lets it be used."""
        matching = (each for each in self.found.workflows if name == slug(each.name))
        found = next(matching, None)
        return found if found is not None and self.config.is_enabled(name) else None


def names_in(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir() if path.suffix.lower() in SUFFIXES]
    except OSError:
        return []


def called(spec: models.WorkflowSpec) -> Iterator[str]:
    """The names a workflow calls that may be those of other workflows."""
    for each in walk(spec.body):
        match each.spec:
            case models.WorkflowCall(workflow=name):
                yield name
            case models.Call(target=target):
                yield target.removeprefix("workflow:")


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
