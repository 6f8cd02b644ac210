"""What the tests of the command line share."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Nerve = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made, empty at first."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def nerve(scratch: Path) -> Nerve:
    """`nerve …` in a pipe."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-m", "nerve", *arguments]
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=60
        )

    return run
