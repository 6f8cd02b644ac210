"""The store of an API server whose runs another system executes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, Unpack

from nerve.errors import StoreBusy, StoreError
from nerve.store.port import Append, RunQuery, RunRow
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_projection import AssignedWriter, PostgresProjection
from nerve.store.postgres_writer import PostgresWriter


class ShownRuns(Protocol):
    """Runs of which the other system knows more than their journals; they are few."""

    @property
    def runs(self) -> Sequence[str]:
        """The ids of the runs."""

    def show(self, row: RunRow) -> RunRow:
        """Return the row of any run as it is to be shown."""


class UnchangedRuns:
    """No run is shown in another way than it is stored."""

    runs: Sequence[str] = ()

    def show(self, row: RunRow) -> RunRow:
        return row


UNCHANGED_RUNS = UnchangedRuns()


class ProjectedStore(PostgresStore):
    """Reads everything; writes what does not belong to a journal, and deletes runs that have ended."""

    def __init__(self, url: str, projection: PostgresProjection, shown: ShownRuns = UNCHANGED_RUNS) -> None:
        super().__init__(url, None)
        self._projection, self._shown = projection, shown
        self._writer: AssignedWriter | None = None

    def append(self, batch: Sequence[Append], patience: float = 30.0) -> list[StoreError | None]:
        if patience <= 0:
            raise StoreBusy(f"{self.address} is reached over a network, which takes time")
        self._projection.append_values(batch)
        return [None] * len(batch)

    def write_property(self, name: str, value: str) -> None:
        self._projection.write_property(name, value)

    @contextmanager
    def _writing(self, patience: float = -1) -> Iterator[PostgresWriter]:
        if not self._write_lock.acquire(timeout=patience):
            raise StoreBusy(f"{self.address} is being written to by another thread")
        try:
            self._writer = self._writer or self._projection.open_writer()
            yield self._writer
        finally:
            self._write_lock.release()

    def close(self) -> None:
        with self._write_lock:
            if self._writer is not None:
                self._writer.close()
        super().close()

    def run(self, run: str) -> RunRow | None:
        row = super().run(run)
        return None if row is None else self._shown.show(row)

    def runs(self, **query: Unpack[RunQuery]) -> list[RunRow]:
        rows = super().runs(**query)
        if not (ids := self._shown.runs):
            return rows
        states, prefix, newest = query.get("states"), query.get("prefix") or "", query.get("newest")
        if states is not None:
            # Their states in the database are other ones.
            known = {row.run for row in rows}
            for run in ids:
                if run not in known and run.startswith(prefix):
                    alone: RunQuery = {**query, "states": None, "prefix": run}
                    rows += super().runs(**alone)
        shown = [self._shown.show(row) for row in rows]
        matching = [row for row in shown if states is None or row.state in states]
        matching.sort(key=lambda row: (row.started, row.run))
        return matching if newest is None else matching[max(0, len(matching) - newest) :]

    def count_runs(self, session: str) -> dict[str, int]:
        counts = Counter(super().count_runs(session))
        for run in self._shown.runs:
            if (row := super().run(run)) is not None and row.session == session:
                counts[row.state] -= 1
                counts[self._shown.show(row).state] += 1
        return {state: count for state, count in counts.items() if count}
