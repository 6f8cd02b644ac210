"""Discovery: the workflows, prompts and agents of a project, by the folders they stand in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nerve.notations import LARGEST, SUFFIXES
from nerve.notations.files import Refused, check_name, read_inside, read_named
from nerve.spec.slugs import slug
from nerve.spec.source import Document, Place, Problem, Unreadable

FOLDERS = (".nerve", ".archon", ".claude", ".agents")
"""Where a project keeps its workflows; what stands in an earlier one shadows the same name in a later one."""
PROMPTS = ("steps", "commands")
MAX_FILES = 1000


@dataclass(frozen=True, slots=True)
class FoundWorkflow:
    """A workflow in a file that can be read."""

    name: str
    path: Path
    folder: Path
    """The folder that has `workflows`, and beside it `steps`, `commands`, `artifacts` and `logs`."""
    notation: str
    document: Document


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A file that is not used, because an earlier one has the same name."""

    name: str
    path: Path
    by: Path
    like: str = ""
    """What the earlier one is called, if that is another name with the same id."""

    def problem(self) -> Problem:
        fix = "Rename one of them, or remove it."
        same = f"'{self.like}', which has the same id" if self.like else "the same name"
        message = f"'{self.name}' is not used: {self.by} has {same}"
        return Problem(str(self.path), Place(), message, fix, "warning")


@dataclass(slots=True)
class Found:
    """What a project has, what could not be read, and what shadows what."""

    workflows: list[FoundWorkflow] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    shadowed: list[Shadowed] = field(default_factory=list)

    def get(self, name: str) -> FoundWorkflow | None:
        return next((each for each in self.workflows if name in (each.name, slug(each.name))), None)


@dataclass(frozen=True, slots=True)
class FoundPrompt:
    """A prompt file and its text."""

    name: str
    path: Path
    text: str


def discover(project: Path, extra: Iterable[Path] = ()) -> Found:
    """All workflows of a project, those in the `extra` folders first; a bad file is a problem and no more."""
    found = Found()
    named = [*extra]
    seen: dict[str, FoundWorkflow] = {}
    for place in unique([*named, *(project / folder / "workflows" for folder in FOLDERS)]):
        root = place.parent if place in named and not inside(project, place) else project
        for path in listed(root, place, SUFFIXES, found.problems):
            workflow = read_workflow(root, path, found.problems)
            if workflow is None:
                continue
            if (by := seen.setdefault(slug(workflow.name), workflow)) is not workflow:
                like = by.name if by.name != workflow.name else ""
                found.shadowed.append(Shadowed(workflow.name, path, by.path, like))
            else:
                found.workflows.append(workflow)
    return found


def unique(places: Iterable[Path]) -> Iterator[Path]:
    """The places without those that were there before under another name."""
    seen: set[str] = set()
    for place in places:
        if (real := os.path.realpath(place)) not in seen:
            seen.add(real)
            yield place


def inside(root: Path, path: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def listed(root: Path, folder: Path, endings: Iterable[str], problems: list[Problem]) -> list[Path]:
    """The files of a folder with one of the endings, by name; a folder that is not there has none."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(unopened(folder, error))
        return []
    if not inside(root, folder):
        problems.append(unopened(folder, Refused("it leads out of the project")))
        return []
    names = [name for name in names if Path(name).suffix.lower() in endings]
    if len(names) > MAX_FILES:
        fix = "Move some away."
        problems.append(
            Problem(str(folder), Place(), f"more than {MAX_FILES} files; the rest is left out", fix)
        )
    return [folder / name for name in names[:MAX_FILES]]


def unopened(path: Path, error: Exception) -> Problem:
    """Why a file or folder could not be opened, in words."""
    match error:
        case PermissionError():
            return Problem(str(path), Place(), "permission denied", "Allow reading it.")
        case IsADirectoryError():
            return Problem(str(path), Place(), "this is a folder", "Put a file there.")
        case NotADirectoryError():
            return Problem(str(path), Place(), "this is no folder", "Put the files into a folder.")
        case OSError(strerror=str() as why):
            return Problem(str(path), Place(), f"cannot be read: {why}")
    return Problem(str(path), Place(), f"cannot be read: {error}")


def read_workflow(root: Path, path: Path, problems: list[Problem]) -> FoundWorkflow | None:
    """The workflow in a file, or nothing and a problem."""
    try:
        document = SUFFIXES[path.suffix.lower()].read(read_inside(root, path, LARGEST), str(path))
    except Unreadable as error:
        problems.extend(error.problems)
        return None
    except (OSError, Refused) as error:
        problems.append(unopened(path, error))
        return None
    name = document.data.get("name")
    if not isinstance(name, str) or not name:
        problems.append(document.problem((), "'name' is missing", "Add a name."))
        return None
    return FoundWorkflow(name, path, path.parent.parent, document.notation, document)


def home_of(path: Path) -> tuple[Path, Path]:
    """The folder and the project that a workflow file belongs to."""
    folder = path.parent
    if folder.name == "workflows":
        folder = folder.parent
    return folder, folder.parent if folder.name in FOLDERS else folder


def prompt_folders(folder: Path, project: Path) -> Iterator[tuple[Path, Path]]:
    """Where a prompt is looked for, each with the folder around it that must not be left.

    First beside the workflow, then in the other folders of the project.
    """
    own = project if inside(project, folder) else folder
    yield from ((own, folder / kind) for kind in PROMPTS)
    others = [project / name for name in FOLDERS if project / name != folder]
    yield from ((project, other / kind) for other in others for kind in PROMPTS)


def find_prompt(folder: Path, name: str, project: Path | None = None) -> FoundPrompt | None:
    """The prompt of a name, or None; `Refused` or `OSError` if it may not or cannot be read."""
    check_name(name)
    project = home_of(folder / "workflows" / "_")[1] if project is None else project
    for root, place in prompt_folders(folder, project):
        try:
            return FoundPrompt(name, place / f"{name}.md", read_named(root, place, name, ".md"))
        except (FileNotFoundError, NotADirectoryError):
            continue
    return None


def prompt_names(folder: Path, project: Path) -> list[str]:
    """The names of all prompts that could be meant."""
    names: set[str] = set()
    for root, place in prompt_folders(folder, project):
        names.update(path.stem for path in listed(root, place, (".md",), []))
    return sorted(names)
