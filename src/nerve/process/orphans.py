"""Processes whose engine has died: for a moment after it they may still be at work."""

from __future__ import annotations

import asyncio
import os
import time

from nerve.errors import NerveError

OWNER_VARIABLE = "NERVE_ENGINE"
ORPHAN_TIMEOUT_S = 15.0
"""Seconds to wait for them; the supervisor of a program ends it within a few when the engine dies."""


class StillThere(NerveError):
    """A process of an engine that has died does not end, and may still change what we work on."""


def owner_variable() -> dict[str, str]:
    """The variable by which our processes say whose they are."""
    pid = os.getpid()
    return {OWNER_VARIABLE: f"{pid}.{process_start_time(pid)}"}


async def wait_for_orphans() -> None:
    """Return when no process is there whose engine is not."""
    deadline = time.monotonic() + ORPHAN_TIMEOUT_S
    while orphans := find_orphans():
        if time.monotonic() > deadline:
            raise StillThere(f"processes of an engine that has died do not end: {', '.join(orphans)}")
        await asyncio.sleep(0.05)


def find_orphans() -> list[str]:
    """The processes of engines that have died; none where the kernel does not show processes as files."""
    owners = {pid: engine for pid in list_pids() if (engine := owner_of_process(pid)) is not None}
    dead_engines = {engine for engine in set(owners.values()) if not is_engine_alive(engine)}
    return [pid for pid, engine in owners.items() if engine in dead_engines]


def list_pids() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


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
    """When a process started, in the kernel's own count; empty when it has ended."""
    fields = read_proc_file(pid, "stat").rpartition(b")")[2].split()
    return fields[19].decode() if len(fields) > 19 and fields[0] not in (b"Z", b"X") else ""


def read_proc_file(pid: int | str, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
