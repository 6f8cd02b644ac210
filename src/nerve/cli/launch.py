"""Running in this process: the project's session, one run shown, and what Ctrl-C leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from nerve.api import Api, ApiError
from nerve.cli.answers import Answers
from nerve.cli.common import Common, Door, again, refused
from nerve.cli.exits import INTERRUPTED
from nerve.cli.outcome import Outcome
from nerve.cli.project import Project
from nerve.cli.providing import provide
from nerve.cli.story import Story
from nerve.cli.telling import tell
from nerve.cli.trust import require_trust
from nerve.client import Client
from nerve.core.session import Session
from nerve.core.workflow import WorkflowRun


@dataclass(slots=True)
class Launch:
    """One run of a command: what it was given, and how the run is shown once there is one."""

    project: Project
    common: Common
    story: Story | None = None

    @property
    def file(self) -> Path:
        return self.common.file

    def needs(self, file: Path) -> None:
        """Whoever goes on with the run needs this file, too."""
        if file not in self.common.modules:
            self.common = replace(self.common, modules=(*self.common.modules, file))

    def go(self, drive: Callable[[Session], Awaitable[Outcome]]) -> int:
        """Drive a run; Ctrl-C parks it."""
        try:
            require_trust(self.common.store)
            with contextlib.redirect_stdout(sys.stderr) if self.common.json else contextlib.nullcontext():
                outcome = asyncio.run(self._drive(drive))
        except ApiError as error:
            return refused(error, self.common)
        except KeyboardInterrupt:
            return self._interrupted()
        return self._tell(outcome)

    async def _drive(self, drive: Callable[[Session], Awaitable[Outcome]]) -> Outcome:
        """The store is opened when it is needed: what is refused leaves nothing behind."""
        session = Session(store=self.file, project=self.project.folder)
        try:
            for file in self.common.modules:
                provide(session, file)
            return await drive(session)
        finally:
            await session.close()

    def open_store(self, session: Session) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        session.engine  # noqa: B018 - a file that cannot be opened is said now

    async def to_end(self, session: Session, run: WorkflowRun, answers: Answers, known: int = 0) -> Outcome:
        """Show a run to where it ends or stands; `known` events of it are old."""
        door = Door(Client(Api(session), via="cli"), self.common, session)
        self.story = Story(door, run.run_id, answers, known)
        return await self.story.told()

    def _tell(self, outcome: Outcome) -> int:
        way_on = again(self.common, outcome.run_id)
        return tell(outcome, way_on, self.common.json, quiet=self.common.quiet)

    def _interrupted(self) -> int:
        told = "Interrupted before anything was started."
        if self.story is not None:
            if self.common.json:
                tell(self.story.left(), "", True, quiet=True)
            told = self.story.door.left
        print(f"\n{told}", file=sys.stderr)
        return INTERRUPTED
