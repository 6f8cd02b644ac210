"""Reloading: the definitions of a project are read again, and those whose files are gone are dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary, ref

from nerve.api import models
from nerve.spec.source import Place, Problem, Unreadable

if TYPE_CHECKING:
    from nerve.core.session import Session
    from nerve.spec.workflow import DefinedWorkflow


class Loaded(NamedTuple):
    """A workflow, and the file that it was read from."""

    path: Path
    workflow: ref[DefinedWorkflow]


_loaded: WeakKeyDictionary[Session, dict[str, Loaded]] = WeakKeyDictionary()
"""What was read the last time."""


async def reload(session: Session, asked: models.Reload) -> models.Reloaded:
    """Read all definitions; runs that are open keep what they were started from."""
    from nerve.notations.discovery import discover

    extra = session.config.workflows_dir
    folders = [session.project / extra] if extra else []
    found = await asyncio.to_thread(discover, session.project, folders)
    problems, loaded = list(found.problems), dict[str, Loaded]()
    for each in found.workflows:
        try:
            workflow = session.load(each.path)
            loaded[workflow.name] = Loaded(each.path, ref(workflow))
        except Unreadable as error:
            problems += error.problems
        except ValueError as error:
            problems.append(Problem(str(each.path), Place(1, 1), str(error)))
    removed = drop(session, loaded, (problem.file for problem in problems))
    told = [problem.to_dict() for problem in problems]
    python = [file for file in dict.fromkeys(session.modules) if file.endswith(".py")]
    return models.Reloaded(workflows=len(loaded), removed=removed, python_files=python, problems=told)


def drop(session: Session, loaded: dict[str, Loaded], unread: Iterable[str]) -> list[str]:
    """Forget the workflows whose files are gone; one whose file cannot be read stays as it was."""
    before, wrong = _loaded.get(session, {}), set(unread)
    torn = {name: each for name, each in before.items() if name not in loaded and str(each.path) in wrong}
    gone = [name for name in before if name not in loaded and name not in torn]
    there = session.workflows
    removed = [name for name in gone if name in there and there[name] is before[name].workflow()]
    for name in removed:
        session.delete_workflow(name)
        session.engine.undefined(name)
    if removed:
        session.dataspace.define_all()  # what a fact defines was behind what the file had
    _loaded[session] = torn | loaded
    return removed
