"""Journal: what one run appends, numbered at once and written in the order it was noted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import time

from nerve.engine.writer import Outcome, Writer
from nerve.errors import NerveError
from nerve.store.port import Append, Definition, ReplyRow, Row, RunRow

_row: Callable[[tuple[int, float, str, str, str | None, str]], Row] = partial(tuple.__new__, Row)
"""A row, made in C: of all that a run makes there is most of these."""


class Journal:
    """The end of a run's journal. A failed write closes it: nothing is appended after a gap."""

    def __init__(
        self,
        run: str,
        seq: int,
        writer: Writer,
        row_of: Callable[[float], RunRow],
        on_written: Callable[[list[Row]], None],
        on_error: Callable[[NerveError], None],
    ) -> None:
        self.run, self.seq, self.committed = run, seq, seq
        self._writer, self._row_of = writer, row_of
        self._on_written, self._on_error = on_written, on_error
        self._buffer: list[Row] = []
        self._taken: list[Row] = []
        self._row = False
        self._definition: Definition | None = None
        self._replies: list[ReplyRow] = []
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._broken: NerveError | None = None
        self._closed = False

    def close(self) -> None:
        """Take nothing more; what was noted before is still written, and if that fails nobody is told."""
        self._closed = True

    def note(
        self, type: str, path: str, data: str, settles: str | None = None, *, urgent: bool = True
    ) -> int:
        """Append an event; `urgent` when somebody waits for it to be on disk."""
        if self._closed:
            return self.seq
        self.seq = seq = self.seq + 1
        self._buffer.append(_row((seq, time(), type, path, settles, data)))
        if self._broken is None:
            if urgent:
                self._writer.now(self)
            else:
                self._writer.later(self)
        return seq

    @property
    def unwritten(self) -> list[Row]:
        """What was noted and is not on disk, as far as is known."""
        return [*self._taken, *self._buffer]

    def write_at_once(self) -> int:
        """Write now, as there is nobody to share a commit with; the number up to which all is on disk."""
        if self._broken is None:
            self._writer.at_once(self)
        return self.committed

    def pin(self, definition: Definition) -> None:
        """Store the definition together with the next write."""
        self._definition = definition

    def keep(self, reply: ReplyRow | None) -> None:
        """Store what is said to a command together with the event that it was noted as just now."""
        if reply is not None:
            self._replies.append(reply)

    def row_changed(self) -> None:
        """The projection of the run is to be written with the next append."""
        self._row = True

    def written_upto(self, seq: int) -> asyncio.Future[None]:
        """Done when everything up to `seq` is on disk; fails when it could not be written."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._broken is not None:
            future.set_exception(self._broken)
            future.exception()  # whoever waits is told; nobody has to
        elif seq <= self.committed:
            future.set_result(None)
        else:
            self._waiting.append((seq, future))
            self._writer.now(self)
        return future

    def take(self) -> Append | None:
        rows = self._buffer
        if not rows or self._broken is not None:
            return None
        self._taken, self._buffer = rows, []
        if not (self._row or self._replies or self._definition):
            return Append(self.run, self.committed, rows)
        row = self._row_of(rows[-1].at) if self._row else None
        definition, self._definition, self._row = self._definition, None, False
        replies, self._replies = self._replies, []
        return Append(self.run, self.committed, rows, row, definition, replies=replies)

    def written(self, error: Outcome) -> None:
        if error is not None:
            self._break(error)
            return
        rows, self._taken = self._taken, []
        self.committed = committed = rows[-1].seq
        waiting = self._waiting
        while waiting and waiting[0][0] <= committed:
            future = waiting.popleft()[1]
            if not future.done():
                future.set_result(None)
        self._on_written(rows)

    def _break(self, error: NerveError) -> None:
        self._broken = error
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # the run is held with it; nobody has to ask again
        self._waiting.clear()
        if not self._closed:
            self._on_error(error)
