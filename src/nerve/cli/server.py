"""`nerve server`: looks at the server of this project, stops it, restarts it, and signs in a browser."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from nerve.api import ApiError
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED, FAILED
from nerve.cli.parameters import FileList, Flag
from nerve.cli.trust import require_trust
from nerve.client.client import find_server, find_server_pid, make_http_client, read_server_info
from nerve.commander.project_server import ProjectServer
from nerve.project.paths import ProjectPaths
from nerve.store.owner_lock import is_store_owned
from nerve.ui.sanitize import dump_safe_json, sanitize_text

STOP_TIMEOUT_S = 20.0
"""Seconds in which a server must have ended; it gives itself fourteen."""
STOP_POLL_S = 0.05
NO_SERVER_MESSAGE = "No server is running for this project."
STATUS_FIELDS = ("pid", "url", "socket", "version", "modules", "idle")


def server_status_command(*, json: Flag = False, quiet: Flag = False) -> int:
    """Say whether a server is running for this project, and where; exit code 1 if none is.

    Parameters
    ----------
    json
        Print one JSON object.
    quiet
        Say nothing: the exit code does.
    """
    server_info = running_server()
    payload = {"running": server_info is not None, **(server_info or {})}
    print_server_result(
        payload,
        describe_server(server_info) if server_info else f"{NO_SERVER_MESSAGE} Start it: nerve serve",
        json,
        quiet,
    )
    return COMPLETED if server_info else FAILED


def server_stop_command(*, json: Flag = False, quiet: Flag = False) -> int:
    """Stop the server of this project; its runs are parked, and continue with the next one.

    Parameters
    ----------
    json
        Print one JSON object.
    quiet
        Say nothing but errors.
    """
    pid = end_server()
    message = (
        f"Stopped the server (process {pid}). Its runs continue with the next one."
        if pid
        else NO_SERVER_MESSAGE
    )
    print_server_result({"stopped": pid is not None, "pid": pid}, message, json, quiet)
    return COMPLETED


def server_restart_command(*, modules: FileList = (), json: Flag = False, quiet: Flag = False) -> int:
    """Stop the server that runs in the background, and start another one.

    Parameters
    ----------
    modules
        A Python file that has register(session), or a workflow file; without any, those it had before.
    json
        Print one JSON object.
    quiet
        Say nothing but errors.
    """
    for file in modules:
        if not file.is_file():
            raise UsageError(f"there is no file {file}.")
    require_trust(opening=True)
    server_info = running_server()
    if server_info is not None and server_info.get("idle") is None:
        raise ApiError(
            "conflict",
            f"process {server_info['pid']} was started by nerve serve, with options that only that command "
            "knows",
            "Stop it: nerve server stop. Then start it as before",
        )
    files = modules or tuple(Path(file) for file in (server_info or {}).get("modules", ()))
    asyncio.run(ProjectServer(modules=files).replace(end_server))
    new_server_info = running_server() or {}
    print_server_result({"running": True, **new_server_info}, describe_server(new_server_info), json, quiet)
    return COMPLETED


def server_sign_in_command(*, json: Flag = False, quiet: Flag = False) -> int:
    """Print an address that signs in one browser, once, within five minutes.

    Parameters
    ----------
    json
        Print one JSON object.
    quiet
        Changes nothing: there is nothing else to be said.
    """
    server_info, endpoint = running_server(), find_server(Path())
    if server_info is None or endpoint is None:
        raise ApiError("busy", NO_SERVER_MESSAGE, "Start it: nerve serve")

    async def ask() -> str:
        async with make_http_client(endpoint, STOP_TIMEOUT_S, "cli") as http:
            reply = await http.post("/api/launch-codes", json={})
            return str(reply.raise_for_status().json()["code"])

    url = f"{server_info['url']}/#code={asyncio.run(ask())}"
    print_server_result({"url": url}, url, json, False)
    return COMPLETED


def running_server() -> dict[str, Any] | None:
    """What the server of this project says of itself, if it is there; its process as the kernel says."""
    server_info, pid = read_server_info(ProjectPaths.of(Path())), find_server_pid(Path())
    if server_info is None or pid is None:
        return None
    return {name: server_info.get(name) for name in STATUS_FIELDS} | {"pid": pid}


def end_server() -> int | None:
    """Stop the server, and return when its process is gone: its number, or None where there was none."""
    if find_server(Path()) is None or (pid := find_server_pid(Path())) is None:
        return None
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + STOP_TIMEOUT_S
    while find_server_pid(Path()) == pid or is_store_owned(ProjectPaths.of(Path()).store):
        if time.monotonic() > end:
            raise ApiError(
                "timeout", f"process {pid} has not ended within {STOP_TIMEOUT_S:g} seconds", f"kill -9 {pid}"
            )
        time.sleep(STOP_POLL_S)
    return pid


def describe_server(server_info: dict[str, Any]) -> str:
    kind = "in the background" if server_info.get("idle") is not None else "by nerve serve"
    code = f", with {', '.join(server_info['modules'])}" if server_info.get("modules") else ""
    return f"Running at {server_info.get('url')} (process {server_info.get('pid')}, {kind}{code})"


def print_server_result(payload: dict[str, Any], message: str, json: bool, quiet: bool) -> None:
    if json:
        print(dump_safe_json(payload))
    elif not quiet:
        print(sanitize_text(message))
