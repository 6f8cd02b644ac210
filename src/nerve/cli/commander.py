"""`nerve` and `nerve commander`: the Commander, full-screen or as plain lines."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED, INTERRUPTED
from nerve.cli.parameters import FileList, Flag, require_file
from nerve.cli.trust import require_trust
from nerve.client.server_address import find_server, read_server_info
from nerve.commander.typeahead import TypeaheadTerminal
from nerve.project.paths import ProjectPaths

if TYPE_CHECKING:
    from nerve.commander.controller import CommanderController


def commander_command(*, plain: Flag = False, server: str | None = None, modules: FileList = ()) -> int:
    """Open the Commander: start workflows, talk to agents, and watch and steer all runs of this project.

    Starts the project server in the background if none is running; the server exits when it is idle. Leaving
    the Commander does not stop runs. At a terminal, `nerve` alone does the same.

    Parameters
    ----------
    plain
        Print plain lines instead of using the full screen. Default for terminals without full-screen support.
    server
        The URL of a running server. The token comes from NERVE_TOKEN, or from the project.
    modules
        A Python file that defines register(session), or a workflow file, to load into the started server.
    """
    check_connection(server, modules)
    if server is None:
        require_trust(opening=True)
    is_full_screen = not plain and supports_full_screen()
    # As early as possible: what is typed while the screen is imported and the server starts is not lost.
    terminal = TypeaheadTerminal(sys.stdin.fileno()) if is_full_screen else None
    try:
        code, lines = asyncio.run(run_commander(terminal, server, modules))
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if terminal is not None:
            terminal.restore()
    for line in lines:
        print(line)
    return code


def check_connection(server: str | None, modules: tuple[Path, ...]) -> None:
    """Raise UsageError for options of a connection that cannot be used, or not together."""
    if modules and server is not None:
        raise UsageError("--with cannot be used with --server: that server loads its own files.")
    for file in modules:
        require_file(file)
    check_modules(modules)
    if server is not None and urlsplit(server).scheme not in ("http", "https"):
        raise UsageError(
            f"--server must be an http or https URL, got '{server}'. Example: http://127.0.0.1:7433."
        )


def print_protocol_notice(protocol: str, fix: str) -> None:
    """Say at a terminal that the command waits for the messages of a program."""
    if sys.stdin is not None and sys.stdin.isatty():
        notice = f"Waiting for {protocol} messages on standard input. {fix} Ctrl-C ends the command."
        print(notice, file=sys.stderr)


def check_modules(modules: tuple[Path, ...]) -> None:
    """Raise UsageError if a server is running without these files."""
    if not modules or find_server(Path()) is None:
        return
    loaded = (read_server_info(ProjectPaths.of(Path())) or {}).get("modules") or []
    if missing := [file for file in modules if str(file.absolute()) not in loaded]:
        loaded_text = f"with {', '.join(loaded)}" if loaded else "without files"
        files = " ".join(f"--with {shlex.quote(str(file))}" for file in modules)
        raise UsageError(
            f"The project server runs {loaded_text}, but not with {missing[0]}."
            f" Restart it: nerve server restart {files}."
        )


def supports_full_screen() -> bool:
    """Whether the terminal supports full-screen output and NO_COLOR is not set."""
    is_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    is_dumb = os.environ.get("TERM", "").lower() in ("", "dumb", "unknown")
    return is_terminal and not is_dumb and not os.environ.get("NO_COLOR")


async def run_commander(
    terminal: TypeaheadTerminal | None, server: str | None, modules: tuple[Path, ...] = ()
) -> tuple[int, list[str]]:
    """Run the Commander until the user leaves; return the exit code and the closing lines to print."""
    from nerve.commander.path_completion import make_file_completer

    controller = create_controller(server, modules)
    # The server starts in its own process while the screen is imported here.
    start_task = asyncio.create_task(controller.start_server())
    await asyncio.sleep(0)
    controller.state.project = str(Path.cwd())
    controller.file_completer = make_file_completer(Path.cwd())
    code = COMPLETED
    try:
        next_mode = "plain" if terminal is None else "full"
        while next_mode != "quit":
            if next_mode == "plain":
                from nerve.commander.plain.app import run_plain_mode

                next_mode = await run_plain_mode(controller)
            else:
                next_mode, code = await run_full_screen(controller, terminal)
                terminal = None  # what is typed later is read by the screens themselves
    finally:
        lines = controller.exit_message()
        start_task.cancel()
        await controller.close()
        await controller.client.close()
    return code, lines


def create_controller(server: str | None, modules: tuple[Path, ...] = ()) -> CommanderController:
    """Return a controller for the project server, or for the server at a URL."""
    from nerve.commander.controller import CommanderController
    from nerve.commander.project_server import ProjectServer, client_for_url

    if server is not None:
        return CommanderController(client_for_url(server))
    home = ProjectServer(modules=modules)
    return CommanderController(home.client(), restart_server=home.start_if_needed)


async def run_full_screen(
    controller: CommanderController, terminal: TypeaheadTerminal | None
) -> tuple[str, int]:
    """Run the full-screen mode; return the next mode and the exit code."""
    from nerve.commander.history import open_history
    from nerve.commander.tui.app import CommanderApp

    for name in ("COLUMNS", "LINES"):  # exported values may differ from the current window size
        os.environ.pop(name, None)
    history = open_history(Path(controller.state.project))
    app = CommanderApp(controller, history, typeahead=terminal.read_pending() if terminal else None)
    next_mode = await app.run_async()
    return next_mode or "quit", app.return_code or COMPLETED
