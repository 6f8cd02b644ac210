"""The queues of a session: which steps and runs hold their slots, and which wait for one.

One process owns a store, so the queues are in memory. The store has what a restart needs, in rows beside the
waits of runs: who holds a slot, the starts that count against a rate, and which queues are paused. These rows
are written with the events of the runs, in the same commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

from nerve.core.clock import SYSTEM_CLOCK, Clock
from nerve.core.queues import Queue, QueueRequest, find_queue
from nerve.core.workflow.state import EXECUTED_STATE_VALUES
from nerve.engine.group_commit import CommitOutcome, GroupCommitter
from nerve.engine.queue_lane import QueueEntry, QueueLane
from nerve.engine.run_summary import QUEUE_KIND
from nerve.engine.task_tracking import detached_context
from nerve.journal.events import QueueEntered, QueueWaiting
from nerve.lazy_dataclass import dataclass
from nerve.store.port import Append, Store, WaitRow

SLOT_KIND, START_KIND, PAUSED_KIND = "queue_slot", "queue_start", "queue_paused"
"""The kinds of the rows of queues. In place of a run, the last two name the queue."""
WAIT_SUFFIX, SLOT_SUFFIX = "~queue", "~slot"
"""What follows the path of a step, or "" for a run, in the paths of its wait and of its slot."""
MAX_DELETED_ROWS = 500
"""Rows of old starts that one write deletes."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as users see it."""

    name: str
    concurrency: int | None = None
    rate: str | None = None
    per: str | None = None
    priority: str | None = None
    running: int = 0
    waiting: int = 0
    oldest_wait: float | None = None
    """Since when its first entry waits, in seconds since the epoch; None if none waits."""
    is_paused: bool = False
    is_declared: bool = True
    """Whether the session declares it; entries of another one wait until it does."""


class SessionQueues:
    """The queues of one engine."""

    answers_later = False
    """Whether an entry that can have a slot gets it only some time after it was added."""

    def __init__(
        self,
        store: Store,
        session_name: str,
        declared: Callable[[], Mapping[str, Queue]],
        get_committer: Callable[[], GroupCommitter],
        is_shutting_down: Callable[[], bool],
        wake_run: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`wake_run` continues an inactive run whose turn it is."""
        self._store, self._session_name, self._get_declared = store, session_name, declared
        self._get_committer, self._is_shutting_down, self._wake_run = (
            get_committer,
            is_shutting_down,
            wake_run,
        )
        self._clock = clock
        self._lanes: dict[tuple[str, str | None], QueueLane] = {}
        self._entries: dict[str, dict[str, QueueEntry]] = {}
        """The entries by run and path."""
        self._paused: set[str] = set()
        self._numbers = count(1)
        self._is_loaded, self._is_restored = False, False
        self._due: dict[tuple[str, str | None], float] = {}
        """When the lanes that wait for their rate are looked at again."""
        self._deleted_rows: list[WaitRow] = []
        self._pending_rows: list[WaitRow] = []
        self._durable: asyncio.Future[None] | None = None
        self._in_flight: asyncio.Future[None] | None = None

    @property
    def declared(self) -> Mapping[str, Queue]:
        """The queues that the session declares."""
        return self._get_declared()

    def forget(self) -> None:
        """Forget everything in memory, because the loop has ended on which it was used."""
        self._lanes.clear()
        self._entries.clear()
        self._due.clear()
        self._is_loaded = self._is_restored = False

    # -- entries -------------------------------------------------------------------------------

    def enter(
        self, run_id: str, path: str, request: QueueRequest, arrived_at: float | None = None
    ) -> QueueEntry:
        """Return the entry of a step or run, which is granted at once if it has, or can have, a slot."""
        self._load()
        entry = self._entries.get(run_id, {}).get(path)
        if entry is not None and entry.request[:2] != request[:2]:
            self.leave(entry)  # the code has changed the queue of the step since the last process
            entry = None
        if entry is None:
            arrived_at = self._clock.time() if arrived_at is None else arrived_at
            entry = self._add_entry(run_id, path, request, arrived_at)
            self._lane_of(entry).add_waiting(entry)
        entry.is_claimed = True
        self._grant(self._lane_of(entry))
        return entry

    def leave(self, entry: QueueEntry) -> None:
        """Remove an entry: its slot is free for the next one in the next turn of the loop."""
        if entry.has_left:
            return
        lane = self._lane_of(entry)
        lane.remove(entry)
        entries = self._entries.get(entry.run_id, {})
        if entries.get(entry.path) is entry:
            del entries[entry.path]
            if not entries:
                del self._entries[entry.run_id]
        # Not now: the event that settles the step is appended first, so it is on disk before the start of
        # the next entry.
        self._grant_soon(lane)

    def leave_run(self, run_id: str, is_ended: bool = False) -> None:
        """Remove the entries of a run that is paused, held or over; an open run keeps the slot of its own."""
        for entry in list(self._entries.get(run_id, {}).values()):
            # A step that executes leaves when its task has ended.
            is_kept = entry.is_granted and (entry.is_run or entry.is_claimed)
            if is_ended or not is_kept:
                self.leave(entry)

    def leave_unclaimed(self, run_id: str) -> None:
        """Remove what a run has not asked for again: its code has changed, or it cannot continue."""
        for entry in list(self._entries.get(run_id, {}).values()):
            if not entry.is_claimed:
                self.leave(entry)

    def on_slot(self, run_id: str, path: str) -> None:
        """Continue a step, or a run, to which another process has given a slot."""
        raise NotImplementedError("This engine gives the slots itself")

    def is_waiting(self, run_id: str, path: str = "") -> bool:
        """Whether a run, or a step of it, waits for a slot."""
        entry = self._entries.get(run_id, {}).get(path)
        return entry is not None and entry.is_waiting

    def has_entries(self, run_id: str) -> bool:
        return run_id in self._entries

    def _add_entry(self, run_id: str, path: str, request: QueueRequest, arrived_at: float) -> QueueEntry:
        entry = QueueEntry(run_id, path, request, arrived_at, next(self._numbers))
        self._entries.setdefault(run_id, {})[path] = entry
        return entry

    def _lane_of(self, entry: QueueEntry) -> QueueLane:
        return self._find_lane(entry.request.queue, entry.request.key)

    def _find_lane(self, name: str, key: str | None) -> QueueLane:
        lane = self._lanes.get((name, key))
        if lane is None:
            lane = self._lanes[name, key] = QueueLane(name, key)
        return lane

    def _schedule(self, delay: float, callback: Callable[[], None]) -> None:
        """Call back in a context that belongs to no body."""
        detached_context().run(self._clock.call_later, delay, callback)

    # -- slots ---------------------------------------------------------------------------------

    def _grant_soon(self, lane: QueueLane) -> None:
        self._schedule(0.0, lambda: self._grant(lane))

    def _grant(self, lane: QueueLane) -> None:
        """Give slots to the entries whose turn it is."""
        queue = self.declared.get(lane.name)
        if queue is None or lane.name in self._paused or self._is_shutting_down():
            return
        rate, now = queue.window, self._clock.monotonic()
        self._delete_rows(lane, lane.drop_old_starts(rate, now))
        while (entry := lane.find_next()) is not None and lane.has_free_slot(queue):
            if (delay := lane.seconds_until_start(rate, now)) > 0:
                self._look_again(lane, now + delay)
                return
            lane.grant(entry)
            if rate is not None:
                entry.start_row = f"{entry.run_id}{entry.path}@{self._clock.time():.6f}"
                lane.starts.append((now, entry.start_row))
            if entry.on_granted is not None:
                entry.on_granted()
            elif not entry.is_claimed:
                self._wake_run(entry.run_id)
        if lane.starts and rate is not None and not lane.waiting_count:
            # Looked at again only to be forgotten: there may be a lane for every customer.
            self._look_again(lane, lane.starts[-1][0] + rate.seconds)
        elif lane.is_empty and self._lanes.get((lane.name, lane.key)) is lane:
            del self._lanes[lane.name, lane.key]

    def _look_again(self, lane: QueueLane, at: float) -> None:
        """Look at a lane again at a time, unless that is planned already."""
        name = (lane.name, lane.key)
        if name in self._due and self._clock.monotonic() < self._due[name] <= at:
            return
        self._due[name] = at

        def look() -> None:
            if self._due.get(name) == at:
                del self._due[name]
            self._grant(self._find_lane(*name))

        self._schedule(max(0.0, at - self._clock.monotonic()), look)

    def rows_of(self, entry: QueueEntry) -> list[WaitRow]:
        """Return the rows of an entry that has just got its slot, and of starts that no longer count."""
        queue, key, _ = entry.request
        now, session, data = self._clock.time(), self._session_name, QueueEntered(queue, key).encode()
        rows, self._deleted_rows = (
            self._deleted_rows[:MAX_DELETED_ROWS],
            self._deleted_rows[MAX_DELETED_ROWS:],
        )
        rows.append(WaitRow(session, entry.run_id, entry.path + SLOT_SUFFIX, SLOT_KIND, now, data))
        if entry.start_row is not None:
            rows.append(WaitRow(session, self._row_owner(queue), entry.start_row, START_KIND, now, data))
        return rows

    def release_row(self, entry: QueueEntry) -> WaitRow:
        """Return the row that closes the slot of an entry in the store."""
        return WaitRow(self._session_name, entry.run_id, entry.path + SLOT_SUFFIX, SLOT_KIND, 0.0, None)

    def _delete_rows(self, lane: QueueLane, paths: Iterable[str]) -> None:
        owner = self._row_owner(lane.name)
        self._deleted_rows += [
            WaitRow(self._session_name, owner, path, START_KIND, 0.0, None) for path in paths
        ]

    def _row_owner(self, queue: str) -> str:
        return row_owner(self._session_name, queue)

    # -- the store -----------------------------------------------------------------------------

    def _load(self) -> None:
        """Read what outlives a process: paused queues, starts, and the slots of whole runs."""
        if self._is_loaded:
            return
        self._is_loaded = True
        store, session = self._store, self._session_name
        prefix = self._row_owner("")
        self._paused = {row.run.removeprefix(prefix) for row in store.open_waits(session, PAUSED_KIND)}
        wall_now, now = self._clock.time(), self._clock.monotonic()
        for row in store.open_waits(session, START_KIND):
            lane = self._find_lane(*read_lane(row))
            # On the clock of the loop: from now on, a change of the system time moves no window.
            lane.starts.append((now - max(0.0, wall_now - row.since), row.path))
        for row in store.open_waits(session, SLOT_KIND):
            if row.path == SLOT_SUFFIX:
                self._restore_holder(row)

    def restore(self) -> None:
        """Take over the entries of runs that recovery resumes, before it resumes the first one.

        So a step that was interrupted keeps its slot until its run asks for it, and the others their turns.
        """
        self._load()
        self._is_restored = True
        for row in self._stored_entries():
            if row.kind == SLOT_KIND:
                self._restore_holder(row)
            else:
                waiting = read_waiting(row)
                request = QueueRequest(waiting.queue, waiting.key, waiting.priority)
                entry = self._add_entry(row.run, step_of_wait(row.path), request, row.since)
                self._lane_of(entry).add_waiting(entry)

    def start_waiting(self) -> None:
        """Give free slots to the entries that were restored."""
        self._grant_all()

    def _restore_holder(self, row: WaitRow) -> None:
        path = row.path.removesuffix(SLOT_SUFFIX)
        if path not in self._entries.get(row.run, {}):
            entry = self._add_entry(row.run, path, QueueRequest(*read_lane(row)), row.since)
            entry.is_recorded = True
            self._lane_of(entry).add_holder(entry)

    def _stored_entries(self) -> Iterator[WaitRow]:
        """Yield the slots, then the waits, of open runs that are not in memory."""
        is_executed: dict[str, bool] = {}
        for kind, suffix in ((SLOT_KIND, SLOT_SUFFIX), (QUEUE_KIND, WAIT_SUFFIX)):
            for row in self._store.open_waits(self._session_name, kind):
                path = row.path.removesuffix(suffix) if kind == SLOT_KIND else step_of_wait(row.path)
                if path in self._entries.get(row.run, {}):
                    continue
                if row.run not in is_executed:
                    run = self._store.run(row.run)
                    is_executed[row.run] = run is not None and run.state in EXECUTED_STATE_VALUES
                # A paused or held run asks for its slots again when it is resumed.
                if is_executed[row.run]:
                    yield row

    # -- pause, resume and lists ---------------------------------------------------------------

    async def pause(self, name: str) -> None:
        """Grant no more slots of a queue, until it is resumed; return when that is on disk."""
        await self._set_paused(name, True)

    async def resume(self, name: str) -> None:
        """Grant slots of a paused queue again; return when that is on disk."""
        await self._set_paused(name, False)

    async def _set_paused(self, name: str, is_paused: bool) -> None:
        self._load()
        # A queue that is not declared any more can still be resumed.
        if name not in self._paused:
            find_queue(self.declared, name)
        (self._paused.add if is_paused else self._paused.discard)(name)
        data = "{}" if is_paused else None
        row = WaitRow(self._session_name, self._row_owner(name), "", PAUSED_KIND, self._clock.time(), data)
        self._pending_rows.append(row)
        if self._durable is None:
            self._durable = asyncio.get_running_loop().create_future()
        durable = self._durable
        self._get_committer().flush_soon(self)
        if not is_paused:
            self._grant_all()
        await asyncio.shield(durable)

    def drain(self) -> Append | None:
        rows, self._pending_rows = self._pending_rows, []
        self._in_flight, self._durable = self._durable, None
        return Append("", 0, (), waits=rows) if rows else None

    def on_commit(self, error: CommitOutcome) -> None:
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is None or in_flight.done():
            return
        if error is None:
            in_flight.set_result(None)
        else:
            in_flight.set_exception(error)

    def _grant_all(self) -> None:
        for lane in list(self._lanes.values()):
            self._grant(lane)

    def on_declared(self) -> None:
        """Look at all lanes, because a queue was declared or changed."""
        if self._is_loaded:
            self._grant_all()

    def describe_queues(self) -> list[QueueInfo]:
        """Return the declared queues, and others that have entries or are paused, by name."""
        self._load()
        running: dict[str, int] = {}
        waiting: dict[str, list[float]] = {}
        for entries in self._entries.values():
            for entry in entries.values():
                name = entry.request.queue
                if entry.is_granted:
                    running[name] = running.get(name, 0) + 1
                else:
                    waiting.setdefault(name, []).append(entry.arrived_at)
        # A process that only looks has restored nothing.
        for row in () if self._is_restored else self._stored_entries():
            name = read_lane(row)[0]
            if row.kind == SLOT_KIND:
                running[name] = running.get(name, 0) + 1
            else:
                waiting.setdefault(name, []).append(row.since)
        declared = self.declared
        names = sorted({*declared, *running, *waiting, *self._paused})
        return [
            QueueInfo(
                name,
                *((q.concurrency, q.rate, q.per, q.priority) if (q := declared.get(name)) else (None,) * 4),
                running=running.get(name, 0),
                waiting=len(waiting.get(name, ())),
                oldest_wait=min(waiting.get(name, ()), default=None),
                is_paused=name in self._paused,
                is_declared=name in declared,
            )
            for name in names
        ]


def row_owner(session: str, queue: str) -> str:
    """Return what rows that belong to a queue have in place of a run."""
    return f"queue {session}/{queue}"


def read_waiting(wait: WaitRow) -> QueueWaiting:
    return QueueWaiting.decode(wait.data or "{}")


def read_lane(wait: WaitRow) -> tuple[str, str | None]:
    """Return the queue and the key of a stored row."""
    entered = QueueEntered.decode(wait.data or "{}")
    return entered.queue, entered.key


def step_of_wait(path: str) -> str:
    """Return the path of the step that a wait for a queue belongs to; "" for the run itself."""
    return path.rpartition(WAIT_SUFFIX)[0]
