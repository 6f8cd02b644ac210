"""Set up a session in this process: register files, and load workflows with those they call."""

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
    """Register the contents of a file: import a Python file, or load a workflow file."""
    session.modules.append(str(file))
    if file.suffix == ".py":
        python_files.register_python_file(session, file)
    elif file.is_file():
        session.load(file)
    else:
        raise UsageError(f"File not found: {file}.")


def load_target_workflow(session: Session, project: Project, target: FileTarget | PythonTarget) -> Workflow:
    """Load the workflow of a target, and the project workflows that it calls."""
    if isinstance(target, PythonTarget):
        return load_python_target(session, target)
    workflow = session.load(target.path)
    if reason := project.config.refusal(workflow.name):
        raise UsageError(f"{reason}.")
    load_called_workflows(session, project, workflow)
    return workflow


def load_called_workflows(session: Session, project: Project, workflow: DefinedWorkflow) -> None:
    """Load the project workflows that a workflow calls, recursively."""
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
        hint = f"It registers {', '.join(registered)}" if registered else "It registers no workflows"
        raise UsageError(f"Select a workflow of the file: {target.file}:NAME. {hint}.")
    workflow = session.get_workflow(name)
    if workflow is None:
        raise UsageError(
            f"Workflow '{name}' not found in {target.file}. It registers: {', '.join(registered) or 'none'}."
        )
    return workflow
