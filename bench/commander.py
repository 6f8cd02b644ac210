"""The Commander on a terminal: time to the first prompt, and the event loop during a stream."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.measure import CHILDREN, Line, at_most, quantile

ROWS, COLUMNS = 30, 100
PROMPT = "❯".encode()
UNUSED_URL = "http://127.0.0.1:9"
"""No server listens there: the prompt does not wait for one."""
STREAM_ROUNDS = 3
"""Number of stream measurements; each takes ten seconds."""


def measure(rounds: int, directory: Path) -> list[Line]:
    time_first_prompt(directory)  # writes the byte code
    starts = [time_first_prompt(directory) for _ in range(rounds)]
    reports = [measure_stream(directory) for _ in range(min(rounds, STREAM_ROUNDS))]
    lags = [quantile(report["lags"], 0.99) * 1e3 for report in reports]
    cpu, memory = [report["cpu"] for report in reports], [report["memory"] for report in reports]
    what = "4,000 chunks streamed in 20 turns, 200 runs in the list"
    return [
        Line(
            "tui",
            "from the command to the first prompt",
            "s",
            median(starts),
            target=at_most(starts, 0.6, "s"),
        ),
        Line("tui", f"{what}: event-loop lag, p99", "ms", median(lags), target=at_most(lags, 50, "ms")),
        Line("tui", f"{what}: CPU", "s", median(cpu), target=at_most(cpu, 3, "s")),
        Line("tui", f"{what}: memory", "MiB", median(memory)),
    ]


def time_first_prompt(directory: Path) -> float:
    """Return the seconds until a prompt is on the screen."""
    began = time.perf_counter()
    with terminal(directory, "-m", "nerve", "commander", "--server", UNUSED_URL) as (process, master):
        screen = b""
        while PROMPT not in screen:
            screen = screen[-8:] + os.read(master, 65536)
        seconds = time.perf_counter() - began
        process.kill()
    return seconds


def measure_stream(directory: Path) -> dict[str, Any]:
    """Return what the full-screen Commander measures of itself during a stream."""
    report_file = directory.resolve() / "report.json"
    with terminal(directory, str(CHILDREN / "commander.py"), str(report_file)) as (process, master):
        reader = threading.Thread(target=drain_terminal, args=(master,), daemon=True)
        reader.start()
        process.wait()
    result: dict[str, Any] = json.loads(report_file.read_text())
    return result


def drain_terminal(master: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(master, 65536):
            pass


@contextlib.contextmanager
def terminal(directory: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a program on a new terminal; yield the process and the other end."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "PYTHONDONTWRITEBYTECODE")
    }
    env |= {"TERM": "xterm-256color", "PYTHONPYCACHEPREFIX": str(directory.resolve() / "byte-code")}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=directory,
        env=env,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield process, master
    finally:
        process.kill()
        process.wait()
        os.close(master)
