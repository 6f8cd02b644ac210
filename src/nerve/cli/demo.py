"""`nerve demo`: the main job shown on a scratch project, with nothing to set up."""

from __future__ import annotations

import asyncio
import json as json_text
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from nerve.cli.demo_options import DemoOptions
from nerve.cli.errors import UsageError
from nerve.cli.parameters import Flag
from nerve.cli.run_display import print_sentence
from nerve.demo.scratch_project import ScratchProject
from nerve.demo.workflow import COACH_COMMAND, REVIEWER_COMMAND, WORKFLOW_NAME

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130


def demo_command(
    *,
    yes: Flag = False,
    crash: Flag = False,
    keep: Flag = False,
    resume: Path | None = None,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Mend a scratch project with a failing test; needs no key.

    Parameters
    ----------
    yes
        Answer the gate at the end with "approve".
    crash
        Kill the process with SIGKILL in the middle, and go on in a new one.
    keep
        Keep the folder with the project, the journal and the log of effects.
    resume
        Go on with the run in a folder that was kept.
    json
        Print one JSON object at the end: `code`, `merged`, and `folder` if it was kept.
    quiet
        Show nothing, and ask nothing.
    """
    options = DemoOptions(yes, quiet or json)
    if resume is not None:
        return resume_demo(resume, options, crash, json)
    folder = Path(tempfile.mkdtemp(prefix="nerve-demo-"))
    console = options.create_console()
    try:
        print_introduction(console, folder, keep)
        project = ScratchProject(folder).create()
        code = (
            run_crashing_demo(console, project, options) if crash else run_demo_in_process(project, options)
        )
        print_demo_summary(json, project, keep, code)
        return report_demo_end(console, folder, keep, code)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def print_demo_summary(json: bool, project: ScratchProject, keep: bool, code: int) -> None:
    """The end, for programs."""
    if json:
        summary = {
            "code": code,
            "merged": project.is_merged(),
            "folder": str(project.folder) if keep else None,
        }
        print(json_text.dumps(summary))


def print_introduction(console: Console, folder: Path, keep: bool) -> None:
    print_sentence(console, f"{WORKFLOW_NAME} in {folder}{'' if keep else ' (removed at the end)'}")
    for role, what in (("dev", "a scripted agent"), ("coach", COACH_COMMAND), ("reviewer", REVIEWER_COMMAND)):
        print_sentence(console, f"  {role:<9} {what}")


def run_demo_in_process(project: ScratchProject, options: DemoOptions) -> int:
    """The whole run in this process."""
    from nerve.cli.demo_process import DemoProcess

    try:
        return asyncio.run(DemoProcess(project, options).start())
    except KeyboardInterrupt:
        return INTERRUPTED


def run_crashing_demo(console: Console, project: ScratchProject, options: DemoOptions) -> int:
    """The run in a process that kills itself, then in another one that goes on."""
    doomed = start_demo_process("doomed", project, options)
    code = wait_for_child(doomed)
    if code != -signal.SIGKILL:
        return code
    console.show_cursor()
    written_lines, total_lines = project.lines_written()
    print_sentence(
        console,
        f"✗ Process {doomed.pid} was killed by SIGKILL: {written_lines} of {total_lines} lines of slug.py "
        "are written.",
    )
    return wait_for_child(start_demo_process("heir", project, options))


def start_demo_process(role: str, project: ScratchProject, options: DemoOptions) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "nerve.cli.demo_process", role, str(project.folder)]
    return subprocess.Popen([*command, *options.to_arguments()])


def wait_for_child(child: subprocess.Popen[bytes]) -> int:
    """How the child ended; Ctrl-C reaches it too, and it is given the time to end by itself."""
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.wait()
        return INTERRUPTED


def resume_demo(folder: Path, options: DemoOptions, crash: bool, json: bool) -> int:
    from nerve.cli.demo_process import DemoProcess

    project = ScratchProject(folder)
    if crash:
        raise UsageError("--resume goes on with a run and --crash starts one: use one of them.")
    if not project.journal_file.is_file():
        raise UsageError(f"{folder} has no journal.db: name a folder that `nerve demo --keep` has made.")
    try:
        code = asyncio.run(DemoProcess(project, options).recover())
    except KeyboardInterrupt:
        code = INTERRUPTED
    print_demo_summary(json, project, True, code)
    return report_demo_end(options.create_console(), folder, True, code)


def report_demo_end(console: Console, folder: Path, keep: bool, code: int) -> int:
    """Say what becomes of the run and of its folder."""
    if code == INTERRUPTED:
        print_sentence(console, "")
        if keep:
            print_sentence(
                console, f"Interrupted. Go on with: {sys.executable} -m nerve demo --resume {folder}"
            )
        else:
            print_sentence(
                console, "Interrupted. The folder is removed and the run with it; --keep would keep both."
            )
    elif keep:
        print_sentence(console, f"Kept: {folder}")
    return code
