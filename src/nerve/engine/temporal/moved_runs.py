"""Move open runs of the local engine to Temporal.

**From another store**, a family of runs leaves first: in one transaction, each of its open runs ends there,
as cancelled, with an event that says where it went. Then its journals, without these events, are written to
the projection, and its workflow is started. A process that dies in between leaves runs that no engine
executes; the next move finds their last events and continues.

**In the same store**, all runs of a session go together, with the assignment of the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from nerve.core.clock import Clock
from nerve.core.workflow.state import OPEN_STATE_VALUES, WorkflowState
from nerve.engine.run_chain import find_current_row
from nerve.engine.run_summary import RunSummary
from nerve.engine.temporal.carried_runs import carry_family, check_length
from nerve.engine.temporal.projected_runs import ProjectedRuns, find_open_families
from nerve.journal.events import RunCancelled, decode_event
from nerve.journal.index import StoredJournal
from nerve.journal.paths import ROOT_PATH
from nerve.lazy_dataclass import dataclass
from nerve.store.port import Append, EventRow, RunRow, Store


@dataclass(frozen=True, slots=True)
class MoveTarget:
    """Where runs are moved to, as their journals say it."""

    engine: str
    store: str
    """The address of the database, without a password."""


FindKept = Callable[[Sequence[str]], Mapping[str, Any]]
"""Returns what the runs of a family have outside of their journals: fields of `RunInput`."""


class RunMover:
    """Moves runs out of a store that this process owns."""

    def __init__(
        self,
        source: Store,
        session: str,
        clock: Clock,
        target: MoveTarget,
        runs: ProjectedRuns,
        find_kept: FindKept,
    ) -> None:
        self._source, self._session, self._clock = source, session, clock
        self._target, self._runs, self._find_kept = target, runs, find_kept

    def find_all(self) -> Iterator[RunRow]:
        """Yield the runs to move: open ones, and those whose move was interrupted."""
        yield from find_open_families(self._source, self._session)
        cancelled = self._source.runs(session=self._session, states=[WorkflowState.CANCELLED.value])
        for row in cancelled:
            if row.parent is None and self.is_interrupted(row):
                yield row

    def is_interrupted(self, row: RunRow) -> bool:
        """Whether a run has left this store for the target, and may not have begun there."""
        if self._find_target(row) != self._target:
            return False
        moved = self._runs.store.run(row.run)
        return moved is None or moved.ended is None

    def _find_target(self, row: RunRow) -> MoveTarget | None:
        moved = self._find_move(row.run)
        return None if moved is None else MoveTarget(moved["engine"], moved["store"])

    def _find_move(self, run_id: str) -> dict[str, Any] | None:
        last = self._source.last_event(run_id)
        return None if last is None else read_move(last)

    async def move(self, row: RunRow) -> RunRow | None:
        """Move the family of a run; return the run that no other run called, as it was.

        Return None if an earlier move has completed.
        """
        row = self._find_top(row)
        if row.ended is not None and self._find_target(row) != self._target:
            raise ValueError(f"Run '{row.run}' has ended. Only open runs can be moved.")
        journal = [self._restore(part) for part in carry_family(self._source, row.run, self._read_rows)]
        check_length(row.run, journal)
        leaving = [part for part in journal if self._is_open(part.run)]
        if leaving:
            for error in self._source.append([self._end_part(part) for part in leaving]):
                if error is not None:
                    raise error
        for run, parts in groupby(journal, lambda part: part.run):
            await asyncio.to_thread(self._runs.projection.append, run, list(parts))
        if not await self._runs.start(row.run, **self._find_kept([part.run for part in journal])):
            return None
        return next(part.row for part in journal if part.run == row.run and part.row is not None)

    def _find_top(self, row: RunRow) -> RunRow:
        while row.parent is not None and (parent := self._source.run(row.parent)) is not None:
            row = parent
        return find_current_row(self._source, row)

    def _read_rows(self, run_id: str) -> list[EventRow]:
        """Return the events of a run as they were before it left."""
        rows = self._source.events(run_id)
        return rows if read_move(rows[-1]) is None else rows[:-1]

    def _restore(self, part: Append) -> Append:
        """Return the journal of a run with its row as it was before the run left."""
        assert part.row is not None
        if (moved := self._find_move(part.run)) is None:
            return part
        return part._replace(row=part.row._replace(state=moved["state"], ended=None))

    def _is_open(self, run_id: str) -> bool:
        row = self._source.run(run_id)
        return row is not None and row.state in OPEN_STATE_VALUES

    def _end_part(self, part: Append) -> Append:
        """Return what the journal of a run here ends with."""
        assert part.row is not None
        at, last = self._clock.time(), part.rows[-1].seq
        about = {"engine": self._target.engine, "store": self._target.store, "state": part.row.state}
        end = RunCancelled(part.run, f"moved to {self._target.engine}", moved_to=about)
        row = EventRow(last + 1, at, end.type, "", ROOT_PATH, end.encode())
        summary = RunSummary(part.run, StoredJournal([*part.rows, row]).events).encode()
        ended = part.row._replace(state=WorkflowState.CANCELLED.value, ended=at, wake=None, summary=summary)
        return Append(part.run, last, [row], ended)


def read_move(row: EventRow) -> dict[str, Any] | None:
    """Return where the last event of a journal says that the run went; None if it does not."""
    if row.settles != ROOT_PATH:
        return None
    end = decode_event(row)
    return end.moved_to if isinstance(end, RunCancelled) else None
