"""Execute one run in this process: open the session, follow the run, handle Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from nerve.api import Api, ApiError
from nerve.cli.context import CliContext, CommonOptions, format_resume_command, report_api_error
from nerve.cli.exit_codes import INTERRUPTED
from nerve.cli.gate_answers import PresetAnswers
from nerve.cli.outcome import RunOutcome
from nerve.cli.outcome_output import print_outcome
from nerve.cli.run_follower import RunFollower
from nerve.cli.session_setup import register_file
from nerve.cli.targets import Project
from nerve.cli.trust import require_trust
from nerve.client import Client
from nerve.core.workflow import WorkflowRun
from nerve.session import Session


@dataclass(slots=True)
class LocalRun:
    """One run in this process: its project and options, and the follower once the run exists."""

    project: Project
    common: CommonOptions
    follower: RunFollower | None = None

    @property
    def store_file(self) -> Path:
        return self.common.store_file

    def require_file(self, file: Path) -> None:
        """Add a file that the resume command must name with --with."""
        if file not in self.common.modules:
            self.common = replace(self.common, modules=(*self.common.modules, file))

    def execute(self, drive: Callable[[Session], Awaitable[RunOutcome]]) -> int:
        """Execute a run and return the exit code. Ctrl-C parks the run."""
        try:
            require_trust(self.common.store)
            with contextlib.redirect_stdout(sys.stderr) if self.common.json else contextlib.nullcontext():
                outcome = asyncio.run(self._drive(drive))
        except ApiError as error:
            return report_api_error(error, self.common)
        except KeyboardInterrupt:
            return self._report_interrupt()
        return self._print_outcome(outcome)

    async def _drive(self, drive: Callable[[Session], Awaitable[RunOutcome]]) -> RunOutcome:
        """Run `drive` with a session. The store is created on first use, not for a refused command."""
        session = Session(store=self.store_file, project=self.project.folder)
        try:
            for file in self.common.modules:
                register_file(session, file)
            return await drive(session)
        finally:
            await session.close()

    def open_store(self, session: Session) -> None:
        self.store_file.parent.mkdir(parents=True, exist_ok=True)
        session.engine  # noqa: B018 - opens the store now, to report errors early

    async def follow(
        self, session: Session, run: WorkflowRun, answers: PresetAnswers, known_seq: int = 0
    ) -> RunOutcome:
        """Follow a run until it ends or is idle. Events up to `known_seq` are not printed again."""
        context = CliContext(Client(Api(session), via="cli"), self.common, session)
        self.follower = RunFollower(context, run.run_id, answers, known_seq)
        return await self.follower.follow()

    def _print_outcome(self, outcome: RunOutcome) -> int:
        resume_hint = format_resume_command(self.common, outcome.run_id)
        return print_outcome(outcome, resume_hint, self.common.json, quiet=self.common.quiet)

    def _report_interrupt(self) -> int:
        message = "Interrupted before the run started."
        if self.follower is not None:
            if self.common.json:
                print_outcome(self.follower.interrupted_outcome(), "", True, quiet=True)
            message = self.follower.context.interrupt_message
        print(f"\n{message}", file=sys.stderr)
        return INTERRUPTED
