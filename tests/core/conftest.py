"""Fixtures of the core tests."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nerve import Session


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """Fail a test that hangs."""

    def fail(*_: Any) -> None:
        pytest.fail("the test took more than 30 s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(30)
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
