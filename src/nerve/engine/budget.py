"""The tree of budgets with its reservations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from datetime import datetime, timedelta

from nerve.core.limits import BUDGET_FIELDS, Limits, RunUsage
from nerve.lazy_dataclass import dataclass

NEXT_TURN = RunUsage(turns=1, agents=1)
"""What a turn of a step needs that no agent has worked on yet."""
UNKNOWN_IN_ADVANCE = ("tokens", "cost")
"""The budgets that a turn takes an unknown amount from: any rest is enough to start one."""


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """An amount that a budget, and every budget around it, keeps for a running turn."""

    amount: RunUsage


@dataclass(slots=True, eq=False)
class Budget:
    """A node of the tree of budgets: a step, a run or the day.

    Its figures include everything below it. A step spends from its chain: its own budget, that of its run,
    those of the enclosing runs, and the daily one.
    """

    limits: Limits
    owner: str
    how_to_raise: str
    """The call that raises it."""
    parent: Budget | None = None
    run_id: str | None = None
    """The run it belongs to; None for the daily budget."""
    step_path: str = ""
    """The step it belongs to, if it is a step's."""
    call_path: str = ""
    """The path of the call, if it is a child run's."""
    is_replaced: bool = False
    """Whether the call of a child run was reset, so that the run calls another child instead."""
    is_active: bool = False
    """Whether the run is in memory and updates the figures; otherwise they come from its journal."""
    usage: RunUsage = field(default_factory=RunUsage)
    reserved: RunUsage = field(default_factory=RunUsage)
    reservations: Sequence[Reservation] = ()
    """Its own reservations, without those of the budgets below it."""
    steps: dict[str, Budget] = field(default_factory=dict)
    """The agent steps in progress of an active run, by path."""
    children: dict[str, Budget] = field(default_factory=dict)
    """The child runs without a recorded outcome, by run id."""

    def chain(self) -> Iterator[Budget]:
        """Yield the budget and those around it, innermost first."""
        budget: Budget | None = self
        while budget is not None:
            yield budget
            budget = budget.parent

    def find_exhausted(
        self, amount: RunUsage = NEXT_TURN, include_reserved: bool = False
    ) -> ExhaustedBudget | None:
        """Return the first budget of the chain without room for an amount, with or without reservations."""
        for budget in self.chain():
            for name in BUDGET_FIELDS:
                if (bound := getattr(budget.limits, name)) is None:
                    continue
                used = getattr(budget.usage, name)
                used += getattr(budget.reserved, name) if include_reserved else 0
                needed = used + getattr(amount, name)
                if used >= bound if name in UNKNOWN_IN_ADVANCE else needed > bound:
                    return ExhaustedBudget(budget, name, used)
        return None

    def reserve(self, amount: RunUsage) -> Reservation | None:
        """Reserve an amount in the whole chain; None if a budget of it has no room."""
        # Check and reservation happen without an await, so parallel steps cannot both take the last turn.
        if self.find_exhausted(amount, include_reserved=True) is not None:
            return None
        for budget in self.chain():
            budget.reserved.add(amount)
        self.reservations = [*self.reservations, reservation := Reservation(amount)]
        return reservation

    def commit(self, reservation: Reservation, usage: RunUsage) -> None:
        """End a reservation and count what was used instead."""
        self.release(reservation)
        self.count(usage)

    def release(self, reservation: Reservation) -> None:
        """End a reservation in the whole chain."""
        self.reservations = [each for each in self.reservations if each is not reservation]
        for budget in self.chain():
            budget.reserved.add(reservation.amount, sign=-1)

    def count(self, usage: RunUsage, today: bool = True) -> None:
        """Add usage to the whole chain; to the day only if it has not counted this usage yet."""
        for budget in self.chain():
            if today or budget.run_id is not None:
                budget.usage.add(usage)

    def correct(self, usage: RunUsage, today: bool = True) -> None:
        """Set the usage, and change that of the budgets around it by the difference."""
        self.count(usage.minus(self.usage), today)


@dataclass(frozen=True, slots=True)
class ExhaustedBudget:
    """An exhausted budget, with the limit and the usage."""

    budget: Budget
    limit_name: str
    used_amount: float

    @property
    def limit(self) -> str | None:
        """The limit to raise, as written on the command line; None for the daily budget."""
        return (
            None
            if self.budget.run_id is None
            else f"{self.budget.step_path}:{self.limit_name}".removeprefix(":")
        )

    def __str__(self) -> str:
        bound = getattr(self.budget.limits, self.limit_name)
        prefix, _, suffix = self.budget.how_to_raise.rpartition("…")
        how_to_raise = f"{prefix}{{'{self.limit_name}': …}}{suffix}"
        unit = "USD" if self.limit_name == "cost" else self.limit_name
        return (
            f"{self.budget.owner} exhausted: {self.used_amount:g} of {bound:g} {unit}. "
            f"Raise it with {how_to_raise}."
        )


def day_bounds(at: float) -> tuple[float, float]:
    """Return the start and end of the local day; a day with a clock change does not have 24 hours."""
    begins = datetime.fromtimestamp(at).replace(hour=0, minute=0, second=0, microsecond=0)
    return begins.timestamp(), (begins + timedelta(days=1)).timestamp()
