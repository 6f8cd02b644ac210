"""Budgets: those that several runs take from, and who goes on when there is more in one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nerve.core.limits import Limits
from nerve.core.workflow.state import WorkflowState
from nerve.engine.purses import run_purse, usage_of
from nerve.engine.records import limits_of, start_of, tally, under_way
from nerve.engine.spending import Day, Purse, Stake, spent
from nerve.engine.tasks import apart
from nerve.errors import NerveError

if TYPE_CHECKING:
    from nerve.engine.local import LocalEngine

log = logging.getLogger("nerve")

MINUTE = 60.0
"""Seconds between two looks at the clock while a run is held for the day's budget."""


class Budgets:
    """What the runs of one engine share."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self._day: Day | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._clock: asyncio.TimerHandle | None = None

    @property
    def day(self) -> Day | None:
        """What may be spent today, if anything says so."""
        engine = self._engine
        budget: Limits | None = getattr(engine._session, "budget", None)
        if budget is None:
            self._day = None
        elif self._day is None:
            self._day = Day(budget, engine.store, engine._name)
            for drive in engine.drives.values():
                self._day.purse.under_way.update(drive.purses.staked())
        elif self._day.limits is not budget:
            self._day.limits = budget
        return self._day

    def above(self, start: Mapping[str, Any]) -> Iterator[Purse]:
        """The purses of the runs around one, by how that was started."""
        while (parent := start.get("parent")) is not None:
            drive = self._engine.drives.get(parent)
            if drive is not None:
                start = drive.start
                yield drive.purses.own
            elif past := self._engine.store.events(parent):
                start = start_of(past)
                yield self.of(parent)
            else:
                return

    def of(self, run_id: str) -> Purse:
        """The purse of a run, in memory or as its journal tells it."""
        drive = self._engine.drives.get(run_id)
        if drive is not None:
            return drive.purses.own
        past = self._engine.store.events(run_id)
        purse = run_purse(run_id, limits_of(past), tally(past), start_of(past) if past else {})
        for path, used in under_way(past).items():
            purse.under_way[path] = Stake(usage_of(used))
        for row in self._engine.open_children(run_id):
            purse.under_way[row.run] = self.of(row.run)
        return purse

    async def changed(self) -> None:
        """Return when there may be more in a purse than before."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def ring(self) -> None:
        """There may be more in a purse than before."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    # -- the day ---------------------------------------------------------------------------------

    def held_for_day(self) -> None:
        """A run is held for the day's budget: look at the clock until the day is over."""
        if self._clock is None:
            self._clock = asyncio.get_running_loop().call_later(MINUTE, self._look)

    def _look(self) -> None:
        self._clock = None
        if self._engine.closed or self._day is None:
            return
        if self._day.is_over:
            self.raised()
        else:
            self.held_for_day()

    def raised(self) -> None:
        """There may be more for today: let go on who waits for that, if there is a loop to do it on."""
        self.ring()
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            apart(self.go_on())

    async def go_on(self) -> None:
        """Go on with the runs that are held for the day's budget, if it is not spent any more."""
        engine = self._engine
        held = [drive.run for drive in engine.drives.values() if is_for_day(drive.run._held)]
        rows = engine.store.runs(session=engine._name, states=[WorkflowState.HELD.value])
        resting = (row for row in rows if row.run not in engine.drives)
        held += [engine.handle(row) for row in resting if is_for_day(engine.held(row))]
        if held and self.day is not None and spent([self.day.purse]) is not None:
            self.held_for_day()
            return
        for run in held:
            try:
                await engine.commands.resume(run, {})
            except (RuntimeError, ValueError, NerveError) as error:
                if is_for_day(run._held):
                    log.warning("run %s stays held: %s", run.run_id, error)

    def close(self) -> None:
        if self._clock is not None:
            self._clock.cancel()


def is_for_day(held: Mapping[str, Any] | None) -> bool:
    return held is not None and held.get("reason") == "budget" and held.get("purse") == "day"
