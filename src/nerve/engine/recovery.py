"""Recovery: resume open runs, and quarantine a run that keeps crashing the process.

Before a run is resumed, the store counts the attempt; the count is cleared when the run makes progress. After
a crash, the runs with a count may have caused it. They are resumed one at a time, so that only the run at
fault is counted again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

from nerve.background_tasks import wait_for_event
from nerve.core.clock import Clock
from nerve.core.events import WorkflowEventType
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import EXECUTED_STATE_VALUES, OPEN_STATE_VALUES, WorkflowState
from nerve.engine.child_runs import attempt_timer_path, find_child_attempts
from nerve.engine.run_chain import find_current_row
from nerve.engine.run_executor import RunExecutor, describe_error
from nerve.engine.task_tracking import spawn_detached
from nerve.errors import JournalBroken, StoreError
from nerve.journal.events import RequestAbandoned, TimerFired
from nerve.journal.index import JournalIndex, drop_undone, is_child_call, read_events, read_start
from nerve.lazy_dataclass import dataclass
from nerve.store.port import EventRow, RunRow, Store

log = logging.getLogger("nerve")

MAX_CRASHES = 3
"""Number of resume attempts without progress after which a run is quarantined."""

SUSPECT_INTERVAL_S = 1.0
"""Seconds a suspect run has to itself before the next one is resumed."""

MAX_RECOVERY_CPU_S = 0.1
"""Seconds of processor time after which the remaining runs are resumed in the background."""

MAX_ORDERED_RUNS = 1000
"""The number of open runs up to which they are resumed oldest first."""

RUNS_PER_BATCH = 20
"""Number of runs that are resumed in one turn of the loop."""

RUNS_PER_PAGE = 500
"""Number of rows read at a time if there are many open runs."""

MAX_PROBATION_S = 600.0
"""Seconds after which a run stops being a suspect, whatever it does."""

IDLE_EVENTS = frozenset(
    {
        WorkflowEventType.GATE_WAITING,
        WorkflowEventType.SIGNAL_WAITING,
        WorkflowEventType.TIMER_STARTED,
        WorkflowEventType.HELD,
        WorkflowEventType.PAUSED,
    }
)


class SkippedRun(NamedTuple):
    """An open run that was not resumed."""

    run: str
    workflow: str
    reason: str


@dataclass(frozen=True, slots=True)
class RecoveryOperations:
    """What recovery asks of the engine."""

    store: Store
    clock: Clock
    executors: Mapping[str, RunExecutor]
    is_closed: Callable[[], bool]
    owns: Callable[[RunRow], bool]
    run_handle: Callable[[RunRow], WorkflowRun]
    resume: Callable[[RunRow], WorkflowRun]
    park: Callable[[RunRow], None]
    mark_unreadable: Callable[[JournalBroken], dict[str, Any]]
    stop: Callable[[WorkflowRun, str], Awaitable[object]]
    hold: Callable[[WorkflowRun, str, str], Awaitable[None]]
    leave_queues: Callable[[str], None]
    """Removes a run that is not resumed from the queues it was in."""


class RunRecovery:
    """Resumes the runs of one engine and tracks those that have yet to make progress."""

    def __init__(self, operations: RecoveryOperations) -> None:
        self._operations = operations
        self.skipped_runs: list[SkippedRun] = []
        self.on_probation: dict[str, asyncio.Event] = {}
        self._cleared_runs: set[str] = set()
        self._clear_task: asyncio.Task[None] | None = None
        self._suspects_task: asyncio.Task[None] | None = None
        self._rest_task: asyncio.Task[None] | None = None

    async def recover(self) -> RecoveredRuns:
        """Resume the open runs; those that may have crashed the process follow in the background.

        So do the others, as soon as that has taken a while: the caller does not wait for thousands of runs.
        """
        operations, store = self._operations, self._operations.store
        self.skipped_runs = []
        crash_counts = store.resume_counts()
        counted_rows = [row for run_id in crash_counts if (row := store.run(run_id)) is not None]
        suspects = await self._select_resumable(
            row for row in counted_rows if row.state in EXECUTED_STATE_VALUES
        )
        quarantined = [row for row in suspects if crash_counts[row.run] >= MAX_CRASHES]
        retried_rows = [row for row in suspects if crash_counts[row.run] < MAX_CRASHES]
        runs = RecoveredRuns(store, operations.run_handle)
        for row in quarantined:
            if (run := await self._quarantine(row, crash_counts[row.run])) is not None:
                runs.append(run)
        batches = self._open_batches({row.run for row in suspects})
        began = time.thread_time()
        for batch in batches:
            runs.extend(await self._resume_batch(batch))
            if time.thread_time() - began > MAX_RECOVERY_CPU_S:
                self._rest_task = spawn_detached(self._resume_rest(batches, runs))
                break
        # A run that only waits writes nothing that would clear it, so it is checked once after a while.
        if self.on_probation:
            asyncio.get_running_loop().call_later(SUSPECT_INTERVAL_S, self._clear_waiting)
        if retried_rows:
            # They are listed at once, though they are resumed later: the caller sees every open run.
            runs.extend(row for row in retried_rows if operations.owns(row))
            self._suspects_task = spawn_detached(
                self._resume_one_by_one(sorted(retried_rows, key=lambda row: crash_counts[row.run]))
            )
        return runs

    def _open_batches(self, suspects: Container[str]) -> Iterator[list[RunRow]]:
        """Yield the open runs of all sessions without suspects: oldest first, or by state if many."""
        store = self._operations.store
        sessions = store.sessions()
        counts = [
            store.count_runs(session).get(state, 0) for session in sessions for state in OPEN_STATE_VALUES
        ]
        if sum(counts) <= MAX_ORDERED_RUNS:
            pages = iter([store.runs(states=OPEN_STATE_VALUES)])
        else:
            names = [(session, state) for session in sessions for state in OPEN_STATE_VALUES]
            pages = (page for session, state in names for page in read_pages(store, session, state))
        for page in pages:
            rows = [row for row in page if row.run not in suspects]
            for first in range(0, len(rows), RUNS_PER_BATCH):
                yield rows[first : first + RUNS_PER_BATCH]

    async def _select_resumable(self, rows: Iterable[RunRow]) -> list[RunRow]:
        """Return the runs that are not active, without those that their parents had abandoned: they stop."""
        abandoned: dict[str, set[str]] = {}
        inactive = [row for row in rows if row.run not in self._operations.executors]
        return [row for row in inactive if not await self._stop_abandoned_child(row, abandoned)]

    async def _resume_batch(self, batch: list[RunRow]) -> list[RunRow]:
        """Resume runs, or leave them parked; return those that are not skipped."""
        operations, now = self._operations, self._operations.clock.time()
        parked = [row for row in batch if is_parked(row, now) and row.parent is None and operations.owns(row)]
        rows = await self._select_resumable(row for row in batch if row not in parked)
        # Counted in one transaction before any of them executes code. Waiting runs execute none until
        # woken.
        self.mark_resuming(
            [row.run for row in rows if row.state == WorkflowState.RUNNING.value and operations.owns(row)]
        )
        return [row for row in (*parked, *rows) if self._resume_or_skip(row)]

    async def _resume_rest(self, batches: Iterator[list[RunRow]], runs: RecoveredRuns) -> None:
        """Resume the remaining runs, some in each turn of the loop."""
        for batch in batches:
            await asyncio.sleep(0)
            if self._operations.is_closed():
                return
            # A command may have changed a run since its page was read.
            current = [row for run in batch if (row := self._operations.store.run(run.run)) is not None]
            runs.extend(await self._resume_batch([row for row in current if row.state in OPEN_STATE_VALUES]))

    async def _stop_abandoned_child(self, row: RunRow, abandoned: dict[str, set[str]]) -> bool:
        """Stop a child run that its parent had abandoned before the process ended; return whether it was one.

        `abandoned` caches what each parent has abandoned.
        """
        operations = self._operations
        if row.parent is None or not operations.owns(row):
            return False
        try:
            call_path = read_start(operations.store, row.run).parent_path
            if row.parent not in abandoned:
                abandoned[row.parent] = find_abandoned_children(operations.store, row.parent)
            if abandoned[row.parent].isdisjoint((call_path, row.run)):
                return False
            await operations.stop(operations.run_handle(row), "its parent abandoned it")
        except Exception as error:  # one bad run must not block the others
            self._skip_run(row, error)
        return True

    async def _resume_one_by_one(self, rows: Iterable[RunRow]) -> None:
        """Resume runs one at a time; each is cleared before the next one can crash the process."""
        previous_id = ""
        for row in rows:
            # The previous run is cleared on disk before the next is counted: after a crash exactly one is
            # counted.
            await self._wait_for_proof(previous_id)
            if self._operations.is_closed():
                return
            # A user may have paused or stopped it meanwhile.
            current_row = self._operations.store.run(row.run)
            if (
                current_row is None
                or current_row.state not in EXECUTED_STATE_VALUES
                or row.run in self._operations.executors
            ):
                continue
            self._resume_or_skip(current_row)
            previous_id = row.run

    async def _wait_for_proof(self, run_id: str) -> None:
        """Give a run the process to itself until it makes progress, or for a while."""
        if (proof := self.on_probation.get(run_id)) is not None:
            await wait_for_event(proof, SUSPECT_INTERVAL_S)
            self._clear_all([run_id])
        if self._clear_task is not None:
            await asyncio.wait([self._clear_task])

    def _resume_or_skip(self, row: RunRow) -> bool:
        """Resume a run, or note that it waits; return whether that succeeded."""
        try:
            if is_parked(row, self._operations.clock.time()) and self._operations.owns(row):
                self._operations.park(row)
            else:
                self._operations.resume(row)
        except Exception as error:  # one bad run must not block the others
            self._skip_run(row, error)
            return False
        return True

    def _skip_run(self, row: RunRow, error: Exception) -> None:
        reason = str(error) if isinstance(error, ValueError | StoreError) else describe_error(error)
        if isinstance(error, JournalBroken):
            self._operations.mark_unreadable(error)
        log.warning("skipped run %s: %s", row.run, reason)
        self._operations.leave_queues(row.run)
        self.skipped_runs.append(SkippedRun(row.run, row.workflow, reason))

    async def _quarantine(self, row: RunRow, crash_count: int) -> WorkflowRun | None:
        """Hold a run without executing any of its code."""
        try:
            run = self._operations.run_handle(row)
            message = (
                f"The process ended {crash_count} times while resuming this run. Inspect its events,"
                " then retry or stop it."
            )
            await self._operations.hold(run, "quarantine", message)
        except Exception as error:  # one bad run must not block the others
            self._skip_run(row, error)
            return None
        log.error("run %s is held: %s", row.run, message)
        # Only after the hold is on disk: a crash in between must not give the run another attempt.
        self._operations.store.clear_resuming([row.run])
        return run

    @property
    def is_resuming(self) -> bool:
        """Whether runs are yet to be resumed."""
        tasks = (self._suspects_task, self._rest_task)
        return any(task is not None and not task.done() for task in tasks)

    # -- probation -----------------------------------------------------------------------------

    def mark_resuming(self, runs: Iterable[str]) -> None:
        """Count on disk that runs are about to be resumed."""
        new_ids = (
            [run for run in runs if run not in self.on_probation] if self._operations.store.durable else []
        )
        if new_ids:
            self._operations.store.mark_resuming(new_ids)
            self.on_probation |= {run: asyncio.Event() for run in new_ids}
            asyncio.get_running_loop().call_later(MAX_PROBATION_S, self._clear_all, new_ids)

    def on_events(self, run_id: str, rows: Iterable[EventRow]) -> None:
        """Clear a suspect when it has settled something or started to wait."""
        if run_id in self.on_probation and any(
            row.settles is not None or row.type in IDLE_EVENTS for row in rows
        ):
            self._clear(run_id)

    def _clear_all(self, runs: Iterable[str]) -> None:
        for run_id in runs:
            if run_id in self.on_probation:
                self._clear(run_id)

    def _clear_waiting(self) -> None:
        """Clear runs that only wait: they have nothing to write."""
        for run_id in list(self.on_probation):
            executor = self._operations.executors.get(run_id)
            if executor is None or executor.state.status is not WorkflowState.RUNNING:
                self._clear(run_id)

    def _clear(self, run_id: str) -> None:
        self.on_probation.pop(run_id).set()
        self._cleared_runs.add(run_id)
        if self._clear_task is None and not self._operations.is_closed():
            self._clear_task = spawn_detached(self._persist_cleared())

    async def _persist_cleared(self) -> None:
        try:
            while self._cleared_runs:
                cleared, self._cleared_runs = list(self._cleared_runs), set()
                await asyncio.to_thread(self._operations.store.clear_resuming, cleared)
        except StoreError as error:
            log.warning("could not clear crash counters: %s", error)
        finally:
            self._clear_task = None

    async def close(self) -> None:
        """Clear every run that is parked in an orderly shutdown."""
        for task in (self._suspects_task, self._rest_task):
            if task is not None:
                task.cancel()
        if self._clear_task is not None:
            await asyncio.wait([self._clear_task])
        runs = [*self.on_probation, *self._cleared_runs]
        self.on_probation, self._cleared_runs = {}, set()
        if runs:
            try:
                self._operations.store.clear_resuming(runs)
            except StoreError as error:
                log.warning("could not clear crash counters: %s", error)


class RecoveredRuns(Sequence[WorkflowRun]):
    """The open runs of a session, oldest first; the handle of a run is made when it is accessed."""

    def __init__(self, store: Store, run_handle: Callable[[RunRow], WorkflowRun]) -> None:
        self._store, self._run_handle = store, run_handle
        self._runs: list[WorkflowRun | RunRow] = []

    def append(self, run: WorkflowRun | RunRow) -> None:
        self._runs.append(run)

    def extend(self, runs: Iterable[WorkflowRun | RunRow]) -> None:
        self._runs.extend(runs)

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, index: int) -> WorkflowRun: ...

    @overload
    def __getitem__(self, index: slice) -> list[WorkflowRun]: ...

    def __getitem__(self, index: int | slice) -> WorkflowRun | list[WorkflowRun]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        run = self._runs[index]
        if isinstance(run, RunRow):
            # Kept: as long as a reference exists, all callers get the same handle.
            run = self._runs[index] = self._run_handle(self._store.run(run.run) or run)
        return run

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented


def read_pages(store: Store, session: str, state: str) -> Iterator[list[RunRow]]:
    """Yield the runs of a session in a state, newest first."""
    before: RunRow | None = None
    while page := store.runs(session=session, states=[state], before=before, newest=RUNS_PER_PAGE):
        before = page[0]
        yield page[::-1]


def is_parked(row: RunRow, now: float) -> bool:
    """Whether a run only waits, and its wait is not over: it is not touched until it is woken."""
    is_waiting = row.state == WorkflowState.WAITING.value and row.summary is not None
    return is_waiting and (row.wake is None or row.wake > now)


def find_abandoned_children(store: Store, run_id: str) -> set[str]:
    """Return the paths of abandoned calls, and the child runs whose attempts timed out."""
    events = read_events(store.events(run_id))
    counted, resets = drop_undone(events), JournalIndex(events).resets
    abandoned = {recorded.path for recorded in counted if isinstance(recorded.event, RequestAbandoned)}
    timers = {recorded.path for recorded in counted if isinstance(recorded.event, TimerFired)} - abandoned
    for path in [recorded.path for recorded in counted if is_child_call(recorded.event)] if timers else ():
        attempt_rows = find_child_attempts(store, run_id, resets.call_key(path))
        abandoned |= {
            find_current_row(store, row).run
            for number, row in enumerate(attempt_rows, 1)
            if attempt_timer_path(path, number) in timers
        }
    return abandoned
