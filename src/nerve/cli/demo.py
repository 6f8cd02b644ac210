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

from nerve.cli.flags import Flag
from nerve.cli.how import How
from nerve.cli.screen import say
from nerve.cli.usage import UsageError
from nerve.demo.project import Project
from nerve.demo.workflow import COACH, NAME, REVIEWER

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130


def demo(
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
    how = How(yes, quiet or json)
    if resume is not None:
        return resumed(resume, how, crash, json)
    folder = Path(tempfile.mkdtemp(prefix="nerve-demo-"))
    console = how.console()
    try:
        introduce(console, folder, keep)
        project = Project(folder).create()
        code = crashing(console, project, how) if crash else alone(project, how)
        tell(json, project, keep, code)
        return close(console, folder, keep, code)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def tell(json: bool, project: Project, kept: bool, code: int) -> None:
    """The end, for programs."""
    if json:
        told = {"code": code, "merged": project.is_merged(), "folder": str(project.folder) if kept else None}
        print(json_text.dumps(told))


def introduce(console: Console, folder: Path, keep: bool) -> None:
    say(console, f"{NAME} in {folder}{'' if keep else ' (removed at the end)'}")
    for role, what in (("dev", "a scripted agent"), ("coach", COACH), ("reviewer", REVIEWER)):
        say(console, f"  {role:<9} {what}")


def alone(project: Project, how: How) -> int:
    """The whole run in this process."""
    from nerve.cli.play import Play

    try:
        return asyncio.run(Play(project, how).start())
    except KeyboardInterrupt:
        return INTERRUPTED


def crashing(console: Console, project: Project, how: How) -> int:
    """The run in a process that kills itself, then in another one that goes on."""
    doomed = process("doomed", project, how)
    code = wait_for(doomed)
    if code != -signal.SIGKILL:
        return code
    console.show_cursor()
    written, wanted = project.lines_written()
    say(
        console,
        f"✗ Process {doomed.pid} was killed by SIGKILL: {written} of {wanted} lines of slug.py are written.",
    )
    return wait_for(process("heir", project, how))


def process(part: str, project: Project, how: How) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "nerve.cli.play", part, str(project.folder)]
    return subprocess.Popen([*command, *how.options()])


def wait_for(child: subprocess.Popen[bytes]) -> int:
    """How the child ended; Ctrl-C reaches it too, and it is given the time to end by itself."""
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.wait()
        return INTERRUPTED


def resumed(folder: Path, how: How, crash: bool, json: bool) -> int:
    from nerve.cli.play import Play

    project = Project(folder)
    if crash:
        raise UsageError("--resume goes on with a run and --crash starts one: use one of them.")
    if not project.journal.is_file():
        raise UsageError(f"{folder} has no journal.db: name a folder that `nerve demo --keep` has made.")
    try:
        code = asyncio.run(Play(project, how).recover())
    except KeyboardInterrupt:
        code = INTERRUPTED
    tell(json, project, True, code)
    return close(how.console(), folder, True, code)


def close(console: Console, folder: Path, keep: bool, code: int) -> int:
    """Say what becomes of the run and of its folder."""
    if code == INTERRUPTED:
        say(console, "")
        if keep:
            say(console, f"Interrupted. Go on with: {sys.executable} -m nerve demo --resume {folder}")
        else:
            say(console, "Interrupted. The folder is removed and the run with it; --keep would keep both.")
    elif keep:
        say(console, f"Kept: {folder}")
    return code
