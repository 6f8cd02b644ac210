"""Agent files: Markdown with a front matter that says who the agent is."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nerve.core.limits import of_step
from nerve.core.suggest import suggest
from nerve.notations.discovery import FOLDERS, Shadowed, listed, unopened
from nerve.notations.files import Refused, decode, open_inside, read_inside
from nerve.notations.yaml_text import load
from nerve.spec.source import Map, Place, Problem, Unreadable

FRONT_LIMIT = 64 * 1024
FENCE = "---"
NAME = re.compile(r"""^name:[ \t]*["']?([^"'\s#]+)""", re.MULTILINE)
"""The name in a front matter that is no YAML."""


@dataclass(frozen=True, slots=True)
class AgentFile:
    """An agent as its front matter describes it; the prompt below is read when it is asked for."""

    name: str
    path: Path
    root: Path
    description: str = ""
    provider: str | None = None
    model: str | None = None
    tools: tuple[str, ...] | None = None
    max_turns: int | None = None
    fallback: str | None = None
    limits: Mapping[str, Any] | None = None
    """What each step of it may spend: `tokens`, `cost`, `turns`."""
    places: Mapping[str, Place] = field(default_factory=dict, compare=False)
    """Where in the file its keys have their values."""

    def unknown(self, providers: Collection[str]) -> Iterator[Problem]:
        """What is to be said of providers that it names and that there are not."""
        for key, name in (("provider", self.provider), ("fallback", self.fallback)):
            if name is not None and name not in providers:
                yield self.missing(key, name, providers)

    def missing(self, key: str, name: str, providers: Collection[str], how: str = "") -> Problem:
        """That there is no provider of a name; `how` is how to get it, if that is known."""
        close = "" if how else suggest(name, providers)
        fix = how or f"There are: {', '.join(sorted(providers)) or 'none'}."
        place = self.places.get(key) or Place()
        return Problem(str(self.path), place, f"there is no provider '{name}'{close}", fix)

    def text(self) -> str:
        """The agent's own prompt: everything below the front matter."""
        lines = read_inside(self.root, self.path).splitlines(keepends=True)
        front = front_of(lines)
        return "".join(lines if front is None else lines[front + 1 :]).lstrip("\n")


@dataclass(slots=True)
class FoundAgents:
    """The agents of a project, what could not be read, and what shadows what."""

    agents: list[AgentFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    shadowed: list[Shadowed] = field(default_factory=list)
    broken: dict[str, list[Problem]] = field(default_factory=dict)
    """What is wrong with the files of agents that cannot be used, by the names of these."""

    def get(self, name: str) -> AgentFile | None:
        return next((agent for agent in self.agents if agent.name == name), None)

    def usable(self, name: str) -> AgentFile | None:
        """The agent of a name, if there is one; `Unreadable` if its file is wrong."""
        if name in self.broken:
            raise Unreadable(self.broken[name])
        return self.get(name)


def discover_agents(project: Path) -> FoundAgents:
    """All agent files of a project; of each only the front matter is read."""
    found = FoundAgents()
    for folder in FOLDERS:
        for path in listed(project, project / folder / "agents", (".md",), found.problems):
            wrong: list[Problem] = []
            agent = read_agent(project, path, wrong)
            found.problems += wrong
            if agent is None:
                name = name_of(project, path)
                if found.get(name) is None:
                    found.broken.setdefault(name, wrong)
                continue
            if (before := found.get(agent.name)) is not None:
                found.shadowed.append(Shadowed(agent.name, path, before.path))
            else:
                found.agents.append(agent)
    return found


def read_agent(root: Path, path: Path, problems: list[Problem]) -> AgentFile | None:
    """The agent in a file, or nothing and a problem."""
    try:
        front = front_matter(root, path)
        told = load(front, str(path)) if front else None
    except Unreadable as error:
        problems.extend(error.problems)
        return None
    except (OSError, Refused) as error:
        problems.append(unopened(path, error))
        return None
    if told is not None and not isinstance(told, Map):
        problems.append(
            Problem(str(path), Place(2), "the front matter must be a mapping", "Write 'name: …'.")
        )
        return None
    return agent_of(root, path, told or Map(), problems)


def name_of(root: Path, path: Path) -> str:
    """The name of the agent in a file that cannot be read as one."""
    try:
        lines = read_inside(root, path).splitlines(keepends=True)
    except (OSError, Refused, Unreadable):
        return path.stem
    said = NAME.search("".join(lines[: front_of(lines)]))
    return said[1] if said is not None else path.stem


def agent_of(root: Path, path: Path, told: Map, problems: list[Problem]) -> AgentFile | None:
    """Keys that are not known belong to other programs and are left alone."""
    made: dict[str, Any] = {}
    for key, (read, message, fix) in FIELDS.items():
        if (value := told.get(key)) is None:
            continue
        try:
            made[key] = read(value)
        except ValueError as error:
            place = told.values_at.get(key) or Place()
            problems.append(Problem(str(path), place, f"'{key}' {str(error) or message}", fix))
            return None
    name = made.pop("name", "") or path.stem
    return AgentFile(name, path, root, **made, places=dict(told.values_at))


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value.strip()


def tools(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [tool.strip() for tool in value.split(",") if tool.strip()]
    if not isinstance(value, list) or not all(isinstance(tool, str) for tool in value):
        raise ValueError
    return tuple(value)


def count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


def limits(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError
    try:
        of_step(value)
    except ValueError as error:
        raise ValueError(f"is wrong: {error}") from None
    return dict(value)


TEXT = (text, "must be a text", "Put quotes around it.")
FIELDS: Mapping[str, tuple[Callable[[Any], Any], str, str]] = {
    **dict.fromkeys(("name", "description", "provider", "model", "fallback"), TEXT),
    "tools": (tools, "must be a list of names", "Write [Read, Edit]."),
    "max_turns": (count, "must be a whole number from 1 on", "Write max_turns: 10."),
    "limits": (limits, "must be a mapping", "Write limits: {tokens: 20000}."),
}
"""The keys of a front matter: how each is read, and what is said of one that is wrong."""


def front_matter(root: Path, path: Path) -> str:
    """The front matter of a file, below an empty line so that places are those of the file."""
    with os.fdopen(open_inside(root, path), "rb") as file:
        if (first := file.readline(FRONT_LIMIT)).rstrip() != FENCE.encode():
            decode(first, str(path))
            return ""
        lines, size = [b"\n"], 0
        while line := file.readline(FRONT_LIMIT):
            if line.rstrip() == FENCE.encode():
                return decode(b"".join(lines), str(path))
            lines.append(line)
            size += len(line)
            if size > FRONT_LIMIT:
                break
    raise Unreadable(
        [Problem(str(path), Place(), "the front matter never ends", "Close it with a line '---'.")]
    )


def front_of(lines: list[str]) -> int | None:
    """The number of the line that closes the front matter, if there is one."""
    fences = [number for number, line in enumerate(lines) if line.rstrip() == FENCE]
    return fences[1] if fences[:1] == [0] and len(fences) > 1 else None
