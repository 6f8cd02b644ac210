"""The limit: the rows and commits of a real run, written without an engine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw

from nerve.errors import StoreError
from nerve.store.port import Append, RunRow
from nerve.store.sqlite import SqliteStore
from nerve.store.sqlite_connection import create_store_file, open_writer
from nerve.store.statements import statement_for_rows

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


def read_hashes(file: Path) -> dict[tuple[str, int], bytes]:
    """Return the stored hash of each event, so that the limit does not compute it."""
    db = apsw.Connection(str(file))
    hashes = {(run, seq): hash for run, seq, hash in db.execute("SELECT run, seq, hash FROM events")}
    db.close()
    return hashes


def build_commit(batch: Iterable[Append], known: dict[tuple[str, int], bytes]) -> Commit:
    """Return the statements that write a batch, with flat lists of values."""
    events: list[Any] = []
    runs: list[Any] = []
    definitions: list[Any] = []
    for part in batch:
        for row in part.rows:
            events += (part.run, *row, known[part.run, row.seq])
        if part.row is not None:
            runs += (*part.row, part.rows[-1].seq)
        if part.definition is not None:
            definitions += part.definition
    width = len(RunRow._fields) + 1
    parts = (
        ("insert_events", 8, events),
        ("upsert_runs", width, runs),
        ("insert_definitions", 5, definitions),
    )
    return [
        (statement_for_rows(name, width, len(values) // width), values)
        for name, width, values in parts
        if values
    ]


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
