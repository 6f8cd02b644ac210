"""The rows of a SQLite store file: read in one snapshot, or written to a new file."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import apsw

from nerve.errors import JournalBroken, StoreError, StoreFailed
from nerve.store.hash_chain import EMPTIED_MARK, FIRST_HASH, hash_data, hash_row, restore_event, verify_rows
from nerve.store.port import MAX_INLINE_BYTES, MAX_SEQ
from nerve.store.portable_rows import EVENTS, PortableTable, Row
from nerve.store.statements import SQL, statement_for_rows
from nerve.store.stored_rows import MARKS, OWN_PATH, TYPE_CODES, StoredRow, abbreviate_data

_TABLES_BY_JOURNAL = frozenset({"runs", "tags"})
"""Tables whose first column is the journal of a run."""


class SqliteRows:
    """The rows of the file of a connection, which is in a transaction."""

    def __init__(self, db: apsw.Connection, file: Path) -> None:
        self._db, self._file = db, file
        self._journals: dict[str, int] = {}

    def read(self, table: PortableTable) -> Iterator[Row]:
        with translate_read_errors(self._file):
            rows = self._db.execute(SQL[f"select_copied_{table.name}"])
            if table is EVENTS:
                yield from self._read_events(rows)
            else:
                yield from map(_property_as_text, rows) if table.name == "properties" else rows

    def _read_events(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[Row]:
        for run, seq, hash, *columns, previous in rows:
            last, first = columns[:5], columns[5:]
            try:
                if first[1] is not None:
                    event, digest = restore_event(seq - 1, self._read_blob, *first)
                    first_hash = hash_row(previous or FIRST_HASH, run, event, digest)
                    yield run, seq - 1, first_hash, *event[1:], None
                event, digest = restore_event(seq, self._read_blob, *last)
            except (UnicodeDecodeError, TypeError, ValueError, struct.error):
                raise JournalBroken(run, seq) from None
            is_emptied = isinstance(last[4], bytes) and len(last[4]) == len(EMPTIED_MARK + FIRST_HASH)
            yield run, seq, hash, *event[1:], digest if is_emptied else None

    def _read_blob(self, hash: bytes) -> bytes | None:
        return cast("bytes | None", self._db.execute(SQL["select_blob"], (hash,)).get)

    def write(self, table: PortableTable, rows: Iterable[Row]) -> None:
        if table is EVENTS:
            self._db.cursor().executemany(SQL["insert_copied_event"], map(self._store_event, rows))
            return
        if table.name == "properties":
            self._db.execute(SQL["delete_properties"])  # those of a new file
        if table.name in _TABLES_BY_JOURNAL:
            rows = ((self._journal_of(run), *values) for run, *values in rows)
        self._db.cursor().executemany(SQL[f"insert_copied_{table.name}"], rows)

    def _store_event(self, row: Row) -> Row:
        run, seq, hash, at, type, path, settles, text, emptied = row
        settled = OWN_PATH if settles == path else settles
        data: str | bytes
        if emptied is not None:
            data = EMPTIED_MARK + emptied
        elif len(content := text.encode()) > MAX_INLINE_BYTES or text[:1] in MARKS:
            data = hash_data(content)
            self._db.execute(statement_for_rows("insert_blobs", 2, 1), (data, content))
        else:
            data = abbreviate_data(type, text)
        return self._journal_of(run), seq, hash, at, TYPE_CODES.get(type, type), path, settled, data

    def _journal_of(self, run: str) -> int:
        """Return the id of the journal of a run, which is created if it is new."""
        id = self._journals.get(run)
        if id is None:
            id = self._journals[run] = cast("int", self._db.execute(SQL["insert_copied_journal"], (run,)).get)
        return id

    def verify_chains(self) -> None:
        for id, run, reach in self._db.execute(SQL["select_copied_journals"]):
            rows = cast("Iterator[StoredRow]", self._db.execute(SQL["select_events"], (id, 0, MAX_SEQ)))
            for _ in verify_rows(run, 0, rows, self._read_blob, reach or 0):
                pass


def _property_as_text(row: tuple[Any, ...]) -> Row:
    name, value = row
    return name, value if isinstance(value, str) else repr(value)


@contextmanager
def translate_read_errors(file: Path) -> Iterator[None]:
    """Translate the errors of reading a file that may be any file."""
    try:
        yield
    except apsw.NotADBError:
        raise StoreError(f"{file} is not a store of Nerve. Use another file.") from None
    except (apsw.Error, UnicodeDecodeError) as error:
        raise damage_error(file, str(error)) from None


def damage_error(file: Path, problem: str) -> StoreFailed:
    return StoreFailed(f"{file} is damaged or not complete: {problem}. Use a backup.")
