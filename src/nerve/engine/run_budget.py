"""Purses: what the steps of one run take from, and what each of them has in it."""

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
    """A step takes from its own budget, from that of its run, of the runs around it, and of the day."""

    def __init__(self, executor: RunExecutor, rows: Sequence[EventRow]) -> None:
        self._executor = executor
        self._raised_step_limits = raised_step_limits(rows) if rows else {}
        self.own_budget = create_run_budget(
            executor.run.run_id, executor.limits, executor.usage, executor.start_data
        )
        for path, usage_data in usage_in_progress(rows).items() if rows else ():
            self._reserve(path, usage_data)
        self._replaced_children: dict[str, str] = {}
        """The places of child runs that do not count any more, by their ids; what they took does."""
        if executor.has_optional_history:
            self._count_open_children(find_child_calls(rows))
        self.update_is_counted()

    def update_is_counted(self) -> None:
        """See whether there is anything to count at all."""
        executor = self._executor
        is_parent_budgeted = executor.start_data.get("parent") is not None and any(
            budget.limits.has_budgets
            for budget in executor.host.budgets.enclosing_budgets(executor.start_data)
        )
        self.is_counted = is_parent_budgeted or executor.limits.has_counted_limits

    def budgets_for(
        self, path: str, limits: Limits | None, usage_data: Mapping[str, Any]
    ) -> Iterator[Budget]:
        """The purses of a step, its own first; `used` is what it took already."""
        executor = self._executor
        if limits is not None:
            step_path = step_of_attempt(path)
            step_budget = Budget(
                limits.with_raised(self._raised_step_limits.get(step_path, {})),
                usage_from_data(usage_data),
                f"the budget of step {step_path}",
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
        """Which budget is spent, for whatever the run does next."""
        return find_exhausted_budget(self.budgets_for("", None, {}))

    def find_exhausted_for_turn(
        self, path: str, limits: Limits | None, usage_data: Mapping[str, Any], include_reserved: bool
    ) -> ExhaustedBudget | None:
        """Which budget has no room for a turn of the step; it is an agent already, or will be by that."""
        reservation = self._reserve(path, usage_data)
        reservation.usage.agents = 0
        try:
            return find_exhausted_budget(self.budgets_for(path, limits, usage_data), include_reserved)
        finally:
            reservation.usage.agents = 1 if reservation.usage.turns else 0

    def begin_turn(self, path: str, limits: Limits | None, usage_data: Mapping[str, Any]) -> bool:
        """Take what a turn is sure to take, if there is room for it in every purse now."""
        if self.find_exhausted_for_turn(path, limits, usage_data, include_reserved=True) is not None:
            return False
        self._reserve(path, usage_data).is_turn_running = True
        return True

    def end_turn(self, path: str, usage_data: Mapping[str, Any]) -> None:
        """A turn is over, and `used` is what its step has taken by now."""
        reservation = self._reserve(path, usage_data)
        reservation.usage.agents = 1 if reservation.usage.turns else 0
        self._executor.host.budgets.notify()

    def spend(self, path: str, usage: Any, by_child: bool) -> None:
        """Count what a step took, for the run and for the day; what a child took, the day has counted."""
        if self.own_budget.in_progress:
            self._release(path)
        if usage is not None:
            self.own_budget.usage.spend(usage)
            if not by_child and (day := self._executor.host.budgets.daily_budget) is not None:
                day.spend(usage)

    def raise_limits(self, limits: Mapping[str, Any]) -> None:
        """Higher limits, of the run or of its steps."""
        run_limits, steps = split_step_limits(limits)
        self._executor.limits = self.own_budget.limits = self.own_budget.limits.with_raised(run_limits)
        for path, more in steps.items():
            self._raised_step_limits[path] = {**self._raised_step_limits.get(path, {}), **more}
        for executor in self._executor.host.executors.values() if limits else ():
            executor.budget.update_is_counted()
        self._executor.host.budgets.notify()

    def close(self) -> None:
        """The run is not driven any more: nothing of it is under way."""
        if self.own_budget.in_progress and (day := self._executor.host.budgets.daily_budget) is not None:
            for path in self.own_budget.in_progress:
                day.budget.in_progress.pop(self._executor.run.run_id + path, None)
            self._executor.host.budgets.notify()

    def reservations(self) -> Iterator[tuple[str, Reservation]]:
        """The stakes of the steps under way, by names that no other run has."""
        for path, reservation in self.own_budget.in_progress.items():
            if isinstance(reservation, Reservation):
                yield self._executor.run.run_id + path, reservation

    def _reserve(self, path: str, usage_data: Mapping[str, Any]) -> Reservation:
        """What a step has in all purses; a turn of it is not under way, or just over."""
        reservation = self.own_budget.in_progress.get(path)
        if not isinstance(reservation, Reservation):
            reservation = self.own_budget.in_progress[path] = Reservation(RunUsage())
        reservation.usage, reservation.is_turn_running = usage_from_data(usage_data), False
        if (day := self._executor.host.budgets.daily_budget) is not None:
            day.budget.in_progress[self._executor.run.run_id + path] = reservation
        return reservation

    def taken_by_child(self, path: str) -> dict[str, float]:
        """What the child run of a call has taken until now, in all its attempts."""
        usage = RunUsage()
        for name in self._names_at(path):
            usage.add(self.own_budget.in_progress[name].total())
        return usage.to_dict()

    def _count_open_children(self, calls: ChildCalls) -> None:
        """Count the child runs that the run has not heard from, whether it asks for them again or not."""
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
        """A child run is driven; it may be one that does not count any more."""
        self.own_budget.in_progress[run_id if run_id in self._replaced_children else path] = budget

    @property
    def open_children(self) -> list[tuple[str, str]]:
        """Where child runs were called that the run has not heard from, and their ids."""
        in_progress = self.own_budget.in_progress.items()
        return [
            (call_path_of(name), child_budget.run_id)
            for name, child_budget in in_progress
            if isinstance(child_budget, Budget) and child_budget.run_id
        ]

    def on_replaced(self, path: str) -> None:
        """What is at a place does not count any more; what child runs took there does."""
        for name, child_budget in list(self.own_budget.in_progress.items()):
            if (
                isinstance(child_budget, Budget)
                and child_budget.run_id is not None
                and is_within_step(name, path)
            ):
                self._replaced_children[child_budget.run_id] = call_path_of(name)
                self.own_budget.in_progress[child_budget.run_id] = self.own_budget.in_progress.pop(name)

    def record_stopped_children(self, path: str | None = None) -> None:
        """Note what child runs took that were stopped: those replaced at a path, or all there are."""
        for name, child_budget in list(self.own_budget.in_progress.items()):
            if not isinstance(child_budget, Budget) or child_budget.run_id is None:
                continue
            call_path = self._replaced_children.get(name)
            if path is None or call_path == path:
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
        """What is under way at a path; child runs of attempts before the last one stand beside it."""
        return [name for name in self.own_budget.in_progress if name == path or name.startswith(f"{path}~")]


def create_run_budget(run_id: str, limits: Limits, usage: RunUsage, start_data: Mapping[str, Any]) -> Budget:
    owner = "the run's budget" if start_data.get("parent") is None else "the budget of the child run"
    return Budget(limits, usage, owner, "resume(limits=…)", run_id)


def call_path_of(name: str) -> str:
    """The path of a call, by the name of what is under way there: attempts before the last are numbered."""
    path, _, number = name.rpartition("~")
    return path if number.isdigit() else name


def usage_from_data(usage_data: Mapping[str, Any]) -> RunUsage:
    usage = RunUsage()
    usage.spend(usage_data)
    return usage
