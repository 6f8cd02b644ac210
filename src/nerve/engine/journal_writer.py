"""Append the events of one run: numbered at once, written in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from nerve.engine.group_commit import CommitOutcome, GroupCommitter
from nerve.engine.run_summary import RunSummary
from nerve.errors import NerveError
from nerve.journal.events import Event
from nerve.journal.index import RecordedEvent
from nerve.store.port import (
    Append,
    Definition,
    EventRow,
    ReplyRow,
    RunRow,
    WaitRow,
    append_events,
)

_make_row: Callable[[tuple[int, float, str, str, str | None, str]], EventRow] = partial(
    tuple.__new__, EventRow
)
"""Build a row in C: a run creates more of these than of anything else."""


class JournalOwner(Protocol):
    """The run that a journal belongs to."""

    def make_run_row(self, at: float, summary: str, /) -> RunRow:
        """Return the row of the run after an event at a time, with its summary."""

    def on_rows_written(self, rows: list[EventRow], /) -> None:
        """Take note of the events that are on disk now."""

    def on_write_failed(self, error: NerveError, /) -> None:
        """Take note that nothing more can be written; not called for a closed journal."""


class JournalCallbacks(NamedTuple):
    """The owner of a journal whose run is not executed yet."""

    make_run_row: Callable[[float, str], RunRow]
    on_rows_written: Callable[[list[EventRow]], None]
    on_write_failed: Callable[[NerveError], None]


class JournalWriter:
    """The end of a run's journal. A failed write closes it: nothing is appended after a gap."""

    _is_flush_requested = False
    """Whether the committer will drain this journal without being asked again."""
    _is_flush_urgent = False
    """Whether it will do so at the end of this turn, or when the commit in progress has ended."""
    _is_row_dirty = False
    _definition: Definition | None = None
    _write_error: NerveError | None = None
    _is_closed = False
    _in_flight: list[EventRow] | None = None
    """The events in a commit that is not confirmed."""
    _replies: Sequence[ReplyRow] = ()
    _attached_waits: Sequence[WaitRow] = ()

    def __init__(
        self,
        run_id: str,
        seq: int,
        committer: GroupCommitter,
        owner: JournalOwner,
        time: Callable[[], float],
        events: Iterable[RecordedEvent] = (),
    ) -> None:
        """`events` are those that the journal has already."""
        self.run_id, self.seq, self.committed_seq = run_id, seq, seq
        self.summary = RunSummary(run_id, events)
        self._writer, self._owner, self._time = committer, owner, time
        self._buffer: list[EventRow] = []
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def close(self) -> None:
        """Accept no more events; pending ones are still written, and a failure to do so is not reported."""
        self._is_closed = True

    def append(self, event: Event, path: str, settles: str | None = None, *, urgent: bool = False) -> int:
        """Append an event; `urgent` if a task waits for it to be durable."""
        # A body that is being cancelled may still emit. Its events must not follow the one that ended the
        # run.
        if self._is_closed:
            return self.seq
        data = event.encode()  # before the number is taken: it may raise
        self.seq = seq = self.seq + 1
        at = self._time()
        self._buffer.append(_make_row((seq, at, event.type, path, settles, data)))
        self.summary.add(seq, at, path, settles, event)
        if urgent:
            if not self._is_flush_urgent:
                self.flush_soon()
        elif not self._is_flush_requested:
            self._is_flush_requested = True
            self._writer.flush_lazily(self)
        return seq

    @property
    def pending_rows(self) -> list[EventRow]:
        """The rows that are not known to be on disk."""
        return [*(self._in_flight or ()), *self._buffer]

    @property
    def has_failed(self) -> bool:
        """Whether a write has failed, so that nothing more is written."""
        return self._write_error is not None

    def flush_soon(self) -> None:
        """Commit at the end of this turn of the loop."""
        self._is_flush_requested = self._is_flush_urgent = True
        self._writer.flush_soon(self)

    def flush_now(self) -> int:
        """Commit now if nothing else shares the commit; return the last durable sequence number."""
        self._writer.flush_now(self)
        return self.committed_seq

    def attach_definition(self, definition: Definition) -> None:
        """Store the definition, and the row of the run that names it, with the next write."""
        self._definition, self._is_row_dirty = definition, True

    def attach_reply(self, reply: ReplyRow | None) -> None:
        """Store the reply to a command with the event appended last."""
        if reply is not None:
            self._replies = [*self._replies, reply]

    def attach_waits(self, waits: Iterable[WaitRow]) -> None:
        """Store rows beside the waits of the run with its next event."""
        self._attached_waits = [*self._attached_waits, *waits]
        self._is_row_dirty = True

    def mark_row_dirty(self) -> None:
        """Write the row of the run with the next append."""
        self._is_row_dirty = True

    def wait_durable(self, seq: int) -> asyncio.Future[None]:
        """Return a future that completes when everything up to `seq` is on disk, or fails with the write."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._write_error is not None:
            future.set_exception(self._write_error)
            future.exception()  # marks it as retrieved: the caller need not await the future
        elif seq <= self.committed_seq:
            future.set_result(None)
        else:
            self._waiters.append((seq, future))
            if not self._is_flush_urgent:
                self.flush_soon()
        return future

    def drain(self) -> Append | None:
        rows = self._buffer
        self._is_flush_requested = self._is_flush_urgent = False
        # After a failed write the store may lack rows, and more of them would leave a gap in the sequence.
        if not rows or self._write_error is not None:
            return None
        # Kept until the commit is confirmed: readers of the run see these rows in pending_rows meanwhile.
        self._in_flight, self._buffer = rows, []
        summary = self.summary
        is_row_dirty = self._is_row_dirty or summary.has_changes
        if not (is_row_dirty or self._replies):
            return append_events(self.run_id, self.committed_seq, rows)
        replies, self._replies = self._replies, ()
        if not is_row_dirty:
            return Append(self.run_id, self.committed_seq, rows, replies=replies)
        definition, self._definition, self._is_row_dirty = self._definition, None, False
        # The row is built when the write is collected, so it matches the last event of this batch.
        row = self._owner.make_run_row(rows[-1].at, summary.encode())
        if not (summary.has_changes or self._attached_waits):
            return Append(self.run_id, self.committed_seq, rows, row, definition, replies=replies)
        changes = summary.take_changes(row.session, row.workflow)
        waits, self._attached_waits = [*changes.waits, *self._attached_waits], ()
        return Append(
            self.run_id,
            self.committed_seq,
            rows,
            row,
            definition,
            replies=replies,
            waits=waits,
            usage=changes.usage,
            step_usage=changes.step_usage,
            tags=changes.tags,
        )

    def on_commit(self, error: CommitOutcome) -> None:
        if error is not None:
            self._fail_waiters(error)
            return
        rows, self._in_flight = self._in_flight, None
        assert rows is not None
        self.committed_seq = committed = rows[-1].seq
        if self._waiters:
            self._wake_waiters(committed)
        self._owner.on_rows_written(rows)

    def _wake_waiters(self, committed: int) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            seq, future = waiter
            if seq > committed:
                self._waiters.append(waiter)
            elif not future.done():
                future.set_result(None)

    def _fail_waiters(self, error: NerveError) -> None:
        self._write_error = error
        for _, future in self._waiters:
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks it as retrieved: the hold of the run reports it
        self._waiters.clear()
        if not self._is_closed:
            self._owner.on_write_failed(error)
