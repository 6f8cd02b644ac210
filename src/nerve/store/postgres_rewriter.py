"""Changes to the payloads of a store in PostgreSQL, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from nerve.store import hash_chain
from nerve.store.hash_chain import FIRST_HASH
from nerve.store.port import MAX_SEQ, EventRow
from nerve.store.postgres_connection import POSTGRES_SQL, Connection
from nerve.store.reencoding import TABLES, PayloadTable, Recode, recode_event

FIRST_KEYS: dict[str, tuple[object, ...]] = {
    "summary": ("",),
    "definition": ("",),
    "fact": ("", ""),
    "message": ("", -1),
    "reply": ("", ""),
    "wait": ("", ""),
    "command": ("",),
}
"""A key of each table that is before all others."""


def recode_command(recode: Recode, id: str, arguments: str, caller: str, reply: str) -> tuple[str, ...]:
    return recode(arguments, "command", id), recode(caller, "caller", id), recode(reply, "reply", id)


class PostgresRewriter:
    """The payloads in the transaction of a connection."""

    tables: ClassVar[Sequence[PayloadTable]] = (*TABLES, PayloadTable("command", 1, recode_command))

    def __init__(self, db: Connection) -> None:
        self._db = db

    def next_journal(self, after: Any) -> tuple[Any, str] | None:
        row = self._db.execute(POSTGRES_SQL["select_next_journal"], (after or "",)).fetchone()
        return None if row is None else (row[0], row[0])

    def rewrite_journal(self, key: Any, run: str, recode: Recode) -> int:
        values = {"run": run, "after": 0, "last": MAX_SEQ}
        rows = self._db.execute(POSTGRES_SQL["select_events"], values).fetchall()
        stored = [(EventRow(*row[:6]), row[6], row[7]) for row in rows if row[0] is not None]
        reach = rows[0][8] or 0
        changed, previous, changes = 0, FIRST_HASH, []
        verified = hash_chain.verify_events(run, 0, stored, reach)
        for event, (_, emptied, _) in zip(verified, stored, strict=True):
            text, digest = event.data, emptied
            if emptied is None:
                text, digest = recode_event(run, event, recode)
                changed += text != event.data
            previous = hash_chain.hash_row(previous, run, event, digest)
            changes.append((text, previous, run, event.seq))
        if changed:
            self._db.cursor().executemany(POSTGRES_SQL["update_event_data"], changes)
        return changed

    def select_payloads(self, table: str, after: Sequence[object] | None) -> list[tuple[Any, ...]]:
        key = tuple(after or FIRST_KEYS[table])
        rows = self._db.execute(POSTGRES_SQL[f"select_{table}_payloads"], key).fetchall()
        # Messages are bytes, because they may have zero bytes.
        return [tuple(each.decode() if isinstance(each, bytes) else each for each in row) for row in rows]

    def update_payloads(self, table: str, values: Sequence[object]) -> None:
        self._db.execute(POSTGRES_SQL[f"update_{table}_payloads"], values)
