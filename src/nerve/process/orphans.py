"""Orphans: processes of a dead engine, which may still run for a moment."""

from __future__ import annotations

import asyncio
import os
import time

from nerve.errors import NerveError

OWNER_VARIABLE = "NERVE_OWNER"
ORPHAN_TIMEOUT_S = 15.0
"""Seconds to wait for orphans; supervisors end their programs within a few seconds."""


class StillThere(NerveError):
    """A process of a dead engine does not end and may still change files of the project."""


def owner_variable() -> dict[str, str]:
    """Return the environment variable that identifies the engine of a process."""
    pid = os.getpid()
    return {OWNER_VARIABLE: f"{pid}.{process_start_time(pid)}"}


async def wait_for_orphans() -> None:
    """Wait until no orphans are left, or raise StillThere."""
    deadline = time.monotonic() + ORPHAN_TIMEOUT_S
    while orphans := find_orphans():
        if time.monotonic() > deadline:
            raise StillThere(f"Processes of a dead engine are still running: {', '.join(orphans)}")
        await asyncio.sleep(0.05)


def find_orphans() -> list[str]:
    """Return the processes of dead engines; empty on systems without /proc."""
    try:
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    owners = {pid: engine for pid in pids if (engine := owner_of_process(pid)) is not None}
    dead_engines = {engine for engine in set(owners.values()) if not is_engine_alive(engine)}
    return [pid for pid, engine in owners.items() if engine in dead_engines]


def owner_of_process(pid: str) -> str | None:
    mark = f"{OWNER_VARIABLE}=".encode()
    for variable in read_proc_file(pid, "environ").split(b"\0"):
        if variable.startswith(mark):
            return variable[len(mark) :].decode(errors="replace")
    return None


def is_engine_alive(engine: str) -> bool:
    pid, _, since = engine.partition(".")
    return not pid.isdigit() or process_start_time(pid) == since


def process_start_time(pid: int | str) -> str:
    """Return the start time of a process in clock ticks since boot; empty if it has ended."""
    fields = read_proc_file(pid, "stat").rpartition(b")")[2].split()
    return fields[19].decode() if len(fields) > 19 and fields[0] not in (b"Z", b"X") else ""


def read_proc_file(pid: int | str, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
