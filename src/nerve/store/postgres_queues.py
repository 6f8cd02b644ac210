"""The queues of a session that the runs of many processes share, in one transaction."""

from __future__ import annotations

from typing import Any, NamedTuple

from nerve.store.postgres_connection import POSTGRES_SQL, Connection

Lane = tuple[str, str]
"""A queue, and the value that it counts by; entries of a lane share its limits."""


class StoredEntry(NamedTuple):
    """A step, or a run, that waits for a slot of a queue or has one."""

    run: str
    path: str
    queue: str
    key: str
    family: str
    """The run whose workflow executes the run."""
    priority: int
    arrived: float
    concurrency: int | None
    rate_limit: int | None
    rate_seconds: float | None
    asked: int = 0
    """A number that grows with each request of the run."""

    @property
    def lane(self) -> Lane:
        return self.queue, self.key


class PostgresQueues:
    """The queues of a session, as long as a transaction lasts in which no other process changes them."""

    def __init__(self, db: Connection, session: str) -> None:
        self._db, self._session = db, session

    def add(self, entry: StoredEntry) -> list[Lane]:
        """Add an entry, unless it is there or its run has ended; return the lane that it has left for it."""
        values = {**entry._asdict(), "session": self._session}
        left = self._db.execute(POSTGRES_SQL["delete_queue_entries_elsewhere"], values).fetchall()
        self._db.execute(POSTGRES_SQL["insert_queue_entry"], values)
        return [(queue, key) for queue, key in left]

    def remove(self, run: str, path: str, asked: int) -> list[Lane]:
        """Remove an entry, unless its run has asked again; return its lane, if it had one."""
        rows = self._db.execute(POSTGRES_SQL["delete_queue_entry"], (run, path, asked)).fetchall()
        return [(queue, key) for queue, key in rows]

    def remove_family(self, family: str) -> list[Lane]:
        """Remove the entries of all runs of a family; return their lanes."""
        values = (self._session, family)
        rows = self._db.execute(POSTGRES_SQL["delete_queue_entries_of_family"], values).fetchall()
        return [(queue, key) for queue, key in rows]

    def tell(self, run: str, path: str) -> bool:
        """Return whether an entry has a slot, which its run knows from now on."""
        return self._db.execute(POSTGRES_SQL["tell_queue_entry"], (run, path)).fetchone() is not None

    def waiting_lanes(self) -> list[Lane]:
        """Return the lanes in which entries wait."""
        rows = self._db.execute(POSTGRES_SQL["select_waiting_lanes"], (self._session,)).fetchall()
        return [(queue, key) for queue, key in rows]

    def is_paused(self, kind: str, owner: str) -> bool:
        """Whether there is a row that pauses a queue."""
        return bool(self._value("select_queue_is_paused", {"paused_kind": kind, "owner": owner}))

    def count_holders(self, lane: Lane) -> int:
        return int(self._value("count_queue_holders", self._lane_values(lane)))

    def find_next(self, lane: Lane) -> StoredEntry | None:
        """Return the entry of a lane whose turn it is."""
        values = {"session": self._session, **self._lane_values(lane)}
        row = self._db.execute(POSTGRES_SQL["select_next_queue_entry"], values).fetchone()
        return None if row is None else StoredEntry(*row)

    def seconds_until_start(self, entry: StoredEntry) -> float:
        """Return how long the rate of its queue keeps an entry back; 0 if it may start."""
        if entry.rate_limit is None:
            return 0.0
        seconds = self._value("select_seconds_until_start", entry._asdict())
        return max(0.0, float(seconds or 0))

    def grant(self, entry: StoredEntry) -> None:
        """Give an entry a slot, and count its start if its queue has a rate."""
        values = {"session": self._session, **entry._asdict()}
        self._db.execute(POSTGRES_SQL["grant_queue_entry"], values)
        if entry.rate_limit is not None:
            self._db.execute(POSTGRES_SQL["delete_old_queue_starts"], values)
            self._db.execute(POSTGRES_SQL["insert_queue_start"], values)

    def untold(self, age: float, limit: int) -> list[StoredEntry]:
        """Return entries that got their slots some seconds ago, and whose runs may not know it."""
        values = {"session": self._session, "age": age, "limit": limit}
        rows = self._db.execute(POSTGRES_SQL["select_untold_queue_entries"], values)
        return [StoredEntry(*row) for row in rows]

    def families_with_slots(self) -> list[str]:
        """Return the families that hold slots for which others wait."""
        values = {"session": self._session}
        return [family for (family,) in self._db.execute(POSTGRES_SQL["select_families_with_slots"], values)]

    def _lane_values(self, lane: Lane) -> dict[str, str]:
        return dict(zip(("queue", "key"), lane, strict=True))

    def _value(self, name: str, values: dict[str, Any]) -> Any:
        row = self._db.execute(POSTGRES_SQL[name], {"session": self._session, **values}).fetchone()
        return None if row is None else row[0]
