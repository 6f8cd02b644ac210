"""The journals of runs that another system executes, written to PostgreSQL by any number of processes.

The rows of one run come from several sources: its body, and each attempt of its steps. Every source numbers
its own rows, and may send them again; they are written once. Their numbers in the journal are dense, in the
order of arrival.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import psycopg

from nerve.codec import CODECS_PROPERTY
from nerve.errors import Conflict, OwnershipLost, StoreError, StoreInUse
from nerve.store.hash_chain import FIRST_HASH
from nerve.store.port import Append, EventRow
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_budgets import PostgresBudgets
from nerve.store.postgres_connection import (
    DISCONNECTED,
    POSTGRES_SQL,
    Connection,
    PostgresAddress,
    close_connection,
    connect,
    parse_address,
    to_store_error,
    translate_postgres_errors,
)
from nerve.store.postgres_facts import PostgresFacts
from nerve.store.postgres_migrations import migrate
from nerve.store.postgres_ownership import LEASE_S, LOCK_SPACE
from nerve.store.postgres_queues import PostgresQueues
from nerve.store.postgres_writer import AppendGroup, JournalEnd, Ownership, PostgresWriter

BODY = ""
"""The source of the rows of a run's body."""

MAX_IDLE_CONNECTIONS = 4
"""Number of connections that are kept for the next calls."""

T = TypeVar("T")


class StartMissing(Conflict):
    """A step of a run wants to write before the start of the run is written."""


class StepAttempt(NamedTuple):
    """One attempt of a step; of two, the one with the greater numbers may write.

    `request` is the number of rows that the body had when it requested the attempt, so it grows with every
    request of a run. `attempt` counts the executions of that request.
    """

    path: str
    request: int
    attempt: int

    @property
    def source(self) -> str:
        return f"{self.path}#{self.request}.{self.attempt}"


def assign_session(url: str, session: str, engine: str, *, with_runs: bool = False) -> None:
    """Assign a session to an engine that is not one process, such as `temporal://HOST/NAMESPACE`.

    From then on no process can own the session. StoreInUse says that a process owns it now, or that it is
    assigned to another engine. It can be repeated. Open runs of the local engine are refused, or assigned to
    the engine `with_runs`: their events are then those of their bodies, which the engine continues.
    """
    address = parse_address(url)
    values = {"session": session, "owner": engine, "lease": LEASE_S}
    with translate_postgres_errors(address):
        db = connect(address)
        try:
            migrate(db, address)
            with db.transaction():
                db.execute(POSTGRES_SQL["lock_claims"], (LOCK_SPACE, session))
                row = db.execute(POSTGRES_SQL["select_owner"], values).fetchone()
                owner, is_expired = row or ("", True)
                if owner == engine and not is_expired:
                    return
                if not is_expired:
                    raise StoreInUse(f"Session {session!r} in {address}", None, owner)
                [open_runs] = db.execute(POSTGRES_SQL["count_open_runs"], (session,)).fetchone() or (0,)
                if open_runs and not with_runs:
                    raise StoreError(
                        f"Session {session!r} in {address} has {open_runs} open runs of the local engine. "
                        "Move them with `nerve move --all`, or use another schema: ?schema=NAME"
                    )
                db.execute(POSTGRES_SQL["insert_sources_of_open_runs"], (session,))
                db.execute(POSTGRES_SQL["assign_session"], values)
                db.execute(POSTGRES_SQL["start_endless_lease"], values)
        finally:
            close_connection(db)


class PostgresProjection:
    """Writes the journals of one session, which is assigned to an engine; callable from any thread."""

    def __init__(self, url: str, session: str, engine: str) -> None:
        """Assign the session to the engine unless it is already, and connect."""
        assign_session(url, session, engine)
        self._address: PostgresAddress = parse_address(url)
        self._session, self._engine = session, engine
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._is_closed = False
        self._reader = PostgresStore(url, None)
        if self._reader.read_property(CODECS_PROPERTY) is not None:
            self.close()
            raise StoreError(f"The store in {self._address} is encrypted. Only the local engine can use it.")

    def append(self, run: str, parts: Sequence[Append], attempt: StepAttempt | None = None) -> int:
        """Commit parts of the journal of a run; return the number of its last event.

        The rows of a part are numbered in their source, which is the body, or an attempt of a step. A part
        that was written before is left out, with everything in it. Raises Conflict, and writes nothing, if a
        part before it is missing, or if the attempt is not the current one of its step.
        """
        return self._repeat(lambda db: self._append(db, run, parts, attempt))

    def _append(self, db: Connection, run: str, parts: Sequence[Append], attempt: StepAttempt | None) -> int:
        source = BODY if attempt is None else attempt.source
        with self._transaction(db):
            if attempt is not None:
                self._check_attempt(db, run, attempt)
            # Sent together: the server answers all of it in one round trip.
            source_end = db.execute(POSTGRES_SQL["select_source_end"], (run, source))
            journal_end = db.execute(POSTGRES_SQL["select_ends"], ([run],))
            [last] = source_end.fetchone() or (0,)
            _, *end = journal_end.fetchone() or (run, 0, FIRST_HASH)
            new = ProjectedParts(run, source, last, JournalEnd(*end))
            for part in parts:
                new.add(part)
            if new.write(db):
                db.execute(POSTGRES_SQL["notify_events"], (self._session,))
            return new.end.seq

    def append_values(self, parts: Sequence[Append]) -> None:
        """Commit what belongs to no journal, such as replies to commands and definitions."""
        self._repeat(lambda db: self._append_values(db, parts))

    def write_property(self, name: str, value: str) -> None:
        """Store a value of the session itself."""
        self._repeat(lambda db: db.execute(POSTGRES_SQL["upsert_property"], (name, value)))

    def _append_values(self, db: Connection, parts: Sequence[Append]) -> None:
        group = AppendGroup({})
        for part in parts:
            if part.rows or part.row is not None:
                raise ValueError(f"Run {part.run}: its events need a source")
        group.add_all(parts)
        with self._transaction(db):
            group.write(db)

    def begin_attempt(self, run: str, attempt: StepAttempt) -> None:
        """Let only this attempt of a step write from now on; Conflict if a later one has begun.

        StartMissing says that the body has no rows yet.
        """
        self._repeat(lambda db: self._begin_attempt(db, run, attempt))

    def _begin_attempt(self, db: Connection, run: str, attempt: StepAttempt) -> None:
        with self._transaction(db):
            values = {"run": run, **attempt._asdict()}
            body_end = db.execute(POSTGRES_SQL["select_source_end"], (run, BODY))
            begun = db.execute(POSTGRES_SQL["begin_step_attempt"], values)
            if body_end.fetchone() is None:
                raise StartMissing(run, "its start is missing. Send it before the rows of its steps.")
            if begun.fetchone() is None:
                raise stale_attempt_conflict(run, attempt)

    def _check_attempt(self, db: Connection, run: str, attempt: StepAttempt) -> None:
        row = db.execute(POSTGRES_SQL["select_step_attempt"], (run, attempt.path)).fetchone()
        if row != (attempt.request, attempt.attempt):
            raise stale_attempt_conflict(run, attempt)

    def forget_attempts(self, run: str) -> None:
        """Let no attempt of a step write until it has begun again, with a request of any number."""
        self._repeat(lambda db: db.execute(POSTGRES_SQL["delete_step_attempts"], (run,)))

    def body_rows(self, run: str) -> list[EventRow]:
        """Return the rows of a run's body, numbered as the body did, each verified against the hash chain."""
        numbers = dict(self._reader.select_rows("select_rows_of_source", run, BODY))
        return [row._replace(seq=numbers[row.seq]) for row in self._reader.events(run) if row.seq in numbers]

    def with_facts(self, work: Callable[[PostgresFacts], T]) -> T:
        """Return the result of work on the facts, in a transaction beside which no other process writes.

        It is executed again if the connection was lost.
        """

        def execute(db: Connection) -> T:
            with self._transaction(db):
                return work(PostgresFacts(db, self._session))

        return self._repeat(execute)

    def with_budgets(self, work: Callable[[PostgresBudgets], T]) -> T:
        """Return the result of work on the budgets, as `with_facts` does on the facts."""

        def execute(db: Connection) -> T:
            with self._transaction(db):
                return work(PostgresBudgets(db, self._session))

        return self._repeat(execute)

    def with_queues(self, work: Callable[[PostgresQueues], T]) -> T:
        """Return the result of work on the queues, as `with_facts` does on the facts."""

        def execute(db: Connection) -> T:
            with self._transaction(db):
                return work(PostgresQueues(db, self._session))

        return self._repeat(execute)

    def has_waiting_entries(self) -> bool:
        """Whether steps or runs wait for slots of queues; this keeps no other process from writing."""
        return self._repeat(lambda db: bool(PostgresQueues(db, self._session).waiting_lanes()))

    def put_payload(self, run: str, data: bytes) -> str:
        """Keep a large value for a run until the run is deleted; return its hash."""
        hash = sha256(data).hexdigest()
        self._repeat(lambda db: self._put_payload(db, run, hash, data))
        return hash

    def _put_payload(self, db: Connection, run: str, hash: str, data: bytes) -> None:
        with db.transaction():
            db.execute(POSTGRES_SQL["insert_payload"], {"hash": hash, "data": data})
            db.execute(POSTGRES_SQL["insert_payload_use"], {"run": run, "hash": hash})

    def read_payload(self, hash: str) -> bytes:
        """Return a large value; StoreError if it was deleted with its runs."""
        for (data,) in self._reader.select_rows("select_payload", hash):
            return bytes(data)
        raise StoreError(f"The value {hash} is not in {self._address}. It was deleted with its runs.")

    def _repeat(self, execute: Callable[[Connection], T]) -> T:
        """Execute on a connection, and again on a new one if it was lost: nothing is written twice."""
        db = self._take_connection()
        try:
            try:
                result = execute(db)
            except (*DISCONNECTED, psycopg.errors.ForeignKeyViolation):
                close_connection(db)
                db = connect(self._address)
                result = execute(db)
        except psycopg.Error as error:
            close_connection(db)
            raise to_store_error(self._address, error) from error
        except BaseException:
            close_connection(db)
            raise
        self._keep_connection(db)
        return result

    @contextmanager
    def _transaction(self, db: Connection) -> Iterator[None]:
        """Write while no other process does, so that the numbers of events are in the order of commits."""
        with db.pipeline(), db.transaction():
            self.check_assignment(db)
            yield

    def check_assignment(self, db: Connection) -> None:
        """Let no other process write until the end of a transaction.

        OwnershipLost says that the session is not assigned to the engine any more.
        """
        row = db.execute(POSTGRES_SQL["lock_assignment"], (self._session,)).fetchone()
        if row is None or row[0] != self._engine:
            raise OwnershipLost(
                f"Session {self._session!r} in {self._address} is not assigned to {self._engine}."
            )

    def open_writer(self) -> AssignedWriter:
        """Return a writer for messages, emptied output and deletions."""
        return AssignedWriter(self._address, self._session, self.check_assignment)

    def _take_connection(self) -> Connection:
        with self._lock:
            if self._is_closed:
                raise StoreError(f"{self._address} was closed")
            if self._idle:
                return self._idle.pop()
        with translate_postgres_errors(self._address):
            return connect(self._address)

    def _keep_connection(self, db: Connection) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < MAX_IDLE_CONNECTIONS:
                self._idle.append(db)
                return
        close_connection(db)

    def close(self) -> None:
        """Close the connections; can be repeated."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for db in idle:
            close_connection(db)
        with suppress(StoreError):
            self._reader.close()


class AssignedWriter(PostgresWriter):
    """Writes to a session that is assigned to an engine: deletes runs, empties output, adds messages."""

    def __init__(
        self, address: PostgresAddress, session: str, check_assignment: Callable[[Connection], None]
    ) -> None:
        super().__init__(address, Ownership(session, 0))
        self._check_assignment = check_assignment

    def _note_commit(self, db: Connection) -> None:
        self._check_assignment(db)


class ProjectedParts:
    """Parts of one source that are written together."""

    def __init__(self, run: str, source: str, last: int, end: JournalEnd) -> None:
        """`last` is the last row of the source that is written, `end` the end of the journal."""
        self.end = end
        self._run, self._source, self._last = run, source, last
        self._group = AppendGroup({run: end})
        self._numbers: list[dict[str, Any]] = []
        self._ended_paths = set[str]()
        self._has_ended = False

    def add(self, part: Append) -> None:
        """Add a part unless it is written; Conflict if it cannot be."""
        if not part.rows:
            raise ValueError(f"Run {self._run}: a part without events cannot be written exactly once")
        if part.rows[-1].seq <= self._last:
            return
        if part.after != self._last:
            raise missing_rows_conflict(self._run, self._source, self._last, part.after)
        renumbered = renumber_part(part, self.end.seq)
        [conflict] = self._group.add_all([renumbered])
        if conflict is not None:
            raise conflict
        for row, new in zip(part.rows, renumbered.rows, strict=True):
            names = {"run": self._run, "source": self._source}
            self._numbers.append({**names, "number": row.seq, "seq": new.seq})
            if row.settles is not None and self._source == BODY:
                self._ended_paths.add(row.path)
        self._has_ended = self._has_ended or (part.row is not None and part.row.ended is not None)
        self._last, self.end = part.rows[-1].seq, self._group.new_ends[self._run]

    def write(self, db: Connection) -> bool:
        """Send the statements; return whether there is anything to write."""
        if not self._numbers:
            return False
        self._group.write(db)
        db.execute(POSTGRES_SQL["insert_event_sources"], (json.dumps(self._numbers),))
        if self._has_ended:
            db.execute(POSTGRES_SQL["delete_fact_watches_of_runs"], ([self._run],))
            db.execute(POSTGRES_SQL["delete_budget_reservations_of_runs"], ([self._run],))
            db.execute(POSTGRES_SQL["delete_queue_entries_of_runs"], ([self._run],))
        if self._ended_paths:
            db.execute(POSTGRES_SQL["end_step_attempts"], (self._run, list(self._ended_paths)))
            # Their usage is written in this transaction.
            db.execute(POSTGRES_SQL["delete_budget_reservations"], (self._run, list(self._ended_paths)))
        return True


def renumber_part(part: Append, after: int) -> Append:
    """Return a part as it follows the event numbered `after` of the journal."""
    rows = [row._replace(seq=after + number) for number, row in enumerate(part.rows, 1)]
    return part._replace(after=after, rows=rows)


def missing_rows_conflict(run: str, source: str, last: int, after: int) -> Conflict:
    where = f"of {source} " if source else ""
    return Conflict(run, f"rows {last + 1} to {after} {where}are missing. Send them before the later ones.")


def stale_attempt_conflict(run: str, attempt: StepAttempt) -> Conflict:
    return Conflict(
        run, f"attempt {attempt.request}.{attempt.attempt} of {attempt.path} is not the current one"
    )
