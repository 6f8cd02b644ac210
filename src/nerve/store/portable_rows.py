"""The content of a store as rows that do not depend on the kind of the store, and the copy of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple, Protocol, TypeAlias

from nerve.errors import StoreFailed
from nerve.store.port import RunRow

Row: TypeAlias = tuple[Any, ...]


class PortableTable(NamedTuple):
    """A table of all stores; its rows are compared by their first columns."""

    name: str
    columns: tuple[str, ...]
    compared: int | None = None


EVENTS = PortableTable(
    "events", ("run", "seq", "hash", "at", "type", "path", "settles", "data", "emptied"), compared=3
)
"""The events in the order in which they were written; `emptied` is the digest of the data before it was
emptied. The hash stands for the other columns: the hash chain of each journal is verified."""

RUNS = PortableTable("runs", (*RunRow._fields, "seq"))
"""The runs; `seq` is the last event that the journal is known to have."""

TABLES = (
    EVENTS,
    RUNS,
    PortableTable("definitions", ("hash", "workflow", "notation", "source", "canonical")),
    PortableTable("tags", ("run", "kind", "name", "value", "session", "started")),
    PortableTable("patches", ("session", "name", "workflow", "since")),
    PortableTable("waits", ("run", "path", "session", "kind", "since", "data")),
    PortableTable("facts", ("session", "id", "version", "at", "asserted_by", "record")),
    PortableTable("fact_versions", ("session", "version")),
    PortableTable("replies", ("session", "key", "at", "asked", "reply")),
    PortableTable("messages", ("conversation", "seq", "at", "role", "text", "run")),
    PortableTable("people", ("session", "number", "at", "name", "data", "hash")),
    PortableTable("usage", ("session", "day", "model", "name", "amount")),
    PortableTable("step_usage", ("session", "day", "workflow", "step", "model", "name", "amount")),
    PortableTable("resumes", ("run", "times")),
    PortableTable("properties", ("name", "value")),
)
"""All tables. Other tables of a store are computed from these."""


class ReadableRows(Protocol):
    """The rows of a store in one snapshot."""

    def read(self, table: PortableTable) -> Iterator[Row]:
        """Yield the events in the order in which they were written, and other rows ordered by their key."""


class WritableRows(ReadableRows, Protocol):
    """The rows of an empty store, in a transaction that is not committed yet."""

    def write(self, table: PortableTable, rows: Iterable[Row]) -> None: ...

    def verify_chains(self) -> None:
        """Compute the hash chain of every journal again; raise JournalBroken for one that differs."""


def copy_rows(source: ReadableRows, target: WritableRows) -> dict[str, int]:
    """Copy all rows and verify the copy; return the number of rows of each table."""
    counts: dict[str, int] = {}
    for table in TABLES:
        read, written = RowsDigest(table), RowsDigest(table)
        target.write(table, read.add_all(source.read(table)))
        for _ in written.add_all(target.read(table)):
            pass
        if written.result() != read.result():
            raise StoreFailed(
                f"The {written.count} rows of {table.name} in the copy differ from the {read.count} rows that"
                " were read. Repeat the command."
            )
        counts[table.name] = read.count
    target.verify_chains()
    return counts


class RowsDigest:
    """A digest of rows in their order, to compare them without keeping them."""

    def __init__(self, table: PortableTable) -> None:
        self.count = 0
        self._compared = table.compared
        self._hash = sha256()

    def add_all(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows, and add each to the digest."""
        for row in rows:
            self.count += 1
            # An integer that a store keeps as a float is the same amount, and 0.0 the same as -0.0.
            compared = [
                value + 0.0 if isinstance(value, int | float) else value for value in row[: self._compared]
            ]
            self._hash.update(f"{compared!r}\n".encode())
            yield row

    def result(self) -> tuple[int, bytes]:
        return self.count, self._hash.digest()
