"""The budgets of runs: the tree that the runs of a session share, and the part that one run uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from nerve.core.clock import SYSTEM_CLOCK, Clock, ClockTimer
from nerve.core.limits import Limits, RunUsage, split_step_limits
from nerve.core.step_names import step_path
from nerve.core.workflow.run import RunState
from nerve.core.workflow.state import FINAL_STATES
from nerve.engine.budget import Budget, ExhaustedBudget, day_bounds
from nerve.engine.child_runs import find_child_attempts
from nerve.engine.run_chain import find_current_row
from nerve.engine.run_journal import RunJournal
from nerve.engine.run_summary import local_day, usage_of_day
from nerve.engine.task_tracking import spawn_detached
from nerve.journal.events import ChildStopped, RunStarted, read_intact
from nerve.journal.index import ChildCallIndex, JournalIndex
from nerve.journal.paths import is_within_step
from nerve.store.port import EventRow, Store

MIDNIGHT_CHECK_INTERVAL_S = 60.0
"""Seconds between two clock checks while a run is held for the daily budget."""
UNLIMITED = Limits()


class SessionBudgets:
    """The budgets of a session: the day, the active runs, and the runs around and below them."""

    def __init__(
        self,
        store: Store,
        session_name: str,
        daily_limits: Limits | None,
        resume_held_runs: Callable[[], Coroutine[Any, Any, None]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store, self._session_name, self._clock = store, session_name, clock
        self._resume_held_runs = resume_held_runs
        self.daily_limits = daily_limits
        """What all runs together may spend per day."""
        self.day = Budget(UNLIMITED, "Daily session budget", "session.budget = …")
        self._day_ends_at = 0.0
        self._runs: dict[str, Budget] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._midnight_timer: ClockTimer | None = None
        self._is_closed = False

    # -- the runs ------------------------------------------------------------------------------

    def budget_of_run(self, run_id: str) -> Budget:
        """Return the budget of a run, with the figures of its journal unless the run is active."""
        budget = self._runs.get(run_id)
        if budget is None or not budget.is_active:
            budget = self._load_run(run_id, self._store.events(run_id))
        return budget

    def activate_run(self, run_id: str, limits: Limits, start: RunStarted, index: JournalIndex) -> Budget:
        """Return the budget of a run that becomes active, with the figures of its journal."""
        previous = self._runs.get(start.previous_run or "")
        budget = self._add_run(run_id, limits, start.parent, start.parent_path or "")
        budget.is_active = True
        if previous is not None:
            # The run includes what its chain used before, which must not count twice in its parent.
            previous.correct(RunUsage(), today=False)
            self.remove_run(previous)
        if index.seq:
            self._load(budget, index)
        return budget

    def deactivate_run(self, budget: Budget, is_ended: bool) -> None:
        """Keep the usage of a run that becomes inactive only where an open run needs it."""
        if budget.steps:
            in_progress = RunUsage()
            for step in budget.steps.values():
                for reservation in list(step.reservations):
                    step.commit(reservation, reservation.amount)
                in_progress.add(step.usage)
                step.correct(RunUsage())
            budget.steps.clear()
            # For the day only the steps of active runs are in progress: it counts the others when they end.
            budget.count(in_progress, today=False)
        budget.is_active = False
        if budget.parent is self.day and (is_ended or not budget.children):
            self.remove_run(budget)
        self.notify()

    def remove_run(self, budget: Budget) -> None:
        """Remove a run and its children from the tree; what they used stays counted around them."""
        if budget.children:
            for child in list(budget.children.values()):
                self.remove_run(child)
        if budget.parent is not None and budget.run_id is not None:
            budget.parent.children.pop(budget.run_id, None)
            self._runs.pop(budget.run_id, None)

    def raise_limits(self, run_id: str, limits: Mapping[str, Any]) -> None:
        """Raise the budget of a run, active or not."""
        if (budget := self._runs.get(run_id)) is not None:
            budget.limits = budget.limits.with_raised(split_step_limits(limits)[0])
        self.notify()

    def _load_run(self, run_id: str, rows: Sequence[EventRow]) -> Budget:
        index = JournalIndex(rows)
        start = index.start
        budget = self._add_run(run_id, index.limits, start.parent, start.parent_path or "")
        self._load(budget, index)
        return budget

    def _add_run(self, run_id: str, limits: Limits, parent_id: str | None, call_path: str) -> Budget:
        """Return the budget of a run, added to that of its parent."""
        # A parent may be inactive while its child runs; loading it may add this child as well.
        if parent_id is not None and parent_id not in self._runs and (rows := self._store.events(parent_id)):
            self._load_run(parent_id, rows)
        parent = self.day if parent_id is None else self._runs.get(parent_id, self.day)
        if (budget := self._runs.get(run_id)) is None:
            owner = "Run budget" if parent_id is None else "Child run budget"
            budget = Budget(limits, owner, "resume(limits=…)", parent, run_id, call_path=call_path)
            self._runs[run_id] = budget
            if parent is not self.day:
                parent.children[run_id] = budget
        budget.limits = limits
        return budget

    def _load(self, budget: Budget, index: JournalIndex) -> None:
        """Set the figures of a run to those of its journal, with its steps and child runs in progress."""
        assert budget.run_id is not None
        usage = replace(index.usage)
        usage.spend(index.start.used_before)
        for path, used in index.usage_in_progress.items():
            usage.spend(used)
            if budget.is_active:
                find_step(budget, path).correct(RunUsage.of(used))
        open_children = set[str]()
        for run_id, path, is_replaced in self._find_open_children(budget.run_id, index.children):
            if (child := self._runs.get(run_id)) is None:
                if not (rows := read_intact(self._store, run_id)):
                    continue
                child = self._load_run(run_id, rows)
            child.call_path, child.is_replaced = path, is_replaced
            open_children.add(run_id)
            usage.add(child.usage)
        for run_id in budget.children.keys() - open_children:
            self.remove_run(budget.children[run_id])
        # The day has counted this usage when it was used, which may have been on another day.
        budget.correct(usage, today=False)
        counts = budget.usage
        counts.steps, counts.iterations, counts.errors = usage.steps, usage.iterations, usage.errors

    def _find_open_children(self, run_id: str, calls: ChildCallIndex) -> Iterator[tuple[str, str, bool]]:
        """Yield the id and call path of every child run, in all attempts, whose usage is not recorded yet.

        The last value is whether the call was reset.
        """
        open_calls = [(path, key, False) for path, key in calls.open_calls.items()]
        replaced_calls = [(path, key, True) for path, key in calls.replaced_calls]
        for path, key, is_replaced in (*open_calls, *replaced_calls):
            for row in find_child_attempts(self._store, run_id, key):
                # The usage of a chain is that of its current run, which includes the earlier ones.
                child_id = find_current_row(self._store, row).run
                if child_id not in calls.counted_runs:
                    yield child_id, path, is_replaced

    # -- waiting for room ----------------------------------------------------------------------

    async def wait_for_change(self) -> None:
        """Return when a budget may have more room than before."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def notify(self) -> None:
        """Wake the steps that wait for a budget."""
        # All waiters wake and check for themselves: which budget has room, and for whom, only they can
        # tell.
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- the daily budget ----------------------------------------------------------------------

    def update_day(self) -> Budget:
        """Return the daily budget; a new day begins at midnight, local time."""
        limits = self.daily_limits
        self.day.limits = limits or UNLIMITED
        if limits is not None and self._is_day_over:
            begins, self._day_ends_at = day_bounds(self._clock.time())
            # Read from the store: runs of earlier processes count, and a crash loses nothing.
            self.day.usage = usage_of_day(self._store, self._session_name, local_day(begins))
            for budget in self._runs.values():
                for step in budget.steps.values():
                    self.day.usage.add(step.usage)
        return self.day

    @property
    def _is_day_over(self) -> bool:
        return self._clock.time() >= self._day_ends_at

    def watch_for_midnight(self) -> None:
        """Check the clock until the day has ended, because a run is held for the daily budget."""
        # Polled instead of one long timer, which would drift when the machine sleeps or its clock changes.
        if self._midnight_timer is None and not self._is_closed:
            self._midnight_timer = self._clock.call_later(MIDNIGHT_CHECK_INTERVAL_S, self._check_midnight)

    def _check_midnight(self) -> None:
        self._midnight_timer = None
        if self._is_day_over:
            self.on_daily_budget_raised()
        else:
            self.watch_for_midnight()

    def change_daily_limits(self, limits: Limits | None) -> None:
        """Use other daily limits, and resume the runs that wait for the daily budget."""
        self.daily_limits = limits
        self.on_daily_budget_raised()

    def on_daily_budget_raised(self) -> None:
        """Resume runs that wait for the daily budget, if an event loop is running."""
        self.notify()
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            spawn_detached(self._resume_held_runs())

    def close(self) -> None:
        self._is_closed = True
        if self._midnight_timer is not None:
            self._midnight_timer.cancel()


class RunBudget:
    """The budget of an active run and of its steps."""

    _unlimited: Limits | None = None
    """The limits of the run, if they do not limit it and it is not part of another run."""
    _is_closed = False

    def __init__(
        self,
        run_id: str,
        state: RunState,
        start: RunStarted,
        index: JournalIndex,
        journal: RunJournal,
        budgets: SessionBudgets,
        usage_of_stopped_runs: Callable[[Sequence[str]], dict[str, Any]],
    ) -> None:
        self._run_id, self._state, self._journal = run_id, state, journal
        self._budgets, self._usage_of_stopped_runs = budgets, usage_of_stopped_runs
        self._raised_step_limits = dict(index.step_limits)
        self._budget = budgets.activate_run(run_id, state.limits, start, index)
        self.usage = self._budget.usage
        self.agent_steps: Mapping[str, Budget] = self._budget.steps
        """The agent steps in progress, by path."""

    @property
    def is_limited(self) -> bool:
        """Whether any limit applies, so that other runs skip the checks."""
        limits, budgets = self._state.limits, self._budgets
        # Limits are immutable, and read before every step. Only runs around this one can get others unseen.
        if self._unlimited is limits and budgets.daily_limits is None:
            return False
        day, parent = budgets.update_day(), self._budget.parent
        if limits.has_counted_limits or day.limits.has_budgets:
            return True
        if parent is not day:
            return any(budget.limits.has_budgets for budget in self._budget.chain())
        self._unlimited = limits
        return False

    def wait_for_change(self) -> Awaitable[None]:
        """Wait until a budget may have more room than before."""
        return self._budgets.wait_for_change()

    def watch_for_midnight(self) -> None:
        """Check the clock until the day has ended, because the run is held for the daily budget."""
        self._budgets.watch_for_midnight()

    def find_exhausted(self) -> ExhaustedBudget | None:
        """Return the budget that is exhausted for whatever the run does next."""
        self._budgets.update_day()
        return self._budget.find_exhausted()

    def find_exhausted_for_turn(
        self, path: str, limits: Limits | None, usage_data: Mapping[str, Any], include_reserved: bool
    ) -> ExhaustedBudget | None:
        """Return the budget without room for a turn of the step; `usage_data` is the step's usage so far."""
        step, amount = self._prepare_turn(path, limits, usage_data)
        return step.find_exhausted(amount, include_reserved)

    def begin_turn(self, path: str, limits: Limits | None, usage_data: Mapping[str, Any]) -> bool:
        """Reserve a turn if every budget has room for it."""
        step, amount = self._prepare_turn(path, limits, usage_data)
        return step.reserve(amount) is not None

    def end_turn(self, path: str, usage_data: Mapping[str, Any]) -> None:
        """End a turn; `usage_data` is the step's usage so far."""
        step = self._budget.steps.get(path)
        # A run that became inactive meanwhile has counted the turn.
        if step is not None and step.reservations:
            step.commit(step.reservations[0], usage_of_step(usage_data).minus(step.usage))
            self._budgets.notify()

    def _prepare_turn(
        self, path: str, limits: Limits | None, usage_data: Mapping[str, Any]
    ) -> tuple[Budget, RunUsage]:
        """Return the budget of a step, and what its next turn needs."""
        self._budgets.update_day()
        step = find_step(self._budget, path)
        if limits is not None:
            step.limits = limits.with_raised(self._raised_step_limits.get(step.step_path, {}))
        step.correct(usage_of_step(usage_data))
        return step, amount_of_turn(step.usage)

    def spend(self, path: str, usage: Any, by_child: bool) -> None:
        """Count the recorded usage of a call in place of what it has used so far."""
        step = self._budget.steps.pop(path, None)
        if usage is None and step is None and not by_child:
            return  # most steps are not agents, and this runs after every one
        difference = RunUsage.of(usage)
        if step is not None:
            difference.add(step.usage, sign=-1)
        for child in self._children_at(path) if by_child else ():
            difference.add(child.usage, sign=-1)
            self._budgets.remove_run(child)
        # The day has counted the steps of a child run one by one.
        self._budget.count(difference, today=not by_child)
        self._budgets.notify()

    def raise_limits(self, limits: Mapping[str, Any]) -> None:
        """Raise limits of the run or of its steps."""
        for path, step_limits in split_step_limits(limits)[1].items():
            self._raised_step_limits[path] = {**self._raised_step_limits.get(path, {}), **step_limits}
        self._budgets.raise_limits(self._run_id, limits)
        self._state.limits = self._budget.limits

    def close(self) -> None:
        """End the reservations of a run that has become inactive."""
        if not self._is_closed:
            self._is_closed = True
            self._budgets.deactivate_run(self._budget, self._state.status in FINAL_STATES)

    def taken_by_child(self, path: str) -> dict[str, float]:
        """Return the usage of a call's child run so far, in all attempts."""
        usage = RunUsage()
        for child in self._children_at(path):
            usage.add(child.usage)
        return usage.to_dict()

    @property
    def open_children(self) -> list[tuple[str, str]]:
        """The call paths and ids of child runs without a recorded outcome."""
        return [(child.call_path, run_id) for run_id, child in self._budget.children.items()]

    def on_replaced(self, path: str) -> None:
        """Keep counting the usage of child runs at a path whose records were reset."""
        for child in self._budget.children.values():
            child.is_replaced = child.is_replaced or is_within_step(child.call_path, path)

    def record_stopped_children(self, path: str | None = None) -> None:
        """Record the usage of stopped child runs: those replaced at a path, or all."""
        for run_id, child in list(self._budget.children.items()):
            if path is None or (child.is_replaced and child.call_path == path):
                used = self._usage_of_stopped_runs([run_id])
                # The event carries the usage from here on; the child must not be counted as well.
                self._budget.count(RunUsage.of(used).minus(child.usage), today=False)
                self._budgets.remove_run(child)
                if used:
                    self._journal.append(ChildStopped(run_id, used), child.call_path)

    def _children_at(self, path: str) -> list[Budget]:
        """Return the child runs of a call, in all attempts."""
        children = self._budget.children.values()
        return [child for child in children if child.call_path == path and not child.is_replaced]


def find_step(run: Budget, path: str) -> Budget:
    """Return the budget of an agent step of a run, added if it is new."""
    if (step := run.steps.get(path)) is None:
        limited_path = step_path(path)
        how_to_raise = f"resume(limits={{'{limited_path}': …}})"
        step = Budget(
            UNLIMITED, f"Budget of step {limited_path}", how_to_raise, run, run.run_id, limited_path
        )
        run.steps[path] = step
    return step


def usage_of_step(usage_data: Mapping[str, Any]) -> RunUsage:
    """Return the usage of an agent step so far; it counts as an agent from its first turn on."""
    usage = RunUsage.of(usage_data)
    usage.agents = 1 if usage.turns else 0
    return usage


def amount_of_turn(used: RunUsage) -> RunUsage:
    """Return what the next turn of a step needs that has used something already."""
    # The step must not be refused for the agent that it already is itself.
    return RunUsage(turns=1, agents=1 - used.agents)
