"""A projection in memory, for tests that need no PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TypeVar

from nerve.engine.durable_dataspace import fact_from_row
from nerve.engine.temporal.cluster_facts import StoredFacts
from nerve.errors import Conflict
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, EventRow, FactRow, ReplyRow
from nerve.store.postgres_facts import FactWatch
from nerve.store.postgres_projection import StartMissing, StepAttempt, renumber_part
from nerve.store.postgres_queues import Lane, StoredEntry

T = TypeVar("T")


class MemoryFacts:
    """The facts of a store in memory, and the waits for them."""

    def __init__(self, store: MemoryStore, session: str, watches: dict[tuple[str, str], FactWatch]) -> None:
        self._store, self._session, self._watches = store, session, watches

    def version(self) -> int:
        return self._store.fact_version(self._session)

    def facts(self, ids: Sequence[str], labels: Sequence[str]) -> list[FactRow]:
        return [row for row in self.all_facts() if row.id in ids or fact_from_row(row).record.label in labels]

    def all_facts(self) -> list[FactRow]:
        return self._store.facts(self._session)

    def write(self, rows: Sequence[FactRow], reply: ReplyRow | None) -> None:
        self._store.append([Append("", 0, (), facts=rows, replies=[] if reply is None else [reply])])

    def watch(self, watch: FactWatch) -> None:
        self._watches[watch.run, watch.path] = watch

    def find_watch(self, run: str, path: str) -> FactWatch | None:
        return self._watches.get((run, path))

    def open_watches(self, keys: Sequence[str]) -> list[FactWatch]:
        watches = self._watches.values()
        return [each for each in watches if each.match is None and set(keys).intersection(each.keys)]

    def settle(self, watch: FactWatch) -> None:
        self._watches[watch.run, watch.path] = watch

    def unwatch(self, run: str, path: str) -> None:
        watch = self._watches.get((run, path))
        if watch is not None and watch.match is None:
            del self._watches[run, path]

    def matched_watches(self, age: float, limit: int) -> list[FactWatch]:
        return [each for each in self._watches.values() if each.match is not None][:limit]

    def delete_matched(self, watches: Sequence[FactWatch]) -> None:
        for watch in watches:
            if self._watches.get((watch.run, watch.path)) == watch:
                del self._watches[watch.run, watch.path]


class MemoryQueues:
    """The queues of a session in memory; without rates and pauses."""

    def __init__(
        self, entries: dict[tuple[str, str], StoredEntry], granted: dict[tuple[str, str], bool]
    ) -> None:
        self._entries, self._granted = entries, granted

    def add(self, entry: StoredEntry) -> list[Lane]:
        self._entries.setdefault((entry.run, entry.path), entry)
        return []

    def remove(self, run: str, path: str, asked: int) -> list[Lane]:
        self._granted.pop((run, path), None)
        entry = self._entries.pop((run, path), None)
        return [] if entry is None else [entry.lane]

    def remove_family(self, family: str) -> list[Lane]:
        of_family = [each for each in self._entries.values() if each.family == family]
        return [lane for each in of_family for lane in self.remove(each.run, each.path, 0)]

    def tell(self, run: str, path: str) -> bool:
        if (run, path) not in self._granted:
            return False
        self._granted[run, path] = True
        return True

    def waiting_lanes(self) -> list[Lane]:
        return list({each.lane for name, each in self._entries.items() if name not in self._granted})

    def is_paused(self, kind: str, owner: str) -> bool:
        return False

    def count_holders(self, lane: Lane) -> int:
        return sum(self._entries[name].lane == lane for name in self._granted)

    def find_next(self, lane: Lane) -> StoredEntry | None:
        waiting = [
            each for name, each in self._entries.items() if each.lane == lane and name not in self._granted
        ]
        return min(waiting, key=lambda each: (-each.priority, each.arrived), default=None)

    def seconds_until_start(self, entry: StoredEntry) -> float:
        return 0.0

    def grant(self, entry: StoredEntry) -> None:
        self._granted[entry.run, entry.path] = False

    def untold(self, age: float, limit: int) -> list[StoredEntry]:
        return [self._entries[name] for name, is_told in self._granted.items() if not is_told]

    def families_with_slots(self) -> list[str]:
        return []


class MemoryProjection:
    """Keeps the rows of runs in a store, and large payloads; callable from any thread."""

    def __init__(self, session: str = "default") -> None:
        self.store, self._session = MemoryStore(), session
        self.payloads: dict[str, bytes] = {}
        self.rows_by_source: dict[tuple[str, str], list[EventRow]] = {}
        """The rows of the body, with the source "", and of each attempt at a step, as these number them."""
        self._attempts: dict[tuple[str, str], StepAttempt] = {}
        self._watches: dict[tuple[str, str], FactWatch] = {}
        self._entries: dict[tuple[str, str], StoredEntry] = {}
        self._granted: dict[tuple[str, str], bool] = {}
        self._lock = threading.Lock()

    def append(self, run: str, parts: Sequence[Append], attempt: StepAttempt | None = None) -> int:
        with self._lock:
            if attempt is not None and self._attempts.get((run, attempt.path)) != attempt:
                raise Conflict(run, f"{attempt} is not the current one")
            written = self.rows_by_source.setdefault((run, "" if attempt is None else attempt.source), [])
            for part in parts:
                if part.rows[-1].seq <= len(written):
                    continue
                if part.after != len(written):
                    raise Conflict(run, f"rows {len(written) + 1} to {part.after} are missing")
                [conflict] = self.store.append([renumber_part(part, len(self.store.events(run)))])
                if conflict is not None:
                    raise conflict
                written.extend(part.rows)
            return len(self.store.events(run))

    def begin_attempt(self, run: str, attempt: StepAttempt) -> None:
        with self._lock:
            if not self.rows_by_source.get((run, "")):
                raise StartMissing(run, "its start is missing")
            current = self._attempts.setdefault((run, attempt.path), attempt)
            if current > attempt:
                raise Conflict(run, f"{attempt} is not the current one")
            self._attempts[run, attempt.path] = attempt

    def body_rows(self, run: str) -> list[EventRow]:
        return list(self.rows_by_source.get((run, ""), ()))

    def with_facts(self, work: Callable[[StoredFacts], T]) -> T:
        with self._lock:
            return work(MemoryFacts(self.store, self._session, self._watches))

    def with_queues(self, work: Callable[[MemoryQueues], T]) -> T:
        with self._lock:
            return work(MemoryQueues(self._entries, self._granted))

    def has_waiting_entries(self) -> bool:
        return bool(self.with_queues(lambda stored: stored.waiting_lanes()))

    def put_payload(self, run: str, data: bytes) -> str:
        hash = sha256(data).hexdigest()
        self.payloads[hash] = data
        return hash

    def read_payload(self, hash: str) -> bytes:
        return self.payloads[hash]
