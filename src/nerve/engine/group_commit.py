"""Group commit: all runs with pending events share one commit and its sync."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Protocol

from nerve.engine.task_tracking import detached_context
from nerve.errors import NerveError, StoreBusy, StoreFailed
from nerve.store.port import Append, Store

log = logging.getLogger("nerve")

LAZY_FLUSH_DELAY_S = 0.02
"""Maximum seconds that an event no task waits for stays in memory."""

MAX_INLINE_SYNC_S = 0.001
"""Commits that wait for the disk less than this run on the event loop."""

COMMIT_PATIENCE_S = 30.0
"""Seconds for which a commit waits for the store before the runs in it are held."""

CommitOutcome = NerveError | None


class CommitSource(Protocol):
    """A journal or dataspace with pending writes."""

    def drain(self) -> Append | None:
        """Return what to write now, or None."""

    def on_commit(self, error: CommitOutcome) -> None:
        """Report the outcome of the last drained write."""


class GroupCommitter:
    """Collect the pending writes of one turn of the loop and commit them as a group.

    On a fast disk the commit runs inline. On a slower one it runs in a thread, and writes that arrive
    meanwhile form the next group.
    """

    def __init__(self, store: Store, time_watchers: Sequence[Callable[[float], None]] = ()) -> None:
        """The watchers get the seconds of every commit, in the thread that commits."""
        self._store, self._time_watchers = store, time_watchers
        # Callbacks run in a context without a task owner; otherwise the body that happened to append would
        # count as busy.
        self._context = detached_context()
        self._dirty_sources: dict[CommitSource, None] = {}
        self._is_flush_scheduled = False
        self._lazy_timer: asyncio.TimerHandle | None = None
        self._thread_jobs: SimpleQueue[Callable[[], None] | None] | None = None
        self._is_committing = False
        self._commit_started_at: float | None = None
        self._sync_wait_s = 0.0
        self._idle_event: asyncio.Event | None = None

    @property
    def disk_wait_s(self) -> float:
        """Seconds for which the current commit has been in progress."""
        return 0.0 if self._commit_started_at is None else time.monotonic() - self._commit_started_at

    @property
    def average_sync_wait_s(self) -> float:
        """Seconds for which commits wait for the disk, as a moving average."""
        return self._sync_wait_s

    @property
    def queued_count(self) -> int:
        """Number of journals with pending writes."""
        return len(self._dirty_sources)

    @property
    def has_pending_writes(self) -> bool:
        """Whether something is yet to be written."""
        return bool(self._dirty_sources) or self._is_committing

    def flush_all_soon(self) -> None:
        """Write everything at the end of this turn of the loop."""
        if self._dirty_sources:
            self.flush_soon(next(iter(self._dirty_sources)))

    def flush_soon(self, source: CommitSource) -> None:
        """Write at the end of this turn of the loop."""
        self._dirty_sources[source] = None
        if not self._is_flush_scheduled and not self._is_committing:
            self._schedule_flush()

    def _schedule_flush(self) -> None:
        self._is_flush_scheduled = True
        asyncio.get_running_loop().call_soon(self._on_turn_end, context=self._context)

    def _on_turn_end(self, is_last_in_queue: bool = False) -> None:
        # Bodies that wake in this turn record events that belong to the same commit, so they come first.
        if not is_last_in_queue and getattr(asyncio.get_running_loop(), "_ready", None):
            asyncio.get_running_loop().call_soon(self._on_turn_end, True, context=self._context)
            return
        self._is_flush_scheduled = False
        if not self._is_committing:
            self._flush()

    def flush_now(self, source: CommitSource) -> None:
        """Write before returning, if the disk is fast and no commit is in progress."""
        # A commit in progress holds earlier rows: writing past it would break the order of the journal.
        if self._is_committing or self._sync_wait_s >= MAX_INLINE_SYNC_S:
            self.flush_soon(source)
        else:
            self._dirty_sources[source] = None
            self._flush()

    def flush_lazily(self, source: CommitSource) -> None:
        """Write with the next group, or after a short delay."""
        self._dirty_sources[source] = None
        if self._lazy_timer is None:
            self._lazy_timer = asyncio.get_running_loop().call_later(
                LAZY_FLUSH_DELAY_S, self._on_lazy_timer, context=self._context
            )

    async def wait_drained(self) -> None:
        """Return when nothing is left to write."""
        while self._dirty_sources or self._is_committing:
            if self._dirty_sources and not self._is_committing and not self._is_flush_scheduled:
                self.flush_soon(next(iter(self._dirty_sources)))
            if self._idle_event is None:
                self._idle_event = asyncio.Event()
            await self._idle_event.wait()

    def close(self) -> None:
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
            self._lazy_timer = None
        if self._thread_jobs is not None:
            self._thread_jobs.put(None)

    def _on_lazy_timer(self) -> None:
        self._lazy_timer = None
        if self._dirty_sources and not self._is_flush_scheduled and not self._is_committing:
            self._flush()

    def _flush(self) -> None:
        sources, batch = self._collect()
        if not batch:
            self._notify_idle()
            return
        self._is_committing = True
        if self._sync_wait_s < MAX_INLINE_SYNC_S or not self._store.durable:
            try:
                self._on_committed(sources, self.commit_batch(batch, 0.0))
                return
            # Another process holds the write lock. Waiting for it belongs in the thread, not on the event
            # loop.
            except StoreBusy:
                pass
        self._commit_in_thread(sources, batch)

    def _collect(self) -> tuple[list[CommitSource], list[Append]]:
        sources: list[CommitSource] = []
        batch: list[Append] = []
        # Taken over at once: callbacks of this commit may register new writes, which belong to the next
        # group.
        dirty, self._dirty_sources = self._dirty_sources, {}
        for source in dirty:
            try:
                append = source.drain()
            except Exception as error:
                log.exception("could not collect pending events")
                notify_source(source, StoreFailed(f"{type(error).__name__}: {error}"))
                continue
            if append is not None:
                sources.append(source)
                batch.append(append)
        return sources, batch

    def commit_batch(self, batch: list[Append], timeout: float) -> Sequence[CommitOutcome]:
        """Write a batch to the store and return the outcome of each part."""
        started_at, cpu_started_at = time.perf_counter(), time.thread_time()
        try:
            outcomes: Sequence[CommitOutcome] = self._store.append(batch, timeout)
        # Not an outcome yet: _flush() repeats the same batch in the thread. The store has written nothing.
        except StoreBusy as error:
            if timeout == 0.0:
                raise
            outcomes = [error] * len(batch)
        except NerveError as error:
            outcomes = [error] * len(batch)
        except Exception as error:
            outcomes = [StoreFailed(f"{type(error).__name__}: {error}")] * len(batch)
        # Only waiting counts: CPU work takes as long in a thread, and competes for the interpreter lock.
        took_s = time.perf_counter() - started_at
        waited_s = max(0.0, took_s - (time.thread_time() - cpu_started_at))
        for watcher in self._time_watchers:
            watcher(took_s)
        self._sync_wait_s += (waited_s - self._sync_wait_s) * 0.1
        return outcomes

    def _commit_in_thread(self, sources: list[CommitSource], batch: list[Append]) -> None:
        if self._thread_jobs is None:
            self._thread_jobs = SimpleQueue()
            threading.Thread(
                target=run_jobs, args=(self._thread_jobs,), name="nerve-writer", daemon=True
            ).start()
        loop = asyncio.get_running_loop()
        self._commit_started_at = time.monotonic()

        def job() -> None:
            outcomes = self.commit_batch(batch, COMMIT_PATIENCE_S)
            try:
                loop.call_soon_threadsafe(self._on_committed, sources, outcomes)
            except RuntimeError:
                pass  # the loop has ended, and its waiters with it

        self._thread_jobs.put(job)

    def _on_committed(self, sources: list[CommitSource], outcomes: Sequence[CommitOutcome]) -> None:
        self._is_committing, self._commit_started_at = False, None
        for source, outcome in zip(sources, outcomes, strict=True):
            notify_source(source, outcome)
        if self._dirty_sources and not self._is_flush_scheduled:
            self._schedule_flush()
        if self._idle_event is not None:
            self._notify_idle()

    def _notify_idle(self) -> None:
        if self._idle_event is not None and not self._dirty_sources and not self._is_committing:
            self._idle_event.set()
            self._idle_event = None


def notify_source(source: CommitSource, outcome: CommitOutcome) -> None:
    """Report an outcome; an error in one source must not keep the others from theirs."""
    try:
        source.on_commit(outcome)
    except Exception:
        log.exception("commit callback failed")


def run_jobs(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    """Run jobs of the commit thread until None is queued."""
    while (job := jobs.get()) is not None:
        job()
