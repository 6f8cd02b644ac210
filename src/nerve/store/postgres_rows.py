"""The rows of a store in PostgreSQL: read in one snapshot, or written to empty tables in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby

import psycopg

from nerve.errors import JournalBroken, StoreError, StoreFailed, StoreFull, StoreInUse
from nerve.store.hash_chain import verify_events
from nerve.store.port import EventRow
from nerve.store.portable_rows import PortableTable, Row
from nerve.store.postgres import to_number
from nerve.store.postgres_connection import (
    POSTGRES_SQL,
    Connection,
    PostgresAddress,
    close_connection,
    connect,
    parse_address,
    translate_postgres_errors,
)
from nerve.store.postgres_migrations import MIGRATIONS, migrate
from nerve.store.postgres_ownership import LEASE_S
from nerve.store.postgres_writer import fact_label

MAX_FETCHED_ROWS = 1000
"""Number of rows that are fetched from the server at once."""


class PostgresRows:
    """The rows that a connection sees, which is in a transaction."""

    def __init__(self, db: Connection, address: PostgresAddress) -> None:
        self._db, self._address = db, address

    def read(self, table: PortableTable) -> Iterator[Row]:
        convert = READ_CONVERSIONS.get(table.name)
        rows = self._select(f"select_copied_{table.name}")
        yield from rows if convert is None else map(convert, rows)

    def _select(self, name: str) -> Iterator[Row]:
        with translate_postgres_errors(self._address), self._db.cursor("rows") as cursor:
            cursor.itersize = MAX_FETCHED_ROWS
            yield from cursor.execute(POSTGRES_SQL[name])

    def write(self, table: PortableTable, rows: Iterable[Row]) -> None:
        convert = WRITE_CONVERSIONS.get(table.name)
        with translate_postgres_errors(self._address), self._db.cursor() as cursor:
            if table.name == "properties":
                cursor.execute(POSTGRES_SQL["delete_properties"])  # those of new tables
            with cursor.copy(POSTGRES_SQL[f"insert_copied_{table.name}"]) as copy:
                for row in rows:
                    try:
                        copy.write_row(row if convert is None else convert(row))
                    except (psycopg.DataError, UnicodeEncodeError) as error:
                        raise StoreFailed(
                            f"PostgreSQL cannot store a text of the row {row[:2]} of {table.name}: {error}."
                        ) from None

    def verify_chains(self) -> None:
        for error in self.find_broken_journals():
            raise error

    def find_broken_journals(self) -> Iterator[JournalBroken]:
        """Compute the hash chain of every journal again; yield an error for each that differs."""
        for (run, reach), rows in groupby(self._select("select_journals"), key=lambda row: row[:2]):
            events = ((EventRow(*row[2:8]), row[8], row[9]) for row in rows)
            try:
                for _ in verify_events(run, 0, events, reach or 0):
                    pass
            except JournalBroken as error:
                yield error
        for (run,) in self._select("select_runs_without_events"):
            yield JournalBroken(run, 1)

    def count(self) -> tuple[int, int]:
        """Return the numbers of runs and events."""
        [(runs, events)] = self._select("count_copied")
        return runs, events


def _message_from_bytes(row: Row) -> Row:
    *columns, text, run = row
    return *columns, text.decode(), run


def _message_to_bytes(row: Row) -> Row:
    *columns, text, run = row
    return *columns, text.encode(), run


def _amount_as_number(row: Row) -> Row:
    *columns, amount = row
    return *columns, to_number(amount)


READ_CONVERSIONS: dict[str, Callable[[Row], Row]] = {
    "messages": _message_from_bytes,
    "usage": _amount_as_number,
    "step_usage": _amount_as_number,
}
WRITE_CONVERSIONS: dict[str, Callable[[Row], Row]] = {
    "messages": _message_to_bytes,
    "facts": lambda row: (*row, fact_label(row[-1])),
}


@contextmanager
def read_database(url: str, *, while_owned: bool) -> Iterator[PostgresRows]:
    """Yield the rows of a store in one snapshot.

    Unless `while_owned`, no process owns a session of it, nor can one write to it meanwhile.
    """
    with _open_transaction(url, migrates=not while_owned) as (db, address):
        if not while_owned:
            _lock_owners(db, address)
        yield PostgresRows(db, address)


@contextmanager
def write_database(url: str) -> Iterator[PostgresRows]:
    """Yield the rows of empty tables; they are committed at the end if nothing failed."""
    with _open_transaction(url, creates=True, migrates=True) as (db, address):
        _lock_owners(db, address)
        if db.execute(POSTGRES_SQL["has_rows"]).fetchone() != (False,):
            raise StoreError(f"{address} has a store already. Use another schema: ?schema=NAME")
        yield PostgresRows(db, address)


@contextmanager
def _open_transaction(
    url: str, *, migrates: bool, creates: bool = False
) -> Iterator[tuple[Connection, PostgresAddress]]:
    address = parse_address(url)
    with _translate_copy_errors(address):
        db = connect(address)
        try:
            has_tables = db.execute(POSTGRES_SQL["select_version_table"]).fetchone() == (True,)
            if not (has_tables or creates):
                raise StoreError(f"{address} has no store. Check the URL.")
            if migrates:
                migrate(db, address)
            else:
                _check_version(db, address)
            # The server would end the transaction while the other store is read or verified.
            db.execute("SET idle_in_transaction_session_timeout = 0")
            db.execute("SET lock_timeout = '30s'")
            db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            with db.transaction():
                yield db, address
        finally:
            close_connection(db)


def _check_version(db: Connection, address: PostgresAddress) -> None:
    """Raise StoreError for tables of another version, which the process that owns them may still need."""
    [version] = db.execute(POSTGRES_SQL["select_version"]).fetchone() or (0,)
    if version != len(MIGRATIONS):
        raise StoreError(
            f"{address} has version {version}, but this Nerve reads version {len(MIGRATIONS)}. Use the Nerve"
            " of its server, or start a server with this one."
        )


@contextmanager
def _translate_copy_errors(address: PostgresAddress) -> Iterator[None]:
    try:
        with translate_postgres_errors(address):
            yield
    except StoreFull:
        raise StoreFull(f"{address} cannot be written: the disk is full") from None


def _lock_owners(db: Connection, address: PostgresAddress) -> None:
    """Keep other processes from owning a session and from committing; StoreInUse if one owns a session."""
    db.execute(POSTGRES_SQL["lock_owners"])
    for session, owner in db.execute(POSTGRES_SQL["select_live_owners"], (LEASE_S,)).fetchall():
        raise StoreInUse(f"Session {session!r} in {address}", None, owner)
