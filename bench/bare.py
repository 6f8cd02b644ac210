"""The limit: the rows a run really wrote, in the commits it really made, with nothing around them."""

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
    """A store that remembers the groups it was given."""

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


def hashes(file: Path) -> dict[tuple[str, int], bytes]:
    """The hash that was stored with each event, so that the limit need not compute it."""
    db = apsw.Connection(str(file))
    found = {(run, seq): hash for run, seq, hash in db.execute("SELECT run, seq, hash FROM events")}
    db.close()
    return found


def commit_of(batch: Iterable[Append], known: dict[tuple[str, int], bytes]) -> Commit:
    """The statements that write a group, their values laid out."""
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


def write(db: apsw.Connection, commit: Commit) -> None:
    db.execute("BEGIN IMMEDIATE")
    for statement, values in commit:
        db.execute(statement, values)
    db.execute("COMMIT")


def opened(file: Path) -> apsw.Connection:
    """An empty file with our schema and our settings."""
    create_store_file(file)
    return open_writer(file, None)


def each_commit(file: Path, commits: Iterable[Commit]) -> list[float]:
    """Seconds for each of the commits."""
    db = opened(file)
    taken = []
    for commit in commits:
        began = time.perf_counter()
        write(db, commit)
        taken.append(time.perf_counter() - began)
    db.close()
    return taken
