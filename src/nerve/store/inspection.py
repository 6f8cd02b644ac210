"""A check of everything in a store file: pages, hash chains, indexes and the rows of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, cast

import apsw

from nerve.errors import JournalBroken
from nerve.store import chain, migrations
from nerve.store.connection import open_reader
from nerve.store.port import Row, RunRow
from nerve.store.statements import SQL

MESSAGES = 100
"""How many messages of SQLite's own check are given."""

RESTORE = "Restore the file from a backup."
REINDEX = "Stop the server, then rebuild the indexes: sqlite3 {file} REINDEX"

RUN_INDEXES = {
    "runs_by_state": "find_run_by_state",
    "runs_by_start": "find_run_by_start",
    "runs_by_key": "find_run_by_key",
    "runs_by_conversation": "find_run_by_conversation",
    "runs_by_label": "find_run_by_label",
}
"""The indexes of runs, and the statement that finds a run by each, if it is in it."""

CompareRow = Callable[[RunRow, Row, Row], Iterable[str]]
"""What is wrong with the row of a run, by the first and the last event of its journal."""


class Damage(NamedTuple):
    """One thing that is wrong with a store, and with which run."""

    run: str | None
    message: str
    fix: str


class Inspection:
    """Checks a file through a connection that only reads, also while a server writes to it.

    It holds one event in memory at a time, and each run is read as it is at one moment.
    """

    def __init__(self, file: Path, compare_row: CompareRow) -> None:
        self.file, self._compare_row = file, compare_row
        self.runs = self.events = 0
        """How many were checked so far."""

    def find_damage(self) -> Iterator[Damage]:
        with closing(open_reader(self.file, None)) as db:
            migrations.check(db, self.file)
            yield from self._check_pages(db)
            yield from self._guarded(None, self._check_runs(db))
            yield from self._guarded(None, self._check_strays(db))

    def _check_pages(self, db: apsw.Connection) -> Iterator[Damage]:
        try:
            messages = [text for (text,) in db.execute(SQL["integrity_check"].format(MESSAGES))]
        except apsw.Error as error:
            messages = [str(error)]
        for message in messages:
            if message != "ok":
                index = "index" in message
                yield Damage(None, message, REINDEX.format(file=self.file) if index else RESTORE)

    def _check_runs(self, db: apsw.Connection) -> Iterator[Damage]:
        after: str | None = ""
        while (after := db.execute(SQL["select_next_run"], (after,)).get) is not None:
            self.runs += 1
            with db:  # at one moment, though a server may write
                yield from self._guarded(after, self._check_run(db, after))

    def _check_strays(self, db: apsw.Connection) -> Iterator[Damage]:
        """Journals whose run is not in the table of runs: no list shows them, and none is recovered."""
        after: str | None = ""
        while (after := db.execute(SQL["select_next_journal"], (after,)).get) is not None:
            with db:
                known = db.execute(SQL["select_reach"], (after,)).get is not None
                if not known and db.execute(SQL["select_is_deleted"], (after,)).get is None:
                    yield Damage(after, "it has a journal, and is missing from the table of runs", RESTORE)

    def _guarded(self, run: str | None, found: Iterator[Damage]) -> Iterator[Damage]:
        """What cannot be read at all is damage, too, and ends only this part of the check."""
        try:
            yield from found
        except JournalBroken as error:
            yield Damage(run, f"event {error.seq} is not what was written", RESTORE)
        except (apsw.Error, UnicodeDecodeError) as error:
            yield Damage(run, f"it cannot be read: {error}", RESTORE)

    def _check_run(self, db: apsw.Connection, run: str) -> Iterator[Damage]:
        *columns, reach = db.execute(SQL["select_whole_run"], (run,)).fetchone() or (None,)
        if not columns:
            return  # it was deleted since its name was read
        row = RunRow(*columns)
        yield from self._check_indexes(db, row)
        if row.definition is not None and db.execute(SQL["has_definition"], (row.definition,)).get is None:
            yield Damage(run, f"its definition {row.definition} is missing", RESTORE)
        first: Row | None = None
        last: Row | None = None
        stored = db.execute(SQL["select_events"], (run, 0, 2**62))
        with closing(stored):
            rows = cast("Iterator[chain.Stored]", stored)
            for last in chain.verify(run, 0, rows, lambda hash: _blob(db, hash), reach or 0):
                first = first or last
                self.events += 1
                yield from self._check_settled(db, run, last)
        if first is not None and last is not None:
            for problem in self._compare_row(row, first, last):
                yield Damage(run, problem, RESTORE)

    def _check_indexes(self, db: apsw.Connection, row: RunRow) -> Iterator[Damage]:
        for index, name in RUN_INDEXES.items():
            if db.execute(SQL[name], row._asdict()).get is None:
                message = (
                    f"it is missing from the index {index}, so it may be left out of lists and of recovery"
                )
                yield Damage(row.run, message, REINDEX.format(file=self.file))

    def _check_settled(self, db: apsw.Connection, run: str, event: Row) -> Iterator[Damage]:
        if event.settles is None or db.execute(SQL["find_settling"], (run, event.settles)).get == event.seq:
            return
        message = (
            f"event {event.seq} is missing from the index events_settled, so its path could be settled twice"
        )
        yield Damage(run, message, REINDEX.format(file=self.file))


def _blob(db: apsw.Connection, hash: bytes) -> bytes | None:
    return cast("bytes | None", db.execute(SQL["select_blob"], (hash,)).get)
