"""Writer: all runs that wait for the disk share one commit."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from nerve.engine.tasks import outside
from nerve.errors import NerveError, StoreBusy, StoreFailed
from nerve.store.port import Append, Store

log = logging.getLogger("nerve")

LAZY = 0.02
"""Seconds that a record nobody waits for may stay in memory."""

INLINE_SYNC = 0.001
"""A disk that is waited for less than that is written to on the event loop."""

Outcome = NerveError | None


class Author(Protocol):
    """One journal that has something to write."""

    def take(self) -> Append | None:
        """What is to be written now."""

    def written(self, error: Outcome) -> None:
        """What became of the last thing taken."""


class Writer:
    """Collects what all authors want to write in one turn of the loop, and commits it as a group.

    On a quick disk the commit is made inline. On a slower one a thread makes it, and what comes
    meanwhile is the next group.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._context = outside()
        self._dirty: dict[Author, None] = {}
        self._scheduled = False
        self._lazy: asyncio.TimerHandle | None = None
        self._thread: SimpleQueue[Callable[[], None] | None] | None = None
        self._in_flight = False
        self._since: float | None = None
        self._sync = 0.0
        self._idle: asyncio.Event | None = None

    @property
    def waits(self) -> float:
        """Seconds for which the disk has not taken what is being written."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    @property
    def queued(self) -> int:
        """How many journals have something that is not written yet."""
        return len(self._dirty)

    def now(self, author: Author) -> None:
        """Write at the end of this turn of the loop."""
        self._dirty[author] = None
        if not self._scheduled and not self._in_flight:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush, context=self._context)

    def at_once(self, author: Author) -> None:
        """Write before this returns, if the disk is quick and nobody else has anything to write."""
        if self._in_flight or self._scheduled or self._sync >= INLINE_SYNC:
            self.now(author)
        else:
            self._dirty[author] = None
            self._flush()

    def later(self, author: Author) -> None:
        """Write with the next group, or soon; nobody waits for it."""
        self._dirty[author] = None
        if self._lazy is None:
            self._lazy = asyncio.get_running_loop().call_later(
                LAZY, self._flush_lazily, context=self._context
            )

    async def drained(self) -> None:
        """Return when nothing is left to write."""
        while self._dirty or self._in_flight:
            if self._dirty and not self._in_flight and not self._scheduled:
                self.now(next(iter(self._dirty)))
            if self._idle is None:
                self._idle = asyncio.Event()
            await self._idle.wait()

    def close(self) -> None:
        if self._lazy is not None:
            self._lazy.cancel()
            self._lazy = None
        if self._thread is not None:
            self._thread.put(None)

    def _flush_lazily(self) -> None:
        self._lazy = None
        if self._dirty and not self._scheduled and not self._in_flight:
            self._flush()

    def _flush(self) -> None:
        self._scheduled = False
        authors, batch = self._collect()
        if not batch:
            self._rest()
            return
        self._in_flight = True
        if not self._store.durable or self._sync < INLINE_SYNC:
            try:
                self._done(authors, self._commit(batch, 0.0))
                return
            except StoreBusy:
                pass
        self._hand_over(authors, batch)

    def _collect(self) -> tuple[list[Author], list[Append]]:
        authors: list[Author] = []
        batch: list[Append] = []
        dirty, self._dirty = self._dirty, {}
        for author in dirty:
            try:
                append = author.take()
            except Exception as error:
                log.exception("what is to be written could not be put together")
                tell(author, StoreFailed(f"{type(error).__name__}: {error}"))
                continue
            if append is not None:
                authors.append(author)
                batch.append(append)
        return authors, batch

    def _commit(self, batch: list[Append], patience: float) -> list[Outcome]:
        began, worked = time.perf_counter(), time.thread_time()
        try:
            outcomes: list[Outcome] = list(self._store.append(batch, patience))
        except StoreBusy as error:
            if patience == 0.0:
                raise
            outcomes = [error] * len(batch)
        except NerveError as error:
            outcomes = [error] * len(batch)
        except Exception as error:
            outcomes = [StoreFailed(f"{type(error).__name__}: {error}")] * len(batch)
        # What is work and not waiting takes as long in a thread, where it fights for the interpreter lock.
        waited = max(0.0, time.perf_counter() - began - (time.thread_time() - worked))
        self._sync += (waited - self._sync) * 0.1
        return outcomes

    def _hand_over(self, authors: list[Author], batch: list[Append]) -> None:
        if self._thread is None:
            self._thread = SimpleQueue()
            threading.Thread(target=work, args=(self._thread,), name="nerve-writer", daemon=True).start()
        loop = asyncio.get_running_loop()
        self._since = time.monotonic()

        def job() -> None:
            outcomes = self._commit(batch, 30.0)
            try:
                loop.call_soon_threadsafe(self._done, authors, outcomes)
            except RuntimeError:
                pass  # the loop has ended meanwhile, and whoever waited with it

        self._thread.put(job)

    def _done(self, authors: list[Author], outcomes: list[Outcome]) -> None:
        self._in_flight, self._since = False, None
        for author, outcome in zip(authors, outcomes, strict=True):
            tell(author, outcome)
        if self._dirty and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush, context=self._context)
        self._rest()

    def _rest(self) -> None:
        if self._idle is not None and not self._dirty and not self._in_flight:
            self._idle.set()
            self._idle = None


def tell(author: Author, outcome: Outcome) -> None:
    """What one author does with the news keeps the others from none of theirs."""
    try:
        author.written(outcome)
    except Exception:
        log.exception("what was written could not be taken in")


def work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
