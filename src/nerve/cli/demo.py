"""`nerve demo`: a demonstration on a scratch project that needs no setup."""

from __future__ import annotations

import asyncio
import json as json_text
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from nerve.api import Api
from nerve.cli.context import CliContext
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED, FAILED, INTERRUPTED
from nerve.cli.gate_answers import PresetAnswers
from nerve.cli.parameters import CommonOptions, Flag
from nerve.cli.run_display import print_sentence
from nerve.cli.run_follower import RunFollower
from nerve.client import Client
from nerve.core.run_view import RunView
from nerve.core.workflow import WorkflowRun
from nerve.demo.crash_report import build_crash_report, interrupted_step_names, settled_step_names
from nerve.demo.scratch_project import TASK, ScratchProject
from nerve.demo.workflow import COACH_COMMAND, REVIEWER_COMMAND, WORKFLOW_NAME, CrashPoint, register_demo
from nerve.session import Session
from nerve.ui.formatting import count_noun

LINE_DELAY_S = 0.06
"""Seconds per line of the scripted agent when output goes to a terminal."""
NO_ANSWER_NOTICE = (
    "Not a terminal, using the default answer: reject. Use --yes to approve, or run the demo in a terminal."
)


def demo_command(
    *,
    yes: Flag = False,
    crash: Flag = False,
    keep: Flag = False,
    resume: Path | None = None,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Fix a failing test in a scratch project; needs no API key.

    Parameters
    ----------
    yes
        Answer the final gate with "approve".
    crash
        Kill the process with SIGKILL halfway and recover the run in a new process.
    keep
        Keep the folder with the project, the journal and the effects log.
    resume
        Resume the run in a folder kept with --keep.
    json
        Print one JSON object at the end: `code`, `merged`, and `folder` with --keep.
    quiet
        Print no progress and ask no questions.
    """
    project = ScratchProject(resume or Path(tempfile.mkdtemp(prefix="nerve-demo-")))
    demo = DemoProcess(project, DemoOptions(yes, quiet or json))
    keep = keep or resume is not None
    try:
        if resume is not None:
            if crash:
                raise UsageError("--resume and --crash cannot be used together.")
            if not project.journal_file.is_file():
                raise UsageError(f"{resume} has no journal.db. Pass a folder created by `nerve demo --keep`.")
            code = run_until_interrupted(demo.recover())
        else:
            demo.print_introduction(keep)
            project.create()
            code = demo.run_and_crash() if crash else run_until_interrupted(demo.start())
        if json:
            folder = str(project.folder) if keep else None
            print(json_text.dumps({"code": code, "merged": project.is_merged(), "folder": folder}))
        demo.print_end(keep, code)
        return code
    finally:
        if not keep:
            shutil.rmtree(project.folder, ignore_errors=True)


def run_until_interrupted(work: Coroutine[Any, Any, int]) -> int:
    """Run the demo in this process and return the exit code."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        return INTERRUPTED


class DemoOptions(NamedTuple):
    """Whether to approve the gate automatically, and whether to print nothing."""

    yes: bool = False
    quiet: bool = False


class DemoProcess:
    """One process of the demo: starts or recovers the run of a scratch project and follows it."""

    def __init__(self, project: ScratchProject, options: DemoOptions) -> None:
        self.project, self.options = project, options
        self.console = Console(highlight=False, quiet=options.quiet)
        self.line_delay_s = LINE_DELAY_S if self.console.is_terminal and not options.quiet else 0.0

    async def start(self, crash_point: CrashPoint | None = None) -> int:
        """Start the run. With a crash point, kill this process halfway through a step."""
        async with Session("demo", store=self.project.journal_file) as session:
            register_demo(session, self.project, self.line_delay_s, crash_point)
            run = await session.start(WORKFLOW_NAME, TASK)
            follower = self._follower(session, run)
            if crash_point is None:
                return await self._follow(follower)
            crash_task = asyncio.create_task(kill_at_crash_point(crash_point, follower))
            try:
                return await self._follow(follower)
            finally:
                crash_task.cancel()

    async def recover(self) -> int:
        """Recover the run from the journal and report what was reused."""
        async with Session("demo", store=self.project.journal_file) as session:
            register_demo(session, self.project, self.line_delay_s)
            runs = [session.get_workflow_run(info.run_id) for info in session.list_workflow_runs()]
            run = next((run for run in runs if run is not None and not run.is_complete), None)
            if run is None:
                self._print("This folder has no open run.")
                return COMPLETED
            before, effects = run.events, self.project.read_effect_keys()
            self._print(format_recovery_notice(run.view))
            follower = self._follower(session, run, before[-1].seq)
            follower.tree.reused_before = datetime.now(UTC)
            await session.recover()
            code = await self._follow(follower)
            report = build_crash_report(before, run.events, effects, self.project.read_effect_keys())
        for line in report.format_lines():
            self._print(line)
        return code if report.is_consistent else FAILED

    def _follower(self, session: Session, run: WorkflowRun, known_seq: int = 0) -> RunFollower:
        common = CommonOptions(quiet=self.options.quiet)
        context = CliContext(Client(Api(session), via="cli"), common, session)
        follower = RunFollower(context, run.run_id, known_seq=known_seq, console=self.console)
        if self.options.yes or not follower.is_interactive:
            follower.answers = PresetAnswers([f"gate={'approve' if self.options.yes else 'reject'}"])
        return follower

    async def _follow(self, follower: RunFollower) -> int:
        outcome = await follower.follow()
        if not (self.options.yes or follower.is_interactive):
            self._print(NO_ANSWER_NOTICE)
        if outcome.state != "completed":
            self._print(f"✗ {outcome.error or outcome.state}")
            return FAILED
        merged, view = self.project.is_merged(), follower.tree.root.view
        assert view.started_at is not None
        assert view.ended_at is not None
        seconds = (view.ended_at - view.started_at).total_seconds()
        rounds = count_noun(outcome.result["rounds"], "round")
        merge_text = "slug.py is merged" if merged else "slug.py is not merged"
        self._print(f"✓ Completed in {seconds:.1f}s after {rounds}: {merge_text}.")
        return COMPLETED if merged == outcome.result["success"] else FAILED

    def run_and_crash(self) -> int:
        """Run the demo in a process that kills itself, then recover it in a second process."""
        crashing_process = self._start_process("crash")
        code = wait_for_child(crashing_process)
        if code != -signal.SIGKILL:
            return code
        self.console.show_cursor()
        written_lines, total_lines = self.project.lines_written()
        self._print(
            f"✗ Process {crashing_process.pid} was killed by SIGKILL: "
            f"{written_lines} of {total_lines} lines of slug.py are written."
        )
        return wait_for_child(self._start_process("recover"))

    def _start_process(self, role: str) -> subprocess.Popen[bytes]:
        options = [name for name, is_set in self.options._asdict().items() if is_set]
        command = [sys.executable, "-P", "-m", "nerve.cli.demo", role, str(self.project.folder)]
        return subprocess.Popen([*command, *options])

    # -- output --------------------------------------------------------------------------------

    def print_introduction(self, keep: bool) -> None:
        self._print(f"{WORKFLOW_NAME} in {self.project.folder}{'' if keep else ' (removed at the end)'}")
        roles = {"dev": "a scripted agent", "coach": COACH_COMMAND, "reviewer": REVIEWER_COMMAND}
        for role, what in roles.items():
            self._print(f"  {role:<9} {what}")

    def print_end(self, keep: bool, code: int) -> None:
        """Print what happens to the run and its folder."""
        folder = self.project.folder
        if code == INTERRUPTED:
            self._print("")
            if keep:  # a wrapped command could not be copied
                command = f"{sys.executable} -m nerve demo --resume {folder}"
                self.console.print(f"Interrupted. Resume with: {command}", markup=False, soft_wrap=True)
            else:
                self._print("Interrupted. The folder and the run were removed. Use --keep to keep them.")
        elif keep:
            self._print(f"Kept: {folder}")

    def _print(self, text: str) -> None:
        print_sentence(self.console, text)


async def kill_at_crash_point(crash_point: CrashPoint, follower: RunFollower) -> None:
    """Kill this process when the agent has written half of its file and the screen shows the open step."""
    await crash_point.reached.wait()
    while not interrupted_step_names(follower.tree.root.view):  # noqa: ASYNC110 - no event for a tree
        await asyncio.sleep(0)
    follower.show_new_events()
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_child(child: subprocess.Popen[bytes]) -> int:
    """Return the exit code of the child. Ctrl-C reaches the child too, so wait for its own shutdown."""
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.wait()
        return INTERRUPTED


def format_recovery_notice(view: RunView) -> str:
    interrupted = interrupted_step_names(view)
    suffix = f" and the start of {', '.join(interrupted)}" if interrupted else ""
    journal_text = f"its journal has {count_noun(len(settled_step_names(view)), 'step')}{suffix}"
    return f"↻ Process {os.getpid()} recovers the run: {journal_text}."


if __name__ == "__main__":  # one process of `nerve demo --crash`; the first process reports an interrupt
    role, folder, *names = sys.argv[1:]
    process = DemoProcess(ScratchProject(Path(folder)), DemoOptions("yes" in names, "quiet" in names))
    work = process.start(CrashPoint()) if role == "crash" else process.recover()
    sys.exit(run_until_interrupted(work))
