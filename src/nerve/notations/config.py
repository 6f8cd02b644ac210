"""The configuration of a project, `.nerve/config.json`: which workflows there are, and who may call them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from nerve.core.nodes.graph import suggest
from nerve.notations.json_text import read_json
from nerve.spec.source import Map, Place, Problem, Seq, Unreadable

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class WorkflowSettings:
    """What the project says about one workflow."""

    enabled: bool = True
    visible_to: tuple[str, ...] | None = None
    """The agents that may call it as `workflow:<id>`; None is everybody, an empty list nobody."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a project says about its workflows."""

    enabled: bool = True
    workflows_dir: str | None = None
    """A folder of workflows below the project's folder, beside those that are always looked in."""
    workflows: Mapping[str, WorkflowSettings] = field(default_factory=lambda: NOTHING)

    def is_enabled(self, workflow: str) -> bool:
        return self.enabled and self.of(workflow).enabled

    def may_call(self, agent: str, workflow: str) -> bool:
        """Whether an agent may call `workflow:<id>`."""
        seen_by = self.of(workflow).visible_to
        return self.is_enabled(workflow) and (seen_by is None or agent in seen_by)

    def of(self, workflow: str) -> WorkflowSettings:
        return self.workflows.get(workflow, DEFAULT)


DEFAULT = WorkflowSettings()


def read_config(text: str, file: str = ".nerve/config.json") -> Config:
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
                made[key] = self.workflows(value, place)
        if self.problems:
            raise Unreadable(self.problems)
        return Config(**made)

    def workflows(self, source: Any, place: Place) -> Mapping[str, WorkflowSettings]:
        entries = self.entries(source, "'workflows'", None, place)
        return MappingProxyType({key: self.settings(key, value, at) for key, value, at in entries})

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
            self.error(place, f"visible_to of {what} must be a list of agents")
            return ()
        return tuple(value)

    def error(self, place: Place | None, message: str, fix: str = "") -> None:
        self.problems.append(Problem(self.file, place or Place(), message, fix))
        if len(self.problems) >= TOLD:
            raise Unreadable(self.problems)


TOLD = 50
"""Problems that are collected before reading stops."""
