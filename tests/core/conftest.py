"""Fixtures of the core tests."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nerve import Session


@pytest.fixture(autouse=True)
def deadline(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that hangs."""
    seconds = 600 if request.node.get_closest_marker("full") else 30

    def fail(*_: Any) -> None:
        pytest.fail(f"the test took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def session() -> Session:
    """A session in memory."""
    return Session(name="test")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "nerve.db"
