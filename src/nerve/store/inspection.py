"""Check a complete store file: pages, hash chains, indexes and the rows of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, cast

import apsw

from nerve.codec import is_encoded
from nerve.errors import JournalBroken, JournalUnreadable
from nerve.store import hash_chain, migrations
from nerve.store.port import EventRow, RunRow
from nerve.store.sqlite_connection import open_reader
from nerve.store.statements import SQL
from nerve.store.stored_rows import StoredRow

MAX_MESSAGES = 100
"""Maximum number of messages of SQLite's own check."""

RESTORE_FIX = "Restore the file from a backup."
REINDEX_FIX = "Stop the server, then rebuild the indexes: sqlite3 {file} REINDEX"

RUN_INDEXES = {
    "journals": "find_journal",
    "runs_by_state": "find_run_by_state",
    "runs_by_start": "find_run_by_start",
    "runs_by_key": "find_run_by_key",
    "runs_by_conversation": "find_run_by_conversation",
    "runs_by_label": "find_run_by_label",
}
"""The indexes that lead to a run, and the statement that finds a run through each."""

CompareRow = Callable[[RunRow, EventRow, EventRow], Iterable[str]]
"""Finds problems in the row of a run, given the first and the last event of its journal."""

DecodeEvent = Callable[[str, EventRow], EventRow]
"""Returns an event of a run as it was before a codec encoded it; raises `JournalUnreadable`."""


class StoreDamage(NamedTuple):
    """One problem of a store, and the run it affects."""

    run: str | None
    message: str
    fix: str


class StoreInspection:
    """Checks a file through a read-only connection, even while a server writes to it.

    It holds one event in memory at a time, and reads each run in one snapshot.
    """

    def __init__(self, file: Path, compare_row: CompareRow, decode_event: DecodeEvent | None = None) -> None:
        self.file, self._compare_row, self._decode_event = file, compare_row, decode_event
        self.run_count = self.event_count = self.encoded_count = 0
        """Number of runs and events checked so far, and of events whose content could not be checked."""

    def find_damage(self) -> Iterator[StoreDamage]:
        with closing(open_reader(self.file, None)) as db:
            migrations.check_store_version(db, self.file)
            yield from self._check_pages(db)
            yield from self._report_unreadable(None, self._check_runs(db))
            yield from self._report_unreadable(None, self._check_strays(db))

    def _check_pages(self, db: apsw.Connection) -> Iterator[StoreDamage]:
        try:
            messages = [text for (text,) in db.execute(SQL["integrity_check"].format(MAX_MESSAGES))]
        except apsw.Error as error:
            messages = [str(error)]
        for message in messages:
            if message != "ok":
                is_index = "index" in message
                yield StoreDamage(
                    None, message, REINDEX_FIX.format(file=self.file) if is_index else RESTORE_FIX
                )

    def _check_runs(self, db: apsw.Connection) -> Iterator[StoreDamage]:
        row: tuple[int, str] | None = (0, "")
        while row is not None:
            row = cast("tuple[int, str] | None", db.execute(SQL["select_next_run"], (row[0],)).fetchone())
            if row is not None:
                self.run_count += 1
                with db:  # one snapshot, though a server may write
                    yield from self._report_unreadable(row[1], self._check_run(db, *row))

    def _check_strays(self, db: apsw.Connection) -> Iterator[StoreDamage]:
        """Find journals without a row in the runs table: lists and recovery do not see them."""
        after: int | None = 0
        while (after := db.execute(SQL["select_next_journal"], (after,)).get) is not None:
            with db:
                run, is_known = db.execute(SQL["select_run_of_journal"], (after,)).fetchone() or (None, 1)
                if run is None or not is_known:
                    message = "it has a journal but is missing from the runs table"
                    yield StoreDamage(cast("str | None", run), message, RESTORE_FIX)

    def _report_unreadable(self, run: str | None, damages: Iterator[StoreDamage]) -> Iterator[StoreDamage]:
        """Report data that cannot be read as damage, which ends only this part of the check."""
        try:
            yield from damages
        except JournalUnreadable as error:
            yield StoreDamage(run, f"event {error.seq} cannot be decoded", error.reason)
        except JournalBroken as error:
            yield StoreDamage(run, f"event {error.seq} is not what was written", RESTORE_FIX)
        except (apsw.Error, UnicodeDecodeError) as error:
            yield StoreDamage(run, f"cannot be read: {error}", RESTORE_FIX)

    def _check_run(self, db: apsw.Connection, id: int, run: str) -> Iterator[StoreDamage]:
        *columns, reach = db.execute(SQL["select_whole_run"], (id,)).fetchone() or (None,)
        if not columns:
            return  # deleted since its id was read
        row = RunRow(*columns)
        yield from self._check_indexes(db, id, row)
        if row.definition is not None and db.execute(SQL["has_definition"], (row.definition,)).get is None:
            yield StoreDamage(run, f"its definition {row.definition} is missing", RESTORE_FIX)
        first: EventRow | None = None
        last: EventRow | None = None
        settled_paths: dict[str, int] = {}
        stored = db.execute(SQL["select_events"], (id, 0, 2**62))
        with closing(stored):
            rows = cast("Iterator[StoredRow]", stored)
            for event in hash_chain.verify_rows(run, 0, rows, lambda hash: _read_blob(db, hash), reach or 0):
                last = event if self._decode_event is None else self._decode_event(run, event)
                first = first or last
                self.event_count += 1
                self.encoded_count += is_encoded(last.data)
                if last.settles is not None and settled_paths.setdefault(last.settles, last.seq) != last.seq:
                    settled_by = settled_paths[last.settles]
                    message = f"events {settled_by} and {last.seq} both settle {last.settles}"
                    yield StoreDamage(run, message, RESTORE_FIX)
        if first is not None and last is not None and not is_encoded(first.data):
            for problem in self._compare_row(row, first, last):
                yield StoreDamage(run, problem, RESTORE_FIX)

    def _check_indexes(self, db: apsw.Connection, id: int, row: RunRow) -> Iterator[StoreDamage]:
        for index, name in RUN_INDEXES.items():
            if db.execute(SQL[name], {"id": id, **row._asdict()}).get is None:
                message = f"it is missing from the index {index}, so lists and recovery may skip it"
                yield StoreDamage(row.run, message, REINDEX_FIX.format(file=self.file))


def _read_blob(db: apsw.Connection, hash: bytes) -> bytes | None:
    return cast("bytes | None", db.execute(SQL["select_blob"], (hash,)).get)
