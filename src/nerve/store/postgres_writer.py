"""The only writing connection to PostgreSQL, and the commit of a group of appends."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

from nerve.errors import Conflict, StoreError, StoreFailed
from nerve.store import refusal_messages
from nerve.store.hash_chain import FIRST_HASH, hash_data, hash_row
from nerve.store.port import (
    EMPTIABLE_TYPE,
    PATCH_KIND,
    Append,
    Definition,
    FactRow,
    MessageRow,
    ReplyRow,
    WaitRow,
)
from nerve.store.postgres_connection import (
    DISCONNECTED,
    POSTGRES_SQL,
    Connection,
    PostgresAddress,
    close_connection,
    connect,
    to_store_error,
    translate_postgres_errors,
)

MAX_CACHED_ENDS = 8192
"""Number of journals whose end is cached; others are looked up."""

MAX_DELETED_EVENTS = 5000
"""Maximum number of events deleted in one transaction."""

RECONNECT_PAUSE_S = 0.2
_INVALID_DATA = psycopg.DataError, UnicodeEncodeError

Row = dict[str, Any]


class JournalEnd(NamedTuple):
    """The end of a journal, after which events are appended."""

    seq: int
    hash: bytes


class Ownership(NamedTuple):
    """What a process needs in order to write to a session."""

    session: str
    epoch: int


class _UnknownCommit(NamedTuple):
    """A commit whose connection was lost before the server confirmed it."""

    number: int
    batch: Sequence[Append]
    outcomes: list[StoreError | None]
    ends: dict[str, JournalEnd]


class PostgresWriter:
    """Commits groups of appends, each fenced and in one round trip, and reconnects after errors."""

    def __init__(self, address: PostgresAddress, ownership: Ownership) -> None:
        self._address, self._ownership = address, ownership
        self._ends: OrderedDict[str, JournalEnd] = OrderedDict()
        self._commit_number = 0
        self._unknown_commit: _UnknownCommit | None = None
        self._db: Connection | None = connect(address)

    def append(self, batch: Sequence[Append], patience: float) -> list[StoreError | None]:
        """Commit a batch; repeat it on a new connection if the old one was lost before the commit."""
        end = time.monotonic() + patience
        while True:
            try:
                db = self._connected(end - time.monotonic())
                if (outcomes := self._resolve_unknown_commit(db, batch)) is not None:
                    return outcomes
                return self._append_on(db, batch)
            except DISCONNECTED as error:
                self._disconnect()
                if isinstance(error, psycopg.errors.DiskFull) or time.monotonic() > end:
                    raise to_store_error(self._address, error) from error
                time.sleep(RECONNECT_PAUSE_S)
            except psycopg.Error as error:
                self._ends.clear()
                raise to_store_error(self._address, error) from error
            except ValueError:
                self._ends.clear()
                raise

    def _append_on(self, db: Connection, batch: Sequence[Append]) -> list[StoreError | None]:
        try:
            return self._append_together(db, batch)
        except (psycopg.IntegrityError, *_INVALID_DATA):
            self._ends.clear()
            return self._append_one_by_one(db, batch)

    def _append_together(self, db: Connection, batch: Sequence[Append]) -> list[StoreError | None]:
        group = AppendGroup(self._load_ends(db, batch))
        outcomes = group.add_all(batch)
        self._commit_number += 1
        self._unknown_commit = _UnknownCommit(self._commit_number, batch, outcomes, group.new_ends)
        # One round trip: the server gets all statements at once, and refuses those after an error.
        with db.pipeline(), db.transaction():
            self._note_commit(db)
            group.write(db)
        self._unknown_commit = None
        self._remember(group.new_ends)
        return outcomes

    def _append_one_by_one(self, db: Connection, batch: Sequence[Append]) -> list[StoreError | None]:
        """Append a batch of which a part was refused, so that only that part is left out."""
        outcomes: list[StoreError | None] = []
        ends: dict[str, JournalEnd] = {}
        refused: set[str] = set()
        self._commit_number += 1
        with db.transaction():
            self._note_commit(db)
            for part in batch:
                outcome = self._append_alone(db, part, ends, refused)
                if outcome is not None:
                    refused.add(part.run)
                outcomes.append(outcome)
            self._unknown_commit = _UnknownCommit(self._commit_number, batch, outcomes, ends)
        self._unknown_commit = None
        self._remember(ends)
        return outcomes

    def _append_alone(
        self, db: Connection, part: Append, ends: dict[str, JournalEnd], refused: set[str]
    ) -> StoreError | None:
        group = AppendGroup(ends | self._select_ends(db, {part.run}), refused)
        try:
            [outcome] = group.add_all([part])
            if outcome is None:
                with db.transaction():
                    group.write(db)
                ends |= group.new_ends
            return outcome
        except psycopg.errors.UniqueViolation:
            if conflict := self._find_conflict(db, part):
                return conflict
            raise
        except _INVALID_DATA as error:
            return StoreFailed(f"Run {part.run}: PostgreSQL cannot store a text of it: {error}")

    def _find_conflict(self, db: Connection, part: Append) -> Conflict | None:
        """Return why a part violates an index."""
        paths = [row.settles for row in part.rows if row.settles is not None]
        settled = db.execute(POSTGRES_SQL["select_settled"], (part.run, paths)).fetchone()
        if settled is not None:
            return refusal_messages.settled_path_conflict(part.run, *settled)
        if part.row is not None and part.row.key is not None:
            key = part.row.session, part.row.key
            owner = db.execute(POSTGRES_SQL["select_run_by_key"], key).fetchone()
            if owner is not None and owner[0] != part.run:
                return refusal_messages.run_key_conflict(part.row, owner[0])
        return None

    def _note_commit(self, db: Connection) -> None:
        """Refuse the transaction if another process owns the session, and number it."""
        db.execute(POSTGRES_SQL["note_commit"], (*self._ownership, self._commit_number))

    def _load_ends(self, db: Connection, batch: Sequence[Append]) -> dict[str, JournalEnd]:
        """Return the known ends of the journals of a batch; a run that is not known is new."""
        ends, unknown = {}, set()
        for part in batch:
            end = self._ends.get(part.run)
            if end is not None:
                ends[part.run] = end
            elif part.after or not part.rows:
                unknown.add(part.run)
        return ends | self._select_ends(db, unknown) if unknown else ends

    def _select_ends(self, db: Connection, runs: set[str]) -> dict[str, JournalEnd]:
        ends = db.execute(POSTGRES_SQL["select_ends"], (list(runs),)).fetchall()
        return {run: JournalEnd(seq, hash) for run, seq, hash in ends}

    def _remember(self, ends: dict[str, JournalEnd]) -> None:
        for run, end in ends.items():
            self._ends[run] = end
            self._ends.move_to_end(run)
        while len(self._ends) > MAX_CACHED_ENDS:
            self._ends.popitem(last=False)

    def _resolve_unknown_commit(
        self, db: Connection, batch: Sequence[Append]
    ) -> list[StoreError | None] | None:
        """Learn whether a lost commit took place; return its outcomes if it was that of this batch."""
        unknown, self._unknown_commit = self._unknown_commit, None
        if unknown is None:
            return None
        try:
            # The row is locked by a commit that is still in progress.
            row = db.execute(POSTGRES_SQL["select_last_commit"], self._ownership).fetchone()
        except psycopg.Error:
            self._unknown_commit = unknown
            raise
        if row is None or row[0] != unknown.number:
            return None
        self._remember(unknown.ends)
        return unknown.outcomes if unknown.batch is batch else None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Yield the connection in a fenced transaction."""
        try:
            db = self._connected(0)
            self._resolve_unknown_commit(db, ())
            self._commit_number += 1
            with db.transaction():
                self._note_commit(db)
                yield db
        except DISCONNECTED as error:
            self._disconnect()
            raise to_store_error(self._address, error) from error
        except psycopg.Error as error:
            raise to_store_error(self._address, error) from error

    @contextmanager
    def rewrite(self) -> Iterator[Connection]:
        """Yield the connection in a fenced transaction that changes events."""
        self._ends.clear()
        with self.transaction() as db:
            yield db

    def rebuild(self) -> None:
        """Rewrite the tables with payloads, which no transaction can contain."""
        with translate_postgres_errors(self._address):
            self._connected(0).execute(POSTGRES_SQL["rebuild"])

    def execute(self, name: str, *values: object) -> int:
        """Commit one statement; return the number of changed rows."""
        with self.transaction() as db:
            return db.execute(POSTGRES_SQL[name], values).rowcount

    def add_message(self, message: MessageRow) -> MessageRow:
        """Commit a message; return it with its number."""
        with self.transaction() as db:
            db.execute(POSTGRES_SQL["lock_conversation"], (message.conversation,))
            values = {**message._asdict(), "text": message.text.encode()}
            [seq] = db.execute(POSTGRES_SQL["insert_message"], values).fetchone() or (0,)
        return message._replace(seq=seq)

    def delete_runs(self, runs: Sequence[str]) -> None:
        """Delete runs; their events are deleted by `delete_more`."""
        names = list(runs)
        with self.transaction() as db:
            for run in names:
                self._ends.pop(run, None)
            for name in ("forget_resumes", "delete_waits_of_runs", "delete_tags_of_runs", "delete_runs"):
                db.execute(POSTGRES_SQL[name], (names,))
            db.execute(POSTGRES_SQL["delete_projection_of_runs"], {"runs": names})
            db.execute(POSTGRES_SQL["insert_deletions"], (names,))

    def delete_more(self) -> bool:
        """Delete some events of deleted runs; return whether there may be more."""
        with self.transaction() as db:
            if db.execute(POSTGRES_SQL["delete_some_events"], (MAX_DELETED_EVENTS,)).rowcount:
                return True
            db.execute(POSTGRES_SQL["delete_deletions"])
        return False

    def empty_events(self, run: str, seqs: Sequence[int]) -> None:
        """Replace data by its digest; the journal can still be verified."""
        with self.transaction() as db:
            for seq in seqs:
                type, _ = db.execute(POSTGRES_SQL["select_type"], (run, seq)).fetchone() or ("", False)
                if type != EMPTIABLE_TYPE:
                    raise refusal_messages.not_emptiable_error(run, seq, type)
                db.execute(POSTGRES_SQL["empty_event"], (run, seq))

    def _connected(self, patience: float) -> Connection:
        if self._db is None or self._db.closed:
            self._db = connect(self._address, patience)
        return self._db

    def _disconnect(self) -> None:
        self._ends.clear()
        db, self._db = self._db, None
        if db is not None:
            close_connection(db)

    def close(self) -> None:
        self._disconnect()


class AppendGroup:
    """The rows of many appends for few statements: each takes all its rows as one JSON text."""

    def __init__(self, ends: dict[str, JournalEnd], refused: set[str] | None = None) -> None:
        self.new_ends: dict[str, JournalEnd] = {}
        self._ends = ends
        self._refused = set() if refused is None else set(refused)
        self._events: list[Row] = []
        self._runs: dict[str, Row] = {}
        self._definitions: dict[str, Definition] = {}
        self._facts: dict[tuple[str, str], FactRow] = {}
        self._versions: dict[str, int] = {}
        self._replies: list[ReplyRow] = []
        self._waits: dict[tuple[str, str], WaitRow] = {}
        self._ended_runs: list[str] = []
        self._usage: list[Row] = []
        self._step_usage: list[Row] = []
        self._tags: dict[tuple[str, str, str], Row] = {}
        self._patches: dict[tuple[str, str, str], Row] = {}

    def add_all(self, batch: Sequence[Append]) -> list[StoreError | None]:
        """Add the parts that can be written; return the outcome of each."""
        outcomes: list[StoreError | None] = []
        for part in batch:
            conflict = self._add(part)
            if conflict is not None:
                self._refused.add(part.run)
            outcomes.append(conflict)
        return outcomes

    def _add(self, part: Append) -> Conflict | None:
        if self._refused and part.needs in self._refused:
            return refusal_messages.needed_part_conflict(part)
        end = self.new_ends.get(part.run) or self._ends.get(part.run) or JournalEnd(0, FIRST_HASH)
        if end.seq != part.after:
            return refusal_messages.sequence_conflict(part, end.seq)
        if conflict := find_repeated_path(part):
            return conflict
        if part.rows:
            end = self._add_events(part, end)
        if part.rows or part.row is not None:
            self.new_ends[part.run] = end
        if part.row is not None:
            self._runs[part.run] = {**part.row._asdict(), "seq": end.seq}
            if part.row.ended is not None:
                self._ended_runs.append(part.run)
        self._add_values(part)
        return None

    def _add_events(self, part: Append, end: JournalEnd) -> JournalEnd:
        seq, hash = end
        for row in part.rows:
            seq += 1
            if row.seq != seq:
                raise refusal_messages.out_of_order_error(part.run, seq, row.seq)
            refusal_messages.check_value_size(row.data, "event", seq, "of run", part.run)
            hash = hash_row(hash, part.run, row, hash_data(row.data.encode()))
            self._events.append({"run": part.run, **row._asdict(), "hash": f"\\x{hash.hex()}"})
        return JournalEnd(seq, hash)

    def _add_values(self, part: Append) -> None:
        """Add what is not part of the journal."""
        if part.definition is not None:
            self._definitions[part.definition.hash] = part.definition
        for fact in part.facts:
            refusal_messages.check_value_size(fact.record or "", "fact", fact.id)
            self._facts[fact.session, fact.id] = fact
            self._versions[fact.session] = max(fact.version, self._versions.get(fact.session, 0))
        for reply in part.replies:
            refusal_messages.check_value_size(reply.reply, "the reply to", reply.key)
            self._replies.append(reply)
        for wait in part.waits:
            refusal_messages.check_value_size(wait.data or "", "the wait at", wait.path, "of run", wait.run)
            self._waits[wait.run, wait.path] = wait
        if part.row is not None:
            for tag in part.tags:
                owner = {"run": part.run, "session": part.row.session, "started": part.row.started}
                self._tags[part.run, tag.kind, tag.name] = {**tag._asdict(), **owner}
                if tag.kind == PATCH_KIND:
                    key = part.row.session, tag.name, part.row.workflow
                    names = dict(zip(("session", "name", "workflow"), key, strict=True))
                    self._patches.setdefault(key, {**names, "since": tag.at})
        for used in part.usage:
            key_columns = {"session": used.session, "day": used.day, "model": used.model}
            self._usage += amount_rows(key_columns, used.amounts)
        for step in part.step_usage:
            key_columns = {name: value for name, value in step._asdict().items() if name != "amounts"}
            self._step_usage += amount_rows(key_columns, step.amounts)

    def write(self, db: Connection) -> None:
        """Send the statements."""
        self._insert(db, "insert_events", self._events)
        self._insert(db, "upsert_runs", self._runs.values())
        # In a fixed order: two processes may store the same definitions for two sessions.
        definitions = sorted(self._definitions.values())
        self._insert(db, "insert_definitions", [row._asdict() for row in definitions])
        for reply in self._replies:
            db.execute(POSTGRES_SQL["insert_replies"], reply)
        self._insert(db, "add_usage", self._usage)
        self._insert(db, "add_step_usage", self._step_usage)
        self._insert(db, "upsert_tags", self._tags.values())
        self._insert(db, "insert_patches", self._patches.values())
        if self._facts:
            self._write_facts(db)
        closed = [
            {"run": run, "path": path} for (run, path), wait in self._waits.items() if wait.data is None
        ]
        self._insert(db, "delete_waits", closed)
        opened = [wait._asdict() for wait in self._waits.values() if wait.data is not None]
        self._insert(db, "upsert_waits", opened)
        if self._ended_runs:
            db.execute(POSTGRES_SQL["delete_waits_of_runs"], (self._ended_runs,))

    def _write_facts(self, db: Connection) -> None:
        retracted = [fact._asdict() for fact in self._facts.values() if fact.record is None]
        asserted = [
            {**fact._asdict(), "asserted_by": fact.by, "label": fact_label(fact.record)}
            for fact in self._facts.values()
            if fact.record is not None
        ]
        versions = [{"session": session, "version": version} for session, version in self._versions.items()]
        self._insert(db, "delete_facts", retracted)
        self._insert(db, "upsert_facts", asserted)
        self._insert(db, "upsert_fact_versions", versions)

    def _insert(self, db: Connection, name: str, rows: Collection[Row]) -> None:
        if rows:
            db.execute(POSTGRES_SQL[name], (json.dumps(list(rows), ensure_ascii=False),))


def amount_rows(key_columns: Row, amounts: Mapping[str, float]) -> list[Row]:
    return [{**key_columns, "name": name, "amount": amount} for name, amount in amounts.items()]


def fact_label(record: str) -> str | None:
    label = json.loads(record)[0]
    return label if isinstance(label, str) else None


def find_repeated_path(part: Append) -> Conflict | None:
    """Return the conflict of a part in which two events settle one path."""
    settled: dict[str, int] = {}
    for row in part.rows:
        if row.settles is not None and settled.setdefault(row.settles, row.seq) != row.seq:
            return refusal_messages.settled_path_conflict(part.run, row.settles, settled[row.settles])
    return None
