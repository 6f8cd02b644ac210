"""Changes to the payloads of a store file, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from nerve.store import hash_chain
from nerve.store.hash_chain import EMPTIED_MARK, FIRST_HASH
from nerve.store.port import MAX_INLINE_BYTES, MAX_SEQ
from nerve.store.reencoding import TABLES, PayloadTable, Recode, recode_event
from nerve.store.sqlite_writer import Execute
from nerve.store.statements import SQL, statement_for_rows
from nerve.store.stored_rows import StoredRow, abbreviate_data

FIRST_KEYS: dict[str, tuple[object, ...]] = {
    "summary": (0,),
    "definition": ("",),
    "fact": ("", ""),
    "message": ("", -1),
    "reply": ("", ""),
    "wait": ("", ""),
}
"""A key of each table that is before all others."""


class SqliteRewriter:
    """The payloads in the transaction of `execute`."""

    tables: ClassVar[Sequence[PayloadTable]] = TABLES

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    def next_journal(self, after: Any) -> tuple[Any, str] | None:
        row = self._execute(SQL["select_next_named_journal"], (after or 0,)).fetchone()
        return cast("tuple[int, str] | None", row)

    def rewrite_journal(self, key: Any, run: str, recode: Recode) -> int:
        execute, id = self._execute, key
        stored = cast("list[StoredRow]", execute(SQL["select_events"], (id, 0, MAX_SEQ)).fetchall())
        verified = iter(
            hash_chain.verify_rows(run, 0, stored, lambda hash: execute(SQL["select_blob"], (hash,)).get)
        )
        changes: list[tuple[object, ...]] = []
        changed, previous = 0, FIRST_HASH
        old_blobs: list[bytes] = []
        for row in stored:
            seq, stored_data, first_data, is_joined = row[0], row[5], row[11], row[8] is not None
            if is_joined:
                event = next(verified)
                text, digest = recode_event(run, event, recode)
                changed += text != event.data
                first_data = abbreviate_data(event.type, text)
                previous = hash_chain.hash_row(previous, run, event, digest)
            event = next(verified)
            if isinstance(stored_data, bytes) and len(stored_data) == len(EMPTIED_MARK + FIRST_HASH):
                digest = stored_data[len(EMPTIED_MARK) :]
            else:
                text, digest = recode_event(run, event, recode)
                if text != event.data:
                    changed += 1
                    if isinstance(stored_data, bytes):
                        old_blobs.append(stored_data)
                    is_large = len(data := text.encode()) > MAX_INLINE_BYTES
                    if is_large:
                        execute(statement_for_rows("insert_blobs", 2, 1), (digest, data))
                    stored_data = digest if is_large else abbreviate_data(event.type, text)
            previous = hash_chain.hash_row(previous, run, event, digest)
            changes.append((stored_data, first_data, previous, id, seq))
        if changed:
            for change in changes:
                execute(SQL["update_event_data"], change)
            for hash in old_blobs:
                execute(SQL["delete_blob"], (hash,))
        return changed

    def select_payloads(self, table: str, after: Sequence[object] | None) -> list[tuple[Any, ...]]:
        key = tuple(after or FIRST_KEYS[table])
        return cast("list[tuple[Any, ...]]", self._execute(SQL[f"select_{table}_payloads"], key).fetchall())

    def update_payloads(self, table: str, values: Sequence[object]) -> None:
        self._execute(SQL[f"update_{table}_payloads"], tuple(values))
