"""The one connection that writes, and what it takes to commit a group of appends."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import cast

import apsw

from nerve.errors import Conflict, StoreError
from nerve.store import refusals
from nerve.store.chain import MARK, START, digest, link
from nerve.store.connection import close
from nerve.store.mark import LastEvent, Mark
from nerve.store.port import EMPTIABLE, INLINE_LIMIT, VALUE_LIMIT, Append, FactRow, MessageRow
from nerve.store.statements import SQL, for_rows
from nerve.store.transaction import Transaction

Head = tuple[int, bytes]
Execute = Callable[..., apsw.Cursor]

GONE: Head = (-1, b"")
"""The last event of a run that is being deleted: nothing can follow."""

HEADS = 8192
"""How many journals' last events are remembered; the others are looked up."""

LOG_PAGES = 1000
"""How long the write-ahead log gets before it is moved into the file."""

EVENTS = 2000
"""How many events of one run are deleted in one transaction."""

_LARGEST_CHUNK = 256
_HARMLESS = apsw.BusyError, apsw.LockedError, apsw.FullError


class Writer:
    def __init__(
        self, connect: Callable[[], apsw.Connection], in_place: Callable[[], None], mark: Mark
    ) -> None:
        self._connect, self._in_place, self._mark = connect, in_place, mark
        self._last: LastEvent | None = None
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self._use(connect())
        self._last = mark.claim.event if mark.claim is not None else None

    def _use(self, db: apsw.Connection) -> apsw.Connection:
        self._db: apsw.Connection | None = db
        self._execute = db.cursor().execute
        self._together = Transaction(db, self._execute)
        self._patience = -1.0
        self._log = 0
        self._mark.log_may_restart()
        # In place of SQLite's own hook, which moves the log inside the commit and hides its trouble.
        db.set_wal_hook(self._note_log)
        return db

    def _note_log(self, db: apsw.Connection, name: str, pages: int) -> int:
        self._log = pages
        return apsw.SQLITE_OK

    def append(self, batch: Sequence[Append], patience: float) -> list[StoreError | None]:
        try:
            db = self._ready(patience)
            try:
                outcomes = self._append_together(db, batch)
            except apsw.ConstraintError:
                self._heads.clear()
                outcomes = self._append_one_by_one(db, batch)
        except apsw.Error as error:
            self._failed(error)
            raise
        self._committed(db)
        return outcomes

    def say(self, message: MessageRow) -> MessageRow:
        """Commit a message, and give it with its number."""
        with self._transaction() as execute:
            seq = execute(SQL["insert_message"], message._asdict()).get
        return message._replace(seq=seq)

    def execute(self, name: str, values: dict[str, object]) -> int:
        """Commit one statement; how many rows it changed."""
        with self._transaction() as execute:
            return execute(SQL[name], values).connection.changes()

    def delete_runs(self, runs: Sequence[str]) -> None:
        """Forget runs, and the blobs that nobody else has; of a long one, the events are left for later."""
        for run in runs:
            self._heads.pop(run, None)
        if self._last is not None and self._last.run in runs:
            # Before the runs go: a crash after that must not take them for lost.
            self._last = self._newest_event()
            self._mark.write(self._log, self._last)
        with self._transaction() as execute:
            for run in runs:
                last = (execute(SQL["select_head"], (run,)).fetchone() or (0,))[0]
                for name in ("delete_run", "forget_resume"):
                    execute(SQL[name], (run,))
                if last > EVENTS:
                    execute(SQL["insert_deletion"], (run,))
                else:
                    _delete_behind(execute, run, 0)

    def delete_more(self) -> bool:
        """Delete some events of a run that is gone; whether there may be more. The first go last."""
        with self._transaction() as execute:
            found = execute(SQL["select_deletion"]).fetchone()
            if found is None:
                return False
            last = (execute(SQL["select_head"], found).fetchone() or (0,))[0]
            _delete_behind(execute, found[0], max(0, last - EVENTS))
            if last <= EVENTS:
                execute(SQL["delete_deletion"], found)
            return True

    def empty_events(self, run: str, seqs: Sequence[int]) -> None:
        """Keep the digests of data in its place; the journal can still be checked."""
        with self._transaction() as execute:
            for seq in seqs:
                type, kept = cast(
                    "tuple[str, str | bytes]", execute(SQL["select_data"], (run, seq)).fetchone()
                )
                if type != EMPTIABLE:
                    raise refusals.not_emptiable(run, seq, type)
                if isinstance(kept, bytes) and len(kept) == len(MARK + START):
                    continue
                own = digest(kept.encode()) if isinstance(kept, str) else kept
                execute(SQL["empty_event"], (MARK + own, run, seq))
                if own is kept:
                    execute(SQL["delete_blob"], (own,))

    @contextmanager
    def _transaction(self, patience: float = 30.0) -> Iterator[Execute]:
        try:
            db = self._ready(patience)
            with self._together as execute:
                yield execute
        except apsw.Error as error:
            self._failed(error)
            raise
        self._committed(db)

    def _committed(self, db: apsw.Connection) -> None:
        self._mark.write(self._log, self._last)
        if self._log >= LOG_PAGES:
            self._move_log(db)

    def _failed(self, error: apsw.Error) -> None:
        self._heads.clear()
        if not isinstance(error, _HARMLESS):
            self._abandon()

    def _append_together(self, db: apsw.Connection, batch: Sequence[Append]) -> list[StoreError | None]:
        outcomes: list[StoreError | None] = []
        moved: dict[str, Head] = {}
        group = _Group()
        with self._together as execute:
            for part in batch:
                head = moved.get(part.run) or self._head(db, part)
                if head[0] == part.after:
                    moved[part.run] = group.add(part, head)
                    outcomes.append(None)
                else:
                    outcomes.append(_refused(part, head))
            group.write(execute)
        self._remember(moved)
        return outcomes

    def _append_one_by_one(self, db: apsw.Connection, batch: Sequence[Append]) -> list[StoreError | None]:
        with Transaction(db) as execute:
            return [_append_alone(db, execute, part) for part in batch]

    def _head(self, db: apsw.Connection, part: Append) -> Head:
        head = self._heads.get(part.run)
        if head is None and part.after == 0 and part.rows:
            return 0, START  # the key of its first row says whether it is new
        if head is None or head[0] != part.after:
            head = _head(db, part.run)
        return head

    def _remember(self, moved: dict[str, Head]) -> None:
        heads = self._heads
        for run, head in moved.items():
            heads[run] = head
            heads.move_to_end(run)
        while len(heads) > HEADS:
            heads.popitem(last=False)
        if moved and head[0]:  # facts and replies come without events
            self._last = LastEvent(run, *head)

    def _newest_event(self) -> LastEvent | None:
        """The last event of the journal that was written to last."""
        return next((LastEvent(run, *head) for run, head in reversed(self._heads.items()) if head[0]), None)

    def _ready(self, patience: float) -> apsw.Connection:
        self._in_place()
        db = self._db or self._reconnect()
        if patience != self._patience:
            db.set_busy_timeout(int(patience * 1000))
            self._patience = patience
        return db

    def _reconnect(self) -> apsw.Connection:
        db = self._connect()
        try:
            self._mark.write(0, self._last)  # the log is emptied, and claims no frames
            _forget_failed_commit(db)
        except apsw.Error:
            close(db)
            raise
        return self._use(db)

    def _move_log(self, db: apsw.Connection) -> None:
        """What was committed stands, whether or not it can be moved into the file now."""
        try:
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._mark.log_may_restart()
        except _HARMLESS:
            pass
        except apsw.Error:
            self._abandon()

    def _abandon(self) -> None:
        """After a failed sync nothing the connection believes about the file can be trusted."""
        self.close()
        with suppress(apsw.Error, StoreError):
            self._reconnect()

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            close(db)


class _Group:
    """The values of many rows, laid out for few statements: each one gives the interpreter lock away."""

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
                raise refusals.out_of_order(run, seq, row.seq)
            _, at, type, path, settles, text = row
            kept: str | bytes = text
            data = text.encode()
            own = digest(data)
            if len(data) > INLINE_LIMIT:
                if len(data) > VALUE_LIMIT:
                    raise refusals.too_large(len(data), "event", seq, "of run", run)
                self._blobs += (own, data)
                kept = own
            hash = link(hash, run, row, own)
            self._events += (run, seq, at, type, path, settles, kept, hash)
        if part.row is not None:
            self._runs += (*part.row, seq)
        if part.definition is not None:
            self._definitions += part.definition
        for fact in part.facts:
            self._note(fact)
        for reply in part.replies:
            refusals.check_size(reply.reply, "the reply to", reply.key)
            self._replies += reply
        return seq, hash

    def _note(self, fact: FactRow) -> None:
        refusals.check_size(fact.record or "", "fact", fact.id)
        self._facts[fact.session, fact.id] = fact
        self._versions[fact.session] = max(fact.version, self._versions.get(fact.session, 0))

    def write(self, execute: Execute) -> None:
        _insert(execute, "insert_events", 8, self._events)
        if self._blobs:
            _insert(execute, "insert_blobs", 2, self._blobs)
        if self._runs:
            _insert(execute, "upsert_runs", 13, self._runs)
        if self._definitions:
            _insert(execute, "insert_definitions", 5, self._definitions)
        if self._facts:
            self._write_facts(execute)
        if self._replies:
            _insert(execute, "insert_replies", 5, self._replies)

    def _write_facts(self, execute: Execute) -> None:
        gone = [key for key, fact in self._facts.items() if fact.record is None]
        there = [fact for fact in self._facts.values() if fact.record is not None]
        _insert(execute, "delete_facts", 2, list(chain.from_iterable(gone)))
        _insert(execute, "upsert_facts", 6, list(chain.from_iterable(there)))
        _insert(execute, "upsert_fact_versions", 2, list(chain.from_iterable(self._versions.items())))


def _insert(execute: Execute, name: str, width: int, values: list[object]) -> None:
    """Insert in chunks of a power of two, so that few statements serve groups of every size."""
    start, rows = 0, len(values) // width
    while rows:
        count = min(_LARGEST_CHUNK, 1 << (rows.bit_length() - 1))
        end = start + count * width
        execute(for_rows(name, width, count), values[start:end])
        start, rows = end, rows - count


def _append_alone(db: apsw.Connection, execute: Execute, part: Append) -> Conflict | None:
    head = _head(db, part.run)
    if head[0] != part.after:
        return _refused(part, head)
    group = _Group()
    group.add(part, head)
    execute("SAVEPOINT part")
    try:
        group.write(execute)
    except apsw.ConstraintError:
        execute("ROLLBACK TO part")
        if conflict := _conflict(db, part):
            return conflict
        raise
    finally:
        if db.in_transaction:
            execute("RELEASE part")
    return None


def _refused(part: Append, head: Head) -> Conflict:
    return refusals.being_deleted(part.run) if head == GONE else refusals.sequence_taken(part, head[0])


def _conflict(db: apsw.Connection, part: Append) -> Conflict | None:
    settling: dict[str, int] = {}
    for row in part.rows:
        if row.settles is not None:
            seq = db.execute(SQL["select_settling"], (part.run, row.settles)).get or settling.get(row.settles)
            if seq is not None:
                return refusals.path_settled(part.run, row.settles, seq)
            settling[row.settles] = row.seq
    if part.row is not None and part.row.key is not None:
        owner = db.execute(SQL["select_run_by_key"], (part.row.session, part.row.key)).fetchone()
        if owner is not None and owner[0] != part.row.run:
            return refusals.key_taken(part.row, owner[0])
    return None


def _delete_behind(execute: Execute, run: str, after: int) -> None:
    blobs = [hash for (hash,) in execute(SQL["select_blobs_behind"], (run, after)).fetchall()]
    execute(SQL["delete_events_behind"], (run, after))
    for hash in blobs:
        execute(SQL["delete_blob"], (hash,))


def _head(db: apsw.Connection, run: str) -> Head:
    if _is_deleted(db, run):
        return GONE
    return db.execute(SQL["select_head"], (run,)).fetchone() or (0, START)


def _is_deleted(db: apsw.Connection, run: str) -> bool:
    """Whether a run is gone, but for some of its events."""
    return db.execute(SQL["select_is_deleted"], (run,)).get is not None


def _forget_failed_commit(db: apsw.Connection) -> None:
    """A commit whose sync failed may stand whole in the log, and a restart would bring it back."""
    with suppress(apsw.BusyError):
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
