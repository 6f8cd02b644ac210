"""Ownership of a session in PostgreSQL: one process, known by an epoch, alive while it renews its lease."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable

import psycopg

from nerve.errors import OwnershipLost, StoreInUse
from nerve.store.postgres_connection import (
    POSTGRES_SQL,
    Connection,
    PostgresAddress,
    close_connection,
    connect,
    lost_ownership_error,
    to_store_error,
)

log = logging.getLogger("nerve")

LOCK_SPACE = 1315271286
"""The first number of the advisory locks of Nerve: "Nerv" as a number. The second one is of the session."""

LEASE_S = 5.0
"""Seconds after the last renewal after which another process may take over the session."""

RENEWAL_INTERVAL_S = 1.0


class SessionOwnership:
    """Claims a session, and renews the lease in a thread until `release` or the death of the process.

    Every commit checks the epoch in its transaction, so a process that has lost the session cannot write,
    whatever it believes. The lease only decides when another one may try.
    """

    def __init__(self, address: PostgresAddress, session: str) -> None:
        """Raise StoreInUse if another process owns the session and is alive."""
        self.session, self._address = session, address
        self._is_released = threading.Event()
        self._loss_lock = threading.Lock()
        self._error: OwnershipLost | None = None
        self._on_lost: Callable[[OwnershipLost], None] | None = None
        db = connect(address)
        try:
            with db.transaction():
                self.epoch = self._claim(db)
        except BaseException:
            close_connection(db)
            raise
        self._db: Connection | None = db
        self._is_locked = True
        self._thread = threading.Thread(target=self._renew_until_released, name="nerve-lease", daemon=True)
        self._thread.start()

    def _claim(self, db: Connection) -> int:
        """Return the epoch of this process, from which on all others are refused."""
        # One claim at a time: the second process finds the new lease of the first.
        db.execute(POSTGRES_SQL["lock_claims"], (LOCK_SPACE, self.session))
        values = {"session": self.session, "lease": LEASE_S, "owner": describe_process()}
        owner, is_expired = db.execute(POSTGRES_SQL["select_owner"], values).fetchone() or ("", True)
        if not is_expired:
            raise StoreInUse(f"Session {self.session!r} in {self._address}", None, owner)
        if not self._try_lock(db):
            # The owner is stopped or cut off: its connection holds the lock, but it renews no lease.
            db.execute(POSTGRES_SQL["terminate_session_lock_holder"], (LOCK_SPACE, self.session))
            if not self._try_lock(db):
                raise StoreInUse(f"Session {self.session!r} in {self._address}", None, owner)
        [epoch] = db.execute(POSTGRES_SQL["claim_session"], values).fetchone() or (0,)
        db.execute(POSTGRES_SQL["start_lease"], values)
        return int(epoch)

    def _try_lock(self, db: Connection) -> bool:
        row = db.execute(POSTGRES_SQL["try_session_lock"], (LOCK_SPACE, self.session)).fetchone()
        return bool(row and row[0])

    def check(self) -> None:
        """Raise OwnershipLost if another process has taken over the session."""
        if self._error is not None:
            raise self._error

    def watch(self, on_lost: Callable[[OwnershipLost], None]) -> None:
        """Call a function, in the thread of the lease, when another process has taken over the session."""
        self._on_lost = on_lost
        if self._error is not None:
            on_lost(self._error)

    def _renew_until_released(self) -> None:
        while not self._is_released.wait(RENEWAL_INTERVAL_S):
            try:
                is_owner = self._renew()
            except psycopg.Error as error:
                if self._db is not None:  # once: the next attempts fail for the same reason
                    log.warning("%s", to_store_error(self._address, error))
                self._disconnect()
                continue
            if not is_owner:
                self.report_loss()
                self._disconnect()
                return

    def _renew(self) -> bool:
        """Renew the lease and, on a new connection, the lock; return whether this process is the owner."""
        if self._db is None:
            self._db, self._is_locked = connect(self._address), False
        if not self._is_locked:
            # The server may not have noticed yet that the old connection, which has the lock, is gone.
            self._is_locked = self._try_lock(self._db)
        values = {"session": self.session, "epoch": self.epoch}
        return self._db.execute(POSTGRES_SQL["renew_lease"], values).fetchone() is not None

    def report_loss(self, error: OwnershipLost | None = None) -> None:
        """Note that another process has taken over the session, and call the function of `watch` once."""
        with self._loss_lock:
            if self._error is not None:
                return
            self._error = error or lost_ownership_error(self._address)
        log.error("%s", self._error)
        if self._on_lost is not None:
            self._on_lost(self._error)

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            close_connection(db)

    def release(self) -> None:
        """Give up the session, so that another process can take it at once."""
        self._is_released.set()
        self._thread.join()
        if self._db is not None:
            try:
                values = {"session": self.session, "epoch": self.epoch}
                self._db.execute(POSTGRES_SQL["end_lease"], values)
            except psycopg.Error as error:
                log.warning("could not release session %s: %s", self.session, error)
            self._disconnect()


def describe_process() -> str:
    """Return the name of this process for messages of other processes."""
    return f"process {os.getpid()} on {socket.gethostname()}"
