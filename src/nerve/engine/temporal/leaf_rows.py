"""The rows that an attempt at a leaf writes to the projection, and the rows that it waits for."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from nerve.engine.temporal.messages import LeafInput, group_by_run
from nerve.errors import Conflict, OwnershipLost, StoreError
from nerve.journal.events import EmittedEvent
from nerve.store.port import Append, EventReader, EventRow, WaitRow
from nerve.store.postgres_projection import StartMissing, StepAttempt

log = logging.getLogger(__name__)
T = TypeVar("T")

GATHER_S = 0.05
"""How long rows are gathered before they are written together."""
RETRY_S, MAX_RETRY_S = 0.05, 2.0
"""The first and the longest pause before a failed write is repeated."""
ALARM_S = 60.0
"""How long the projection can be unavailable before the log says so as an error."""
POLL_S = 0.25
"""How often a leaf that waits for rows of its run looks for them."""


class Projection(Protocol):
    """Where the rows of runs are written; its methods block and can be called from any thread."""

    def append(self, run: str, parts: Sequence[Append], attempt: StepAttempt | None = None) -> int: ...

    def begin_attempt(self, run: str, attempt: StepAttempt) -> None: ...

    def with_budgets(self, work: Callable[[Any], T]) -> T: ...


class JournalReader(EventReader, Protocol):
    """Where the rows of runs are read; its methods block and can be called from any thread."""

    def waits_of_run(self, run: str) -> list[WaitRow]: ...


def attempt_of(leaf: LeafInput, number: int) -> StepAttempt:
    """Return the attempt as the projection names it; Temporal counts the attempts from 1."""
    return StepAttempt(leaf.path, leaf.started, number)


async def repeat_until_written(write: Callable[[], T], is_awaited: Callable[[Conflict], bool]) -> T:
    """Return the result of a blocking write, repeated while the projection cannot be reached.

    `is_awaited` says whether a conflict ends by itself, when another process has written its rows.
    """
    began, pause = time.monotonic(), RETRY_S
    while True:
        try:
            return await asyncio.to_thread(write)
        except OwnershipLost:
            raise
        except Conflict as error:
            if not is_awaited(error):
                raise
            problem: StoreError = error
        except StoreError as error:
            problem = error
        if time.monotonic() - began > ALARM_S:
            log.error("The projection has not accepted rows for %d s: %s", ALARM_S, problem)
            began = time.monotonic()
        await asyncio.sleep(pause)
        pause = min(2 * pause, MAX_RETRY_S)


async def write_journal(projection: Projection, parts: Sequence[Append]) -> None:
    """Write parts of journals of a family, each run in its order."""
    for run, run_parts in group_by_run(parts):
        # Rows before these may still be on their way with another leaf.
        await repeat_until_written(partial(projection.append, run, run_parts), lambda conflict: True)


class LeafRows:
    """Writes the rows of one attempt in their order, gathered for a moment.

    `on_refused` is called when the projection refuses them, because a later attempt has begun.
    """

    def __init__(
        self, projection: Projection, run: str, attempt: StepAttempt, on_refused: Callable[[], None]
    ) -> None:
        self._projection, self._run, self._attempt = projection, run, attempt
        self._on_refused = on_refused
        self._rows: list[EventRow] = []
        self._number = 0
        self._written = 0
        self._writing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._flush: asyncio.Task[None] | None = None
        self._refusal: StoreError | None = None

    async def begin(self) -> None:
        """Let only this attempt write from now on; Conflict if a later one has begun.

        Waits for the start of the run, which may be on its way with another worker: a journal begins with it.
        """
        await repeat_until_written(
            lambda: self._projection.begin_attempt(self._run, self._attempt),
            lambda conflict: isinstance(conflict, StartMissing),
        )

    def add(self, type: str, data: dict[str, Any]) -> None:
        """Add an event of the step, to be written soon."""
        text = EmittedEvent(type, data).encode()
        self._number += 1
        self._rows.append(EventRow(self._number, time.time(), type, self._attempt.path, None, text))
        if self._timer is None and self._refusal is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._start_flush)

    def _start_flush(self) -> None:
        self._timer = None
        self._flush = asyncio.ensure_future(self._flush_quietly())

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except StoreError as error:
            log.info("The rows of %s are refused: %s", self._attempt.source, error)

    async def flush(self) -> None:
        """Return when all rows so far are written; StoreError if they are refused."""
        async with self._writing:
            if self._refusal is not None:
                raise self._refusal
            rows, self._rows = self._rows, []
            if not rows:
                return
            part = Append(self._run, self._written, rows)
            try:
                await repeat_until_written(
                    lambda: self._projection.append(self._run, [part], self._attempt), lambda conflict: False
                )
            except StoreError as error:
                self._refusal = error
                self._on_refused()
                raise
            except asyncio.CancelledError:
                # Whether they are written is not known; written again, they are left out.
                self._rows = [*rows, *self._rows]
                raise
            self._written = rows[-1].seq

    async def close(self) -> None:
        """Write the last rows; rows that are added later are dropped."""
        if self._timer is not None:
            self._timer.cancel()
        if self._flush is not None:
            await asyncio.wait([self._flush])
        await self._flush_quietly()
        self._refusal = self._refusal or StoreError("the attempt has ended")


async def follow_rows(reader: JournalReader, run: str, after: int) -> AsyncIterator[EventRow]:
    """Yield the rows of a run after a number, as they are written."""
    while True:
        try:
            rows = await asyncio.to_thread(reader.events, run, after)
        except StoreError as error:
            log.info("The journal of run %s cannot be read: %s", run, error)
            rows = []
        for row in rows:
            yield row
            after = row.seq
        if not rows:
            await asyncio.sleep(POLL_S)


async def wait_for_rows(reader: JournalReader, run: str, after: int, seconds: float) -> int:
    """Return when a run has rows after a number, or after some seconds; return the number of its last row."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(StoreError):
            last = await asyncio.to_thread(reader.last_event, run)
            if last is not None and last.seq > after:
                return last.seq
        await asyncio.sleep(min(POLL_S, seconds))
    return after
