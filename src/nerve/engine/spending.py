"""Spending: what all runs of a session have used today."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from nerve.core.ledger import Ledger, summed
from nerve.core.limits import Limits, Usage
from nerve.core.values import decode
from nerve.engine.records import read_intact
from nerve.store.port import Row, RunRow, Store

AT_ONCE = 50
"""Journals that are read in one turn of the loop."""


@dataclass(slots=True)
class Stake:
    """What a step has taken so far; a turn of it that is under way is sure to take one more."""

    used: Usage
    asks: bool = False

    def taken(self, promised: bool = False) -> Usage:
        if not (promised and self.asks):
            return self.used
        return replace(self.used, turns=self.used.turns + 1, agents=1)


@dataclass(slots=True)
class Purse:
    """A budget: what may be spent, what was, and what steps and child runs take that are under way."""

    limits: Limits
    usage: Usage
    whose: str
    way: str
    """How it is raised."""
    run: str | None = None
    """The run that it belongs to; none for the day's."""
    place: str = ""
    """The step of the run, if it is that step's."""
    under_way: dict[str, Stake | Purse] = field(default_factory=dict)

    def taken(self, promised: bool = False) -> Usage:
        """What is known to be taken, and if asked for, what is promised to turns under way, too."""
        if not self.under_way:
            return self.usage
        total = replace(self.usage)
        for each in self.under_way.values():
            total.add(each.taken(promised))
        return total


@dataclass(frozen=True, slots=True)
class Spent:
    """A budget that is used up: what of it, and how far."""

    purse: Purse
    name: str
    used: float

    @property
    def limit(self) -> str | None:
        """What is to be raised, as one says it at the command line; a run cannot raise that of the day."""
        return None if self.purse.run is None else f"{self.purse.place}:{self.name}".removeprefix(":")

    def __str__(self) -> str:
        bound = getattr(self.purse.limits, self.name)
        before, _, behind = self.purse.way.rpartition("…")
        way = f"{before}{{'{self.name}': …}}{behind}"
        return f"{self.purse.whose} is spent: {self.name} used: {self.used:g} of {bound:g}. Go on with {way}."


def spent(purses: Iterable[Purse], promised: bool = False) -> Spent | None:
    """The first that is used up, if what is promised to turns under way is counted or not."""
    for purse in purses:
        taken = purse.taken(promised)
        if (name := taken.spent(purse.limits)) is not None:
            return Spent(purse, name, getattr(taken, name))
    return None


class Day:
    """The budget of a day, and what is used of it; at midnight, local time, it begins anew."""

    def __init__(
        self, limits: Limits, store: Store, session: str, now: Callable[[], float] = time.time
    ) -> None:
        self._now, self._store, self._session = now, store, session
        self._ends = 0.0
        self._purse = Purse(limits, Usage(), "today's budget of the session", "session.budget = …")

    @property
    def purse(self) -> Purse:
        if self.is_over:
            begins, self._ends = day_of(self._now())
            self._purse.usage = used_since(begins, self._store, self._session)
        return self._purse

    @property
    def limits(self) -> Limits:
        return self._purse.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._purse.limits = limits

    @property
    def is_over(self) -> bool:
        return self._now() >= self._ends

    @property
    def usage(self) -> Usage:
        return self.purse.usage

    def spend(self, usage: Any) -> None:
        self.usage.spend(usage)


class Today:
    """What agents took since midnight in all runs; read once, and then kept as events come."""

    def __init__(self, store: Store, session: str, now: Callable[[], float] = time.time) -> None:
        self._store, self._session, self._now = store, session, now
        self._ends = 0.0
        self._one = asyncio.Lock()
        self._reading = False
        self._seen: dict[str, int] = {}
        self._ledgers: dict[str, Ledger] = {}
        self.usage = Usage()

    async def read(self) -> Today:
        """Read the journals, some in each turn of the loop, unless that was done today."""
        async with self._one:
            if self._now() >= self._ends:
                begins, ends = day_of(self._now())
                self._seen, self._ledgers, self.usage = {}, {}, Usage()
                self._reading = True
                try:
                    for number, row in enumerate(open_since(begins, self._store, self._session), 1):
                        self._read(row.run, begins)
                        if number % AT_ONCE == 0:
                            await asyncio.sleep(0)
                finally:
                    self._reading = False
                self._ends = ends
        return self

    def _read(self, run: str, begins: float) -> None:
        past = read_intact(self._store, run)
        self._take(run, [row for row in own(past) if row.at >= begins])
        self._seen[run] = max(self._seen.get(run, 0), past[-1].seq if past else 0)

    def take(self, run: str, rows: Iterable[Row]) -> None:
        """The events of a run that were just written. While journals are read, each run has its turn."""
        rows = list(rows)
        if not self._reading or run in self._seen or (rows and rows[0].seq == 1):
            self._take(run, rows)

    def _take(self, run: str, rows: Iterable[Row]) -> None:
        for row in rows:
            if row.seq > self._seen.get(run, 0):
                self._seen[run] = copied(row) if row.seq == 1 else row.seq
                if row.type == "usage":
                    self._of(run).turn(row.path, decode(row.data))
                elif row.settles and '"usage"' in row.data:
                    attributes = decode(row.data).get("result", {}).get("attributes", {})
                    if "run_id" not in attributes:  # what a child used, its own journal says
                        self._of(run).settled(row.path, attributes)
                        self.usage.spend(attributes.get("usage"))

    @property
    def runs(self) -> list[str]:
        """The runs whose agents took something."""
        return list(self._ledgers)

    def by_model(self) -> dict[str, dict[str, float]]:
        ledgers = self._ledgers.values()
        return summed((model, entry) for each in ledgers for (_, model), entry in each.entries.items())

    def _of(self, run: str) -> Ledger:
        return self._ledgers.setdefault(run, Ledger())


def open_since(begins: float, store: Store, session: str) -> list[RunRow]:
    return [row for row in store.runs(session=session) if row.ended is None or row.ended >= begins]


def own(rows: list[Row]) -> list[Row]:
    """The events of a run without those that it took over from another: nothing was spent on them again."""
    before = copied(rows[0]) if rows else 0
    return [row for row in rows if row.seq > before]


def copied(start: Row) -> int:
    """How many events a run began with that are another's; its own first one is among them."""
    forked = decode(start.data).get("forked_from") if '"forked_from"' in start.data else None
    return int((forked or {}).get("copied", 1))


def day_of(at: float) -> tuple[float, float]:
    """When the day of a moment begins and ends; where the clocks are changed, it has no 24 hours."""
    begins = datetime.fromtimestamp(at).replace(hour=0, minute=0, second=0, microsecond=0)
    return begins.timestamp(), (begins + timedelta(days=1)).timestamp()


def used_since(begins: float, store: Store, session: str) -> Usage:
    """What the journals say of the runs that were open since then."""
    usage = Usage()
    for row in open_since(begins, store, session):
        for told in usages(own(read_intact(store, row.run)), begins):
            usage.spend(told)
    return usage


def usages(rows: Iterable[Row], begins: float) -> Iterable[Any]:
    for row in rows:
        if row.at >= begins and row.settles and '"usage"' in row.data:
            attributes = decode(row.data).get("result", {}).get("attributes", {})
            if "run_id" not in attributes:  # what a child used, its own journal says
                yield attributes.get("usage")


def limits_of_providers(runs: Iterable[RunRow], store: Store, now: float) -> dict[str, float]:
    """Which providers refuse everybody after now, and until when, as runs were told."""
    limits: list[tuple[float, str, float]] = []
    over: dict[str, float] = {}
    for run in runs:
        for row in read_intact(store, run.run):
            if row.type == "provider_limited" and (told := decode(row.data)).get("until", 0) > now:
                limits.append((row.at, told["provider"], told["until"]))
            elif row.type == "provider_open" and (told := decode(row.data)).get("over"):
                over[told["provider"]] = max(row.at, over.get(told["provider"], 0.0))
    held = [(until, provider) for at, provider, until in limits if at > over.get(provider, 0.0)]
    return {provider: until for until, provider in sorted(held)}
