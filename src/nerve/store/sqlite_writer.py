"""The only writing connection, and the commit of a group of appends."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import cast

import apsw

from nerve.errors import Conflict, StoreError
from nerve.store import refusal_messages
from nerve.store.commit_mark import CommitMark, LastEvent
from nerve.store.hash_chain import EMPTIED_MARK, FIRST_HASH, hash_data, hash_row
from nerve.store.port import (
    EMPTIABLE_TYPE,
    MAX_INLINE_BYTES,
    MAX_VALUE_BYTES,
    PATCH_KIND,
    Append,
    Definition,
    FactRow,
    MessageRow,
    RunRow,
    TagRow,
    WaitRow,
)
from nerve.store.sqlite_connection import close_connection
from nerve.store.statements import SQL, statement_for_rows
from nerve.store.stored_rows import (
    MARKS,
    OWN_PATH,
    STORED_TYPES,
    StoredData,
    StoredPath,
    abbreviate_data,
    restore_data,
    type_name,
)
from nerve.store.transaction import Transaction

Execute = Callable[..., apsw.Cursor]

DELETED = -1
"""The last event of a run that is being deleted: nothing can follow it."""

MAX_CACHED_ENDS = 2048
"""Number of journals whose end is cached; others are looked up."""

CHECKPOINT_PAGES = 1000
"""Pages in the write-ahead log that trigger a checkpoint."""

MAX_DELETED_EVENTS = 2000
"""Maximum number of events of one run deleted in one transaction."""

MAX_FREED_PAGES = 500
"""Maximum number of unused pages given back to the file system in one transaction."""

NO_FIRST_EVENT = (None, None, None, None, None)
"""The last columns of a row with one event."""
_EVENT_WIDTH = 13
"""The number of columns of a row of events."""
_INSERT_ROW = statement_for_rows("insert_events", _EVENT_WIDTH, 1)
_FIRST_EVENT = 3
"""Where the columns begin that a row has for each of its two events."""

_LARGEST_CHUNK = 256
_FIRST_VALUES, _AFTER_VALUES = Append._fields.index("definition"), Append._fields.index("tags")
"""Where a part has what is not in its journal."""
_NO_VALUES = Append("", 0, ())[_FIRST_VALUES:_AFTER_VALUES]
_make_last_event: Callable[[tuple[str, int, bytes]], LastEvent] = partial(tuple.__new__, LastEvent)
"""Build the last event in C, because every commit has one."""
_TRANSIENT_ERRORS = apsw.BusyError, apsw.LockedError, apsw.FullError


class _JournalEnd:
    """The end of a journal, after which events are appended."""

    __slots__ = ("hash", "id", "seq", "settled_paths")

    def __init__(self, id: int, seq: int, hash: bytes, settled_paths: dict[str, int] | None) -> None:
        self.id, self.seq, self.hash = id, seq, hash
        self.settled_paths = settled_paths
        """The settled paths and the events that settled them; None if they are not loaded."""


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
        self._ends: OrderedDict[str, _JournalEnd] = OrderedDict()
        self._use_connection(connect())
        self._last_event = mark.claim.event if mark.claim is not None else None

    def _use_connection(self, db: apsw.Connection) -> apsw.Connection:
        self._db: apsw.Connection | None = db
        self._execute = db.cursor().execute
        self._group_transaction = Transaction(db, self._execute)
        self._busy_timeout_s = -1.0
        self._wal_pages = 0
        self._last_id: int | None = None
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
                self._ends.clear()
                outcomes = self._append_one_by_one(db, batch)
        except apsw.Error as error:
            self._after_error(error)
            raise
        except BaseException:
            self._ends.clear()  # they may have moved, although nothing is written
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
            self._ends.pop(run, None)
        if self._last_event is not None and self._last_event.run in runs:
            # Before the runs are deleted: a crash after that must not report them as lost.
            self._last_event = self._newest_event()
            self._mark.write(self._wal_pages, self._last_event)
        with self._transaction() as execute:
            for run in runs:
                execute(SQL["forget_resume"], (run,))
                _insert_chunked(execute, "delete_waits_of_runs", 1, [run])
                id, last, *_ = execute(SQL["select_end"], (run,)).fetchone() or (None, None)
                if id is None:
                    continue
                execute(SQL["delete_run"], (id,))
                execute(SQL["delete_tags"], (id,))
                if (last or 0) > MAX_DELETED_EVENTS:
                    execute(SQL["insert_deletion"], (id,))
                else:
                    _delete_events_after(execute, id, 0)
                    execute(SQL["delete_journal"], (id,))

    def delete_more(self) -> bool:
        """Delete some events of a deleted run, last ones first; return whether there may be more."""
        with self._transaction() as execute:
            deletion = execute(SQL["select_deletion"]).fetchone()
            if deletion is None:
                return False
            id, last = cast("tuple[int, int | None]", deletion)
            _delete_events_after(execute, id, max(0, (last or 0) - MAX_DELETED_EVENTS))
            if (last or 0) <= MAX_DELETED_EVENTS:
                execute(SQL["delete_journal"], (id,))
                execute(SQL["delete_deletion"], (id,))
            return True

    def free_pages(self) -> bool:
        """Give some unused pages back to the file system; return whether there are more."""
        with self._transaction() as execute:
            execute(SQL["free_pages"].format(MAX_FREED_PAGES)).fetchall()
            return bool(execute(SQL["freelist_count"]).get)

    def empty_events(self, run: str, seqs: Sequence[int]) -> None:
        """Replace data by its digest; the journal can still be verified."""
        with self._transaction() as execute:
            for seq in seqs:
                row = execute(SQL["select_data"], (run, seq)).fetchone() or (0, "", "")
                id, type, stored_data = cast("tuple[int, str | int, str | bytes]", row)
                if type_name(type) != EMPTIABLE_TYPE:
                    raise refusal_messages.not_emptiable_error(run, seq, type_name(type))
                if isinstance(stored_data, bytes) and len(stored_data) == len(EMPTIED_MARK + FIRST_HASH):
                    continue
                data_digest = (
                    hash_data(restore_data(stored_data).encode())
                    if isinstance(stored_data, str)
                    else stored_data
                )
                execute(SQL["empty_event"], (EMPTIED_MARK + data_digest, id))
                if data_digest is stored_data:
                    execute(SQL["delete_blob"], (data_digest,))

    @contextmanager
    def rewrite(self) -> Iterator[Execute]:
        """Yield the transaction of a change to the data of events that are on disk."""
        self._ends.clear()
        if self._last_event is not None:
            # Before: a crash after the change must not report the event as lost, because its hash is another.
            self._last_event = None
            self._mark.write(self._wal_pages, None)
        with self._transaction() as execute:
            yield execute

    def rebuild(self) -> None:
        """Rewrite the file without unused pages, and empty the log."""
        db = self._ready_connection(30.0)
        try:
            db.execute(SQL["rebuild"])
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._mark.forget_salts()
        except apsw.Error as error:
            self._after_error(error)
            raise
        self._wal_pages = 0
        self._after_commit(db)

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
        self._ends.clear()
        if not isinstance(error, _TRANSIENT_ERRORS):
            self._reopen()

    def _append_together(self, db: apsw.Connection, batch: Sequence[Append]) -> list[StoreError | None]:
        outcomes: list[StoreError | None] = []
        refused: set[str] = set()
        group = _AppendGroup()
        # Read before the transaction: this is the only writing connection, so no end moves meanwhile.
        for part in batch:
            end = group.ends.get(part.run) or self._cached_end(db, part)
            outcomes.append(self._add_part(db, group, part, end, refused))
        if group.is_one_row:
            self._execute(_INSERT_ROW, group.events)  # one statement is a transaction of its own
        else:
            with self._group_transaction as execute:
                group.write(execute)
        self._remember(group.ends)
        return outcomes

    def _append_one_by_one(self, db: apsw.Connection, batch: Sequence[Append]) -> list[StoreError | None]:
        with Transaction(db) as execute:
            refused: set[str] = set()
            return [self._append_alone(db, execute, part, refused) for part in batch]

    def _append_alone(
        self, db: apsw.Connection, execute: Execute, part: Append, refused: set[str]
    ) -> Conflict | None:
        group = _AppendGroup()
        if conflict := self._add_part(db, group, part, _select_end(db, part.run), refused):
            return conflict
        execute("SAVEPOINT part")
        try:
            group.write(execute)
        except apsw.ConstraintError:
            execute("ROLLBACK TO part")
            if conflict := _key_conflict(db, part):
                refused.add(part.run)
                return conflict
            raise
        finally:
            if db.in_transaction:
                execute("RELEASE part")
        return None

    def _add_part(
        self,
        db: apsw.Connection,
        group: _AppendGroup,
        part: Append,
        end: _JournalEnd | None,
        refused: set[str],
    ) -> Conflict | None:
        """Add a part to a group, after the end of its journal, if it has one.

        A part that cannot be written is not added: its run is noted as refused, and the conflict returned.
        """
        conflict: Conflict | None = None
        if refused and part.needs in refused:
            conflict = refusal_messages.needed_part_conflict(part)
        elif end is None:
            conflict = self._add_first_part(db, group, part)
        elif end.seq != part.after:
            conflict = _sequence_conflict(part, end.seq)
        else:
            if end.settled_paths is None:
                rows = cast("Iterator[tuple[str, int]]", db.execute(SQL["select_settled"], (end.id,)))
                end.settled_paths = dict(rows)
            conflict = group.add(part, end)
        if conflict is not None:
            refused.add(part.run)
        elif part[_FIRST_VALUES:_AFTER_VALUES] != _NO_VALUES:
            group.other_values.add(part)
        return conflict

    def _add_first_part(self, db: apsw.Connection, group: _AppendGroup, part: Append) -> Conflict | None:
        """Add a part that begins a journal, or has none."""
        if part.after != 0:
            return _sequence_conflict(part, 0)
        if not part.rows and part.row is None:
            return None
        end = _JournalEnd(self._new_id(db), 0, FIRST_HASH, {})
        conflict = group.add(part, end)
        if conflict is None:
            group.other_values.add_journal(part.run, end)
        return conflict

    def _new_id(self, db: apsw.Connection) -> int:
        if self._last_id is None:
            self._last_id = cast("int", db.execute(SQL["select_last_journal"]).get)
        self._last_id += 1
        return self._last_id

    def _cached_end(self, db: apsw.Connection, part: Append) -> _JournalEnd | None:
        end = self._ends.get(part.run)
        if end is not None and end.seq == part.after:
            return end
        if end is None and part.after == 0 and part.rows:
            return None  # the name of its journal decides whether the run is new
        return _select_end(db, part.run)

    def _remember(self, new_ends: dict[str, _JournalEnd]) -> None:
        ends = self._ends
        for run, end in new_ends.items():
            ends[run] = end
            ends.move_to_end(run)
        while len(ends) > MAX_CACHED_ENDS:
            ends.popitem(last=False)
        if new_ends and end.seq:  # a run may have no events
            self._last_event = _make_last_event((run, end.seq, end.hash))

    def _newest_event(self) -> LastEvent | None:
        """Return the last event of the journal that was written to last."""
        ends = reversed(self._ends.items())
        return next((LastEvent(run, end.seq, end.hash) for run, end in ends if end.seq), None)

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

    _other_values: _OtherValues | None = None
    """What is not an event; the group of a step has none of it."""

    def __init__(self) -> None:
        self.ends: dict[str, _JournalEnd] = {}
        """The ends of the journals in the group, by run."""
        self.events: list[object] = []
        """The values of the rows of events."""
        self._blobs: list[object] = []

    @property
    def other_values(self) -> _OtherValues:
        if self._other_values is None:
            self._other_values = _OtherValues()
        return self._other_values

    @property
    def is_one_row(self) -> bool:
        """Whether one row of events is all there is to write, as after most steps of a run."""
        return len(self.events) == _EVENT_WIDTH and self._other_values is None and not self._blobs

    def add(self, part: Append, end: _JournalEnd) -> Conflict | None:
        """Add the events and the row of a run, and move the end of its journal.

        If an event settles a path that is settled already, nothing is added, and the conflict returned.
        """
        run, id, seq, hash, settled_paths = part.run, end.id, end.seq, end.hash, end.settled_paths
        assert settled_paths is not None
        events, previous_counts = self.events, (len(self.events), len(self._blobs))
        waiting: tuple[object, ...] | None = None
        can_share_row = False  # whether the waiting event and the next one can have one row
        for row in part.rows:
            seq += 1
            row_seq, at, type, path, settles, text = row
            if row_seq != seq:
                raise refusal_messages.out_of_order_error(run, seq, row_seq)
            settled: StoredPath = settles
            if settles is not None:
                if (settled_by := settled_paths.setdefault(settles, seq)) != seq:
                    del events[previous_counts[0] :], self._blobs[previous_counts[1] :]
                    for path in [path for path, by in settled_paths.items() if by > end.seq]:
                        del settled_paths[path]
                    return refusal_messages.settled_path_conflict(run, settles, settled_by)
                if settles == path:
                    settled = OWN_PATH
            data = text.encode()
            data_digest = sha256(data).digest()
            hash = hash_row(hash, run, row, data_digest)
            is_short = len(data) <= MAX_INLINE_BYTES
            stored_data: StoredData = abbreviate_data(type, text) if is_short else text
            # Other data that begins with a mark would be taken for abbreviated data.
            is_inline = is_short and (stored_data is not text or text[:1] not in MARKS)
            if not is_inline:
                if len(data) > MAX_VALUE_BYTES:
                    raise refusal_messages.too_large_error(len(data), "event", seq, "of run", run)
                self._blobs += (data_digest, data)
                stored_data = data_digest
            stored_type, is_joined = STORED_TYPES.get(type) or (type, False)
            event = (id, seq, hash, at, stored_type, path, settled, stored_data)
            if waiting is not None:
                if can_share_row and is_joined:
                    events += event + waiting[_FIRST_EVENT:]
                    waiting = None
                    continue
                events += waiting + NO_FIRST_EVENT
            waiting, can_share_row = event, is_inline and is_joined
        if waiting is not None:
            events += waiting + NO_FIRST_EVENT
        if part.row is not None:
            self.other_values.add_run(part.row, part.tags, id, seq)
            if part.row.ended is not None:
                end.settled_paths = None  # they are not needed any more
        end.seq, end.hash = seq, hash
        self.ends[run] = end
        return None

    def write(self, execute: Execute) -> None:
        if self.events:
            _insert_chunked(execute, "insert_events", _EVENT_WIDTH, self.events)
        if self._blobs:
            _insert_chunked(execute, "insert_blobs", 2, self._blobs)
        if self._other_values is not None:
            self._other_values.write(execute)


class _OtherValues:
    """The values of the rows of a group that are not events."""

    def __init__(self) -> None:
        self._journals: list[object] = []
        self._runs: list[object] = []
        self._ended_runs: list[object] = []
        self._definitions: dict[str, Definition] = {}
        self._facts: dict[tuple[str, str], FactRow] = {}
        self._versions: dict[str, int] = {}
        self._replies: list[object] = []
        self._waits: dict[tuple[str, str], WaitRow] = {}
        self._usage: list[object] = []
        self._step_usage: list[object] = []
        self._tags: dict[tuple[int, str, str], tuple[object, ...]] = {}
        self._patches: list[object] = []

    def add_journal(self, run: str, end: _JournalEnd) -> None:
        self._journals += (end.id, run)

    def add_run(self, row: RunRow, tags: Sequence[TagRow], id: int, seq: int) -> None:
        """Add the row of a run, whose journal ends at an event, and its changed tags."""
        self._runs += (id, *row[1:], seq)
        if row.ended is not None:
            self._ended_runs.append(row.run)
        for kind, name, value, at in tags:
            self._tags[id, kind, name] = (id, kind, name, value, row.session, row.started)
            if kind == PATCH_KIND:
                self._patches += (row.session, name, row.workflow, at)

    def add(self, part: Append) -> None:
        """Add the values of a part."""
        if part.definition is not None:
            self._definitions[part.definition.hash] = part.definition
        for fact in part.facts:
            self._add_fact(fact)
        for reply in part.replies:
            refusal_messages.check_value_size(reply.reply, "the reply to", reply.key)
            self._replies += reply
        for wait in part.waits:
            refusal_messages.check_value_size(wait.data or "", "the wait at", wait.path, "of run", wait.run)
            self._waits[wait.run, wait.path] = wait
        for used in part.usage:
            for name, amount in used.amounts.items():
                self._usage += (used.session, used.day, used.model, name, amount)
        for *key, amounts in part.step_usage:
            for name, amount in amounts.items():
                self._step_usage += (*key, name, amount)

    def _add_fact(self, fact: FactRow) -> None:
        refusal_messages.check_value_size(fact.record or "", "fact", fact.id)
        self._facts[fact.session, fact.id] = fact
        self._versions[fact.session] = max(fact.version, self._versions.get(fact.session, 0))

    def write(self, execute: Execute) -> None:
        if self._journals:
            _insert_chunked(execute, "insert_journals", 2, self._journals)
        if self._runs:
            _insert_chunked(execute, "upsert_runs", 14, self._runs)
        if self._definitions:
            definitions = chain.from_iterable(self._definitions.values())
            _insert_chunked(execute, "insert_definitions", 5, list(definitions))
        if self._facts:
            self._write_facts(execute)
        if self._replies:
            _insert_chunked(execute, "insert_replies", 5, self._replies)
        if self._waits:
            self._write_waits(execute)
        if self._usage:
            _insert_chunked(execute, "add_usage", 5, self._usage)
        if self._step_usage:
            _insert_chunked(execute, "add_step_usage", 7, self._step_usage)
        if self._tags:
            _insert_chunked(execute, "upsert_tags", 6, list(chain.from_iterable(self._tags.values())))
        if self._patches:
            _insert_chunked(execute, "insert_patches", 4, self._patches)
        if self._ended_runs:  # last: their waits are deleted, also those of this group
            _insert_chunked(execute, "delete_waits_of_runs", 1, self._ended_runs)

    def _write_facts(self, execute: Execute) -> None:
        retracted = [key for key, fact in self._facts.items() if fact.record is None]
        asserted = [fact for fact in self._facts.values() if fact.record is not None]
        _insert_chunked(execute, "delete_facts", 2, list(chain.from_iterable(retracted)))
        _insert_chunked(execute, "upsert_facts", 6, list(chain.from_iterable(asserted)))
        _insert_chunked(execute, "upsert_fact_versions", 2, list(chain.from_iterable(self._versions.items())))

    def _write_waits(self, execute: Execute) -> None:
        closed = [key for key, wait in self._waits.items() if wait.data is None]
        opened = [wait for wait in self._waits.values() if wait.data is not None]
        _insert_chunked(execute, "delete_waits", 2, list(chain.from_iterable(closed)))
        _insert_chunked(execute, "upsert_waits", 6, list(chain.from_iterable(opened)))


def _insert_chunked(execute: Execute, name: str, width: int, values: list[object]) -> None:
    """Insert in chunks of a power of two, so that few statements serve groups of every size."""
    start, rows = 0, len(values) // width
    while rows:
        count = min(_LARGEST_CHUNK, 1 << (rows.bit_length() - 1))
        end = start + count * width
        execute(statement_for_rows(name, width, count), values[start:end])
        start, rows = end, rows - count


def _sequence_conflict(part: Append, last: int) -> Conflict:
    """Return why a part cannot follow the last event of its journal."""
    if last == DELETED:
        return refusal_messages.deletion_conflict(part.run)
    return refusal_messages.sequence_conflict(part, last)


def _key_conflict(db: apsw.Connection, part: Append) -> Conflict | None:
    if part.row is not None and part.row.key is not None:
        owner = db.execute(SQL["select_run_by_key"], (part.row.session, part.row.key)).fetchone()
        if owner is not None and owner[0] != part.row.run:
            return refusal_messages.run_key_conflict(part.row, owner[0])
    return None


def _delete_events_after(execute: Execute, id: int, after: int) -> None:
    blobs = [hash for (hash,) in execute(SQL["select_blobs_behind"], (id, after)).fetchall()]
    execute(SQL["delete_events_behind"], (id, after))
    for hash in blobs:
        execute(SQL["delete_blob"], (hash,))


def _select_end(db: apsw.Connection, run: str) -> _JournalEnd | None:
    row = db.execute(SQL["select_end"], (run,)).fetchone()
    if row is None:
        return None
    id, seq, hash, is_deleted = cast("tuple[int, int | None, bytes | None, int]", row)
    return _JournalEnd(id, DELETED if is_deleted else seq or 0, hash or FIRST_HASH, None)


def _forget_failed_commit(db: apsw.Connection) -> None:
    """Truncate the log: it may hold a complete commit whose sync failed, which a restart would restore."""
    with suppress(apsw.BusyError):
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
