"""Recovery: open runs are taken up again; one that keeps ending the process is held instead.

That a run is about to be taken up is counted on disk before, and forgotten when it has done anything since.
What is left after a crash are the runs that may have caused it. Those are taken up one after the other, so
that the one that did is counted alone.
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
"""How many times a run may be taken up without anything coming of it."""

SUSPECT_INTERVAL_S = 1.0
"""Seconds after which the next of the runs that are under suspicion is taken up."""

MAX_PROBATION_S = 600.0
"""Seconds after which a run is above suspicion, whatever it does."""

OPEN_STATES = [state.value for state in WorkflowState if state not in FINAL_STATES]
ACTIVE_STATES = (WorkflowState.RUNNING.value, WorkflowState.WAITING.value)
IDLE_EVENTS = frozenset(
    {"gate_waiting", "signal_waiting", "timer_started", "workflow_held", "workflow_paused"}
)


class SkippedRun(NamedTuple):
    """A run that is open and was not taken up."""

    run: str
    workflow: str
    reason: str


class RunRecovery:
    """Takes up the runs of one engine, and knows which of them have yet to show that they do no harm."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self.skipped_runs: list[SkippedRun] = []
        self.on_probation: dict[str, asyncio.Event] = {}
        self._cleared_runs: set[str] = set()
        self._clear_task: asyncio.Task[None] | None = None
        self._suspects_task: asyncio.Task[None] | None = None

    async def recover(self) -> list[WorkflowRun]:
        """Take up every open run; those that may have ended the process follow in the background."""
        engine = self._engine
        self.skipped_runs = []
        rows = [row for row in engine.store.runs(states=OPEN_STATES) if row.run not in engine.executors]
        abandoned: dict[str, set[str]] = {}
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
        self.mark_resuming(
            [row.run for row in trusted_rows if row.state == WorkflowState.RUNNING.value and engine.owns(row)]
        )
        runs += [run for row in trusted_rows if (run := self._resume_or_skip(row)) is not None]
        if self.on_probation:
            asyncio.get_running_loop().call_later(SUSPECT_INTERVAL_S, self._clear_waiting)
        if retried_rows:
            runs += [run for row in retried_rows if (run := self._find_handle(row)) is not None]
            self._suspects_task = spawn_detached(
                self._resume_one_by_one(sorted(retried_rows, key=lambda row: crash_counts[row.run]))
            )
        return runs

    async def _stop_abandoned_child(self, row: RunRow, abandoned: dict[str, set[str]]) -> bool:
        """Stop a child run that its parent had given up before the process ended; whether it was one.

        `dropped` has what each parent has given up, as far as it was read already.
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
            await engine.commands.stop(engine.run_handle(row), "the parent gave it up")
        except Exception as error:  # one bad run keeps no other from being taken up
            self._skip_run(row, error)
        return True

    async def _resume_one_by_one(self, rows: Iterable[RunRow]) -> None:
        """Take up runs in turn. Who did no harm while it was alone is not blamed for what comes after it."""
        previous_id = ""
        for row in rows:
            await self._wait_for_proof(previous_id)
            if self._engine.closed:
                return
            current_row = self._engine.store.run(row.run)  # people may have paused or stopped it meanwhile
            if (
                current_row is None
                or current_row.state not in ACTIVE_STATES
                or row.run in self._engine.executors
            ):
                continue
            self._resume_or_skip(current_row)
            previous_id = row.run

    async def _wait_for_proof(self, run_id: str) -> None:
        """Let a run have the process to itself until it has done something, or for a while."""
        if (proof := self.on_probation.get(run_id)) is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(proof.wait(), SUSPECT_INTERVAL_S)
            self._clear_all([run_id])
        if self._clear_task is not None:
            await asyncio.wait([self._clear_task])

    def _resume_or_skip(self, row: RunRow) -> WorkflowRun | None:
        try:
            return self._engine.resume_run(row)
        except Exception as error:  # one bad run keeps no other from being taken up
            self._skip_run(row, error)
            return None

    def _find_handle(self, row: RunRow) -> WorkflowRun | None:
        """The run of a row that is taken up later."""
        try:
            return self._engine.run_handle(row) if self._engine.owns(row) else None
        except Exception:  # said when it is taken up
            return None

    def _skip_run(self, row: RunRow, error: Exception) -> None:
        why = str(error) if isinstance(error, ValueError | StoreError) else describe_error(error)
        if isinstance(error, JournalBroken):
            self._engine.mark_unreadable(error)
        log.warning("run %s is left alone: %s", row.run, why)
        self.skipped_runs.append(SkippedRun(row.run, row.workflow, why))

    async def _quarantine(self, row: RunRow, crash_count: int) -> WorkflowRun | None:
        """Hold a run, without a line of it being executed."""
        try:
            run = self._engine.run_handle(row)
            message = (
                f"the process ended {crash_count} times when this run was taken up. Look at its events;"
                " then retry it, or stop it."
            )
            await self._engine.commands.hold(run, "quarantine", message)
        except Exception as error:  # one bad run keeps no other from being taken up
            self._skip_run(row, error)
            return None
        log.error("run %s is held: %s", row.run, message)
        self._engine.store.clear_resuming([row.run])
        return run

    # -- proof ---------------------------------------------------------------------------------

    def mark_resuming(self, runs: Iterable[str]) -> None:
        """Count on disk that runs are about to be taken up."""
        new = [run for run in runs if run not in self.on_probation] if self._engine.store.durable else []
        if new:
            self._engine.store.mark_resuming(new)
            self.on_probation |= {run: asyncio.Event() for run in new}
            asyncio.get_running_loop().call_later(MAX_PROBATION_S, self._clear_all, new)

    def on_events(self, run_id: str, rows: Iterable[EventRow]) -> None:
        """Something of a run is on disk; it is above suspicion when it has settled something, or rests."""
        if run_id in self.on_probation and any(
            row.settles is not None or row.type in IDLE_EVENTS for row in rows
        ):
            self._clear(run_id)

    def _clear_all(self, runs: Iterable[str]) -> None:
        for run_id in runs:
            if run_id in self.on_probation:
                self._clear(run_id)

    def _clear_waiting(self) -> None:
        """Runs that only wait have nothing to write."""
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
            log.warning("runs stay under suspicion: %s", error)
        finally:
            self._clear_task = None

    async def close(self) -> None:
        """What is parked in good order is above suspicion."""
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
                log.warning("runs stay under suspicion: %s", error)


def find_abandoned_children(store: Store, run_id: str) -> set[str]:
    """The paths of what a body had asked for and given up, and the child runs whose time ran out."""
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
