"""Running in this process: the project's session, one run watched, and what Ctrl-C leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from nerve.cli import code
from nerve.cli.answers import Answers
from nerve.cli.exits import INTERRUPTED
from nerve.cli.project import STORE, Code, File, Project
from nerve.cli.telling import tell
from nerve.cli.usage import UsageError
from nerve.cli.watch import Outcome, Watch
from nerve.core.nodes.graph import find
from nerve.core.session import Session
from nerve.core.workflow import WorkflowRun
from nerve.core.workflow.workflow import Workflow
from nerve.spec.workflow import DefinedWorkflow


@dataclass(slots=True)
class Launch:
    """One run of a command: what it was given, and the run once there is one."""

    project: Project
    store: Path | None = None
    modules: tuple[Path, ...] = ()
    as_json: bool = False
    run_id: str = ""
    watch: Watch | None = None
    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))

    @property
    def file(self) -> Path:
        return self.store or self.project.folder / STORE

    def go(self, drive: Callable[[Session], Awaitable[Outcome]]) -> int:
        """Drive a run; Ctrl-C parks it."""
        try:
            with contextlib.redirect_stdout(sys.stderr) if self.as_json else contextlib.nullcontext():
                outcome = asyncio.run(self._drive(drive))
        except KeyboardInterrupt:
            return self._interrupted()
        return tell(outcome, self.again(outcome.run_id), self.as_json)

    async def _drive(self, drive: Callable[[Session], Awaitable[Outcome]]) -> Outcome:
        """The store is opened when it is needed: what is refused leaves nothing behind."""
        session = Session(store=self.file, project=self.project.folder)
        try:
            for file in self.modules:
                provide(session, file)
            return await drive(session)
        finally:
            await session.close()

    def open_store(self, session: Session) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        session.engine  # noqa: B018 - a file that cannot be opened is said now

    async def to_end(self, session: Session, run: WorkflowRun, answers: Answers, known: int = 0) -> Outcome:
        """Show a run to where it ends or stands; `known` events of it are old."""
        self.run_id = run.run_id
        self.watch = Watch(self.console, session, run, answers, known)
        return await self.watch.to_end()

    def _interrupted(self) -> int:
        if self.run_id:
            told = f"\nInterrupted. The run is parked. Go on with: {self.again(self.run_id)}"
        else:
            told = "\nInterrupted before anything was started."
        if self.as_json and self.watch is not None:
            tell(self.watch.outcome(), self.again(self.run_id), True)
        print(told, file=sys.stderr)
        return INTERRUPTED

    def again(self, run_id: str) -> str:
        """The command that goes on with a run."""
        options = [f"--with {shlex.quote(str(file))}" for file in self.modules]
        if self.store is not None:
            options.append(f"--store {shlex.quote(str(self.store))}")
        return " ".join(["nerve resume", run_id, *options])


def provide(session: Session, file: Path) -> None:
    """Make known what a file has: a Python module registers it, a workflow is loaded."""
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
    new = code.register(session, target.file)
    name = target.workflow or (new[0] if len(new) == 1 else None)
    if name is None:
        there = f"it has {', '.join(new)}" if new else "it has none"
        raise UsageError(f"say which workflow of {target.file} is meant, as {target.file}:NAME; {there}.")
    workflow = session.get_workflow(name)
    if workflow is None:
        raise UsageError(f"{target.file} has no workflow '{name}'. It has: {', '.join(new) or 'none'}.")
    return workflow
