"""A transaction: everything in it is written, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import apsw


class Transaction:
    """An IMMEDIATE transaction: one that asks for the write lock later does not wait its turn."""

    __slots__ = ("_db", "_execute")

    def __init__(self, db: apsw.Connection, execute: Callable[..., apsw.Cursor] | None = None) -> None:
        self._db = db
        self._execute = execute or db.cursor().execute

    def __enter__(self) -> Callable[..., apsw.Cursor]:
        self._execute("BEGIN IMMEDIATE")
        return self._execute

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                self._execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._execute("ROLLBACK")
