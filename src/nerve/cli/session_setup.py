"""Set up a session in this process: import Python files, load workflows, and drive runs."""

from __future__ import annotations

import sys
import traceback
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from nerve.api.commands import is_paused_or_held, wait_until_run_idle
from nerve.api.lookup import find_run_row
from nerve.cli.errors import UsageError
from nerve.cli.gate_answers import PresetAnswers
from nerve.cli.parameters import require_file
from nerve.cli.targets import FileTarget, Project, PythonTarget
from nerve.core.nodes.graph import find_registered_node
from nerve.core.workflow.workflow import Workflow
from nerve.session import Session
from nerve.spec.defined_workflow import DefinedWorkflow
from nerve.text.source import InvalidDefinition, Problem

WITH_FILE_HINT = "If a Python file registers it, add --with FILE."


def register_file(session: Session, file: Path) -> None:
    """Register the contents of a file: import a Python file, or load a workflow file."""
    session.modules.append(str(file))
    if file.suffix == ".py":
        register_python_file(session, file)
    else:
        require_file(file)
        session.load(file)


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
    registered = register_python_file(session, target.file)
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


def check_preset_answers(session: Session, workflow: Workflow | None, answers: PresetAnswers) -> None:
    """Raise UsageError for answers to unknown gates. The gates of Python workflows are not known."""
    workflows, pending = dict[str, Workflow](), [workflow]
    while pending:
        current = pending.pop()
        if current is not None and current.name not in workflows:
            workflows[current.name] = current
            pending += [session.get_workflow(name) for name in current.calls]
    definitions = [called for called in workflows.values() if isinstance(called, DefinedWorkflow)]
    if len(definitions) == len(workflows):
        answers.validate_against([definition.spec for definition in definitions])


def check_resumable(session: Session, run_id: str, with_changes: bool, answers: PresetAnswers) -> None:
    """Raise an error if this process cannot continue a run: its workflow, or an agent of it, is missing."""
    row = find_run_row(session, run_id)
    workflow = session.get_workflow(row.workflow) if with_changes else session.engine.workflow_of(row)
    if workflow is None:
        raise UsageError(f"Workflow '{row.workflow}' not found in this project. Add its file: --with FILE.")
    if row.ended is None:
        check_run_names(session, workflow)
        check_preset_answers(session, workflow, answers)


def check_run_names(session: Session, workflow: Workflow) -> None:
    """Raise InvalidDefinition if agents of the workflow are missing, before the run changes."""
    try:
        session.check_names(workflow)
    except InvalidDefinition as error:
        raise InvalidDefinition([add_file_hint(problem) for problem in error.problems]) from None


def add_file_hint(problem: Problem) -> Problem:
    is_missing_agent = problem.message.startswith("Agent not found")
    return replace(problem, fix=f"{problem.fix} {WITH_FILE_HINT}") if is_missing_agent else problem


def drive_run(session: Session, run_id: str) -> None:
    """Continue a run that no process drives in this one, as a server does with all runs when it starts."""
    row = find_run_row(session, run_id)
    if row.ended is None:
        check_run_names(session, session.engine.workflow_of(row))
    session.engine.resume_run(row)


def has_active_runs(session: Session) -> bool:
    """Whether a run that this process drives can continue without a person."""
    return any(
        not (
            executor.run.is_complete
            or is_paused_or_held(executor.run)
            or session.engine.reader.waits_for_person_or_fact(executor.run)
        )
        for executor in session.engine.executors.values()
    )


async def wait_until_idle(session: Session) -> None:
    """Wait until every run that this process drives has ended or needs a person."""
    for executor in list(session.engine.executors.values()):
        await wait_until_run_idle(session, executor.run)


# -- Python files --------------------------------------------------------------------------------------


def register_python_file(session: Session, file: Path) -> list[str]:
    """Import a file and call its `register(session)`; return the ids of the new workflows.

    A file without it may register workflows with the name `session`, which it finds defined.
    """
    require_file(file)
    known_ids = set(session.workflows)
    try:
        call = getattr(import_python_file(file, session), "register", None)
        if callable(call):
            call(session)
    except Exception as error:
        raise UsageError(f"{locate_error_in_file(error, file)}: {type(error).__name__}: {error}.") from None
    new_ids = [name for name in session.list_workflows() if name not in known_ids]
    if not callable(call) and not new_ids:
        raise UsageError(
            f"{file} does not define register(session). Add it to register the workflows of the file."
        )
    return new_ids


def import_python_file(file: Path, session: Session) -> ModuleType:
    """Import a file as a module with a session. The module can import files from its own folder."""
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = f"nerve_file_{file.stem}"  # a file json.py must not replace the module json
    spec = spec_from_file_location(name, file, loader=UncachedLoader(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    module.__dict__["session"] = session
    spec.loader.exec_module(module)
    return module


class UncachedLoader(SourceFileLoader):
    """Compiles the source every time, because cached bytecode misses an edit of the same second and size."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def locate_error_in_file(error: Exception, file: Path) -> str:
    """Return `file:line` of an error, or the file if no line of it is known."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).name == file.name:
        lines.append(error.lineno)
    return f"{file}:{lines[-1]}" if lines else str(file)
