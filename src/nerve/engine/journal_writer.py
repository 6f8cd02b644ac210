"""Journal: what one run appends, numbered at once and written in the order it was noted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import time

from nerve.engine.group_commit import CommitOutcome, GroupCommitter
from nerve.errors import NerveError
from nerve.store.port import Append, Definition, EventRow, ReplyRow, RunRow

_make_row: Callable[[tuple[int, float, str, str, str | None, str]], EventRow] = partial(
    tuple.__new__, EventRow
)
"""A row, made in C: of all that a run makes there is most of these."""


class JournalWriter:
    """The end of a run's journal. A failed write closes it: nothing is appended after a gap."""

    def __init__(
        self,
        run_id: str,
        seq: int,
        committer: GroupCommitter,
        make_run_row: Callable[[float], RunRow],
        on_rows_written: Callable[[list[EventRow]], None],
        on_error: Callable[[NerveError], None],
    ) -> None:
        self.run_id, self.seq, self.committed_seq = run_id, seq, seq
        self._writer, self._make_run_row = committer, make_run_row
        self._on_rows_written, self._on_error = on_rows_written, on_error
        self._buffer: list[EventRow] = []
        self._in_flight: list[EventRow] = []
        self._is_row_dirty = False
        self._definition: Definition | None = None
        self._replies: list[ReplyRow] = []
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._write_error: NerveError | None = None
        self._is_closed = False

    def close(self) -> None:
        """Take nothing more; what was noted before is still written, and if that fails nobody is told."""
        self._is_closed = True

    def append(
        self, type: str, path: str, data: str, settles: str | None = None, *, urgent: bool = True
    ) -> int:
        """Append an event; `urgent` when somebody waits for it to be on disk."""
        if self._is_closed:
            return self.seq
        self.seq = seq = self.seq + 1
        self._buffer.append(_make_row((seq, time(), type, path, settles, data)))
        if self._write_error is None:
            if urgent:
                self._writer.flush_soon(self)
            else:
                self._writer.flush_lazily(self)
        return seq

    @property
    def pending_rows(self) -> list[EventRow]:
        """What was noted and is not on disk, as far as is known."""
        return [*self._in_flight, *self._buffer]

    def flush_now(self) -> int:
        """Write now, as there is nobody to share a commit with; the number up to which all is on disk."""
        if self._write_error is None:
            self._writer.flush_now(self)
        return self.committed_seq

    def attach_definition(self, definition: Definition) -> None:
        """Store the definition together with the next write."""
        self._definition = definition

    def attach_reply(self, reply: ReplyRow | None) -> None:
        """Store what is said to a command together with the event that it was noted as just now."""
        if reply is not None:
            self._replies.append(reply)

    def mark_row_dirty(self) -> None:
        """The projection of the run is to be written with the next append."""
        self._is_row_dirty = True

    def wait_durable(self, seq: int) -> asyncio.Future[None]:
        """Done when everything up to `seq` is on disk; fails when it could not be written."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._write_error is not None:
            future.set_exception(self._write_error)
            future.exception()  # whoever waits is told; nobody has to
        elif seq <= self.committed_seq:
            future.set_result(None)
        else:
            self._waiters.append((seq, future))
            self._writer.flush_soon(self)
        return future

    def drain(self) -> Append | None:
        rows = self._buffer
        if not rows or self._write_error is not None:
            return None
        self._in_flight, self._buffer = rows, []
        if not (self._is_row_dirty or self._replies or self._definition):
            return Append(self.run_id, self.committed_seq, rows)
        row = self._make_run_row(rows[-1].at) if self._is_row_dirty else None
        definition, self._definition, self._is_row_dirty = self._definition, None, False
        replies, self._replies = self._replies, []
        return Append(self.run_id, self.committed_seq, rows, row, definition, replies=replies)

    def on_commit(self, error: CommitOutcome) -> None:
        if error is not None:
            self._fail_waiters(error)
            return
        rows, self._in_flight = self._in_flight, []
        self.committed_seq = committed = rows[-1].seq
        waiters = self._waiters
        while waiters and waiters[0][0] <= committed:
            future = waiters.popleft()[1]
            if not future.done():
                future.set_result(None)
        self._on_rows_written(rows)

    def _fail_waiters(self, error: NerveError) -> None:
        self._write_error = error
        for _, future in self._waiters:
            if not future.done():
                future.set_exception(error)
                future.exception()  # the run is held with it; nobody has to ask again
        self._waiters.clear()
        if not self._is_closed:
            self._on_error(error)
