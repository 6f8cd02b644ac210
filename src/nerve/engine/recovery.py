"""Recovery: resume open runs, and quarantine a run that keeps crashing the process.

Before a run is resumed, the store counts the attempt; the count is cleared when the run makes progress. After
a crash, the runs with a count may have caused it. They are resumed one at a time, so that only the run at
fault is counted again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from nerve.core.json_codec import decode_json
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import FINAL_STATES, WorkflowState
from nerve.engine.child_runs import attempt_timer_path, find_child_attempts
from nerve.engine.run_executor import describe_error
from nerve.engine.task_tracking import spawn_detached
from nerve.errors import JournalBroken, StoreError
from nerve.journal.events import call_key, find_resets
from nerve.journal.replay import ABANDON_EVENTS, drop_reset_rows, is_child_start
from nerve.store.port import EventRow, RunRow, Store

if TYPE_CHECKING:
    from nerve.engine.local_engine import LocalEngine

log = logging.getLogger("nerve")

MAX_CRASHES = 3
"""Number of resume attempts without progress after which a run is quarantined."""

SUSPECT_INTERVAL_S = 1.0
"""Seconds a suspect run has to itself before the next one is resumed."""

MAX_PROBATION_S = 600.0
"""Seconds after which a run stops being a suspect, whatever it does."""

OPEN_STATES = [state.value for state in WorkflowState if state not in FINAL_STATES]
ACTIVE_STATES = (WorkflowState.RUNNING.value, WorkflowState.WAITING.value)
IDLE_EVENTS = frozenset(
    {"gate_waiting", "signal_waiting", "timer_started", "workflow_held", "workflow_paused"}
)


class SkippedRun(NamedTuple):
    """An open run that was not resumed."""

    run: str
    workflow: str
    reason: str


class RunRecovery:
    """Resumes the runs of one engine and tracks those that have yet to make progress."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self.skipped_runs: list[SkippedRun] = []
        self.on_probation: dict[str, asyncio.Event] = {}
        self._cleared_runs: set[str] = set()
        self._clear_task: asyncio.Task[None] | None = None
        self._suspects_task: asyncio.Task[None] | None = None

    async def recover(self) -> list[WorkflowRun]:
        """Resume every open run; those that may have crashed the process follow in the background."""
        engine = self._engine
        self.skipped_runs = []
        rows = [row for row in engine.store.runs(states=OPEN_STATES) if row.run not in engine.executors]
        abandoned: dict[str, set[str]] = {}
        # A child that its parent had abandoned must not be resumed, only stopped.
        rows = [row for row in rows if not await self._stop_abandoned_child(row, abandoned)]
        crash_counts = engine.store.resume_counts() if rows else {}
        suspects = {row.run: row for row in rows if crash_counts.get(row.run) and row.state in ACTIVE_STATES}
        quarantined = [row for row in suspects.values() if crash_counts[row.run] >= MAX_CRASHES]
        retried_rows = [row for row in suspects.values() if crash_counts[row.run] < MAX_CRASHES]
        trusted_rows = [row for row in rows if row.run not in suspects]
        runs = [
            run
            for row in quarantined
            if (run := await self._quarantine(row, crash_counts[row.run])) is not None
        ]
        # Counted in one transaction before any of them executes code. Waiting runs execute none until
        # woken.
        self.mark_resuming(
            [row.run for row in trusted_rows if row.state == WorkflowState.RUNNING.value and engine.owns(row)]
        )
        runs += [run for row in trusted_rows if (run := self._resume_or_skip(row)) is not None]
        # A run that only waits writes nothing that would clear it, so it is checked once after a while.
        if self.on_probation:
            asyncio.get_running_loop().call_later(SUSPECT_INTERVAL_S, self._clear_waiting)
        if retried_rows:
            # Handles are returned at once, though the runs are resumed later: the caller sees every open
            # run.
            runs += [run for row in retried_rows if (run := self._find_handle(row)) is not None]
            self._suspects_task = spawn_detached(
                self._resume_one_by_one(sorted(retried_rows, key=lambda row: crash_counts[row.run]))
            )
        return runs

    async def _stop_abandoned_child(self, row: RunRow, abandoned: dict[str, set[str]]) -> bool:
        """Stop a child run that its parent had abandoned before the process ended; return whether it was one.

        `abandoned` caches what each parent has abandoned.
        """
        engine = self._engine
        if row.parent is None or not engine.owns(row):
            return False
        try:
            call_path = decode_json(engine.store.events(row.run, 0, 1)[0].data).get("parent_path")
            if row.parent not in abandoned:
                abandoned[row.parent] = find_abandoned_children(engine.store, row.parent)
            if abandoned[row.parent].isdisjoint((call_path, row.run)):
                return False
            await engine.commands.stop(engine.run_handle(row), "its parent abandoned it")
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
            if self._engine.closed:
                return
            current_row = self._engine.store.run(row.run)  # a user may have paused or stopped it meanwhile
            if (
                current_row is None
                or current_row.state not in ACTIVE_STATES
                or row.run in self._engine.executors
            ):
                continue
            self._resume_or_skip(current_row)
            previous_id = row.run

    async def _wait_for_proof(self, run_id: str) -> None:
        """Give a run the process to itself until it makes progress, or for a while."""
        if (proof := self.on_probation.get(run_id)) is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(proof.wait(), SUSPECT_INTERVAL_S)
            self._clear_all([run_id])
        if self._clear_task is not None:
            await asyncio.wait([self._clear_task])

    def _resume_or_skip(self, row: RunRow) -> WorkflowRun | None:
        try:
            return self._engine.resume_run(row)
        except Exception as error:  # one bad run must not block the others
            self._skip_run(row, error)
            return None

    def _find_handle(self, row: RunRow) -> WorkflowRun | None:
        """Return the handle of a run that is resumed later."""
        try:
            return self._engine.run_handle(row) if self._engine.owns(row) else None
        except Exception:  # reported when the run is resumed
            return None

    def _skip_run(self, row: RunRow, error: Exception) -> None:
        reason = str(error) if isinstance(error, ValueError | StoreError) else describe_error(error)
        if isinstance(error, JournalBroken):
            self._engine.mark_unreadable(error)
        log.warning("skipped run %s: %s", row.run, reason)
        self.skipped_runs.append(SkippedRun(row.run, row.workflow, reason))

    async def _quarantine(self, row: RunRow, crash_count: int) -> WorkflowRun | None:
        """Hold a run without executing any of its code."""
        try:
            run = self._engine.run_handle(row)
            message = (
                f"The process ended {crash_count} times while resuming this run. Inspect its events,"
                " then retry or stop it."
            )
            await self._engine.commands.hold(run, "quarantine", message)
        except Exception as error:  # one bad run must not block the others
            self._skip_run(row, error)
            return None
        log.error("run %s is held: %s", row.run, message)
        # Only after the hold is on disk: a crash in between must not give the run another attempt.
        self._engine.store.clear_resuming([row.run])
        return run

    # -- probation -----------------------------------------------------------------------------

    def mark_resuming(self, runs: Iterable[str]) -> None:
        """Count on disk that runs are about to be resumed."""
        new_ids = [run for run in runs if run not in self.on_probation] if self._engine.store.durable else []
        if new_ids:
            self._engine.store.mark_resuming(new_ids)
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
            executor = self._engine.executors.get(run_id)
            if executor is None or executor.run._state is not WorkflowState.RUNNING:
                self._clear(run_id)

    def _clear(self, run_id: str) -> None:
        self.on_probation.pop(run_id).set()
        self._cleared_runs.add(run_id)
        if self._clear_task is None and not self._engine.closed:
            self._clear_task = spawn_detached(self._persist_cleared())

    async def _persist_cleared(self) -> None:
        try:
            while self._cleared_runs:
                cleared, self._cleared_runs = list(self._cleared_runs), set()
                await asyncio.to_thread(self._engine.store.clear_resuming, cleared)
        except StoreError as error:
            log.warning("could not clear crash counters: %s", error)
        finally:
            self._clear_task = None

    async def close(self) -> None:
        """Clear every run that is parked in an orderly shutdown."""
        if self._suspects_task is not None:
            self._suspects_task.cancel()
        if self._clear_task is not None:
            await asyncio.wait([self._clear_task])
        runs = [*self.on_probation, *self._cleared_runs]
        self.on_probation, self._cleared_runs = {}, set()
        if runs:
            try:
                self._engine.store.clear_resuming(runs)
            except StoreError as error:
                log.warning("could not clear crash counters: %s", error)


def find_abandoned_children(store: Store, run_id: str) -> set[str]:
    """Return the paths of abandoned calls, and the child runs whose attempts timed out."""
    rows = store.events(run_id)
    counted_rows, resets = drop_reset_rows(list(rows)), find_resets(rows)
    abandoned = {row.path for row in counted_rows if row.type in ABANDON_EVENTS}
    fired_timers = {row.path for row in counted_rows if row.type == "timer_fired"} - abandoned
    for path in [row.path for row in counted_rows if is_child_start(row)] if fired_timers else ():
        attempt_rows = find_child_attempts(store, run_id, call_key(path, resets))
        abandoned |= {
            row.run
            for number, row in enumerate(attempt_rows, 1)
            if attempt_timer_path(path, number) in fired_timers
        }
    return abandoned
