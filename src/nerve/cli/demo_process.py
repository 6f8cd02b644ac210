"""One process of the demo: starts or recovers the run and follows it until it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from nerve.cli.demo_options import DemoOptions
from nerve.cli.demo_progress import DemoProgress
from nerve.cli.run_display import RunDisplay, create_run_display, print_sentence, prompt_demo_answer
from nerve.core.run_view import RunView
from nerve.core.workflow import GateInfo, WorkflowRun
from nerve.demo.crash_report import (
    build_crash_report,
    format_step_count,
    interrupted_step_names,
    settled_step_names,
)
from nerve.demo.scratch_project import TASK, ScratchProject
from nerve.demo.workflow import WORKFLOW_NAME, CrashPoint, register_demo
from nerve.errors import NerveError
from nerve.session import Session

JOURNAL_POLL_S = 0.08
"""Seconds between two polls of the journal."""
LINE_DELAY_S = 0.06
"""Seconds per line of the scripted agent when output goes to a terminal."""


class DemoProcess:
    """Runs and displays the demo of one scratch project."""

    def __init__(self, project: ScratchProject, options: DemoOptions) -> None:
        self.project, self.options = project, options
        self.console = options.create_console()
        self.display: RunDisplay = create_run_display(self.console)
        self.progress = DemoProgress()
        self.line_delay_s = LINE_DELAY_S if self.console.is_terminal and not options.quiet else 0.0

    async def start(self, crash_point: CrashPoint | None = None) -> int:
        """Start the run. With a crash point, kill this process halfway through a step."""
        async with Session("demo", store=self.project.journal_file) as session:
            register_demo(session, self.project, self.line_delay_s, crash_point)
            run = await session.start(WORKFLOW_NAME, TASK)
            return await self._watch(run, crash_point)

    async def recover(self) -> int:
        """Recover the run from the journal and report what was reused."""
        async with Session("demo", store=self.project.journal_file) as session:
            register_demo(session, self.project, self.line_delay_s)
            runs = [session.get_workflow_run(info.run_id) for info in session.list_workflow_runs()]
            run = next((run for run in runs if run is not None and not run.is_complete), None)
            if run is None:
                self._print("This folder has no open run.")
                return 0
            before, effects = run.events, self.project.read_effect_keys()
            self.progress.apply_events(before)
            self.progress.mark_reused()
            self._print(format_recovery_notice(self.progress.view))
            await session.recover()
            code = await self._watch(run)
            report = build_crash_report(before, run.events, effects, self.project.read_effect_keys())
        for line in report.format_lines():
            self._print(line)
        return code if report.is_consistent else 1

    async def _watch(self, run: WorkflowRun, crash_point: CrashPoint | None = None) -> int:
        end = asyncio.ensure_future(run.wait())
        try:
            while not end.done():
                await self._follow(run)
                if (
                    crash_point is not None
                    and crash_point.reached.is_set()
                    and interrupted_step_names(self.progress.view)
                ):
                    os.kill(os.getpid(), signal.SIGKILL)
                if run.pending_gate is not None:
                    await self._answer(run, run.pending_gate)
                await asyncio.wait([end], timeout=JOURNAL_POLL_S)
            await self._follow(run)
        finally:
            self.display.stop()
            end.cancel()
        return self._print_outcome(end)

    async def _follow(self, run: WorkflowRun) -> None:
        """Read new events from the journal and display them."""
        events = await run.history(after=self.progress.view.last_seq)
        self.progress.apply_events(events)
        self.display.show(self.progress.panel, events)

    async def _answer(self, run: WorkflowRun, gate: GateInfo) -> None:
        assert gate.choices is not None
        if self.options.yes:
            await run.answer(gate.choices[0], by="--yes")
            return
        self.display.stop()
        self.progress.mark_printed()
        rejection = ""
        while True:
            answer = None if self.options.quiet else await prompt_demo_answer(self.console, gate, rejection)
            try:
                await run.answer(gate.choices[-1] if answer is None else answer, by="terminal")
            except ValueError as error:
                rejection = str(error)
            else:
                break
        if answer is None:
            self._print(
                f"Not a terminal, using the default answer: {gate.choices[-1]}."
                " Use --yes to approve, or run the demo in a terminal."
            )

    def _print_outcome(self, end: asyncio.Future[object]) -> int:
        try:
            end.result()
        except NerveError as error:
            self._print(f"✗ {error}")
            return 1
        view = self.progress.view
        merged = self.project.is_merged()
        outcome = "slug.py is merged" if merged else "slug.py is not merged"
        self._print(f"✓ Completed in {run_duration_s(view):.1f}s after {format_rounds(view)}: {outcome}.")
        return 0 if merged == view.result["success"] else 1

    def _print(self, text: str) -> None:
        print_sentence(self.console, text)


def format_recovery_notice(view: RunView) -> str:
    interrupted = interrupted_step_names(view)
    suffix = f" and the start of {', '.join(interrupted)}" if interrupted else ""
    journal_text = f"its journal has {format_step_count(len(settled_step_names(view)))}{suffix}"
    return f"↻ Process {os.getpid()} recovers the run: {journal_text}."


def run_duration_s(view: RunView) -> float:
    assert view.started_at is not None
    assert view.ended_at is not None
    return (view.ended_at - view.started_at).total_seconds()


def format_rounds(view: RunView) -> str:
    number = view.result["rounds"]
    return f"{number} round{'' if number == 1 else 's'}"


def main(role: str, folder: str, *options: str) -> int:
    """Run one process of `nerve demo --crash`: the one that is killed, or the one that recovers the run."""
    process = DemoProcess(ScratchProject(Path(folder)), DemoOptions.parse(options))
    try:
        return asyncio.run(process.start(CrashPoint()) if role == "crashing" else process.recover())
    except KeyboardInterrupt:
        return 130  # the parent process reports the outcome


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
