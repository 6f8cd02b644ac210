"""What a session of this process has: Python files that register it, and workflows with those they call."""

from __future__ import annotations

from pathlib import Path

from nerve.cli import code
from nerve.cli.project import Code, File, Project
from nerve.cli.usage import UsageError
from nerve.core.nodes.graph import find
from nerve.core.session import Session
from nerve.core.workflow.workflow import Workflow
from nerve.spec.workflow import DefinedWorkflow


def provide(session: Session, file: Path) -> None:
    """Make known what a file has: a Python module registers it, a workflow is loaded."""
    session.modules.append(str(file))
    if file.suffix == ".py":
        code.register(session, file)
    elif file.is_file():
        session.load(file)
    else:
        raise UsageError(f"there is no file {file}.")


def load(session: Session, project: Project, target: File | Code) -> Workflow:
    """The workflow that is meant, with those of the project that it calls."""
    if isinstance(target, Code):
        return from_code(session, target)
    workflow = session.load(target.path)
    if why := project.config.refusal(workflow.name):
        raise UsageError(f"{why}.")
    load_called(session, project, workflow)
    return workflow


def load_called(session: Session, project: Project, workflow: DefinedWorkflow) -> None:
    """Load the workflows of the project that this one calls, and those that they call."""
    for name in workflow.calls:
        if find(session, name) is None and (found := project.exactly(name)) is not None:
            load_called(session, project, session.load(found.path))


def from_code(session: Session, target: Code) -> Workflow:
    session.modules.append(str(target.file))
    new = code.register(session, target.file)
    name = target.workflow or (new[0] if len(new) == 1 else None)
    if name is None:
        there = f"it has {', '.join(new)}" if new else "it has none"
        raise UsageError(f"say which workflow of {target.file} is meant, as {target.file}:NAME; {there}.")
    workflow = session.get_workflow(name)
    if workflow is None:
        raise UsageError(f"{target.file} has no workflow '{name}'. It has: {', '.join(new) or 'none'}.")
    return workflow
