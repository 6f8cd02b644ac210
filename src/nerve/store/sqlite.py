"""The durable store: one SQLite file, owned by one process, that survives power loss."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import apsw

from nerve.errors import JournalBroken, OwnershipLost, StoreBusy, StoreError
from nerve.project.ownership import disown_changed, forget_log
from nerve.store import hash_chain, refusal_messages
from nerve.store.commit_mark import CommitMark
from nerve.store.owner_lock import OwnerLock
from nerve.store.port import (
    CHAIN_KIND,
    MAX_SEARCHED_CHARS,
    MAX_SEARCHED_RUNS,
    MAX_SEQ,
    TAG_KIND,
    Append,
    Definition,
    EventRow,
    EventStream,
    FactRow,
    MessageRow,
    PersonRow,
    ReplyRow,
    RunRow,
    StepUsageRow,
    StreamedEvent,
    UsageRow,
    WaitRow,
)
from nerve.store.sqlite_connection import (
    FileIdentity,
    close_connection,
    create_store_file,
    open_reader,
    open_writer,
    to_store_error,
    translate_sqlite_errors,
)
from nerve.store.sqlite_writer import SqliteWriter
from nerve.store.statements import SQL
from nerve.store.stored_rows import TYPE_CODES, StoredRow, type_name

if TYPE_CHECKING:
    from nerve.store.sqlite_rewriter import SqliteRewriter

_log = logging.getLogger(__name__)

MAX_COMPARED_RUNS = 1000
"""Number of runs in some states up to which the tags of each are compared; else a tag leads to the runs."""
NUMBERS_PER_ROW = 2
"""A row has one event of the stream, or two that were appended together."""
DELETE_PAUSE_S = 0.001
"""Seconds between two transactions of a deletion in the background."""


class SqliteStore:
    """Writes from any thread, one at a time; reads, which never wait for writes, from one other thread."""

    durable = True

    def __init__(self, path: str | os.PathLike[str], *, vfs: str | None = None) -> None:
        self.file = Path(path).resolve()
        if not self.file.parent.is_dir():
            raise StoreError(f"{self.file.parent} is not a directory. Create it, or use another file.")
        self._write_lock = threading.Lock()
        with translate_sqlite_errors(self.file), ExitStack() as resources:
            resources.callback(OwnerLock(self.file).release)
            resources.callback(forget_log, self.file)
            disown_changed(self.file)
            create_store_file(self.file)
            self._mark = CommitMark(self.file)
            resources.callback(self._mark.release)
            connect = partial(open_writer, self.file, vfs, self._mark.inspect)
            self._writer = SqliteWriter(connect, FileIdentity(self.file), self._mark)
            resources.callback(self._writer.close)
            # The reader closes first: the last connection to close checkpoints the log, and a reader cannot.
            self._reader = open_reader(self.file, vfs)
            resources.callback(close_connection, self._reader)
            self._resources = resources.pop_all()

    @property
    def loss(self) -> str | None:
        return self._mark.loss

    @property
    def read_only(self) -> bool:
        return False

    @property
    def stream(self) -> EventStream:
        return self

    @property
    def stream_id(self) -> str:
        return str(self.file)

    def last_streamed(self, session: str) -> int:
        with translate_sqlite_errors(self.file):
            row = self._reader.execute(SQL["select_stream_end"], (session,)).fetchone()
        return 0 if row is None else NUMBERS_PER_ROW * cast("int", row[0])

    def streamed_events(
        self, session: str, after: int, limit: int, types: Collection[str] | None = None
    ) -> list[StreamedEvent]:
        events: list[StreamedEvent] = []
        stored_types = None if types is None else json.dumps([TYPE_CODES.get(type, type) for type in types])
        values = (after // NUMBERS_PER_ROW, session, stored_types, limit)
        with translate_sqlite_errors(self.file), self._reader:
            for id, run, workflow, seq, *columns in self._reader.execute(SQL["select_stream"], values):
                last, first = columns[:5], columns[5:]
                pair = [(NUMBERS_PER_ROW * id, seq, last)]
                if first[1] is not None:  # the row has two events
                    pair.insert(0, (NUMBERS_PER_ROW * id - 1, seq - 1, first))
                for number, event_seq, stored in pair:
                    if number > after and (types is None or type_name(stored[1]) in types):
                        event, _ = hash_chain.restore_event(event_seq, self._read_blob, *stored)
                        events.append(StreamedEvent(number, run, workflow, event))
        return events[:limit]

    def watch_ownership(self, on_lost: Callable[[OwnershipLost], None]) -> None:
        pass  # the lock file is held until the process ends

    def append(self, batch: Sequence[Append], patience: float = 30.0) -> list[StoreError | None]:
        if not self._write_lock.acquire(timeout=patience):
            raise self._busy_error()
        try:
            return self._writer.append(batch, patience)
        except apsw.Error as error:
            raise to_store_error(self.file, error) from error
        finally:
            self._write_lock.release()

    def _busy_error(self) -> StoreBusy:
        return StoreBusy(f"{self.file} is being written to by another thread")

    def events(self, run: str, after: int = 0, limit: int | None = None) -> list[EventRow]:
        rows: list[EventRow] = []
        # One read transaction: the run may be deleted between two statements.
        with translate_sqlite_errors(self.file), self._reader:
            rows += self._read_events(run, after, MAX_SEQ if limit is None else after + limit)
        return rows

    def last_event(self, run: str, type: str | None = None) -> EventRow | None:
        rows: list[EventRow] = []
        with translate_sqlite_errors(self.file), self._reader:
            seq = self._last_seq(run, type)
            if seq is not None:
                rows += self._read_events(run, seq - 1, MAX_SEQ if type is None else seq)
        return rows[0] if rows else None

    def _last_seq(self, run: str, type: str | None) -> int | None:
        stored_type = None if type is None else TYPE_CODES.get(type, type)
        try:
            id, _ = self._find_journal(run)
            return cast("int | None", self._reader.execute(SQL["select_last"], (id, stored_type)).get)
        except apsw.CorruptError as error:
            raise JournalBroken(run, 1) from error

    def _find_journal(self, run: str) -> tuple[int | None, int]:
        """Return the id of a journal, and an event that it is known to hold."""
        row = self._reader.execute(SQL["select_journal"], (run,)).fetchone()
        id, reach = cast("tuple[int | None, int | None]", row or (None, None))
        return id, reach or 0

    def _read_events(self, run: str, after: int, last: int) -> list[EventRow]:
        try:
            id, reach = self._find_journal(run)
            stored = self._reader.execute(SQL["select_events"], (id, after, last))
            try:
                stored_rows = cast("Iterator[StoredRow]", stored)
                rows = list(
                    hash_chain.verify_rows(run, after, stored_rows, self._read_blob, min(reach, last))
                )
            finally:
                # A cursor left open by an error would keep all later reads at this snapshot.
                stored.close(True)
        except apsw.CorruptError as error:
            # The pages of other journals may be intact, so only this run is unreadable.
            raise JournalBroken(run, after + 1) from error
        while rows and rows[-1].seq > last:
            rows.pop()
        return rows

    def _read_blob(self, hash: bytes) -> bytes | None:
        return cast("bytes | None", self._reader.execute(SQL["select_blob"], (hash,)).get)

    def run(self, run: str) -> RunRow | None:
        return self._select_run("select_run", (run,))

    def runs(
        self,
        *,
        session: str | None = None,
        workflow: str | None = None,
        states: Collection[str] | None = None,
        prefix: str = "",
        conversation: str | None = None,
        label: str | None = None,
        since: float | None = None,
        tags: Mapping[str, str] | None = None,
        patch: str | None = None,
        chain: str | None = None,
        search: str | None = None,
        before: RunRow | None = None,
        newest: int | None = None,
    ) -> list[RunRow]:
        values: dict[str, Any] = {
            "session": session,
            "workflow": workflow,
            "states": None if states is None else json.dumps(list(states)),
            "prefix": prefix,
            "conversation": conversation,
            "label": label,
            "since": since,
            "tags": json.dumps(dict(tags)) if tags else None,
            "patch": patch,
            "chain": chain,
            "started": before.started if before is not None else None,
            "before": before.run if before is not None else None,
            "newest": -1 if newest is None else newest,
        }
        statement = SQL[self._choose_statement(values, states, tags, newest)]
        if search is not None:
            statement = SQL["search_runs"].replace(":candidates", statement.rstrip(";"))
            values |= {"search": search, "max_chars": MAX_SEARCHED_CHARS, "found": values["newest"]}
            values["newest"] = MAX_SEARCHED_RUNS
        with translate_sqlite_errors(self.file):
            return list(self._readable_rows(self._reader.execute(statement, values)))[::-1]

    def _choose_statement(
        self,
        values: dict[str, Any],
        states: Collection[str] | None,
        tags: Mapping[str, str] | None,
        newest: int | None,
    ) -> str:
        """Return the name of the statement whose index leads to the fewest other runs."""
        session = values["session"]
        if values["conversation"] is not None:
            return "select_runs_of_conversation"
        if values["label"] is not None:
            return "select_runs_with_label"
        if session is not None and values["chain"] is not None:
            values["kind"], values["tag"], values["value"] = CHAIN_KIND, CHAIN_KIND, values["chain"]
            return "select_runs_with_tag"
        if tags and session is not None and not self._has_few_runs(session, states):
            values["kind"], (values["tag"], values["value"]) = TAG_KIND, next(iter(tags.items()))
            return "select_runs_with_tag"
        is_page = newest is not None and session is not None and not values["prefix"]
        if states is None:
            return "select_newest_runs" if is_page else "select_runs"
        if is_page and len(states) == 1:
            values["state"] = next(iter(states))
            return "select_newest_runs_in_state"
        return "select_runs_in_states"

    def _has_few_runs(self, session: str, states: Collection[str] | None) -> bool:
        """Return whether so few runs are in some states that the tags of each can be compared."""
        counts = {} if states is None else self.count_runs(session)
        return states is not None and sum(counts.get(state, 0) for state in states) <= MAX_COMPARED_RUNS

    def last_written_runs(self, events: int) -> list[str]:
        runs: list[str] = []
        # A damaged page belongs to some journals only, which are reported when they are read.
        with translate_sqlite_errors(self.file), suppress(apsw.CorruptError):
            runs.extend(run for (run,) in self._reader.execute(SQL["select_last_written"], (events,)))
        return runs

    def count_runs(self, session: str) -> dict[str, int]:
        with translate_sqlite_errors(self.file):
            return dict(
                cast("Iterator[tuple[str, int]]", self._reader.execute(SQL["count_runs"], (session,)))
            )

    def count_definitions(self, session: str) -> dict[str, int]:
        with translate_sqlite_errors(self.file):
            return dict(
                cast("Iterator[tuple[str, int]]", self._reader.execute(SQL["count_definitions"], (session,)))
            )

    def sessions(self) -> list[str]:
        with translate_sqlite_errors(self.file):
            return [name for (name,) in self._reader.execute(SQL["select_sessions"])]

    def tag_names(self, session: str, kind: str) -> list[str]:
        with translate_sqlite_errors(self.file):
            rows = self._reader.execute(SQL["select_tag_names"], {"session": session, "kind": kind})
            return [name for (name,) in rows]

    def labels(self, session: str, prefix: str, limit: int) -> list[str]:
        parameters = {"session": session, "prefix": prefix, "limit": limit}
        with translate_sqlite_errors(self.file):
            return [label for (label,) in self._reader.execute(SQL["select_labels"], parameters)]

    def _readable_rows(self, rows: apsw.Cursor) -> Iterator[RunRow]:
        """Yield the rows of runs, skipping one that is not valid text."""
        while True:
            try:
                for row in rows:
                    yield RunRow(*row)
                return
            except UnicodeDecodeError as error:
                _log.error("%s: skipped an unreadable row of `runs`: %s", self.file, error)

    def open_waits(
        self, session: str, kind: str, after: WaitRow | None = None, limit: int | None = None
    ) -> list[WaitRow]:
        last = (-math.inf, "", "") if after is None else (after.since, after.run, after.path)
        values = {"session": session, "kind": kind, "limit": -1 if limit is None else limit}
        values |= dict(zip(("since", "run", "path"), last, strict=True))
        with translate_sqlite_errors(self.file):
            return [WaitRow(*row) for row in self._reader.execute(SQL["select_open_waits"], values)]

    def waits_of_run(self, run: str) -> list[WaitRow]:
        with translate_sqlite_errors(self.file):
            return [WaitRow(*row) for row in self._reader.execute(SQL["select_waits_of_run"], (run,))]

    def count_waits(self, session: str) -> dict[str, int]:
        with translate_sqlite_errors(self.file):
            counts = self._reader.execute(SQL["count_waits"], (session,))
            return dict(cast("Iterator[tuple[str, int]]", counts))

    def daily_usage(self, session: str, first_day: str, last_day: str) -> list[UsageRow]:
        rows = self._select_amounts("select_usage", session, first_day, last_day)
        return [UsageRow._make(row) for row in rows]

    def daily_step_usage(self, session: str, first_day: str, last_day: str) -> list[StepUsageRow]:
        rows = self._select_amounts("select_step_usage", session, first_day, last_day)
        return [StepUsageRow._make(row) for row in rows]

    def _select_amounts(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        """Return the selected rows; the last two columns, names and amounts, become one mapping."""
        amounts: dict[tuple[Any, ...], dict[str, float]] = {}
        with translate_sqlite_errors(self.file):
            for *key, name, amount in self._reader.execute(SQL[statement], values):
                amounts.setdefault(tuple(key), {})[name] = amount
        return [(*key, by_name) for key, by_name in amounts.items()]

    @property
    def summarized_since(self) -> float:
        with translate_sqlite_errors(self.file):
            return cast("float", self._reader.execute(SQL["select_property"], ("summarized_since",)).get)

    def run_by_key(self, session: str, key: str) -> RunRow | None:
        return self._select_run("select_run_by_key", (session, key))

    def _select_run(self, name: str, values: tuple[str, ...]) -> RunRow | None:
        with translate_sqlite_errors(self.file):
            row = self._reader.execute(SQL[name], values).fetchone()
        return None if row is None else RunRow(*row)

    def definition(self, hash: str) -> Definition | None:
        with translate_sqlite_errors(self.file):
            row = self._reader.execute(SQL["select_definition"], (hash,)).fetchone()
        return None if row is None else Definition(*row)

    def facts(self, session: str, label: str | None = None) -> list[FactRow]:
        with translate_sqlite_errors(self.file):
            rows = self._reader.execute(SQL["select_facts"], {"session": session, "label": label})
            return [FactRow(*row) for row in rows]

    def fact_version(self, session: str) -> int:
        with translate_sqlite_errors(self.file):
            return self._reader.execute(SQL["select_fact_version"], (session,)).get or 0

    def stored_reply(self, session: str, key: str) -> ReplyRow | None:
        with translate_sqlite_errors(self.file):
            row = self._reader.execute(SQL["select_reply"], (session, key)).fetchone()
        return None if row is None else ReplyRow(*row)

    def forget_replies(self, session: str, before: float) -> int:
        with self._write_lock, translate_sqlite_errors(self.file):
            return self._writer.execute("delete_replies", {"session": session, "before": before})

    def add_message(
        self, conversation: str, role: str, text: str, run: str | None = None, at: float | None = None
    ) -> MessageRow:
        refusal_messages.check_value_size(text, "a message in", conversation)
        message = MessageRow(conversation, 0, time.time() if at is None else at, role, text, run)
        with self._write_lock, translate_sqlite_errors(self.file):
            return self._writer.add_message(message)

    def messages(self, conversation: str, after: int = 0) -> list[MessageRow]:
        with translate_sqlite_errors(self.file):
            rows = self._reader.execute(SQL["select_messages"], (conversation, after))
            return [MessageRow(*row) for row in rows]

    def journal_size(self, run: str) -> tuple[int, int]:
        with translate_sqlite_errors(self.file):
            return cast("tuple[int, int]", self._reader.execute(SQL["select_size"], (run,)).fetchone())

    def old_events(
        self, run: str, type: str, before: float, after: int = 0, limit: int = 1000
    ) -> list[tuple[int, int]]:
        with translate_sqlite_errors(self.file):
            rows = self._reader.execute(SQL["select_old_events"], (run, type, before, after, limit))
            return cast("list[tuple[int, int]]", rows.fetchall())

    def delete_runs(self, runs: Sequence[str]) -> None:
        with self._write_lock, translate_sqlite_errors(self.file):
            self._writer.delete_runs(runs)
        for continue_deletion in (self._writer.delete_more, self._writer.free_pages):
            more = True
            while more:
                with self._write_lock, translate_sqlite_errors(self.file):
                    more = continue_deletion()
                # Other threads seldom get a lock that is released and taken at once.
                time.sleep(DELETE_PAUSE_S)

    def empty_events(self, run: str, seqs: Sequence[int]) -> None:
        with self._write_lock, translate_sqlite_errors(self.file):
            self._writer.empty_events(run, seqs)

    def mark_resuming(self, runs: Sequence[str]) -> None:
        self._update_resumes("count_resumes", runs)

    def clear_resuming(self, runs: Sequence[str]) -> None:
        self._update_resumes("forget_resumes", runs)

    def _update_resumes(self, name: str, runs: Sequence[str]) -> None:
        if runs:
            with self._write_lock, translate_sqlite_errors(self.file):
                self._writer.execute(name, {"runs": json.dumps(list(runs))})

    def resume_counts(self) -> dict[str, int]:
        with translate_sqlite_errors(self.file):
            return dict(cast("Iterator[tuple[str, int]]", self._reader.execute(SQL["select_resumes"])))

    @contextmanager
    def rewrite(self) -> Iterator[SqliteRewriter]:
        """Yield the transaction of a change to stored payloads."""
        from nerve.store.sqlite_rewriter import SqliteRewriter

        with self._write_lock, translate_sqlite_errors(self.file), self._writer.rewrite() as execute:
            yield SqliteRewriter(execute)

    def rebuild(self) -> None:
        """Rewrite the file without unused pages, which have what was deleted or replaced."""
        with self._write_lock, translate_sqlite_errors(self.file):
            self._writer.rebuild()

    def people_changes(self, session: str, after: int = 0) -> list[PersonRow]:
        with translate_sqlite_errors(self.file):
            rows = self._reader.execute(SQL["select_people_changes"], (session, after))
            return [PersonRow(*row) for row in rows]

    def add_people_change(self, change: PersonRow) -> bool:
        with self._write_lock, translate_sqlite_errors(self.file):
            return self._writer.execute("insert_people_change", change._asdict()) == 1

    def read_property(self, name: str) -> str | None:
        with translate_sqlite_errors(self.file):
            return cast("str | None", self._reader.execute(SQL["select_property"], (name,)).get)

    def write_property(self, name: str, value: str) -> None:
        with self._write_lock, translate_sqlite_errors(self.file):
            self._writer.execute("upsert_property", {"name": name, "value": value})

    def close(self) -> None:
        """Checkpoint the write-ahead log and release the file."""
        self._mark.remove()
        self._resources.close()
