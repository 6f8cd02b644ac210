"""The limit: the rows and commits of a real run, written without an engine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from nerve.errors import StoreError
from nerve.store.port import Append
from nerve.store.sqlite import SqliteStore
from nerve.store.sqlite_connection import create_store_file, open_writer

if TYPE_CHECKING:
    import apsw

Statement = tuple[str, list[Any]]
Commit = list[Statement]


class RecordingStore:
    """A store that records the batches it receives."""

    durable = True

    def __init__(self, file: Path) -> None:
        self._store = SqliteStore(file)
        self.batches: list[Sequence[Append]] = []

    def append(self, batch: Sequence[Append], patience: float = 30.0) -> list[StoreError | None]:
        outcomes = self._store.append(batch, patience)
        self.batches.append(batch)
        return outcomes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def build_commits(file: Path, batches: Iterable[Sequence[Append]]) -> list[Commit]:
    """Return the statements that the store executes for each batch, written to a new file."""
    commits: list[Commit] = []
    with closing(SqliteStore(file)) as store:
        db = store._writer._db
        assert db is not None

        def record_statement(cursor: apsw.Cursor, text: str, values: Any) -> bool:
            commits[-1].append((text, values))
            return True

        db.set_exec_trace(record_statement)
        for batch in batches:
            commits.append([])
            store.append(batch)
            # Without those that begin and end the transaction.
            commits[-1] = [(text, list(values)) for text, values in commits[-1] if values is not None]
        db.set_exec_trace(None)
    return commits


def execute_commit(db: apsw.Connection, commit: Commit) -> None:
    db.execute("BEGIN IMMEDIATE")
    for statement, values in commit:
        db.execute(statement, values)
    db.execute("COMMIT")


def open_empty_store(file: Path) -> apsw.Connection:
    """Create an empty file with the schema and settings of the store."""
    create_store_file(file)
    return open_writer(file, None)


def time_commits(file: Path, commits: Iterable[Commit]) -> list[float]:
    """Return the seconds of each commit."""
    db = open_empty_store(file)
    durations = []
    for commit in commits:
        began = time.perf_counter()
        execute_commit(db, commit)
        durations.append(time.perf_counter() - began)
    db.close()
    return durations
