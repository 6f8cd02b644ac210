"""Other processes that use a store file, for the tests to reject and to kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

from nerve.store import port

_SOURCE = str(Path(port.__file__).parents[2])


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run Python code that prints a line when it is ready, and `lines` more after that."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": _SOURCE},
    )


def news(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def kill(process: subprocess.Popen[str]) -> list[str]:
    """Kill the process with SIGKILL; return its unread output."""
    process.kill()
    rest, _ = process.communicate()
    return rest.splitlines()
