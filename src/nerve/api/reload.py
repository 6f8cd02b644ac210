"""Reload the definitions of a project, and drop those whose files were removed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from nerve.api import models
from nerve.text.source import InvalidDefinition, Position, Problem

if TYPE_CHECKING:
    from nerve.session import Session
    from nerve.spec.defined_workflow import DefinedWorkflow


class LoadedWorkflow(NamedTuple):
    """A workflow and the file it was read from."""

    path: Path
    workflow: ref[DefinedWorkflow]


_loaded_by_session: WeakKeyDictionary[Session, dict[str, LoadedWorkflow]] = WeakKeyDictionary()
"""The workflows of the last reload, by session."""
_problems_by_session: WeakKeyDictionary[Session, list[dict[str, Any]]] = WeakKeyDictionary()


async def reload(session: Session, request: models.ReloadRequest) -> models.ReloadResponse:
    """Reload all definitions; open runs keep theirs."""
    from nerve.notations.workflow_files import discover
    from nerve.project.trigger_files import discover_triggers

    extra = session.config.workflows_dir
    folders = [session.project / extra] if extra else []
    discovery = await asyncio.to_thread(discover, session.project, folders)
    problems, loaded = list(discovery.problems), dict[str, LoadedWorkflow]()
    for definition_file in discovery.workflows:
        try:
            workflow = session.load(definition_file.path)
            loaded[workflow.name] = LoadedWorkflow(definition_file.path, ref(workflow))
        except InvalidDefinition as error:
            problems += error.problems
        except ValueError as error:
            problems.append(Problem(str(definition_file.path), Position(1, 1), str(error)))
    removed = unload_removed(session, loaded, (problem.file for problem in problems))
    if session.trigger_service is None:  # creating it opens the store, which a wrong name must not create
        problems += discover_triggers(session.project).problems
    else:
        session.trigger_service.reload()
        problems += session.trigger_service.problems
    problem_fields = [problem.to_dict() for problem in problems]
    _problems_by_session[session] = problem_fields
    python = [file for file in dict.fromkeys(session.modules) if file.endswith(".py")]
    return models.ReloadResponse(
        workflows=len(loaded), removed=removed, python_files=python, problems=problem_fields
    )


def problems_of_last_reload(session: Session) -> list[dict[str, Any]]:
    """Return the problems of the files that the last reload read; none before the first one."""
    return _problems_by_session.get(session, [])


def unload_removed(session: Session, loaded: dict[str, LoadedWorkflow], unread: Iterable[str]) -> list[str]:
    """Unload workflows whose files were removed; one whose file is unreadable stays."""
    before, unread_files = _loaded_by_session.get(session, {}), set(unread)
    unreadable = {
        name: entry
        for name, entry in before.items()
        if name not in loaded and str(entry.path) in unread_files
    }
    missing = [name for name in before if name not in loaded and name not in unreadable]
    registered = session.workflows
    removed = [name for name in missing if name in registered and registered[name] is before[name].workflow()]
    for name in removed:
        session.delete_workflow(name)
        session.engine.on_workflow_removed(name)
    if removed:
        session.dataspace.define_all()  # the file's definition had overridden that of a fact
    _loaded_by_session[session] = unreadable | loaded
    return removed
