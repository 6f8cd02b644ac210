"""One process of the demonstration: starts the run, or recovers it, and shows it to its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from nerve.cli.how import How
from nerve.cli.progress import Progress
from nerve.cli.screen import Screen, ask, say, screen_for
from nerve.core.session import Session
from nerve.core.view import RunView
from nerve.core.workflow import GateInfo, WorkflowRun
from nerve.demo.account import account, counted, cut_off, settled
from nerve.demo.project import TASK, Project
from nerve.demo.workflow import NAME, Cut, register
from nerve.errors import NerveError

TICK = 0.08
"""Seconds between two looks at the journal."""
PACE = 0.06
"""Seconds the scripted agent takes for a line when somebody watches."""


class Play:
    """The run of one scratch project, on one screen."""

    def __init__(self, project: Project, how: How) -> None:
        self.project, self.how = project, how
        self.console = how.console()
        self.screen: Screen = screen_for(self.console)
        self.progress = Progress()
        self.pace = PACE if self.console.is_terminal and not how.quiet else 0.0

    async def start(self, cut: Cut | None = None) -> int:
        """Run from the beginning; with a cut, kill this very process half-way through a step."""
        async with Session("demo", store=self.project.journal) as session:
            register(session, self.project, self.pace, cut)
            run = await session.start(NAME, TASK)
            return await self._watch(run, cut)

    async def recover(self) -> int:
        """Go on from the journal, and give an account of what was reused."""
        async with Session("demo", store=self.project.journal) as session:
            register(session, self.project, self.pace)
            known = [session.get_workflow_run(info.run_id) for info in session.list_workflow_runs()]
            run = next((run for run in known if run is not None and not run.is_complete), None)
            if run is None:
                self._say("There is no open run in this folder.")
                return 0
            before, effects = run.events, self.project.noted()
            self.progress.take(before)
            self.progress.reuse()
            self._say(found(self.progress.view))
            await session.recover()
            code = await self._watch(run)
            done = account(before, run.events, effects, self.project.noted())
        for line in done.lines():
            self._say(line)
        return code if done.sound else 1

    async def _watch(self, run: WorkflowRun, cut: Cut | None = None) -> int:
        end = asyncio.ensure_future(run.wait())
        try:
            while not end.done():
                await self._follow(run)
                if cut is not None and cut.reached.is_set() and cut_off(self.progress.view):
                    os.kill(os.getpid(), signal.SIGKILL)
                if run.pending_gate is not None:
                    await self._answer(run, run.pending_gate)
                await asyncio.wait([end], timeout=TICK)
            await self._follow(run)
        finally:
            self.screen.rest()
            end.cancel()
        return self._tell(end)

    async def _follow(self, run: WorkflowRun) -> None:
        """Take in and show what is new in the journal."""
        events = await run.history(after=self.progress.view.last_seq)
        self.progress.take(events)
        self.screen.show(self.progress.panel, events)

    async def _answer(self, run: WorkflowRun, gate: GateInfo) -> None:
        assert gate.choices is not None
        if self.how.yes:
            await run.answer(gate.choices[0], by="--yes")
            return
        self.screen.rest()
        self.progress.tell()
        refused = ""
        while True:
            answer = None if self.how.quiet else await ask(self.console, gate, refused)
            try:
                await run.answer(gate.choices[-1] if answer is None else answer, by="terminal")
            except ValueError as error:
                refused = str(error)
            else:
                break
        if answer is None:
            self._say(
                f"No terminal to ask in, so the default is taken: {gate.choices[-1]}."
                " Answer with --yes, or run this in a terminal."
            )

    def _tell(self, end: asyncio.Future[object]) -> int:
        try:
            end.result()
        except NerveError as error:
            self._say(f"✗ {error}")
            return 1
        view = self.progress.view
        merged = self.project.is_merged()
        outcome = "slug.py is merged" if merged else "slug.py is not merged"
        self._say(f"✓ Completed in {age(view):.1f}s after {rounds(view)}: {outcome}.")
        return 0 if merged == view.result["success"] else 1

    def _say(self, text: str) -> None:
        say(self.console, text)


def found(view: RunView) -> str:
    begun = cut_off(view)
    rest = f" and the beginning of {', '.join(begun)}" if begun else ""
    known = f"its journal has {counted(len(settled(view)))}{rest}"
    return f"↻ Process {os.getpid()} recovers the run: {known}."


def age(view: RunView) -> float:
    assert view.started_at is not None
    assert view.ended_at is not None
    return (view.ended_at - view.started_at).total_seconds()


def rounds(view: RunView) -> str:
    number = view.result["rounds"]
    return f"{number} round{'' if number == 1 else 's'}"


def main(part: str, folder: str, *options: str) -> int:
    """A process of `nerve demo --crash`: the one that is killed, or the one that goes on."""
    play = Play(Project(Path(folder)), How.read(options))
    try:
        return asyncio.run(play.start(Cut()) if part == "doomed" else play.recover())
    except KeyboardInterrupt:
        return 130  # the parent says what becomes of the run


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
