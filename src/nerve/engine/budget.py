"""Budgets, reservations, and the usage of a session today."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from nerve.core.json_codec import decode_json
from nerve.core.limits import Limits, RunUsage
from nerve.core.usage_ledger import UsageLedger, sum_entries
from nerve.journal.events import read_intact
from nerve.store.port import EventRow, RunRow, Store

JOURNALS_PER_TURN = 50
"""Journals read in one turn of the loop."""


@dataclass(slots=True)
class Reservation:
    """The usage of a step so far; a running turn reserves one more turn."""

    usage: RunUsage
    is_turn_running: bool = False

    def total(self, include_reserved: bool = False) -> RunUsage:
        if not (include_reserved and self.is_turn_running):
            return self.usage
        return replace(self.usage, turns=self.usage.turns + 1, agents=1)


@dataclass(slots=True)
class Budget:
    """A budget: its limits, its usage, and the usage of steps and child runs in progress."""

    limits: Limits
    usage: RunUsage
    owner: str
    how_to_raise: str
    """The call that raises it."""
    run_id: str | None = None
    """The run it belongs to; None for the daily budget."""
    step_path: str = ""
    """The step it belongs to, if it is a step's."""
    in_progress: dict[str, Reservation | Budget] = field(default_factory=dict)

    def total(self, include_reserved: bool = False) -> RunUsage:
        """Return the known usage, and on request what running turns have reserved."""
        # The shared object is returned as it is: this runs before every step, and most runs have no agents.
        if not self.in_progress:
            return self.usage
        total = replace(self.usage)
        for entry in self.in_progress.values():
            total.add(entry.total(include_reserved))
        return total


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


def find_exhausted_budget(
    budgets: Iterable[Budget], include_reserved: bool = False
) -> ExhaustedBudget | None:
    """Return the first exhausted budget, with or without counting reservations."""
    for budget in budgets:
        total = budget.total(include_reserved)
        if (name := total.exhausted_budget(budget.limits)) is not None:
            return ExhaustedBudget(budget, name, getattr(total, name))
    return None


class DailyBudget:
    """The budget of a day and its usage; a new day begins at midnight, local time."""

    def __init__(
        self, limits: Limits, store: Store, session: str, now: Callable[[], float] = time.time
    ) -> None:
        self._now, self._store, self._session = now, store, session
        self._ends_at = 0.0
        self._budget = Budget(limits, RunUsage(), "Daily session budget", "session.budget = …")

    @property
    def budget(self) -> Budget:
        # Read from the journals, not kept in a counter: runs of earlier processes count, and a crash loses
        # nothing.
        if self.is_over:
            begins, self._ends_at = day_bounds(self._now())
            self._budget.usage = usage_since(begins, self._store, self._session)
        return self._budget

    @property
    def limits(self) -> Limits:
        return self._budget.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._budget.limits = limits

    @property
    def is_over(self) -> bool:
        return self._now() >= self._ends_at

    @property
    def usage(self) -> RunUsage:
        return self.budget.usage

    def spend(self, usage: Any) -> None:
        self.usage.spend(usage)


class DailyUsage:
    """The usage of agents since midnight in all runs; loaded once, then updated by events."""

    def __init__(self, store: Store, session: str, now: Callable[[], float] = time.time) -> None:
        self._store, self._session, self._now = store, session, now
        self._ends_at = 0.0
        self._lock = asyncio.Lock()
        self._is_reading = False
        self._last_seqs: dict[str, int] = {}
        self._ledgers: dict[str, UsageLedger] = {}
        self.usage = RunUsage()

    async def load(self) -> DailyUsage:
        """Load the journals, some in each turn of the loop, unless that was done today."""
        async with self._lock:
            if self._now() >= self._ends_at:
                begins, ends = day_bounds(self._now())
                self._last_seqs, self._ledgers, self.usage = {}, {}, RunUsage()
                self._is_reading = True
                try:
                    for number, row in enumerate(runs_open_since(begins, self._store, self._session), 1):
                        self._load_run(row.run, begins)
                        if number % JOURNALS_PER_TURN == 0:
                            # Thousands of journals would block every other run on the loop.
                            await asyncio.sleep(0)
                finally:
                    self._is_reading = False
                # Set last: if loading fails, the next call starts over instead of reporting a partial sum.
                self._ends_at = ends
        return self

    def _load_run(self, run: str, begins_at: float) -> None:
        rows = read_intact(self._store, run)
        self._count_rows(run, [row for row in own_rows(rows) if row.at >= begins_at])
        self._last_seqs[run] = max(self._last_seqs.get(run, 0), rows[-1].seq if rows else 0)

    def on_events(self, run: str, rows: Iterable[EventRow]) -> None:
        """Count new events of a run; while journals are loading, runs not loaded yet are counted then."""
        rows = list(rows)
        if not self._is_reading or run in self._last_seqs or (rows and rows[0].seq == 1):
            self._count_rows(run, rows)

    def _count_rows(self, run: str, rows: Iterable[EventRow]) -> None:
        for row in rows:
            if row.seq > self._last_seqs.get(run, 0):
                # Rows that a fork copied were paid for by the original run.
                self._last_seqs[run] = copied_row_count(row) if row.seq == 1 else row.seq
                if row.type == "usage":
                    self._ledger_of(run).add_turn(row.path, decode_json(row.data))
                elif row.settles and '"usage"' in row.data:
                    attributes = decode_json(row.data).get("result", {}).get("attributes", {})
                    if "run_id" not in attributes:  # a child's usage is in its own journal
                        self._ledger_of(run).settle_step(row.path, attributes)
                        self.usage.spend(attributes.get("usage"))

    @property
    def run_ids(self) -> list[str]:
        """The runs whose agents used anything."""
        return list(self._ledgers)

    def by_model(self) -> dict[str, dict[str, float]]:
        ledgers = self._ledgers.values()
        return sum_entries(
            (model, entry) for ledger in ledgers for (_, model), entry in ledger.entries.items()
        )

    def _ledger_of(self, run: str) -> UsageLedger:
        return self._ledgers.setdefault(run, UsageLedger())


def runs_open_since(begins: float, store: Store, session: str) -> list[RunRow]:
    """Return the runs of a session that were open at some time since then."""
    return [row for row in store.runs(session=session) if row.ended is None or row.ended >= begins]


def own_rows(rows: list[EventRow]) -> list[EventRow]:
    """Return the events of a run without those copied from another run, whose usage counts there."""
    copied_until = copied_row_count(rows[0]) if rows else 0
    return [row for row in rows if row.seq > copied_until]


def copied_row_count(start: EventRow) -> int:
    """Return the number of events copied at the start of a run, including its own first one."""
    fork_data = decode_json(start.data).get("forked_from") if '"forked_from"' in start.data else None
    return int((fork_data or {}).get("copied", 1))


def day_bounds(at: float) -> tuple[float, float]:
    """Return the start and end of the local day; a day with a clock change does not have 24 hours."""
    begins = datetime.fromtimestamp(at).replace(hour=0, minute=0, second=0, microsecond=0)
    return begins.timestamp(), (begins + timedelta(days=1)).timestamp()


def usage_since(begins: float, store: Store, session: str) -> RunUsage:
    """Return the usage recorded in the journals of runs that were open since then."""
    usage = RunUsage()
    for row in runs_open_since(begins, store, session):
        for usage_data in settled_usages(own_rows(read_intact(store, row.run)), begins):
            usage.spend(usage_data)
    return usage


def settled_usages(rows: Iterable[EventRow], begins: float) -> Iterable[Any]:
    """Yield the usage recorded by settling events since then, without that of child runs."""
    for row in rows:
        if row.at >= begins and row.settles and '"usage"' in row.data:
            attributes = decode_json(row.data).get("result", {}).get("attributes", {})
            if "run_id" not in attributes:  # a child's usage is in its own journal
                yield attributes.get("usage")


def active_provider_limits(runs: Iterable[RunRow], store: Store, now: float) -> dict[str, float]:
    """Return the providers with an active rate limit and its end, as reported to runs."""
    limits: list[tuple[float, str, float]] = []
    reopened_at: dict[str, float] = {}
    for run in runs:
        for row in read_intact(store, run.run):
            if row.type == "provider_limited" and (limit_data := decode_json(row.data)).get("until", 0) > now:
                limits.append((row.at, limit_data["provider"], limit_data["until"]))
            elif row.type == "provider_open" and (limit_data := decode_json(row.data)).get("over"):
                reopened_at[limit_data["provider"]] = max(
                    row.at, reopened_at.get(limit_data["provider"], 0.0)
                )
    active = [(until, provider) for at, provider, until in limits if at > reopened_at.get(provider, 0.0)]
    return {provider: until for until, provider in sorted(active)}
