"""The files of Archon and Claude Code in a folder, by what they are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nerve.lazy_dataclass import dataclass
from nerve.notations import SUFFIXES
from nerve.notations.archon.dialect import read_yaml_map
from nerve.project.discovery import list_project_files, subfolders
from nerve.project.safe_files import FileRefused
from nerve.text.source import LocatedMap, Problem

TOOL_BY_FOLDER = {".archon": "Archon", ".claude": "Claude Code"}
MARKDOWN_FOLDERS = {"commands": "command", "agents": "agent"}
IGNORED_FILES = {
    ".claude/settings.json": "Write what it sets into the step, or into .nerve/config.json",
    ".claude/settings.local.json": "Write what it sets into the step, or into .nerve/config.json",
    ".mcp.json": "Write the servers under 'mcp' of a step or of .nerve/config.json",
}
"""Files of Claude Code that Nerve does not read, and where their settings belong."""


@dataclass(frozen=True, slots=True)
class ToolFile:
    """A file of another tool, or the files of a skill: what it is, and where it belongs in a project."""

    tool: str
    kind: str
    root: Path
    """The folder that its files must be inside of."""
    source: Path
    target: Path
    """Its path in a project; that of a skill is its SKILL.md."""
    parts: tuple[tuple[Path, Path], ...] = ()
    """The other files of a skill: their paths, and their paths in a project."""
    ignored: str = ""
    """What to do instead, if Nerve does not read it."""


@dataclass(frozen=True, slots=True)
class ToolFolder:
    """A folder with the files of one tool, such as `.archon` or the folder of a plugin."""

    root: Path
    """The folder that its files must be inside of."""
    path: Path
    name: str
    """Its name in a project."""

    def files(self) -> Iterator[ToolFile]:
        """Yield its files in a fixed order; OSError or FileRefused for a folder that cannot be read."""
        if self.name == ".archon":
            yield from self.files_below("workflow", "workflows", SUFFIXES)
        for folder, kind in MARKDOWN_FOLDERS.items():
            yield from self.files_below(kind, folder, (".md",))
        for path in sorted((self.path / "skills").glob("*/SKILL.md")):
            yield self.skill(path)
        if self.name == ".archon":
            yield from self.files_below("script", "scripts", (".ts", ".js", ".py"))
            yield from self.files_below("MCP servers", "mcp", (".json",))
            yield from self.files_below("configuration", "", ("config.yaml",))
            return
        for name, instead in IGNORED_FILES.items():
            if (path := self.root / name).is_file() and self.path.name == self.name:
                yield ToolFile("Claude Code", "settings", self.root, path, Path(name), ignored=instead)

    def files_below(self, kind: str, folder: str, suffixes: Iterable[str]) -> Iterator[ToolFile]:
        """Yield the files of a kind in a folder and those below it; without a folder, one named file."""
        if not folder:
            paths = [path for name in suffixes if (path := self.path / name).is_file()]
        else:
            problems: list[Problem] = []
            top = self.path / folder
            paths = [
                path
                for directory in subfolders(self.root, top)
                for path in list_project_files(self.root, directory, suffixes, problems)
            ]
            if problems:
                raise FileRefused(str(problems[0]))
        for path in paths:
            yield ToolFile(TOOL_BY_FOLDER[self.name], kind, self.root, path, self.target_of(path))

    def skill(self, path: Path) -> ToolFile:
        """Return a skill with the files in its folder; links are not followed."""
        others: list[Path] = []
        for directory, folders, names in os.walk(path.parent):
            folders[:] = sorted(name for name in folders if not (Path(directory) / name).is_symlink())
            others += (Path(directory) / name for name in sorted(names))
        parts = tuple((each, self.target_of(each)) for each in others if each != path)
        return ToolFile(TOOL_BY_FOLDER[self.name], "skill", self.root, path, self.target_of(path), parts)

    def target_of(self, path: Path) -> Path:
        return Path(self.name) / path.relative_to(self.path)

    def needed_by(self, file: ToolFile) -> list[ToolFile]:
        """Return a workflow and the files that it names, directly or through other workflows."""
        found = [file]
        if file.kind != "workflow":
            return found
        known = list(self.files())
        pending = [file]
        while pending:
            source = read_yaml_map(self.root, pending.pop().source, [])
            names = set(named_files(source))
            for other in known:
                is_named = (other.kind, other.source.stem) in names or other.kind == "configuration"
                if other.kind == "workflow":
                    is_named = ("workflow", name_of_workflow(self.root, other.source)) in names
                if is_named and other not in found:
                    found.append(other)
                    pending += [other] if other.kind == "workflow" else []
        return found


def find_tool_folders(source: Path) -> list[ToolFolder]:
    """Return the folders of tools that a project has, or the one that a path is or is in."""
    path = Path(os.path.abspath(source))
    for folder in (path, *path.parents):
        if folder.name in TOOL_BY_FOLDER:
            return [ToolFolder(folder.parent, folder, folder.name)]
    if not path.is_dir():
        plugin = next((parent.parent for parent in path.parents if parent.name in MARKDOWN_FOLDERS), None)
        if plugin is None and path.name == "SKILL.md" and path.parent.parent.name == "skills":
            plugin = path.parent.parent.parent
        return [] if plugin is None else [ToolFolder(plugin, plugin, ".claude")]
    found = [ToolFolder(path, path / name, name) for name in TOOL_BY_FOLDER if (path / name).is_dir()]
    if not found and any((path / name).is_dir() for name in (*MARKDOWN_FOLDERS, "skills")):
        found = [ToolFolder(path, path, ".claude")]
    return found


def find_tool_files(source: Path) -> list[ToolFile]:
    """Return the files of the tools in a project, or some of them with those that they name."""
    path, folders = Path(os.path.abspath(source)), find_tool_folders(source)
    files = [(folder, file) for folder in folders for file in folder.files()]
    if any(folder.path.is_relative_to(path) for folder in folders):
        return [file for _, file in files]
    chosen = [(folder, file) for folder, file in files if file.source.is_relative_to(path)]
    return list(dict.fromkeys(needed for folder, file in chosen for needed in folder.needed_by(file)))


def name_of_workflow(root: Path, path: Path) -> str:
    """Return the name of a workflow, or an empty string if its file cannot be read."""
    source = read_yaml_map(root, path, [])
    name = None if source is None else source.get("name")
    return name if isinstance(name, str) else ""


def named_files(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the kind and the name of each file that a workflow of Archon names."""
    if isinstance(value, LocatedMap):
        for key, item in value.items():
            if isinstance(item, str):
                match key:
                    case "command" | "script":
                        yield key, item.strip()
                    case "workflow" | "include":
                        yield "workflow", item
                    case "mcp":
                        yield "MCP servers", Path(item).stem
            else:
                yield from named_files(item)
    elif isinstance(value, list):
        for item in value:
            yield from named_files(item)
