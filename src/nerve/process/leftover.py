"""Processes whose engine has died: for a moment after it they may still be at work."""

from __future__ import annotations

import asyncio
import os
import time

from nerve.errors import NerveError

VARIABLE = "NERVE_ENGINE"
PATIENCE = 15.0
"""Seconds to wait for them; the supervisor of a program ends it within a few when the engine dies."""


class StillThere(NerveError):
    """A process of an engine that has died does not end, and may still change what we work on."""


def ourselves() -> dict[str, str]:
    """The variable by which our processes say whose they are."""
    pid = os.getpid()
    return {VARIABLE: f"{pid}.{born(pid)}"}


async def gone() -> None:
    """Return when no process is there whose engine is not."""
    deadline = time.monotonic() + PATIENCE
    while left := leftovers():
        if time.monotonic() > deadline:
            raise StillThere(f"processes of an engine that has died do not end: {', '.join(left)}")
        await asyncio.sleep(0.05)


def leftovers() -> list[str]:
    """The processes of engines that have died; none where the kernel does not show processes as files."""
    marked = {pid: engine for pid in pids() if (engine := engine_of(pid)) is not None}
    dead = {engine for engine in set(marked.values()) if not alive(engine)}
    return [pid for pid, engine in marked.items() if engine in dead]


def pids() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def engine_of(pid: str) -> str | None:
    mark = f"{VARIABLE}=".encode()
    for variable in read(pid, "environ").split(b"\0"):
        if variable.startswith(mark):
            return variable[len(mark) :].decode(errors="replace")
    return None


def alive(engine: str) -> bool:
    pid, _, since = engine.partition(".")
    return not pid.isdigit() or born(pid) == since


def born(pid: int | str) -> str:
    """When a process started, in the kernel's own count; empty when it has ended."""
    fields = read(pid, "stat").rpartition(b")")[2].split()
    return fields[19].decode() if len(fields) > 19 and fields[0] not in (b"Z", b"X") else ""


def read(pid: int | str, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
