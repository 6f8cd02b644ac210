"""`nerve server`: show, stop or restart the project server, or sign in a browser."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from nerve.api import ApiError
from nerve.cli.context import find_command_server
from nerve.cli.exit_codes import COMPLETED, FAILED
from nerve.cli.parameters import DEFAULT_REPORT, FileList, Flag, ReportOptions, require_file
from nerve.cli.reports import print_report
from nerve.cli.trust import require_trust
from nerve.client.server_address import find_server, find_server_pid, read_server_info
from nerve.commander.project_server import ProjectServer
from nerve.project.paths import ProjectPaths
from nerve.store.owner_lock import is_store_owned

STOP_TIMEOUT_S = 20.0
"""Seconds to wait for the server to exit. It forces its own exit after 14."""
STOP_POLL_S = 0.05
NO_SERVER_MESSAGE = "No server is running for this project."
STATUS_FIELDS = ("pid", "url", "socket", "version", "modules", "idle", "command")


def server_status_command(*, json: Flag = False, quiet: Flag = False) -> int:
    """Show whether the project server is running, and where. The exit code is 1 if it is not.

    Parameters
    ----------
    json
        Print one JSON object.
    quiet
        Print nothing; use the exit code.
    """
    server_info = running_server()
    message = describe_server(server_info) if server_info else f"{NO_SERVER_MESSAGE} Start one: nerve serve"
    print_report(
        ReportOptions(json, quiet), {"running": server_info is not None, **(server_info or {})}, message
    )
    return COMPLETED if server_info else FAILED


def server_stop_command(*, options: ReportOptions = DEFAULT_REPORT) -> int:
    """Stop the project server. Its runs are parked and resume when it restarts."""
    pid = end_server()
    message = (
        f"Stopped the server (process {pid}). Its runs resume when it restarts." if pid else NO_SERVER_MESSAGE
    )
    print_report(options, {"stopped": pid is not None, "pid": pid}, message)
    return COMPLETED


def server_restart_command(*, modules: FileList = (), options: ReportOptions = DEFAULT_REPORT) -> int:
    """Restart the background server.

    Parameters
    ----------
    modules
        A Python file that defines register(session), or a workflow file. Default: the files it had before.
    """
    for file in modules:
        require_file(file)
    require_trust(opening=True)
    server_info = running_server()
    if server_info is not None and server_info.get("idle") is None:
        raise ApiError(
            "conflict",
            f"Process {server_info['pid']} was started by `nerve serve`, whose options are not known here",
            "Stop it with `nerve server stop`, then run `nerve serve` again.",
        )
    files = modules or tuple(Path(file) for file in (server_info or {}).get("modules", ()))
    asyncio.run(ProjectServer(modules=files).replace(end_server))
    new_server_info = running_server() or {}
    print_report(options, {"running": True, **new_server_info}, describe_server(new_server_info))
    return COMPLETED


def server_sign_in_command(*, json: Flag = False, quiet: Flag = False) -> int:
    """Print a URL that signs in one browser, once, within five minutes.

    Parameters
    ----------
    json
        Print one JSON object.
    quiet
        No effect: the command prints only its result.
    """
    url = create_launch_url()
    print_report(ReportOptions(json), {"url": url}, url)
    return COMPLETED


def create_launch_url() -> str:
    """Return an address of the running server that signs in one browser; raise ApiError if none runs."""
    server_info, endpoint = running_server(), find_server(Path())
    if server_info is None or endpoint is None:
        raise ApiError("busy", NO_SERVER_MESSAGE, "Start one: nerve serve")

    async def request_code() -> str:
        from nerve.client.client import make_http_client

        async with make_http_client(endpoint, STOP_TIMEOUT_S, "cli") as http:
            reply = await http.post("/api/launch-codes", json={})
            return str(reply.raise_for_status().json()["code"])

    return f"{server_info['url']}/#code={asyncio.run(request_code())}"


def running_server() -> dict[str, Any] | None:
    """Return the published info of the running server, or None. The process id comes from the kernel."""
    server_info, pid = read_server_info(ProjectPaths.of(Path())), find_server_pid(Path())
    if server_info is None or pid is None:
        return None
    return {name: server_info.get(name) for name in STATUS_FIELDS} | {"pid": pid}


def end_server() -> int | None:
    """Stop the server and wait for its exit; return its process id, or None if none was running."""
    if find_server(Path()) is None or (pid := find_server_pid(Path())) is None:
        return None
    if (server := find_command_server()) is not None:
        raise ApiError(
            "conflict",
            f"No server is running; {server} serves the project while it drives runs",
            "Stop it with Ctrl-C, or its run with `nerve stop RUN`.",
        )
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + STOP_TIMEOUT_S
    while find_server_pid(Path()) == pid or is_store_owned(ProjectPaths.of(Path()).store):
        if time.monotonic() > end:
            raise ApiError(
                "timeout", f"Process {pid} did not exit within {STOP_TIMEOUT_S:g} seconds", f"kill -9 {pid}"
            )
        time.sleep(STOP_POLL_S)
    return pid


def describe_server(server_info: dict[str, Any]) -> str:
    kind = "in the background" if server_info.get("idle") is not None else "by nerve serve"
    if command := server_info.get("command"):
        kind = f"by {command}, until it ends"
    code = f", with {', '.join(server_info['modules'])}" if server_info.get("modules") else ""
    return f"Running at {server_info.get('url')} (process {server_info.get('pid')}, {kind}{code})"
