"""`nerve demo`: a demonstration on a scratch project that needs no setup."""

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
    """Print the outcome as one JSON object, if `json` is set."""
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
    """Run the demo in this process and return the exit code."""
    from nerve.cli.demo_process import DemoProcess

    try:
        return asyncio.run(DemoProcess(project, options).start())
    except KeyboardInterrupt:
        return INTERRUPTED


def run_crashing_demo(console: Console, project: ScratchProject, options: DemoOptions) -> int:
    """Run the demo in a process that kills itself, then recover it in a second process."""
    crashing_process = start_demo_process("crashing", project, options)
    code = wait_for_child(crashing_process)
    if code != -signal.SIGKILL:
        return code
    console.show_cursor()
    written_lines, total_lines = project.lines_written()
    print_sentence(
        console,
        f"✗ Process {crashing_process.pid} was killed by SIGKILL: "
        f"{written_lines} of {total_lines} lines of slug.py are written.",
    )
    return wait_for_child(start_demo_process("heir", project, options))


def start_demo_process(role: str, project: ScratchProject, options: DemoOptions) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "nerve.cli.demo_process", role, str(project.folder)]
    return subprocess.Popen([*command, *options.to_arguments()])


def wait_for_child(child: subprocess.Popen[bytes]) -> int:
    """Return the exit code of the child. Ctrl-C reaches the child too, so wait for its own shutdown."""
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.wait()
        return INTERRUPTED


def resume_demo(folder: Path, options: DemoOptions, crash: bool, json: bool) -> int:
    from nerve.cli.demo_process import DemoProcess

    project = ScratchProject(folder)
    if crash:
        raise UsageError("--resume and --crash cannot be used together.")
    if not project.journal_file.is_file():
        raise UsageError(f"{folder} has no journal.db. Pass a folder created by `nerve demo --keep`.")
    try:
        code = asyncio.run(DemoProcess(project, options).recover())
    except KeyboardInterrupt:
        code = INTERRUPTED
    print_demo_summary(json, project, True, code)
    return report_demo_end(options.create_console(), folder, True, code)


def report_demo_end(console: Console, folder: Path, keep: bool, code: int) -> int:
    """Print what happens to the run and its folder; return the exit code."""
    if code == INTERRUPTED:
        print_sentence(console, "")
        if keep:
            print_sentence(
                console, f"Interrupted. Resume with: {sys.executable} -m nerve demo --resume {folder}"
            )
        else:
            print_sentence(
                console, "Interrupted. The folder and the run were removed. Use --keep to keep them."
            )
    elif keep:
        print_sentence(console, f"Kept: {folder}")
    return code
