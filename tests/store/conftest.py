"""Helpers of the store tests."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from nerve.store import sqlite_writer
from nerve.store.sqlite import SqliteStore
from store.vfs import Disk


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "nerve.db"


@pytest.fixture
def connections() -> Iterator[list[apsw.Connection]]:
    """Every connection the store opens during the test."""
    opened: list[apsw.Connection] = []
    apsw.connection_hooks.append(opened.append)
    yield opened
    apsw.connection_hooks.remove(opened.append)


@pytest.fixture
def eager_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoint every few pages, so that short tests cover checkpoints too."""
    monkeypatch.setattr(sqlite_writer, "CHECKPOINT_PAGES", 8)


@pytest.fixture
def store(file: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(file)
    yield store
    store.close()


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.unregister()
