"""Agent files: Markdown with front matter that configures an agent."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

from nerve.core.limits import parse_step_limits
from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass
from nerve.project.agent_settings import SETTING_PARSERS, AgentSettings, parse_setting
from nerve.project.claude_keys import translate_agent_keys
from nerve.project.discovery import ShadowedFile, explain_open_error, list_project_files, subfolders
from nerve.project.front_matter import read_fields
from nerve.project.paths import PROJECT_FOLDER_NAMES
from nerve.project.safe_files import FileRefused, decode_utf8, open_file_inside, read_file_inside
from nerve.text.source import InvalidDefinition, LocatedMap, Position, Problem

MAX_FRONT_MATTER_BYTES = 64 * 1024
FRONT_MATTER_FENCE = "---"
NAME_LINE_PATTERN = re.compile(r"""^name:[ \t]*["']?([^"'\s#]+)""", re.MULTILINE)
"""The name line of front matter that is not valid YAML."""


@dataclass(frozen=True, slots=True)
class AgentFile:
    """An agent as configured by its front matter; the prompt is read on demand."""

    name: str
    path: Path
    root: Path
    description: str = ""
    provider: str | None = None
    tools: tuple[str, ...] | None = None
    max_turns: int | None = None
    fallback: str | None = None
    limits: Mapping[str, Any] | None = None
    """Limits of each step: `tokens`, `cost`, `turns`."""
    settings: AgentSettings = field(default_factory=AgentSettings)
    """The settings of its front matter; the text after it is the system prompt."""
    positions: Mapping[str, Position] = field(default_factory=dict, compare=False)
    """Positions of the values in the file, by key."""
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    """The keys of its front matter that have no effect."""

    @property
    def model(self) -> str | None:
        return self.settings.model

    def unknown_provider_problems(self, providers: Collection[str]) -> Iterator[Problem]:
        """Yield a problem for each unknown provider that the agent names."""
        for key, name in (("provider", self.provider), ("fallback", self.fallback)):
            if name is not None and name not in providers:
                yield self.missing_provider_problem(key, name, providers)

    def missing_provider_problem(
        self, key: str, name: str, providers: Collection[str], how: str = ""
    ) -> Problem:
        """Return the problem of an unknown provider; `how` says how to install it, if known."""
        close = "" if how else did_you_mean_hint(name, providers)
        fix = how or f"Available: {', '.join(sorted(providers)) or 'none'}."
        position = self.positions.get(key) or Position()
        return Problem(str(self.path), position, f"Unknown provider '{name}'{close}", fix)

    def read_prompt(self) -> str:
        """Return the prompt of the agent: the text after the front matter."""
        lines = read_file_inside(self.root, self.path).splitlines(keepends=True)
        end = front_matter_end(lines)
        return "".join(lines if end is None else lines[end + 1 :]).lstrip("\n")


@dataclass(slots=True)
class DiscoveredAgents:
    """The agents of a project, with problems and shadowed files."""

    agents: list[AgentFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    shadowed: list[ShadowedFile] = field(default_factory=list)
    broken: dict[str, list[Problem]] = field(default_factory=dict)
    """Problems of invalid agent files, by agent name."""

    def get(self, name: str) -> AgentFile | None:
        return next((agent for agent in self.agents if agent.name == name), None)

    def get_valid(self, name: str) -> AgentFile | None:
        """Return the agent with a name, or None; raises `InvalidDefinition` if its file is invalid."""
        if name in self.broken:
            raise InvalidDefinition(self.broken[name])
        return self.get(name)


def discover_agents(project: Path) -> DiscoveredAgents:
    """Return all agents of a project, reading only the front matter of each file."""
    discovered = DiscoveredAgents()
    for folder in PROJECT_FOLDER_NAMES:
        for path in list_agent_paths(project, project / folder / "agents", discovered.problems):
            try:
                agent = read_agent_file(project, path)
            except InvalidDefinition as error:
                discovered.problems += error.problems
                name = guess_agent_name(project, path)
                if discovered.get(name) is None:
                    discovered.broken.setdefault(name, error.problems)
                continue
            if (earlier := discovered.get(agent.name)) is not None:
                discovered.shadowed.append(ShadowedFile(agent.name, path, earlier.path))
            else:
                discovered.agents.append(agent)
                discovered.problems += agent.warnings
    return discovered


def list_agent_paths(project: Path, folder: Path, problems: list[Problem]) -> Iterator[Path]:
    """Yield the agent files in a folder and the folders in it."""
    for directory in subfolders(project, folder):
        yield from list_project_files(project, directory, (".md",), problems)


def read_agent_file(root: Path, path: Path) -> AgentFile:
    """Return the agent of a file; raises `InvalidDefinition`.

    Keys of Claude Code are translated. Other unknown keys of the front matter belong to other programs and
    are ignored; in a folder of Claude Code they are warnings.
    """
    try:
        front = read_front_matter(root, path)
    except (OSError, FileRefused) as error:
        raise InvalidDefinition([explain_open_error(path, error)]) from None
    fields = read_fields(front, str(path)) if front else None
    fields = LocatedMap() if fields is None else fields
    if not isinstance(fields, LocatedMap):
        message = "The front matter must be a mapping"
        raise InvalidDefinition([Problem(str(path), Position(2), message, "Write 'name: …'.")])
    warnings = translate_agent_keys(fields, str(path), FRONT_MATTER_FIELDS)
    settings: dict[str, Any] = {}
    for key, (parse, message, fix) in FRONT_MATTER_FIELDS.items():
        if (value := fields.get(key)) is None:
            continue
        try:
            settings[key] = parse(value)
        except ValueError as error:
            position = fields.value_positions.get(key) or Position()
            told = str(error) if key in SETTING_KEYS else f"'{key}' {str(error) or message}"
            problem = Problem(str(path), position, told, fix)
            raise InvalidDefinition([problem]) from None
    own = AgentSettings(**{key: settings.pop(key) for key in SETTING_KEYS if key in settings})
    name = settings.pop("name", "") or path.stem
    positions = dict(fields.value_positions)
    return AgentFile(
        name, path, root, **settings, settings=own, positions=positions, warnings=tuple(warnings)
    )


def guess_agent_name(root: Path, path: Path) -> str:
    """Return the likely name of the agent in an invalid file."""
    try:
        lines = read_file_inside(root, path).splitlines(keepends=True)
    except (OSError, FileRefused, InvalidDefinition):
        return path.stem
    match = NAME_LINE_PATTERN.search("".join(lines[: front_matter_end(lines)]))
    return match[1] if match is not None else path.stem


def parse_agent_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value.strip()


def parse_agent_tools(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [tool.strip() for tool in value.split(",") if tool.strip()]
    if not isinstance(value, list) or not all(isinstance(tool, str) for tool in value):
        raise ValueError
    return tuple(value)


def parse_turn_count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


def parse_agent_limits(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError
    try:
        parse_step_limits(value)
    except ValueError as error:
        raise ValueError(f"is invalid: {error}") from None
    return dict(value)


SETTING_KEYS = tuple(key for key in SETTING_PARSERS if key != "system")
"""The settings that front matter can have; the system prompt is the text after it."""
TEXT_FIELD = (parse_agent_text, "must be a string", "Put quotes around it.")
FRONT_MATTER_FIELDS: Mapping[str, tuple[Callable[[Any], Any], str, str]] = {
    **dict.fromkeys(("name", "description", "provider", "model", "fallback"), TEXT_FIELD),
    **{key: (partial(parse_setting, key), "", "") for key in SETTING_KEYS if key != "model"},
    "tools": (parse_agent_tools, "must be a list of names", "Write [Read, Edit]."),
    "max_turns": (parse_turn_count, "must be an integer of at least 1", "Write max_turns: 10."),
    "limits": (parse_agent_limits, "must be a mapping", "Write limits: {tokens: 20000}."),
}
"""The keys of front matter: the parser, the error message and the fix of each."""


def read_front_matter(root: Path, path: Path) -> str:
    """Return the front matter of a file, after an empty line so that line numbers match the file."""
    with os.fdopen(open_file_inside(root, path), "rb") as file:
        if (first := file.readline(MAX_FRONT_MATTER_BYTES)).rstrip() != FRONT_MATTER_FENCE.encode():
            decode_utf8(first, str(path))
            return ""
        lines, size = [b"\n"], 0
        while line := file.readline(MAX_FRONT_MATTER_BYTES):
            if line.rstrip() == FRONT_MATTER_FENCE.encode():
                return decode_utf8(b"".join(lines), str(path))
            lines.append(line)
            size += len(line)
            if size > MAX_FRONT_MATTER_BYTES:
                break
    raise InvalidDefinition(
        [Problem(str(path), Position(), "The front matter is not closed", "Close it with a line '---'.")]
    )


def front_matter_end(lines: list[str]) -> int | None:
    """Return the index of the line that closes the front matter, or None."""
    fences = [number for number, line in enumerate(lines) if line.rstrip() == FRONT_MATTER_FENCE]
    return fences[1] if fences[:1] == [0] and len(fences) > 1 else None
