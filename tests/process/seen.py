"""Process information from the kernel, and waiting for process states."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

TAG = "NERVE_TEST_TAG"

# One child of every kind that a plain kill misses; prints "ready" when all of them run.
HOSTILE = """
setsid sleep 600 &
(setsid sleep 600 &)
(trap '' TERM; sleep 600; sleep 600) &
sleep 600 & kill -STOP $!
echo ready
wait
"""


async def eventually(check: Callable[[], object], within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not check():
        assert time.monotonic() < deadline, f"did not happen within {within} s"
        await asyncio.sleep(0.005)


def tagged(tag: str) -> list[int]:
    """The living processes whose environment carries the tag."""
    wanted = f"{TAG}={tag}".encode()
    return [pid for pid in pids() if wanted in read(pid, "environ").split(b"\0")]


def children(pid: int) -> list[int]:
    return [other for other in pids() if stat(other)[1:2] == [str(pid).encode()]]


def zombies() -> list[int]:
    return [pid for pid in children(os.getpid()) if stat(pid)[:1] == [b"Z"]]


def alive(pid: int) -> bool:
    return stat(pid)[:1] not in ([], [b"Z"])


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident() -> int:
    return int(read(os.getpid(), "statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat(pid: int) -> list[bytes]:
    """State, parent, group, session and other fields; empty for an ended process."""
    return read(pid, "stat").rpartition(b")")[2].split()


def read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
