"""The facts of a session in one transaction, and what the runs of a cluster wait for among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nerve.store.port import Append, FactRow, ReplyRow
from nerve.store.postgres_connection import POSTGRES_SQL, Connection
from nerve.store.postgres_writer import AppendGroup


class FactWatch(NamedTuple):
    """A wait of a run for a fact; the texts are JSON."""

    run: str
    path: str
    family: str
    """The run whose workflow executes the run."""
    patterns: str
    keys: Sequence[str]
    """Index keys of facts: one that matches has one of them."""
    match: str | None = None
    """The first fact that matched, which the run may not know yet."""


class PostgresFacts:
    """The facts of a session, as long as a transaction lasts in which no other process changes them."""

    def __init__(self, db: Connection, session: str) -> None:
        self._db, self._session = db, session

    def version(self) -> int:
        """Return the number of the last change."""
        row = self._db.execute(POSTGRES_SQL["select_fact_version"], (self._session,)).fetchone()
        return 0 if row is None else int(row[0])

    def facts(self, ids: Sequence[str], labels: Sequence[str]) -> list[FactRow]:
        """Return the facts with one of the ids or labels."""
        values = {"session": self._session, "ids": list(ids), "labels": list(labels)}
        return [FactRow(*row) for row in self._db.execute(POSTGRES_SQL["select_facts_of"], values)]

    def all_facts(self) -> list[FactRow]:
        values = {"session": self._session, "label": None}
        return [FactRow(*row) for row in self._db.execute(POSTGRES_SQL["select_facts"], values)]

    def write(self, rows: Sequence[FactRow], reply: ReplyRow | None) -> None:
        """Store changes of facts, and the reply to the request for them."""
        group = AppendGroup({})
        group.add_all([Append("", 0, (), facts=rows, replies=[] if reply is None else [reply])])
        group.write(self._db)

    # -- waits ---------------------------------------------------------------------------------

    def watch(self, watch: FactWatch) -> None:
        """Store a wait, unless its run has ended; it replaces an earlier one at its path."""
        values = {**watch._asdict(), "keys": list(watch.keys), "session": self._session}
        self._db.execute(POSTGRES_SQL["upsert_fact_watch"], values)

    def find_watch(self, run: str, path: str) -> FactWatch | None:
        row = self._db.execute(POSTGRES_SQL["select_fact_watch"], (run, path)).fetchone()
        return None if row is None else FactWatch(*row)

    def open_watches(self, keys: Sequence[str]) -> list[FactWatch]:
        """Return the waits with one of the keys for which no fact has matched yet."""
        values = {"session": self._session, "keys": list(keys)}
        rows = self._db.execute(POSTGRES_SQL["select_fact_watches_of_keys"], values)
        return [FactWatch(*row) for row in rows]

    def settle(self, watch: FactWatch) -> None:
        """Store the match of a wait."""
        values = {"run": watch.run, "path": watch.path, "match": watch.match}
        self._db.execute(POSTGRES_SQL["settle_fact_watch"], values)

    def unwatch(self, run: str, path: str) -> None:
        """Delete a wait, unless a fact has matched."""
        self._db.execute(POSTGRES_SQL["delete_open_fact_watch"], (run, path))

    def matched_watches(self, age: float, limit: int) -> list[FactWatch]:
        """Return waits that matched some seconds ago and whose runs may not know it, oldest first."""
        values = {"session": self._session, "age": age, "limit": limit}
        rows = self._db.execute(POSTGRES_SQL["select_matched_fact_watches"], values)
        return [FactWatch(*row) for row in rows]

    def delete_matched(self, watches: Sequence[FactWatch]) -> None:
        """Delete waits whose runs know the match."""
        for watch in watches:
            values = {"run": watch.run, "path": watch.path, "match": watch.match}
            self._db.execute(POSTGRES_SQL["delete_matched_fact_watch"], values)
