"""The configuration of a project, `.nerve/config.json`: which workflows there are, and who may call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nerve.core.limits import BUDGETS, Limits
from nerve.core.suggest import suggest
from nerve.notations.files import Refused, read_inside
from nerve.notations.json_text import read_json
from nerve.spec.source import Map, Place, Problem, Seq, Unreadable

FILE = ".nerve/config.json"
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class WorkflowSettings:
    """What the project says about one workflow."""

    enabled: bool = True
    visible_to: tuple[str, ...] | None = None
    """The workflows that may call it; None is all of them, an empty list none."""


@dataclass(frozen=True, slots=True)
class Named:
    """A name, and where in the file it stands."""

    name: str
    place: Place

    def unknown(self, names: Iterable[str]) -> Problem:
        """That there is no agent of that name."""
        known = sorted(set(names))
        told = f"there is no agent or provider '{self.name}'{suggest(self.name, known)}"
        return Problem(FILE, self.place, told, f"There are: {', '.join(known)}.")


@dataclass(frozen=True, slots=True)
class Config:
    """What a project says about its workflows."""

    enabled: bool = True
    workflows_dir: str | None = None
    """A folder of workflows below the project's folder, beside those that are always looked in."""
    workflows: Mapping[str, WorkflowSettings] = field(default_factory=lambda: NOTHING)
    providers: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: NOTHING)
    """The settings of providers, by the names that workflows call them."""
    slots: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    """How many agents of each provider may work at once."""
    budget: Mapping[str, float] | None = None
    """What all runs together may spend in a day."""
    router: Named | None = None
    """The agent or provider that decides which workflow a text asks for; without one the words do."""

    def is_enabled(self, workflow: str) -> bool:
        return self.enabled and self.of(workflow).enabled

    def may_call(self, caller: str, workflow: str) -> bool:
        """Whether one workflow may call another."""
        return not self.refusal(workflow, caller)

    def refusal(self, workflow: str, caller: str | None = None) -> str:
        """Why a workflow may not be started, or be called by another one; empty if it may."""
        if not self.is_enabled(workflow):
            return f"workflow '{workflow}' is switched off in {FILE}"
        seen_by = self.of(workflow).visible_to
        if caller is None or seen_by is None or caller in seen_by or caller == workflow:
            return ""
        listed = f"{', '.join(seen_by)} only" if seen_by else "nobody"
        return f"workflow '{workflow}' is visible to {listed}"

    def of(self, workflow: str) -> WorkflowSettings:
        return self.workflows.get(workflow, DEFAULT)


DEFAULT = WorkflowSettings()


def project_config(folder: Path) -> Config:
    """The configuration of a project; `Unreadable` if it is wrong, and the default if there is none."""
    try:
        return read_config(read_inside(folder, folder / FILE))
    except (FileNotFoundError, NotADirectoryError):
        return Config()
    except (OSError, Refused) as error:
        raise Unreadable([Problem(FILE, Place(), f"this cannot be read: {error}")]) from None


def read_config(text: str, file: str = FILE) -> Config:
    """The configuration a text says; raises `Unreadable` with every problem and its place."""
    return ConfigReader(file).config(read_json(text, file))


class ConfigReader:
    """One reading; what is wrong is collected."""

    def __init__(self, file: str) -> None:
        self.file, self.problems = file, list[Problem]()

    def config(self, source: Any) -> Config:
        made: dict[str, Any] = {}
        for key, value, place in self.entries(source, "the configuration", Config.__slots__):
            if key == "enabled":
                made[key] = self.flag(value, place, "enabled")
            elif key == "workflows_dir":
                made[key] = self.folder(value, place)
            else:
                made[key] = getattr(self, key)(value, place)
        if self.problems:
            raise Unreadable(self.problems)
        return Config(**made)

    def workflows(self, source: Any, place: Place) -> Mapping[str, WorkflowSettings]:
        entries = self.entries(source, "'workflows'", None, place)
        return MappingProxyType({key: self.settings(key, value, at) for key, value, at in entries})

    def providers(self, source: Any, place: Place) -> Mapping[str, Mapping[str, Any]]:
        entries = self.entries(source, "'providers'", None, place)
        for name, value, at in entries:
            self.entries(value, f"provider '{name}'", None, at)
        return MappingProxyType({name: value for name, value, _ in entries})

    def slots(self, source: Any, place: Place) -> Mapping[str, int]:
        entries = self.entries(source, "'slots'", None, place)
        for name, value, at in entries:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                self.error(at, f"the slots of '{name}' must be a whole number from 1 on")
        return MappingProxyType({name: value for name, value, _ in entries})

    def budget(self, source: Any, place: Place) -> Mapping[str, float]:
        entries = self.entries(source, "'budget'", BUDGETS, place)
        for name, value, at in entries:
            try:
                Limits.of({name: value})
            except (TypeError, ValueError):
                self.error(at, f"{name} of the budget must be a number that is not negative")
        return MappingProxyType({name: value for name, value, _ in entries})

    def router(self, value: Any, place: Place) -> Named:
        if not isinstance(value, str) or not value.strip():
            self.error(place, "router must be the name of an agent or a provider")
            return Named("", place)
        return Named(value.strip(), place)

    def settings(self, id: str, source: Any, place: Place) -> WorkflowSettings:
        what = f"workflow '{id}'"
        made: dict[str, Any] = {}
        for key, value, at in self.entries(source, what, WorkflowSettings.__slots__, place):
            if key == "enabled":
                made[key] = self.flag(value, at, f"enabled of {what}")
            else:
                made[key] = self.names(value, at, what)
        return WorkflowSettings(**made)

    def entries(
        self, source: Any, what: str, keys: tuple[str, ...] | None, place: Place | None = None
    ) -> list[tuple[str, Any, Place]]:
        """The entries of an object whose keys are known."""
        if not isinstance(source, Map):
            self.error(getattr(source, "place", None) or place, f"{what} must be an object")
            return []
        found = []
        for key, value in source.items():
            if keys is not None and key not in keys:
                fix = f"Keys are: {', '.join(keys)}."
                self.error(source.keys_at[key], f"{what} has no key '{key}'{suggest(key, keys)}", fix)
            else:
                found.append((key, value, source.values_at[key]))
        return found

    def flag(self, value: Any, place: Place, what: str) -> bool:
        if not isinstance(value, bool):
            self.error(place, f"{what} must be true or false")
        return value is True

    def folder(self, value: Any, place: Place) -> str:
        """A folder that cannot be outside the project."""
        if not isinstance(value, str) or not value.strip():
            self.error(place, "workflows_dir must be the name of a folder")
            return ""
        parts = value.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or parts[0].startswith("~") or ":" in parts[0]:
            self.error(place, f"workflows_dir '{value[:80]}' must be a folder inside the project")
        return value

    def names(self, value: Any, place: Place, what: str) -> tuple[str, ...]:
        if not isinstance(value, Seq) or not all(isinstance(name, str) for name in value):
            self.error(place, f"visible_to of {what} must be a list of workflows")
            return ()
        return tuple(value)

    def error(self, place: Place | None, message: str, fix: str = "") -> None:
        self.problems.append(Problem(self.file, place or Place(), message, fix))
        if len(self.problems) >= TOLD:
            raise Unreadable(self.problems)


TOLD = 50
"""Problems that are collected before reading stops."""
