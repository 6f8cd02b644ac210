"""The Commander on a terminal: how soon one can type, and how it fares while much is streamed."""

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
NOWHERE = "http://127.0.0.1:9"
"""Nobody listens there: the prompt does not wait for a server."""
STREAMS = 3
"""How often the stream is measured; each takes ten seconds."""


def measure(rounds: int, place: Path) -> list[Line]:
    start(place)  # has the byte code written
    starts = [start(place) for _ in range(rounds)]
    told = [stream(place) for _ in range(min(rounds, STREAMS))]
    lags = [quantile(each["lags"], 0.99) * 1e3 for each in told]
    cpu, memory = [each["cpu"] for each in told], [each["memory"] for each in told]
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


def start(place: Path) -> float:
    """Seconds until a prompt is on the screen."""
    began = time.perf_counter()
    with terminal(place, "-m", "nerve", "commander", "--server", NOWHERE) as (process, master):
        seen = b""
        while PROMPT not in seen:
            seen = seen[-8:] + os.read(master, 65536)
        took = time.perf_counter() - began
        process.kill()
    return took


def stream(place: Path) -> dict[str, Any]:
    """What a full screen says of itself that was fed with a stream."""
    told = place.resolve() / "told.json"
    with terminal(place, str(CHILDREN / "commander.py"), str(told)) as (process, master):
        reading = threading.Thread(target=swallow, args=(master,), daemon=True)
        reading.start()
        process.wait()
    result: dict[str, Any] = json.loads(told.read_text())
    return result


def swallow(master: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(master, 65536):
            pass


@contextlib.contextmanager
def terminal(place: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A program on a terminal of its own, and the other end of it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "PYTHONDONTWRITEBYTECODE")
    }
    env |= {"TERM": "xterm-256color", "PYTHONPYCACHEPREFIX": str(place.resolve() / "byte-code")}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=place,
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
