"""Find the workflow, prompt and agent files of a project."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from nerve.lazy_dataclass import dataclass
from nerve.project.safe_files import FileRefused, check_file_name, read_named_file
from nerve.text.source import Position, Problem

PROJECT_FOLDER_NAMES = (".nerve", ".archon", ".claude", ".agents")
"""Folders with workflows; a file shadows files of the same name in later folders."""
PROMPT_FOLDER_NAMES = ("steps", "commands")
MAX_FILES = 1000


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
    """Return the project subfolder and the project of a workflow file."""
    folder = path.parent
    if folder.name == "workflows":
        folder = folder.parent
    return folder, folder.parent if folder.name in PROJECT_FOLDER_NAMES else folder


def prompt_folders(folder: Path, project: Path) -> Iterator[tuple[Path, Path]]:
    """Yield pairs of a root and a prompt folder; the files of the folder must be inside the root.

    The folders beside the workflow come first, then the other folders of the project.
    """
    own = project if is_inside_root(project, folder) else folder
    yield from ((own, folder / kind) for kind in PROMPT_FOLDER_NAMES)
    others = [project / name for name in PROJECT_FOLDER_NAMES if project / name != folder]
    yield from ((project, other / kind) for other in others for kind in PROMPT_FOLDER_NAMES)


def find_prompt(folder: Path, name: str, project: Path | None = None) -> PromptFile | None:
    """Return the prompt with a name, or None; raises `FileRefused` or `OSError` if it cannot be read."""
    check_file_name(name)
    project = project_of_file(folder / "workflows" / "_")[1] if project is None else project
    for root, directory in prompt_folders(folder, project):
        try:
            return PromptFile(name, directory / f"{name}.md", read_named_file(root, directory, name, ".md"))
        except (FileNotFoundError, NotADirectoryError):
            continue
    return None


def prompt_names(folder: Path, project: Path) -> list[str]:
    """Return the names of all prompts that a workflow can use."""
    names: set[str] = set()
    for root, directory in prompt_folders(folder, project):
        names.update(path.stem for path in list_project_files(root, directory, (".md",), []))
    return sorted(names)
