"""The CPU seconds of other processes, from /proc."""

from __future__ import annotations

import os
import subprocess

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, of its children that run, and of those that have ended."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], stdout=subprocess.PIPE, text=True)
    return sum(read_times(pid)) + sum(sum(read_times(int(child))[:2]) for child in listed.stdout.split())


def read_times(pid: int) -> list[float]:
    """Return the seconds in user and in system mode, of a process and of its ended children."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return [0.0] * 4
    return [int(field) / TICKS for field in fields[11:15]]
