"""Find the workflow, prompt and agent files of a project."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nerve.lazy_dataclass import dataclass
from nerve.project.front_matter import split_front_matter
from nerve.project.paths import PROJECT_FOLDER_NAMES
from nerve.project.safe_files import FileRefused, check_file_name, read_file_inside, read_named_file
from nerve.text.source import Position, Problem

PROMPT_FOLDER_NAMES = ("steps", "commands")
MAX_FILES = 1000
MAX_FOLDERS, MAX_FOLDER_DEPTH = 200, 4
"""The folders that are searched below a folder of workflows or prompts, and their depth."""


@dataclass(frozen=True, slots=True)
class ShadowedFile:
    """A file that is ignored because an earlier file has the same name."""

    name: str
    path: Path
    shadowed_by: Path
    other_name: str = ""
    """The name in the earlier file, if it is a different name with the same id."""

    def problem(self) -> Problem:
        fix = "Rename one of them, or remove it."
        same = f"'{self.other_name}', which has the same id" if self.other_name else "the same name"
        message = f"'{self.name}' is not used: {self.shadowed_by} has {same}"
        return Problem(str(self.path), Position(), message, fix, "warning")


@dataclass(frozen=True, slots=True)
class PromptFile:
    """A prompt file and its text."""

    name: str
    path: Path
    text: str
    """The text after its front matter."""
    front_matter: str = ""
    """Its front matter, without the fences."""
    source: str = ""
    """The whole text of the file."""

    @classmethod
    def of(cls, name: str, path: Path, source: str) -> PromptFile:
        """Return the prompt file with this text."""
        front_matter, text = split_front_matter(source)
        return cls(name, path, text, front_matter, source)


def unique_directories(directories: Iterable[Path]) -> Iterator[Path]:
    """Yield the directories without duplicates, comparing real paths."""
    seen_paths: set[str] = set()
    for directory in directories:
        if (real := os.path.realpath(directory)) not in seen_paths:
            seen_paths.add(real)
            yield directory


def is_inside_root(root: Path, path: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def list_project_files(
    root: Path, folder: Path, suffixes: Iterable[str], problems: list[Problem]
) -> list[Path]:
    """Return the sorted files of a folder with one of the suffixes; a missing folder has none."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(explain_open_error(folder, error))
        return []
    if not is_inside_root(root, folder):
        problems.append(explain_open_error(folder, FileRefused("it leads out of the project")))
        return []
    names = [name for name in names if Path(name).suffix.lower() in suffixes]
    if len(names) > MAX_FILES:
        fix = "Move some of them elsewhere."
        problems.append(
            Problem(str(folder), Position(), f"More than {MAX_FILES} files; the rest is ignored", fix)
        )
    return [folder / name for name in names[:MAX_FILES]]


def subfolders(root: Path, folder: Path) -> Iterator[Path]:
    """Yield a folder and the folders in it, in the order of their names; links are not followed."""
    yield folder
    pending = [(folder, 0)]
    count = 0
    while pending:
        current, depth = pending.pop(0)
        try:
            with os.scandir(current) as entries:
                names = sorted(
                    entry.name
                    for entry in entries
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
                )
        except OSError:
            continue
        if current == folder and not is_inside_root(root, folder):
            return
        for name in names:
            count += 1
            if count > MAX_FOLDERS:
                return
            yield current / name
            if depth + 1 < MAX_FOLDER_DEPTH:
                pending.append((current / name, depth + 1))


def explain_open_error(path: Path, error: Exception) -> Problem:
    """Return the problem that explains why a file or folder cannot be opened."""
    match error:
        case PermissionError():
            return Problem(str(path), Position(), "Permission denied", "Allow reading it.")
        case IsADirectoryError():
            return Problem(str(path), Position(), "This is a folder", "Put a file there.")
        case NotADirectoryError():
            return Problem(str(path), Position(), "This is not a folder", "Put the files into a folder.")
        case OSError(strerror=str() as reason):
            return Problem(str(path), Position(), f"Cannot read this: {reason}")
    return Problem(str(path), Position(), f"Cannot read this: {error}")


def project_of_file(path: Path) -> tuple[Path, Path]:
    """Return the project subfolder and the project of a workflow file, which may be in a folder below."""
    folder = path.parent
    for parent in path.parents:
        if parent.name == "workflows" and parent.parent.name in PROJECT_FOLDER_NAMES:
            folder = parent
            break
    if folder.name == "workflows":
        folder = folder.parent
    return folder, folder.parent if folder.name in PROJECT_FOLDER_NAMES else folder


def prompt_folders(
    folder: Path, project: Path, configured: Sequence[str] = ()
) -> Iterator[tuple[Path, Path]]:
    """Yield pairs of a root and a prompt folder; the files of the folder must be inside the root.

    The folders beside the workflow come first, then the configured ones and the others of the project.
    """
    own = project if is_inside_root(project, folder) else folder
    yield from ((own, folder / kind) for kind in PROMPT_FOLDER_NAMES)
    yield from ((project, project / name) for name in configured)
    others = [project / name for name in PROJECT_FOLDER_NAMES if project / name != folder]
    yield from ((project, other / kind) for other in others for kind in PROMPT_FOLDER_NAMES)


def find_prompt(
    folder: Path, name: str, project: Path | None = None, configured: Sequence[str] = ()
) -> PromptFile | None:
    """Return the prompt with a name, or None; raises `FileRefused` or `OSError` if it cannot be read.

    `configured` names further folders of the project.
    """
    check_file_name(name)
    project = project_of_file(folder / "workflows" / "_")[1] if project is None else project
    for root, top in prompt_folders(folder, project, configured):
        for directory in subfolders(root, top):
            try:
                text = read_named_file(root, directory, name, ".md")
            except (FileNotFoundError, NotADirectoryError):
                continue
            return PromptFile.of(name, directory / f"{name}.md", text)
    return find_skill_prompt(project, name)


def find_skill_prompt(project: Path, name: str) -> PromptFile | None:
    """Return the skill in a folder with this name as a prompt, or None."""
    for folder in PROJECT_FOLDER_NAMES:
        path = project / folder / "skills" / name / "SKILL.md"
        try:
            return PromptFile.of(name, path, read_file_inside(project, path))
        except (FileNotFoundError, NotADirectoryError):
            continue
    return None


def prompt_names(folder: Path, project: Path, configured: Sequence[str] = ()) -> list[str]:
    """Return the names of all prompts that a workflow can use."""
    names: set[str] = set()
    for root, top in prompt_folders(folder, project, configured):
        for directory in subfolders(root, top):
            names.update(path.stem for path in list_project_files(root, directory, (".md",), []))
    for name in PROJECT_FOLDER_NAMES:
        names.update(path.parent.name for path in (project / name / "skills").glob("*/SKILL.md"))
    return sorted(names)
