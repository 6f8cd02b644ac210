"""The slots and rate limits of providers that the processes of a session share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import psycopg

from nerve.errors import StoreError
from nerve.store.postgres_connection import (
    DISCONNECTED,
    POSTGRES_SQL,
    Connection,
    close_connection,
    connect,
    parse_address,
    to_store_error,
)
from nerve.store.postgres_migrations import migrate

T = TypeVar("T")


class PostgresSlots:
    """Slots with a lease, so that those of a process that is gone become free; callable from any thread."""

    def __init__(self, url: str, session: str) -> None:
        self._address, self._session = parse_address(url), session
        self._lock = threading.Lock()
        self._db: Connection | None = None
        self._is_closed = False

    def take(self, provider: str, slot: str, number: int, lease: float) -> bool:
        """Take a slot for some seconds if fewer than `number` are taken, and return whether it was."""
        values = {
            "session": self._session,
            "provider": provider,
            "slot": slot,
            "number": number,
            "lease": lease,
        }

        def take(db: Connection) -> bool:
            with db.transaction():
                db.execute(POSTGRES_SQL["lock_provider_slots"], values)
                db.execute(POSTGRES_SQL["delete_expired_slots"], values)
                return db.execute(POSTGRES_SQL["insert_provider_slot"], values).fetchone() is not None

        return self._execute(take)

    def renew(self, slots: Sequence[str], lease: float) -> set[str]:
        """Keep slots for some more seconds; return those that were not lost."""
        values = {"session": self._session, "slots": list(slots), "lease": lease}
        renewed = self._execute(
            lambda db: db.execute(POSTGRES_SQL["renew_provider_slots"], values).fetchall()
        )
        return {slot for (slot,) in renewed}

    def release(self, slot: str) -> None:
        self._execute(lambda db: db.execute(POSTGRES_SQL["delete_provider_slot"], (self._session, slot)))

    def limited_until(self, provider: str) -> float:
        """Return when the rate limit of a provider ends, as a Unix timestamp; 0 if it has none."""
        values = (self._session, provider)
        row = self._execute(lambda db: db.execute(POSTGRES_SQL["select_provider_limit"], values).fetchone())
        return float(row[0]) if row is not None else 0.0

    def share_limit(self, provider: str, until: float) -> None:
        """Store when the rate limit of a provider ends; 0 if it has ended."""
        values = (self._session, provider, until)
        self._execute(lambda db: db.execute(POSTGRES_SQL["upsert_provider_limit"], values))

    def read_usage(self) -> dict[str, tuple[int, float]]:
        """Return for each provider how many slots are taken, and when its rate limit ends or has ended."""
        values = {"session": self._session}
        rows = self._execute(lambda db: db.execute(POSTGRES_SQL["select_slot_usage"], values).fetchall())
        return {provider: (int(busy), float(until)) for provider, busy, until in rows}

    def _execute(self, execute: Callable[[Connection], T]) -> T:
        """Execute on the connection; on the next call there is a new one if it was lost."""
        with self._lock:
            if self._is_closed:
                raise StoreError(f"{self._address} was closed")
            try:
                if self._db is None:
                    self._db = connect(self._address)
                    migrate(self._db, self._address)
                return execute(self._db)
            except psycopg.Error as error:
                if self._db is not None and isinstance(error, DISCONNECTED):
                    close_connection(self._db)
                    self._db = None
                raise to_store_error(self._address, error) from error

    def close(self) -> None:
        """Close the connection; can be repeated."""
        with self._lock:
            self._is_closed = True
            if self._db is not None:
                close_connection(self._db)
                self._db = None
