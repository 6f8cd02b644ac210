"""The durable store in PostgreSQL: each session is owned by one process, and many may read it."""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from nerve.errors import OwnershipLost, StoreBusy, StoreError
from nerve.store import hash_chain, refusal_messages
from nerve.store.port import (
    MAX_SEARCHED_CHARS,
    MAX_SEARCHED_RUNS,
    MAX_SEQ,
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
from nerve.store.postgres_migrations import migrate
from nerve.store.postgres_ownership import SessionOwnership
from nerve.store.postgres_writer import Ownership, PostgresWriter

if TYPE_CHECKING:
    from nerve.store.postgres_rewriter import PostgresRewriter


class OwnedSession(NamedTuple):
    """What a process that owns a session writes with."""

    ownership: SessionOwnership
    writer: PostgresWriter


def own_session(address: PostgresAddress, session: str) -> OwnedSession:
    """Claim a session; StoreInUse says that another process owns it."""
    ownership = SessionOwnership(address, session)
    try:
        return OwnedSession(ownership, PostgresWriter(address, Ownership(session, ownership.epoch)))
    except BaseException:
        ownership.release()
        raise


class PostgresStore:
    """Writes and reads from any thread; each writes or reads one at a time.

    It owns one session, or only reads. The tables may have other sessions, which other processes own.
    """

    durable = True
    loss = None

    def __init__(self, url: str, session: str | None = "default") -> None:
        """Open the store in a schema of a database, which is created if it is missing.

        StoreInUse says that another process owns the session. Without a session, the store only reads.
        """
        self.address = parse_address(url)
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._reader: Connection | None = None
        with translate_postgres_errors(self.address):
            with closing(connect(self.address)) as db:
                migrate(db, self.address)
            self._owned = None if session is None else own_session(self.address, session)

    @property
    def read_only(self) -> bool:
        return self._owned is None

    @property
    def stream(self) -> EventStream:
        return self

    @cached_property
    def stream_id(self) -> str:
        return str(self.select_rows("select_stream_id")[0][0])

    def last_streamed(self, session: str) -> int:
        row = self._select_one("select_stream_end", session)
        return 0 if row is None else int(row[0])

    def streamed_events(
        self, session: str, after: int, limit: int, types: Collection[str] | None = None
    ) -> list[StreamedEvent]:
        wanted = None if types is None else list(types)
        rows = self.select_rows("select_stream", after, session, wanted, wanted, limit)
        return [
            StreamedEvent(number, run, workflow, EventRow(*event)) for number, run, workflow, *event in rows
        ]

    @property
    def epoch(self) -> int:
        """The number of this process as the owner of the session."""
        if self._owned is None:
            raise self._read_only_error()
        return self._owned.ownership.epoch

    def interrupt(self) -> None:
        """End a read that waits for a server that does not answer; callable from any thread."""
        reader = self._reader
        if reader is not None:
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(reader.fileno())) as duplicate:
                duplicate.shutdown(socket.SHUT_RDWR)

    def watch_ownership(self, on_lost: Callable[[OwnershipLost], None]) -> None:
        if self._owned is not None:
            self._owned.ownership.watch(on_lost)

    def append(self, batch: Sequence[Append], patience: float = 30.0) -> list[StoreError | None]:
        if patience <= 0:
            raise StoreBusy(f"{self.address} is reached over a network, which takes time")
        with self._writing(patience) as writer:
            return writer.append(batch, patience)

    def _select(self, statement: str, values: Any = None) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, on a new connection if the old one was lost."""
        with self._read_lock:
            try:
                is_new = self._reader is None
                try:
                    return self._select_once(statement, values)
                except DISCONNECTED:
                    self._close_reader()
                    if is_new:
                        raise
                    return self._select_once(statement, values)
            except psycopg.Error as error:
                raise to_store_error(self.address, error) from error

    def _select_once(self, statement: str, values: Any) -> list[tuple[Any, ...]]:
        if self._reader is None:
            self._reader = connect(self.address)
            self._reader.read_only = True
        return self._reader.execute(statement, values).fetchall()

    def select_rows(self, name: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a named statement, for the parts of Nerve that only PostgreSQL has."""
        return self._select(POSTGRES_SQL[name], values)

    def _select_one(self, name: str, *values: object) -> tuple[Any, ...] | None:
        rows = self._select(POSTGRES_SQL[name], values)
        return rows[0] if rows else None

    def events(self, run: str, after: int = 0, limit: int | None = None) -> list[EventRow]:
        last = MAX_SEQ if limit is None else after + limit
        rows = self._select(POSTGRES_SQL["select_events"], {"run": run, "after": after, "last": last})
        # The row of the run names an event that the journal is known to have; it may not have any.
        reach = rows[0][8] or 0
        stored = ((EventRow(*row[:6]), row[6], row[7]) for row in rows if row[0] is not None)
        return list(hash_chain.verify_events(run, after, stored, min(reach, last)))

    def last_event(self, run: str, type: str | None = None) -> EventRow | None:
        rows = self._select(POSTGRES_SQL["select_last"], {"run": run, "type": type})
        if not rows:
            return None
        [(seq,)] = rows
        events = self.events(run, seq - 1, None if type is None else 1)
        return events[0] if events else None

    def run(self, run: str) -> RunRow | None:
        row = self._select_one("select_run", run)
        return None if row is None else RunRow(*row)

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
        tag, value = next(iter(tags.items())) if tags else (None, None)
        values: dict[str, Any] = {
            "session": session,
            "workflow": workflow,
            "states": None if states is None else list(states),
            "prefix": prefix,
            "conversation": conversation,
            "label": label,
            "since": since,
            "tags": json.dumps(dict(tags), ensure_ascii=False) if tags else None,
            "tag": tag,
            "value": value,
            "patch": patch,
            "chain": chain,
            "started": before.started if before is not None else None,
            "before": before.run if before is not None else None,
            "newest": newest,
        }
        statement = POSTGRES_SQL["select_runs"]
        if search is not None:
            statement = POSTGRES_SQL["search_runs"].replace(":candidates", statement.rstrip(";"))
            values |= {"search": search, "max_chars": MAX_SEARCHED_CHARS, "found": newest}
            values["newest"] = MAX_SEARCHED_RUNS
        return [RunRow(*row) for row in reversed(self._select(statement, values))]

    def last_written_runs(self, events: int) -> list[str]:
        return [run for (run,) in self._select(POSTGRES_SQL["select_last_written"], (events,))]

    def count_runs(self, session: str) -> dict[str, int]:
        return self._select_counts("count_runs", session)

    def count_definitions(self, session: str) -> dict[str, int]:
        return self._select_counts("count_definitions", session)

    def _select_counts(self, name: str, *values: object) -> dict[str, int]:
        return {str(key): int(number) for key, number in self._select(POSTGRES_SQL[name], values)}

    def sessions(self) -> list[str]:
        return [name for (name,) in self._select(POSTGRES_SQL["select_sessions"])]

    def tag_names(self, session: str, kind: str) -> list[str]:
        rows = self._select(POSTGRES_SQL["select_tag_names"], {"session": session, "kind": kind})
        return [name for (name,) in rows]

    def labels(self, session: str, prefix: str, limit: int) -> list[str]:
        values = {"session": session, "prefix": prefix, "limit": limit}
        return [label for (label,) in self._select(POSTGRES_SQL["select_labels"], values)]

    def open_waits(
        self, session: str, kind: str, after: WaitRow | None = None, limit: int | None = None
    ) -> list[WaitRow]:
        last = (-math.inf, "", "") if after is None else (after.since, after.run, after.path)
        values: dict[str, Any] = {"session": session, "kind": kind, "limit": limit}
        values |= dict(zip(("since", "run", "path"), last, strict=True))
        return [WaitRow(*row) for row in self._select(POSTGRES_SQL["select_open_waits"], values)]

    def waits_of_run(self, run: str) -> list[WaitRow]:
        return [WaitRow(*row) for row in self._select(POSTGRES_SQL["select_waits_of_run"], (run,))]

    def count_waits(self, session: str) -> dict[str, int]:
        return self._select_counts("count_waits", session)

    def daily_usage(self, session: str, first_day: str, last_day: str) -> list[UsageRow]:
        rows = self._select_amounts("select_usage", session, first_day, last_day)
        return [UsageRow._make(row) for row in rows]

    def daily_step_usage(self, session: str, first_day: str, last_day: str) -> list[StepUsageRow]:
        rows = self._select_amounts("select_step_usage", session, first_day, last_day)
        return [StepUsageRow._make(row) for row in rows]

    def _select_amounts(self, name: str, *values: str) -> list[tuple[Any, ...]]:
        """Return the selected rows; the last two columns, names and amounts, become one mapping."""
        amounts: dict[tuple[Any, ...], dict[str, float]] = {}
        for *key, amount_name, amount in self._select(POSTGRES_SQL[name], values):
            amounts.setdefault(tuple(key), {})[amount_name] = to_number(amount)
        return [(*key, by_name) for key, by_name in amounts.items()]

    @property
    def summarized_since(self) -> float:
        # Only a copy of an old SQLite file has runs without summaries.
        return float(self.read_property("summarized_since") or 0.0)

    def run_by_key(self, session: str, key: str) -> RunRow | None:
        row = self._select_one("select_run_by_key", session, key)
        return None if row is None else RunRow(*row)

    def definition(self, hash: str) -> Definition | None:
        row = self._select_one("select_definition", hash)
        return None if row is None else Definition(*row)

    def facts(self, session: str, label: str | None = None) -> list[FactRow]:
        rows = self._select(POSTGRES_SQL["select_facts"], {"session": session, "label": label})
        return [FactRow(*row) for row in rows]

    def fact_version(self, session: str) -> int:
        row = self._select_one("select_fact_version", session)
        return 0 if row is None else int(row[0])

    def stored_reply(self, session: str, key: str) -> ReplyRow | None:
        row = self._select_one("select_reply", session, key)
        return None if row is None else ReplyRow(*row)

    def forget_replies(self, session: str, before: float) -> int:
        with self._writing() as writer:
            return writer.execute("delete_replies", session, before)

    def add_message(
        self, conversation: str, role: str, text: str, run: str | None = None, at: float | None = None
    ) -> MessageRow:
        refusal_messages.check_value_size(text, "a message in", conversation)
        message = MessageRow(conversation, 0, time.time() if at is None else at, role, text, run)
        with self._writing() as writer:
            return writer.add_message(message)

    def messages(self, conversation: str, after: int = 0) -> list[MessageRow]:
        rows = map(MessageRow._make, self._select(POSTGRES_SQL["select_messages"], (conversation, after)))
        return [row._replace(text=bytes(row.text).decode()) for row in rows]  # type: ignore[arg-type]

    def journal_size(self, run: str) -> tuple[int, int]:
        count, size = self._select_one("select_size", run) or (0, 0)
        return int(count), int(size)

    def old_events(
        self, run: str, type: str, before: float, after: int = 0, limit: int = 1000
    ) -> list[tuple[int, int]]:
        rows = self._select(POSTGRES_SQL["select_old_events"], (run, type, before, after, limit))
        return [(int(seq), int(size)) for seq, size in rows]

    def delete_runs(self, runs: Sequence[str]) -> None:
        with self._writing() as writer:
            writer.delete_runs(runs)
        more = True
        while more:
            with self._writing() as writer:
                more = writer.delete_more()

    def empty_events(self, run: str, seqs: Sequence[int]) -> None:
        with self._writing() as writer:
            writer.empty_events(run, seqs)

    def mark_resuming(self, runs: Sequence[str]) -> None:
        self._update_resumes("count_resumes", runs)

    def clear_resuming(self, runs: Sequence[str]) -> None:
        self._update_resumes("forget_resumes", runs)

    def _update_resumes(self, name: str, runs: Sequence[str]) -> None:
        if runs:
            with self._writing() as writer:
                writer.execute(name, list(dict.fromkeys(runs)))

    def resume_counts(self) -> dict[str, int]:
        return self._select_counts("select_resumes")

    def people_changes(self, session: str, after: int = 0) -> list[PersonRow]:
        return [PersonRow(*row) for row in self.select_rows("select_people_changes", session, after)]

    def add_people_change(self, change: PersonRow) -> bool:
        with self._writing() as writer:
            return writer.execute("insert_people_change", *change) == 1

    def read_property(self, name: str) -> str | None:
        row = self._select_one("select_property", name)
        return None if row is None else str(row[0])

    def write_property(self, name: str, value: str) -> None:
        with self._writing() as writer:
            writer.execute("upsert_property", name, value)

    @contextmanager
    def rewrite(self) -> Iterator[PostgresRewriter]:
        """Yield the transaction of a change to stored payloads."""
        from nerve.store.postgres_rewriter import PostgresRewriter

        with self._writing() as writer, writer.rewrite() as db:
            yield PostgresRewriter(db)

    def rebuild(self) -> None:
        """Rewrite the tables without unused pages, which have what was deleted or replaced."""
        with self._writing() as writer:
            writer.rebuild()

    @contextmanager
    def _writing(self, patience: float = -1) -> Iterator[PostgresWriter]:
        if self._owned is None:
            raise self._read_only_error()
        ownership, writer = self._owned
        ownership.check()
        if not self._write_lock.acquire(timeout=patience):
            raise StoreBusy(f"{self.address} is being written to by another thread")
        try:
            yield writer
        except OwnershipLost as error:
            ownership.report_loss(error)
            raise
        finally:
            self._write_lock.release()

    def _read_only_error(self) -> StoreError:
        return StoreError(f"{self.address} was opened for reading, without a session to write to")

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            close_connection(reader)

    def close(self) -> None:
        """Give up the session and close the connections; can be repeated."""
        if self._owned is not None:
            self._owned.ownership.release()
            with self._write_lock:
                self._owned.writer.close()
        with self._read_lock:
            self._close_reader()


def to_number(amount: Decimal) -> float:
    """Return an amount as it was added: an integer if it has no decimal places."""
    return int(amount) if amount.as_tuple().exponent == 0 else float(amount)
