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

from nerve.core.values import decode
from nerve.core.workflow.replay import DROPS, is_child, without_reset
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import FINAL, WorkflowState
from nerve.engine.children import attempts, bound_of
from nerve.engine.drive import described
from nerve.engine.records import call_key, resets_in
from nerve.engine.tasks import apart
from nerve.errors import JournalBroken, StoreError
from nerve.store.port import Row, RunRow, Store

if TYPE_CHECKING:
    from nerve.engine.local import LocalEngine

log = logging.getLogger("nerve")

CRASHES = 3
"""How many times a run may be taken up without anything coming of it."""

GRACE = 1.0
"""Seconds after which the next of the runs that are under suspicion is taken up."""

LONG = 600.0
"""Seconds after which a run is above suspicion, whatever it does."""

OPEN = [state.value for state in WorkflowState if state not in FINAL]
GOES_ON = (WorkflowState.RUNNING.value, WorkflowState.WAITING.value)
RESTS = frozenset({"gate_waiting", "signal_waiting", "timer_started", "workflow_held", "workflow_paused"})


class LeftAlone(NamedTuple):
    """A run that is open and was not taken up."""

    run: str
    workflow: str
    reason: str


class Recovery:
    """Takes up the runs of one engine, and knows which of them have yet to show that they do no harm."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self.left_alone: list[LeftAlone] = []
        self.unproven: dict[str, asyncio.Event] = {}
        self._proven: set[str] = set()
        self._forgetting: asyncio.Task[None] | None = None
        self._suspects: asyncio.Task[None] | None = None

    async def recover(self) -> list[WorkflowRun]:
        """Take up every open run; those that may have ended the process follow in the background."""
        engine = self._engine
        self.left_alone = []
        rows = [row for row in engine.store.runs(states=OPEN) if row.run not in engine.drives]
        dropped: dict[str, set[str]] = {}
        rows = [row for row in rows if not await self._given_up(row, dropped)]
        times = engine.store.resumes() if rows else {}
        suspects = {row.run: row for row in rows if times.get(row.run) and row.state in GOES_ON}
        held = [row for row in suspects.values() if times[row.run] >= CRASHES]
        later = [row for row in suspects.values() if times[row.run] < CRASHES]
        quiet = [row for row in rows if row.run not in suspects]
        runs = [run for row in held if (run := await self._quarantine(row, times[row.run])) is not None]
        self.begin(
            [row.run for row in quiet if row.state == WorkflowState.RUNNING.value and engine.owns(row)]
        )
        runs += [run for row in quiet if (run := self._take_up(row)) is not None]
        if self.unproven:
            asyncio.get_running_loop().call_later(GRACE, self._look)
        if later:
            runs += [run for row in later if (run := self._handle(row)) is not None]
            self._suspects = apart(self._one_by_one(sorted(later, key=lambda row: times[row.run])))
        return runs

    async def _given_up(self, row: RunRow, dropped: dict[str, set[str]]) -> bool:
        """Stop a child run that its parent had given up before the process ended; whether it was one.

        `dropped` has what each parent has given up, as far as it was read already.
        """
        engine = self._engine
        if row.parent is None or not engine.owns(row):
            return False
        try:
            place = decode(engine.store.events(row.run, 0, 1)[0].data).get("parent_path")
            if row.parent not in dropped:
                dropped[row.parent] = given_up(engine.store, row.parent)
            if dropped[row.parent].isdisjoint((place, row.run)):
                return False
            await engine.commands.stop(engine.handle(row), "the parent gave it up")
        except Exception as error:  # one bad run keeps no other from being taken up
            self._leave(row, error)
        return True

    async def _one_by_one(self, rows: Iterable[RunRow]) -> None:
        """Take up runs in turn. Who did no harm while it was alone is not blamed for what comes after it."""
        before = ""
        for row in rows:
            await self._alone(before)
            if self._engine.closed:
                return
            now = self._engine.store.run(row.run)  # people may have paused or stopped it meanwhile
            if now is None or now.state not in GOES_ON or row.run in self._engine.drives:
                continue
            self._take_up(now)
            before = row.run

    async def _alone(self, run_id: str) -> None:
        """Let a run have the process to itself until it has done something, or for a while."""
        if (proof := self.unproven.get(run_id)) is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(proof.wait(), GRACE)
            self._survived([run_id])
        if self._forgetting is not None:
            await asyncio.wait([self._forgetting])

    def _take_up(self, row: RunRow) -> WorkflowRun | None:
        try:
            return self._engine.take_up(row)
        except Exception as error:  # one bad run keeps no other from being taken up
            self._leave(row, error)
            return None

    def _handle(self, row: RunRow) -> WorkflowRun | None:
        """The run of a row that is taken up later."""
        try:
            return self._engine.handle(row) if self._engine.owns(row) else None
        except Exception:  # said when it is taken up
            return None

    def _leave(self, row: RunRow, error: Exception) -> None:
        why = str(error) if isinstance(error, ValueError | StoreError) else described(error)
        if isinstance(error, JournalBroken):
            self._engine.note_unreadable(error)
        log.warning("run %s is left alone: %s", row.run, why)
        self.left_alone.append(LeftAlone(row.run, row.workflow, why))

    async def _quarantine(self, row: RunRow, times: int) -> WorkflowRun | None:
        """Hold a run, without a line of it being executed."""
        try:
            run = self._engine.handle(row)
            message = (
                f"the process ended {times} times when this run was taken up. Look at its events;"
                " then retry it, or stop it."
            )
            await self._engine.commands.hold(run, "quarantine", message)
        except Exception as error:  # one bad run keeps no other from being taken up
            self._leave(row, error)
            return None
        log.error("run %s is held: %s", row.run, message)
        self._engine.store.resumed([row.run])
        return run

    # -- proof ---------------------------------------------------------------------------------

    def begin(self, runs: Iterable[str]) -> None:
        """Count on disk that runs are about to be taken up."""
        new = [run for run in runs if run not in self.unproven] if self._engine.store.durable else []
        if new:
            self._engine.store.resuming(new)
            self.unproven |= {run: asyncio.Event() for run in new}
            asyncio.get_running_loop().call_later(LONG, self._survived, new)

    def shown(self, run_id: str, rows: Iterable[Row]) -> None:
        """Something of a run is on disk; it is above suspicion when it has settled something, or rests."""
        if run_id in self.unproven and any(row.settles is not None or row.type in RESTS for row in rows):
            self._prove(run_id)

    def _survived(self, runs: Iterable[str]) -> None:
        for run_id in runs:
            if run_id in self.unproven:
                self._prove(run_id)

    def _look(self) -> None:
        """Runs that only wait have nothing to write."""
        for run_id in list(self.unproven):
            drive = self._engine.drives.get(run_id)
            if drive is None or drive.run._state is not WorkflowState.RUNNING:
                self._prove(run_id)

    def _prove(self, run_id: str) -> None:
        self.unproven.pop(run_id).set()
        self._proven.add(run_id)
        if self._forgetting is None and not self._engine.closed:
            self._forgetting = apart(self._forget())

    async def _forget(self) -> None:
        try:
            while self._proven:
                proven, self._proven = list(self._proven), set()
                await asyncio.to_thread(self._engine.store.resumed, proven)
        except StoreError as error:
            log.warning("runs stay under suspicion: %s", error)
        finally:
            self._forgetting = None

    async def close(self) -> None:
        """What is parked in good order is above suspicion."""
        if self._suspects is not None:
            self._suspects.cancel()
        if self._forgetting is not None:
            await asyncio.wait([self._forgetting])
        runs = [*self.unproven, *self._proven]
        self.unproven, self._proven = {}, set()
        if runs:
            try:
                self._engine.store.resumed(runs)
            except StoreError as error:
                log.warning("runs stay under suspicion: %s", error)


def given_up(store: Store, run_id: str) -> set[str]:
    """The paths of what a body had asked for and given up, and the child runs whose time ran out."""
    past = store.events(run_id)
    counts, resets = without_reset(list(past)), resets_in(past)
    dropped = {row.path for row in counts if row.type in DROPS}
    fired = {row.path for row in counts if row.type == "timer_fired"} - dropped
    for path in [row.path for row in counts if is_child(row)] if fired else ():
        tried = attempts(store, run_id, call_key(path, resets))
        dropped |= {row.run for number, row in enumerate(tried, 1) if bound_of(path, number) in fired}
    return dropped
