"""`nerve` and `nerve commander`: the Commander, on the full screen or in plain lines."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nerve.cli.exits import COMPLETED, INTERRUPTED
from nerve.cli.flags import Files, Flag
from nerve.cli.trust import require_trust
from nerve.cli.usage import UsageError
from nerve.client import about_server, server_of
from nerve.places import Places

if TYPE_CHECKING:
    from nerve.commander.workflow_controller import WorkflowController


def commander(*, plain: Flag = False, server: str | None = None, modules: Files = ()) -> int:
    """Open the Commander: talk to agents and workflows, and see and steer all runs of this project.

    The server of the project is started in the background if none runs, and ends by itself when it is not
    needed. Leaving stops no run. `nerve` alone is the same, at a terminal.

    Parameters
    ----------
    plain
        Plain lines instead of the full screen; they are taken anyway where the terminal is not up to it.
    server
        The address of a server that somebody else runs. Its token is in NERVE_TOKEN, or is the project's.
    modules
        A Python file that has register(session), or a workflow file, for the server that is started.
    """
    if modules and server is not None:
        raise UsageError("the server at that address has what it was started with: leave out --with.")
    for file in modules:
        if not file.is_file():
            raise UsageError(f"there is no file {file}.")
    check_modules(modules)
    if server is None:
        require_trust(opening=True)
    elif urlsplit(server).scheme not in ("http", "https"):
        raise UsageError(f"--server {server} is no address: write http://127.0.0.1:7433.")
    try:
        code, lines = asyncio.run(talk(plain or not capable(), server, modules))
    except KeyboardInterrupt:
        return INTERRUPTED
    for line in lines:
        print(line)
    return code


def check_modules(modules: tuple[Path, ...]) -> None:
    """Refuse files that the server which runs was not given; where it has them, the Commander joins it."""
    if not modules or server_of(Path()) is None:
        return
    there = (about_server(Places.of(Path())) or {}).get("modules") or []
    if missing := [file for file in modules if str(file.absolute()) not in there]:
        has = f"with {', '.join(there)}" if there else "without any file"
        files = " ".join(f"--with {shlex.quote(str(file))}" for file in modules)
        raise UsageError(
            f"the server of this project runs {has}, and not with {missing[0]}."
            f" Start it again: nerve server restart {files}."
        )


def capable() -> bool:
    """Whether the terminal can show a full screen, and the person wants one."""
    terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    dumb = os.environ.get("TERM", "").lower() in ("", "dumb", "unknown")
    return terminal and not dumb and not os.environ.get("NO_COLOR")


async def talk(plain: bool, server: str | None, modules: tuple[Path, ...] = ()) -> tuple[int, list[str]]:
    """The Commander until somebody leaves it: the exit code, and what is left in the terminal."""
    from nerve.commander.files import files_of

    controller = made(server, modules)
    controller.desk.project = str(Path.cwd())
    controller.files = files_of(Path.cwd())
    code = COMPLETED
    try:
        after = "plain" if plain else "full"
        while after != "quit":
            if after == "plain":
                from nerve.commander.plain.mode import run

                after = await run(controller)
            else:
                after, code = await full_screen(controller)
    finally:
        lines = controller.farewell()
        await controller.close()
        await controller.client.close()
    return code, lines


def made(server: str | None, modules: tuple[Path, ...] = ()) -> WorkflowController:
    """The controller of the project's server, or of one elsewhere."""
    from nerve.commander.home import Home, elsewhere
    from nerve.commander.workflow_controller import WorkflowController

    if server is not None:
        return WorkflowController(elsewhere(server))
    home = Home(modules=modules)
    return WorkflowController(home.client(), revive=home.ensure)


async def full_screen(controller: WorkflowController) -> tuple[str, int]:
    """What comes after the full screen, and its exit code."""
    from nerve.commander.core.history import History
    from nerve.commander.history_file import FILE, HistoryFile
    from nerve.commander.tui.app import CommanderApp

    for name in ("COLUMNS", "LINES"):  # a size that was exported once is not the size of the window now
        os.environ.pop(name, None)
    app = CommanderApp(controller, History(HistoryFile(Path(controller.desk.project) / FILE)))
    after = await app.run_async()
    return after or "quit", app.return_code or COMPLETED
