"""Budgets shared by several runs, and the runs that resume when one is raised."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nerve.core.limits import Limits
from nerve.core.workflow.state import WorkflowState
from nerve.engine.budget import Budget, DailyBudget, Reservation, find_exhausted_budget
from nerve.engine.run_budget import create_run_budget, usage_from_data
from nerve.engine.task_tracking import spawn_detached
from nerve.errors import NerveError
from nerve.journal.events import limits_of_run, load_start_data, usage_in_progress, usage_of_rows

if TYPE_CHECKING:
    from nerve.engine.local_engine import LocalEngine

log = logging.getLogger("nerve")

MIDNIGHT_CHECK_INTERVAL_S = 60.0
"""Seconds between two clock checks while a run is held for the daily budget."""


class SessionBudgets:
    """The budgets that the runs of one engine share."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self._daily_budget: DailyBudget | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._midnight_timer: asyncio.TimerHandle | None = None

    @property
    def daily_budget(self) -> DailyBudget | None:
        """The daily budget, if the session has one."""
        engine = self._engine
        limits: Limits | None = getattr(engine._session, "budget", None)
        if limits is None:
            self._daily_budget = None
        elif self._daily_budget is None:
            self._daily_budget = DailyBudget(limits, engine.store, engine._session_name)
            # A budget that is set while agents are running has to include what they have reserved.
            for executor in engine.executors.values():
                self._daily_budget.budget.in_progress.update(executor.budget.reservations())
        elif self._daily_budget.limits is not limits:
            self._daily_budget.limits = limits
        return self._daily_budget

    def enclosing_budgets(self, start: Mapping[str, Any]) -> Iterator[Budget]:
        """Yield the budgets of the runs that enclose a run with this start data."""
        while (parent := start.get("parent")) is not None:
            executor = self._engine.executors.get(parent)
            if executor is not None:
                start = executor.start_data
                yield executor.budget.own_budget
            elif rows := self._engine.store.events(parent):
                start = load_start_data(rows)
                yield self.budget_of_run(parent)
            else:
                return

    def budget_of_run(self, run_id: str) -> Budget:
        """Return the budget of a run, from memory or from its journal."""
        executor = self._engine.executors.get(run_id)
        if executor is not None:
            return executor.budget.own_budget
        rows = self._engine.store.events(run_id)
        budget = create_run_budget(
            run_id, limits_of_run(rows), usage_of_rows(rows), load_start_data(rows) if rows else {}
        )
        for path, used in usage_in_progress(rows).items():
            budget.in_progress[path] = Reservation(usage_from_data(used))
        for row in self._engine.open_children(run_id):
            budget.in_progress[row.run] = self.budget_of_run(row.run)
        return budget

    async def wait_for_change(self) -> None:
        """Return when a budget may have more room than before."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def notify(self) -> None:
        """Wake the steps that wait for a budget."""
        # All waiters wake and check for themselves: which budget has room, and for whom, only they can
        # tell.
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- the daily budget ----------------------------------------------------------------------

    def watch_for_midnight(self) -> None:
        """Check the clock until the day has ended, because a run is held for the daily budget."""
        # Polled instead of one long timer, which would drift when the machine sleeps or its clock changes.
        if self._midnight_timer is None:
            self._midnight_timer = asyncio.get_running_loop().call_later(
                MIDNIGHT_CHECK_INTERVAL_S, self._check_midnight
            )

    def _check_midnight(self) -> None:
        self._midnight_timer = None
        if self._engine.closed or self._daily_budget is None:
            return
        if self._daily_budget.is_over:
            self.on_daily_budget_raised()
        else:
            self.watch_for_midnight()

    def on_daily_budget_raised(self) -> None:
        """Resume runs that wait for the daily budget, if an event loop is running."""
        self.notify()
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            spawn_detached(self.resume_held_runs())

    async def resume_held_runs(self) -> None:
        """Resume the runs that are held for the daily budget, unless it is still exhausted."""
        engine = self._engine
        held_runs = [
            executor.run
            for executor in engine.executors.values()
            if is_held_for_daily_budget(executor.run._held)
        ]
        rows = engine.store.runs(session=engine._session_name, states=[WorkflowState.HELD.value])
        idle_rows = (row for row in rows if row.run not in engine.executors)
        held_runs += [
            engine.run_handle(row) for row in idle_rows if is_held_for_daily_budget(engine.hold_data(row))
        ]
        if (
            held_runs
            and self.daily_budget is not None
            and find_exhausted_budget([self.daily_budget.budget]) is not None
        ):
            self.watch_for_midnight()
            return
        for run in held_runs:
            try:
                await engine.commands.resume(run, {})
            except (RuntimeError, ValueError, NerveError) as error:
                if is_held_for_daily_budget(run._held):
                    log.warning("run %s stays held: %s", run.run_id, error)

    def close(self) -> None:
        if self._midnight_timer is not None:
            self._midnight_timer.cancel()


def is_held_for_daily_budget(hold_data: Mapping[str, Any] | None) -> bool:
    return hold_data is not None and hold_data.get("reason") == "budget" and hold_data.get("purse") == "day"
