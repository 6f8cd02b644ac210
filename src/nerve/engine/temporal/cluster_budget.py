"""The daily budget of a session, which the agents of all workers share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import fsum
from typing import Any, NamedTuple, Protocol, TypeVar

from nerve.core.clock import SYSTEM_CLOCK, Clock
from nerve.core.json_codec import decode_json, encode_json
from nerve.core.limits import BUDGET_FIELDS, Limits, RunUsage
from nerve.engine.budget import Budget
from nerve.engine.run_summary import local_day, sum_usage_rows
from nerve.engine.temporal.leaf_rows import repeat_until_written
from nerve.errors import StoreError
from nerve.store.port import UsageRow
from nerve.store.postgres_budgets import BudgetReservation

log = logging.getLogger(__name__)
T = TypeVar("T")
LEASE_S = 60.0
"""How long the reservation of a worker that is gone counts."""


class StoredBudgets(Protocol):
    """The usage and the reservations of a session in a transaction."""

    def usage(self, day: str) -> list[UsageRow]: ...

    def reservations(self, day: str) -> Sequence[BudgetReservation]: ...

    def put(self, reservation: BudgetReservation, day: str, lease: float) -> None: ...

    def renew(self, run: str, path: str, lease: float) -> None: ...


class BudgetTables(Protocol):
    """Where they are stored; blocks, and can be called from any thread."""

    def with_budgets(self, work: Callable[[StoredBudgets], T]) -> T: ...


class Shortage(NamedTuple):
    """Why a turn cannot begin."""

    message: str
    is_spent: bool
    """Whether the budget is exhausted; otherwise the rest is reserved for the turns of other steps."""


class ClusterBudget:
    """The budget as a worker uses it. A reservation counts as long as its worker renews it."""

    def __init__(
        self,
        tables: BudgetTables,
        get_limits: Callable[[], Limits | None],
        clock: Clock = SYSTEM_CLOCK,
        lease: float = LEASE_S,
    ) -> None:
        self._tables, self._get_limits, self._clock, self._lease = tables, get_limits, clock, lease
        self._held: set[tuple[str, str]] = set()
        self._renewal: asyncio.Task[None] | None = None

    @property
    def is_limited(self) -> bool:
        return self._get_limits() is not None

    async def begin_turn(self, run: str, path: str, used: RunUsage, amount: RunUsage) -> Shortage | None:
        """Reserve an amount for a turn of a step; return why that is not possible."""
        day = self._today

        def reserve(stored: StoredBudgets) -> Shortage | None:
            budget = self._load(stored, day, run, path, used)
            if (shortage := find_shortage(budget, amount)) is None:
                stored.put(to_reservation(run, path, used, amount), day, self._lease)
            return shortage

        if (shortage := await self._execute(reserve)) is None:
            self._held.add((run, path))
            if self._renewal is None or self._renewal.done():
                self._renewal = asyncio.ensure_future(self._renew())
        return shortage

    async def find_shortage(self, run: str, path: str, used: RunUsage, amount: RunUsage) -> Shortage | None:
        """Return why a turn cannot begin now."""
        day = self._today
        return await self._execute(
            lambda stored: find_shortage(self._load(stored, day, run, path, used), amount)
        )

    async def end_turn(self, run: str, path: str, used: RunUsage) -> None:
        """Count what a step has used so far, in place of what it has reserved."""
        self._held.discard((run, path))
        reservation, day = to_reservation(run, path, used, RunUsage()), self._today
        await self._execute(lambda stored: stored.put(reservation, day, self._lease))

    @property
    def _today(self) -> str:
        return local_day(self._clock.time())

    def _load(self, stored: StoredBudgets, day: str, run: str, path: str, used: RunUsage) -> Budget:
        """Return the budget of a day, with the other steps as they are stored, and this one as it is."""
        others = [each for each in stored.reservations(day) if (each.run, each.path) != (run, path)]
        usage = [sum_usage_rows(stored.usage(day)), used, *(read_usage(each.used) for each in others)]
        return Budget(
            self._get_limits() or Limits(),
            "Daily session budget",
            "session.budget = …, or the configuration, on all workers",
            usage=add_usage(usage),
            reserved=add_usage(read_usage(each.reserved) for each in others),
        )

    async def _execute(self, work: Callable[[StoredBudgets], T]) -> T:
        return await repeat_until_written(lambda: self._tables.with_budgets(work), lambda conflict: False)

    async def _renew(self) -> None:
        """Renew the reservations until no turn is in progress."""
        while self._held:
            await asyncio.sleep(self._lease / 3)
            try:
                await asyncio.to_thread(self._tables.with_budgets, partial(self._renew_all, list(self._held)))
            except StoreError as error:
                log.warning("The budget reservations of this worker cannot be renewed: %s", error)

    def _renew_all(self, held: Iterable[tuple[str, str]], stored: StoredBudgets) -> None:
        for run, path in held:
            stored.renew(run, path, self._lease)


def find_shortage(budget: Budget, amount: RunUsage) -> Shortage | None:
    """Return why a budget has no room for an amount."""
    if (exhausted := budget.find_exhausted(amount)) is not None:
        return Shortage(str(exhausted), is_spent=True)
    reserved = budget.find_exhausted(amount, include_reserved=True)
    return None if reserved is None else Shortage(str(reserved), is_spent=False)


def add_usage(parts: Iterable[RunUsage]) -> RunUsage:
    """Return the exact sum: ten times 0.1 is 1."""
    listed = list(parts)
    amounts: dict[str, Any] = {name: fsum(getattr(each, name) for each in listed) for name in BUDGET_FIELDS}
    return RunUsage(
        tokens=int(amounts["tokens"]),
        cost=amounts["cost"],
        turns=int(amounts["turns"]),
        agents=int(amounts["agents"]),
    )


def to_reservation(run: str, path: str, used: RunUsage, reserved: RunUsage) -> BudgetReservation:
    return BudgetReservation(run, path, encode_json(used.to_dict()), encode_json(reserved.to_dict()))


def read_usage(text: str) -> RunUsage:
    return RunUsage.of(decode_json(text))
