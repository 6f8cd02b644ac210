"""Fixtures of the core tests."""

from pathlib import Path

import pytest

from nerve import Session


@pytest.fixture
def session() -> Session:
    """A session in memory."""
    return Session(name="test")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "nerve.db"
