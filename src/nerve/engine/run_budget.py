"""The budgets that the steps of one run spend from, and the reservations of each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nerve.core.limits import Limits, RunUsage, split_step_limits
from nerve.engine.budget import Budget, ExhaustedBudget, Reservation, find_exhausted_budget
from nerve.journal.events import (
    ChildCalls,
    find_child_calls,
    raised_step_limits,
    step_of_attempt,
    usage_in_progress,
)
from nerve.journal.replay import is_within_step
from nerve.store.port import EventRow

if TYPE_CHECKING:
    from nerve.engine.run_executor import RunExecutor


class RunBudget:
    """A step spends from its own budget, its run's, those of enclosing runs, and the daily one."""

    def __init__(self, executor: RunExecutor, rows: Sequence[EventRow]) -> None:
        self._executor = executor
        self._raised_step_limits = raised_step_limits(rows) if rows else {}
        self.own_budget = create_run_budget(
            executor.run.run_id, executor.limits, executor.usage, executor.start_data
        )
        for path, usage_data in usage_in_progress(rows).items() if rows else ():
            self._reserve(path, usage_data)
        self._replaced_children: dict[str, str] = {}
        """The call paths of replaced child runs, by id; the usage of those runs still counts."""
        # Only changed code can stop requesting a child; otherwise replay reaches every open call by itself.
        if executor.has_optional_history:
            self._count_open_children(find_child_calls(rows))
        self.update_is_counted()

    def update_is_counted(self) -> None:
        """Update whether any limit applies, so that other runs skip the bookkeeping."""
        executor = self._executor
        is_parent_budgeted = executor.start_data.get("parent") is not None and any(
            budget.limits.has_budgets
            for budget in executor.host.budgets.enclosing_budgets(executor.start_data)
        )
        self.is_counted = is_parent_budgeted or executor.limits.has_counted_limits

    def budgets_for(
        self, path: str, limits: Limits | None, usage_data: Mapping[str, Any]
    ) -> Iterator[Budget]:
        """Yield the budgets of a step, its own first; `usage_data` is the step's usage so far."""
        executor = self._executor
        if limits is not None:
            step_path = step_of_attempt(path)
            step_budget = Budget(
                limits.with_raised(self._raised_step_limits.get(step_path, {})),
                usage_from_data(usage_data),
                f"Budget of step {step_path}",
                f"resume(limits={{'{step_path}': …}})",
                executor.run.run_id,
                step_path,
            )
            yield step_budget
        yield self.own_budget
        yield from executor.host.budgets.enclosing_budgets(executor.start_data)
        if (day := executor.host.budgets.daily_budget) is not None:
            yield day.budget

    def find_exhausted(self) -> ExhaustedBudget | None:
        """Return the budget that is exhausted for whatever the run does next."""
        return find_exhausted_budget(self.budgets_for("", None, {}))

    def find_exhausted_for_turn(
        self, path: str, limits: Limits | None, usage_data: Mapping[str, Any], include_reserved: bool
    ) -> ExhaustedBudget | None:
        """Return the budget without room for a turn of the step, which counts as an agent from then on."""
        reservation = self._reserve(path, usage_data)
        # The step must not be refused for the agent that it already is itself.
        reservation.usage.agents = 0
        try:
            return find_exhausted_budget(self.budgets_for(path, limits, usage_data), include_reserved)
        finally:
            reservation.usage.agents = 1 if reservation.usage.turns else 0

    def begin_turn(self, path: str, limits: Limits | None, usage_data: Mapping[str, Any]) -> bool:
        """Reserve a turn if every budget has room for it."""
        # Check and reservation happen without an await, so parallel steps cannot both take the last turn.
        if self.find_exhausted_for_turn(path, limits, usage_data, include_reserved=True) is not None:
            return False
        self._reserve(path, usage_data).is_turn_running = True
        return True

    def end_turn(self, path: str, usage_data: Mapping[str, Any]) -> None:
        """End a turn; `usage_data` is the step's usage so far."""
        reservation = self._reserve(path, usage_data)
        reservation.usage.agents = 1 if reservation.usage.turns else 0
        self._executor.host.budgets.notify()

    def spend(self, path: str, usage: Any, by_child: bool) -> None:
        """Charge usage to the run and the day; the day counts a child's usage from the child's journal."""
        # Released in the same turn as the usage is added: the sum never counts the step twice or not at
        # all.
        if self.own_budget.in_progress:
            self._release(path)
        if usage is not None:
            self.own_budget.usage.spend(usage)
            if not by_child and (day := self._executor.host.budgets.daily_budget) is not None:
                day.spend(usage)

    def raise_limits(self, limits: Mapping[str, Any]) -> None:
        """Raise limits of the run or of its steps."""
        run_limits, steps = split_step_limits(limits)
        self._executor.limits = self.own_budget.limits = self.own_budget.limits.with_raised(run_limits)
        for path, step_limits in steps.items():
            self._raised_step_limits[path] = {**self._raised_step_limits.get(path, {}), **step_limits}
        # Children spend from this budget too, so their shortcut has to be evaluated again.
        for executor in self._executor.host.executors.values() if limits else ():
            executor.budget.update_is_counted()
        self._executor.host.budgets.notify()

    def close(self) -> None:
        """Release the reservations of a run that has become inactive."""
        if self.own_budget.in_progress and (day := self._executor.host.budgets.daily_budget) is not None:
            for path in self.own_budget.in_progress:
                day.budget.in_progress.pop(self._executor.run.run_id + path, None)
            self._executor.host.budgets.notify()

    def reservations(self) -> Iterator[tuple[str, Reservation]]:
        """Yield the reservations of running steps under names unique across runs."""
        for path, reservation in self.own_budget.in_progress.items():
            if isinstance(reservation, Reservation):
                yield self._executor.run.run_id + path, reservation

    def _reserve(self, path: str, usage_data: Mapping[str, Any]) -> Reservation:
        """Return the reservation of a step in all budgets, without a running turn."""
        reservation = self.own_budget.in_progress.get(path)
        if not isinstance(reservation, Reservation):
            reservation = self.own_budget.in_progress[path] = Reservation(RunUsage())
        reservation.usage, reservation.is_turn_running = usage_from_data(usage_data), False
        if (day := self._executor.host.budgets.daily_budget) is not None:
            day.budget.in_progress[self._executor.run.run_id + path] = reservation
        return reservation

    def taken_by_child(self, path: str) -> dict[str, float]:
        """Return the usage of a call's child run so far, in all attempts."""
        usage = RunUsage()
        for name in self._names_at(path):
            usage.add(self.own_budget.in_progress[name].total())
        return usage.to_dict()

    def _count_open_children(self, calls: ChildCalls) -> None:
        """Count child runs without a recorded outcome, whether or not the code requests them again."""
        host, run_id = self._executor.host, self._executor.run.run_id
        for path, key in calls.open_calls.items():
            *previous_ids, last_id = host.child_attempts(run_id, key) or [""]
            for number, attempt_id in enumerate(previous_ids, 1):
                self.own_budget.in_progress[f"{path}~{number}"] = host.budgets.budget_of_run(attempt_id)
            if last_id:
                self.own_budget.in_progress[path] = host.budgets.budget_of_run(last_id)
        for path, key in calls.replaced_calls:
            for attempt_id in host.child_attempts(run_id, key):
                if attempt_id not in calls.counted_runs:
                    self._replaced_children[attempt_id] = path
                    self.own_budget.in_progress[attempt_id] = host.budgets.budget_of_run(attempt_id)

    def on_child_started(self, run_id: str, path: str, budget: Budget) -> None:
        """Track the budget of a child run that has started; it may be a replaced one."""
        self.own_budget.in_progress[run_id if run_id in self._replaced_children else path] = budget

    @property
    def open_children(self) -> list[tuple[str, str]]:
        """The call paths and ids of child runs without a recorded outcome."""
        in_progress = self.own_budget.in_progress.items()
        return [
            (call_path_of(name), child_budget.run_id)
            for name, child_budget in in_progress
            if isinstance(child_budget, Budget) and child_budget.run_id
        ]

    def on_replaced(self, path: str) -> None:
        """Keep counting the usage of child runs at a path whose records were reset."""
        for name, child_budget in list(self.own_budget.in_progress.items()):
            if (
                isinstance(child_budget, Budget)
                and child_budget.run_id is not None
                and is_within_step(name, path)
            ):
                self._replaced_children[child_budget.run_id] = call_path_of(name)
                self.own_budget.in_progress[child_budget.run_id] = self.own_budget.in_progress.pop(name)

    def record_stopped_children(self, path: str | None = None) -> None:
        """Record the usage of stopped child runs: those replaced at a path, or all."""
        for name, child_budget in list(self.own_budget.in_progress.items()):
            if not isinstance(child_budget, Budget) or child_budget.run_id is None:
                continue
            call_path = self._replaced_children.get(name)
            if path is None or call_path == path:
                # The event carries the usage from here on; leaving the entry as well would charge the run
                # twice.
                del self.own_budget.in_progress[name]
                if used := self._executor.host.usage_of_stopped_run(child_budget.run_id):
                    self.own_budget.usage.spend(used)
                    event_data = {"run_id": child_budget.run_id, "usage": used}
                    self._executor.append_event("child_stopped", call_path or call_path_of(name), event_data)

    def _release(self, path: str) -> None:
        for name in self._names_at(path):
            del self.own_budget.in_progress[name]
            if (day := self._executor.host.budgets.daily_budget) is not None:
                day.budget.in_progress.pop(self._executor.run.run_id + name, None)
            self._executor.host.budgets.notify()

    def _names_at(self, path: str) -> list[str]:
        """Return the names of entries in progress at a path, including earlier attempts of its child run."""
        return [name for name in self.own_budget.in_progress if name == path or name.startswith(f"{path}~")]


def create_run_budget(run_id: str, limits: Limits, usage: RunUsage, start_data: Mapping[str, Any]) -> Budget:
    """Create the budget of a run."""
    owner = "Run budget" if start_data.get("parent") is None else "Child run budget"
    return Budget(limits, usage, owner, "resume(limits=…)", run_id)


def call_path_of(name: str) -> str:
    """Return the path of a call from the name of its entry; earlier attempts have a number appended."""
    path, _, number = name.rpartition("~")
    return path if number.isdigit() else name


def usage_from_data(usage_data: Mapping[str, Any]) -> RunUsage:
    usage = RunUsage()
    usage.spend(usage_data)
    return usage
