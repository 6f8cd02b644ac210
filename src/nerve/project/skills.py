"""Skills and instruction files of a project, which agents read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass
from nerve.project.agent_files import front_matter_end
from nerve.project.paths import PROJECT_FOLDER_NAMES
from nerve.project.safe_files import FileRefused, read_file_inside
from nerve.text.source import InvalidDefinition

MAX_SKILLS = 200
MAX_DESCRIPTION_CHARS = 1_000
SKILL_LINE = re.compile(r"^(name|description):[ \t]*(.+?)[ \t]*$", re.MULTILINE)
"""A line of the front matter of a skill; other programs write front matter that is not valid YAML."""
INDEX_HEADING = (
    "# Skills of this project\n\nEach skill is a file with instructions for one kind of task. Before you"
    " begin a task that a skill describes, read its file and follow it."
)


@dataclass(frozen=True, slots=True)
class Skill:
    """A folder with a file SKILL.md."""

    name: str
    description: str
    path: Path


def find_skills(folder: Path) -> list[Skill]:
    """Return the skills of a project, of which the first one with a name counts."""
    found: dict[str, Skill] = {}
    for project_folder in PROJECT_FOLDER_NAMES:
        try:
            paths = sorted((folder / project_folder / "skills").glob("*/SKILL.md"))[:MAX_SKILLS]
        except OSError:
            continue
        for path in paths:
            if (skill := read_skill(folder, path)) is not None:
                found.setdefault(skill.name, skill)
    return list(found.values())


def read_skill(root: Path, path: Path) -> Skill | None:
    """Return the skill of a file; None for a file outside the project or without front matter."""
    try:
        lines = read_file_inside(root, path).splitlines(keepends=True)
    except (OSError, FileRefused, InvalidDefinition):
        return None
    end = front_matter_end(lines)
    if end is None:
        return None
    values = {key: text.strip("\"'") for key, text in SKILL_LINE.findall("".join(lines[1:end]))}
    description = values.get("description", "")[:MAX_DESCRIPTION_CHARS]
    return Skill(values.get("name") or path.parent.name, description, path)


def select_skills(folder: Path, chosen: bool | Sequence[str] | None) -> list[Skill]:
    """Return the skills that an agent may use; ValueError for a name that the project does not have."""
    if chosen is False:
        return []
    skills = find_skills(folder)
    if chosen is None or chosen is True:
        return skills
    by_name = {skill.name: skill for skill in skills}
    if unknown := next((name for name in chosen if name not in by_name), None):
        available = f". Available: {', '.join(by_name)}" if by_name else f". {folder} has no skills"
        raise ValueError(f"Skill not found: {unknown}{did_you_mean_hint(unknown, by_name) or available}")
    return [by_name[name] for name in chosen]


def format_skill_index(skills: Sequence[Skill]) -> str:
    """Return the part of a system prompt that lists skills; an empty string without skills."""
    lines = [f"- {skill.name}: {skill.description} (file: {skill.path})" for skill in skills]
    return "\n".join([INDEX_HEADING, "", *lines]) if lines else ""


def find_instructions(folder: Path, names: Sequence[str]) -> list[str]:
    """Return which of the instruction files a folder has."""
    return [name for name in names if (folder / name).is_file()]
