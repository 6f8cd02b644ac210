"""What a session of this process has: Python files that register it, and workflows with those they call."""

from __future__ import annotations

from pathlib import Path

from nerve.cli import python_files
from nerve.cli.errors import UsageError
from nerve.cli.targets import FileTarget, Project, PythonTarget
from nerve.core.nodes.graph import find_registered_node
from nerve.core.workflow.workflow import Workflow
from nerve.session import Session
from nerve.spec.defined_workflow import DefinedWorkflow


def register_file(session: Session, file: Path) -> None:
    """Make known what a file has: a Python module registers it, a workflow is loaded."""
    session.modules.append(str(file))
    if file.suffix == ".py":
        python_files.register_python_file(session, file)
    elif file.is_file():
        session.load(file)
    else:
        raise UsageError(f"there is no file {file}.")


def load_target_workflow(session: Session, project: Project, target: FileTarget | PythonTarget) -> Workflow:
    """The workflow that is meant, with those of the project that it calls."""
    if isinstance(target, PythonTarget):
        return load_python_target(session, target)
    workflow = session.load(target.path)
    if reason := project.config.refusal(workflow.name):
        raise UsageError(f"{reason}.")
    load_called_workflows(session, project, workflow)
    return workflow


def load_called_workflows(session: Session, project: Project, workflow: DefinedWorkflow) -> None:
    """Load the workflows of the project that this one calls, and those that they call."""
    for name in workflow.calls:
        if (
            find_registered_node(session, name) is None
            and (match := project.find_exact_workflow(name)) is not None
        ):
            load_called_workflows(session, project, session.load(match.path))


def load_python_target(session: Session, target: PythonTarget) -> Workflow:
    session.modules.append(str(target.file))
    registered = python_files.register_python_file(session, target.file)
    name = target.workflow or (registered[0] if len(registered) == 1 else None)
    if name is None:
        hint = f"it has {', '.join(registered)}" if registered else "it has none"
        raise UsageError(f"say which workflow of {target.file} is meant, as {target.file}:NAME; {hint}.")
    workflow = session.get_workflow(name)
    if workflow is None:
        raise UsageError(
            f"{target.file} has no workflow '{name}'. It has: {', '.join(registered) or 'none'}."
        )
    return workflow
