"""`nerve server`: looks at the server of this project, stops it, restarts it, and signs in a browser."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from nerve.api import ApiError
from nerve.cli.exits import COMPLETED, FAILED
from nerve.cli.flags import Files, Flag
from nerve.cli.trust import require_trust
from nerve.cli.usage import UsageError
from nerve.client import about_server, connections, server_of, server_process
from nerve.commander.core.harmless import harmless, in_json
from nerve.commander.home import Home
from nerve.places import Places
from nerve.store.lock import is_owned

PATIENCE = 20.0
"""Seconds in which a server must have ended; it gives itself fourteen."""
LOOK = 0.05
NONE = "No server is running for this project."
SHOWN = ("pid", "url", "socket", "version", "modules", "idle")


def status(*, json: Flag = False, quiet: Flag = False) -> int:
    """Say whether a server is running for this project, and where; exit code 1 if none is.

    Parameters
    ----------
    json
        Print one JSON object.
    quiet
        Say nothing: the exit code does.
    """
    about = running_server()
    told = {"running": about is not None, **(about or {})}
    tell(told, describe(about) if about else f"{NONE} Start it: nerve serve", json, quiet)
    return COMPLETED if about else FAILED


def stop(*, json: Flag = False, quiet: Flag = False) -> int:
    """Stop the server of this project; its runs are parked, and continue with the next one.

    Parameters
    ----------
    json
        Print one JSON object.
    quiet
        Say nothing but errors.
    """
    pid = end_server()
    said = f"Stopped the server (process {pid}). Its runs continue with the next one." if pid else NONE
    tell({"stopped": pid is not None, "pid": pid}, said, json, quiet)
    return COMPLETED


def restart(*, modules: Files = (), json: Flag = False, quiet: Flag = False) -> int:
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
    about = running_server()
    if about is not None and about.get("idle") is None:
        raise ApiError(
            "conflict",
            f"process {about['pid']} was started by nerve serve, with options that only that command knows",
            "Stop it: nerve server stop. Then start it as before",
        )
    files = modules or tuple(Path(file) for file in (about or {}).get("modules", ()))
    asyncio.run(Home(modules=files).replace(end_server))
    now = running_server() or {}
    tell({"running": True, **now}, describe(now), json, quiet)
    return COMPLETED


def sign_in(*, json: Flag = False, quiet: Flag = False) -> int:
    """Print an address that signs in one browser, once, within five minutes.

    Parameters
    ----------
    json
        Print one JSON object.
    quiet
        Changes nothing: there is nothing else to be said.
    """
    about, where = running_server(), server_of(Path())
    if about is None or where is None:
        raise ApiError("busy", NONE, "Start it: nerve serve")

    async def ask() -> str:
        async with connections(where, PATIENCE, "cli") as http:
            reply = await http.post("/api/launch-codes", json={})
            return str(reply.raise_for_status().json()["code"])

    url = f"{about['url']}/#code={asyncio.run(ask())}"
    tell({"url": url}, url, json, False)
    return COMPLETED


def running_server() -> dict[str, Any] | None:
    """What the server of this project says of itself, if it is there; its process as the kernel says."""
    about, pid = about_server(Places.of(Path())), server_process(Path())
    if about is None or pid is None:
        return None
    return {name: about.get(name) for name in SHOWN} | {"pid": pid}


def end_server() -> int | None:
    """Stop the server, and return when its process is gone: its number, or None where there was none."""
    if server_of(Path()) is None or (pid := server_process(Path())) is None:
        return None
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + PATIENCE
    while server_process(Path()) == pid or is_owned(Places.of(Path()).store):
        if time.monotonic() > end:
            raise ApiError(
                "timeout", f"process {pid} has not ended within {PATIENCE:g} seconds", f"kill -9 {pid}"
            )
        time.sleep(LOOK)
    return pid


def describe(about: dict[str, Any]) -> str:
    kind = "in the background" if about.get("idle") is not None else "by nerve serve"
    code = f", with {', '.join(about['modules'])}" if about.get("modules") else ""
    return f"Running at {about.get('url')} (process {about.get('pid')}, {kind}{code})"


def tell(told: dict[str, Any], said: str, json: bool, quiet: bool) -> None:
    if json:
        print(in_json(told))
    elif not quiet:
        print(harmless(said))
