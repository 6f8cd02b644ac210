"""The only writing connection, and the commit of a group of appends."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import cast

import apsw

from nerve.errors import Conflict, StoreError
from nerve.store import refusal_messages
from nerve.store.commit_mark import CommitMark, LastEvent
from nerve.store.hash_chain import EMPTIED_MARK, FIRST_HASH, hash_data, hash_row
from nerve.store.port import EMPTIABLE_TYPE, MAX_INLINE_BYTES, MAX_VALUE_BYTES, Append, FactRow, MessageRow
from nerve.store.sqlite_connection import close_connection
from nerve.store.statements import SQL, statement_for_rows
from nerve.store.transaction import Transaction

Head = tuple[int, bytes]
Execute = Callable[..., apsw.Cursor]

DELETED_HEAD: Head = (-1, b"")
"""The head of a run that is being deleted: nothing can follow."""

MAX_CACHED_HEADS = 8192
"""Number of journals whose last event is cached; others are looked up."""

CHECKPOINT_PAGES = 1000
"""Pages in the write-ahead log that trigger a checkpoint."""

MAX_DELETED_EVENTS = 2000
"""Maximum number of events of one run deleted in one transaction."""

_LARGEST_CHUNK = 256
_TRANSIENT_ERRORS = apsw.BusyError, apsw.LockedError, apsw.FullError


class SqliteWriter:
    """Commits groups of appends, and reconnects after errors."""

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        check_file_identity: Callable[[], None],
        mark: CommitMark,
    ) -> None:
        self._connect, self._check_file_identity, self._mark = connect, check_file_identity, mark
        self._last_event: LastEvent | None = None
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self._use_connection(connect())
        self._last_event = mark.claim.event if mark.claim is not None else None

    def _use_connection(self, db: apsw.Connection) -> apsw.Connection:
        self._db: apsw.Connection | None = db
        self._execute = db.cursor().execute
        self._group_transaction = Transaction(db, self._execute)
        self._busy_timeout_s = -1.0
        self._wal_pages = 0
        self._mark.forget_salts()
        # Replaces SQLite's own hook, which checkpoints inside the commit and hides errors.
        db.set_wal_hook(self._on_wal_pages)
        return db

    def _on_wal_pages(self, db: apsw.Connection, name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def append(self, batch: Sequence[Append], patience: float) -> list[StoreError | None]:
        try:
            db = self._ready_connection(patience)
            try:
                outcomes = self._append_together(db, batch)
            except apsw.ConstraintError:
                self._heads.clear()
                outcomes = self._append_one_by_one(db, batch)
        except apsw.Error as error:
            self._after_error(error)
            raise
        self._after_commit(db)
        return outcomes

    def add_message(self, message: MessageRow) -> MessageRow:
        """Commit a message; return it with its number."""
        with self._transaction() as execute:
            seq = execute(SQL["insert_message"], message._asdict()).get
        return message._replace(seq=seq)

    def execute(self, name: str, values: dict[str, object]) -> int:
        """Commit one statement; return the number of changed rows."""
        with self._transaction() as execute:
            return execute(SQL[name], values).connection.changes()

    def delete_runs(self, runs: Sequence[str]) -> None:
        """Delete runs and the blobs only they use; events of a long run are deleted later."""
        for run in runs:
            self._heads.pop(run, None)
        if self._last_event is not None and self._last_event.run in runs:
            # Before the runs are deleted: a crash after that must not report them as lost.
            self._last_event = self._newest_event()
            self._mark.write(self._wal_pages, self._last_event)
        with self._transaction() as execute:
            for run in runs:
                last = (execute(SQL["select_head"], (run,)).fetchone() or (0,))[0]
                for name in ("delete_run", "forget_resume"):
                    execute(SQL[name], (run,))
                if last > MAX_DELETED_EVENTS:
                    execute(SQL["insert_deletion"], (run,))
                else:
                    _delete_events_after(execute, run, 0)

    def delete_more(self) -> bool:
        """Delete some events of a deleted run, last ones first; return whether there may be more."""
        with self._transaction() as execute:
            deletion = execute(SQL["select_deletion"]).fetchone()
            if deletion is None:
                return False
            last = (execute(SQL["select_head"], deletion).fetchone() or (0,))[0]
            _delete_events_after(execute, deletion[0], max(0, last - MAX_DELETED_EVENTS))
            if last <= MAX_DELETED_EVENTS:
                execute(SQL["delete_deletion"], deletion)
            return True

    def empty_events(self, run: str, seqs: Sequence[int]) -> None:
        """Replace data by its digest; the journal can still be verified."""
        with self._transaction() as execute:
            for seq in seqs:
                type, stored_data = cast(
                    "tuple[str, str | bytes]", execute(SQL["select_data"], (run, seq)).fetchone()
                )
                if type != EMPTIABLE_TYPE:
                    raise refusal_messages.not_emptiable_error(run, seq, type)
                if isinstance(stored_data, bytes) and len(stored_data) == len(EMPTIED_MARK + FIRST_HASH):
                    continue
                data_digest = hash_data(stored_data.encode()) if isinstance(stored_data, str) else stored_data
                execute(SQL["empty_event"], (EMPTIED_MARK + data_digest, run, seq))
                if data_digest is stored_data:
                    execute(SQL["delete_blob"], (data_digest,))

    @contextmanager
    def _transaction(self, patience: float = 30.0) -> Iterator[Execute]:
        try:
            db = self._ready_connection(patience)
            with self._group_transaction as execute:
                yield execute
        except apsw.Error as error:
            self._after_error(error)
            raise
        self._after_commit(db)

    def _after_commit(self, db: apsw.Connection) -> None:
        self._mark.write(self._wal_pages, self._last_event)
        if self._wal_pages >= CHECKPOINT_PAGES:
            self._checkpoint(db)

    def _after_error(self, error: apsw.Error) -> None:
        self._heads.clear()
        if not isinstance(error, _TRANSIENT_ERRORS):
            self._reopen()

    def _append_together(self, db: apsw.Connection, batch: Sequence[Append]) -> list[StoreError | None]:
        outcomes: list[StoreError | None] = []
        new_heads: dict[str, Head] = {}
        group = _AppendGroup()
        with self._group_transaction as execute:
            for part in batch:
                head = new_heads.get(part.run) or self._cached_head(db, part)
                if head[0] == part.after:
                    new_heads[part.run] = group.add(part, head)
                    outcomes.append(None)
                else:
                    outcomes.append(_sequence_conflict(part, head))
            group.write(execute)
        self._remember(new_heads)
        return outcomes

    def _append_one_by_one(self, db: apsw.Connection, batch: Sequence[Append]) -> list[StoreError | None]:
        with Transaction(db) as execute:
            return [_append_part_alone(db, execute, part) for part in batch]

    def _cached_head(self, db: apsw.Connection, part: Append) -> Head:
        head = self._heads.get(part.run)
        if head is None and part.after == 0 and part.rows:
            return 0, FIRST_HASH  # the key of its first row decides whether the run is new
        if head is None or head[0] != part.after:
            head = _select_head(db, part.run)
        return head

    def _remember(self, new_heads: dict[str, Head]) -> None:
        heads = self._heads
        for run, head in new_heads.items():
            heads[run] = head
            heads.move_to_end(run)
        while len(heads) > MAX_CACHED_HEADS:
            heads.popitem(last=False)
        if new_heads and head[0]:  # facts and replies have no events
            self._last_event = LastEvent(run, *head)

    def _newest_event(self) -> LastEvent | None:
        """Return the last event of the journal that was written to last."""
        return next((LastEvent(run, *head) for run, head in reversed(self._heads.items()) if head[0]), None)

    def _ready_connection(self, patience: float) -> apsw.Connection:
        self._check_file_identity()
        db = self._db or self._reconnect()
        if patience != self._busy_timeout_s:
            db.set_busy_timeout(int(patience * 1000))
            self._busy_timeout_s = patience
        return db

    def _reconnect(self) -> apsw.Connection:
        db = self._connect()
        try:
            self._mark.write(0, self._last_event)  # the log is emptied, and the mark claims no frames
            _forget_failed_commit(db)
        except apsw.Error:
            close_connection(db)
            raise
        return self._use_connection(db)

    def _checkpoint(self, db: apsw.Connection) -> None:
        """Checkpoint the log; committed rows are durable whether or not this succeeds."""
        try:
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._mark.forget_salts()
        except _TRANSIENT_ERRORS:
            pass
        except apsw.Error:
            self._reopen()

    def _reopen(self) -> None:
        """Reconnect: after a failed sync the connection's view of the file cannot be trusted."""
        self.close()
        with suppress(apsw.Error, StoreError):
            self._reconnect()

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            close_connection(db)


class _AppendGroup:
    """The values of many rows for few statements, since each statement releases the interpreter lock."""

    def __init__(self) -> None:
        self._events: list[object] = []
        self._blobs: list[object] = []
        self._runs: list[object] = []
        self._definitions: list[object] = []
        self._facts: dict[tuple[str, str], FactRow] = {}
        self._versions: dict[str, int] = {}
        self._replies: list[object] = []

    def add(self, part: Append, head: Head) -> Head:
        run, (seq, hash) = part.run, head
        for row in part.rows:
            seq += 1
            if row.seq != seq:
                raise refusal_messages.out_of_order_error(run, seq, row.seq)
            _, at, type, path, settles, text = row
            stored_data: str | bytes = text
            data = text.encode()
            data_digest = hash_data(data)
            if len(data) > MAX_INLINE_BYTES:
                if len(data) > MAX_VALUE_BYTES:
                    raise refusal_messages.too_large_error(len(data), "event", seq, "of run", run)
                self._blobs += (data_digest, data)
                stored_data = data_digest
            hash = hash_row(hash, run, row, data_digest)
            self._events += (run, seq, at, type, path, settles, stored_data, hash)
        if part.row is not None:
            self._runs += (*part.row, seq)
        if part.definition is not None:
            self._definitions += part.definition
        for fact in part.facts:
            self._add_fact(fact)
        for reply in part.replies:
            refusal_messages.check_value_size(reply.reply, "the reply to", reply.key)
            self._replies += reply
        return seq, hash

    def _add_fact(self, fact: FactRow) -> None:
        refusal_messages.check_value_size(fact.record or "", "fact", fact.id)
        self._facts[fact.session, fact.id] = fact
        self._versions[fact.session] = max(fact.version, self._versions.get(fact.session, 0))

    def write(self, execute: Execute) -> None:
        _insert_chunked(execute, "insert_events", 8, self._events)
        if self._blobs:
            _insert_chunked(execute, "insert_blobs", 2, self._blobs)
        if self._runs:
            _insert_chunked(execute, "upsert_runs", 13, self._runs)
        if self._definitions:
            _insert_chunked(execute, "insert_definitions", 5, self._definitions)
        if self._facts:
            self._write_facts(execute)
        if self._replies:
            _insert_chunked(execute, "insert_replies", 5, self._replies)

    def _write_facts(self, execute: Execute) -> None:
        retracted = [key for key, fact in self._facts.items() if fact.record is None]
        asserted = [fact for fact in self._facts.values() if fact.record is not None]
        _insert_chunked(execute, "delete_facts", 2, list(chain.from_iterable(retracted)))
        _insert_chunked(execute, "upsert_facts", 6, list(chain.from_iterable(asserted)))
        _insert_chunked(execute, "upsert_fact_versions", 2, list(chain.from_iterable(self._versions.items())))


def _insert_chunked(execute: Execute, name: str, width: int, values: list[object]) -> None:
    """Insert in chunks of a power of two, so that few statements serve groups of every size."""
    start, rows = 0, len(values) // width
    while rows:
        count = min(_LARGEST_CHUNK, 1 << (rows.bit_length() - 1))
        end = start + count * width
        execute(statement_for_rows(name, width, count), values[start:end])
        start, rows = end, rows - count


def _append_part_alone(db: apsw.Connection, execute: Execute, part: Append) -> Conflict | None:
    head = _select_head(db, part.run)
    if head[0] != part.after:
        return _sequence_conflict(part, head)
    group = _AppendGroup()
    group.add(part, head)
    execute("SAVEPOINT part")
    try:
        group.write(execute)
    except apsw.ConstraintError:
        execute("ROLLBACK TO part")
        if conflict := _constraint_conflict(db, part):
            return conflict
        raise
    finally:
        if db.in_transaction:
            execute("RELEASE part")
    return None


def _sequence_conflict(part: Append, head: Head) -> Conflict:
    return (
        refusal_messages.deletion_conflict(part.run)
        if head == DELETED_HEAD
        else refusal_messages.sequence_conflict(part, head[0])
    )


def _constraint_conflict(db: apsw.Connection, part: Append) -> Conflict | None:
    settling: dict[str, int] = {}
    for row in part.rows:
        if row.settles is not None:
            seq = db.execute(SQL["select_settling"], (part.run, row.settles)).get or settling.get(row.settles)
            if seq is not None:
                return refusal_messages.settled_path_conflict(part.run, row.settles, seq)
            settling[row.settles] = row.seq
    if part.row is not None and part.row.key is not None:
        owner = db.execute(SQL["select_run_by_key"], (part.row.session, part.row.key)).fetchone()
        if owner is not None and owner[0] != part.row.run:
            return refusal_messages.run_key_conflict(part.row, owner[0])
    return None


def _delete_events_after(execute: Execute, run: str, after: int) -> None:
    blobs = [hash for (hash,) in execute(SQL["select_blobs_behind"], (run, after)).fetchall()]
    execute(SQL["delete_events_behind"], (run, after))
    for hash in blobs:
        execute(SQL["delete_blob"], (hash,))


def _select_head(db: apsw.Connection, run: str) -> Head:
    if _is_run_deleted(db, run):
        return DELETED_HEAD
    return db.execute(SQL["select_head"], (run,)).fetchone() or (0, FIRST_HASH)


def _is_run_deleted(db: apsw.Connection, run: str) -> bool:
    """Whether a run is deleted except for some of its events."""
    return db.execute(SQL["select_is_deleted"], (run,)).get is not None


def _forget_failed_commit(db: apsw.Connection) -> None:
    """Truncate the log: it may hold a complete commit whose sync failed, which a restart would restore."""
    with suppress(apsw.BusyError):
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
