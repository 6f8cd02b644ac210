"""A store that forgets: for tests, and for runs that need not survive the process."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nerve.errors import Conflict, StoreError
from nerve.store import refusals
from nerve.store.port import VALUE_LIMIT, Append, Definition, Row, RunRow


class MemoryStore:
    durable = False

    def __init__(self) -> None:
        self._journals: dict[str, list[Row]] = {}
        self._settled: dict[tuple[str, str], int] = {}
        self._runs: dict[str, RunRow] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._definitions: dict[str, Definition] = {}

    def append(self, batch: Sequence[Append], patience: float = 30.0) -> list[StoreError | None]:
        for part in batch:
            _check(part)
        return [self._append(part) for part in batch]

    def _append(self, part: Append) -> Conflict | None:
        settling = {(part.run, row.settles): row.seq for row in part.rows if row.settles is not None}
        if conflict := self._conflict(part, settling):
            return conflict
        self._settled.update(settling)
        self._journals.setdefault(part.run, []).extend(part.rows)
        if part.row is not None:
            self._keep(part.row)
        if part.definition is not None:
            self._definitions.setdefault(part.definition.hash, part.definition)
        return None

    def _conflict(self, part: Append, settling: dict[tuple[str, str], int]) -> Conflict | None:
        head = len(self._journals.get(part.run, ()))
        if head != part.after:
            return refusals.sequence_taken(part, head)
        for row in part.rows:
            if row.settles is not None:
                place = part.run, row.settles
                seq = self._settled.get(place, settling[place])
                if seq != row.seq:
                    return refusals.path_settled(part.run, row.settles, min(seq, row.seq))
        if part.row is not None and part.row.key is not None:
            owner = self._keys.get((part.row.session, part.row.key), part.row.run)
            if owner != part.row.run:
                return refusals.key_taken(part.row, owner)
        return None

    def _keep(self, row: RunRow) -> None:
        before = self._runs.get(row.run)
        if before is not None and before.key is not None:
            del self._keys[before.session, before.key]
        if row.key is not None:
            self._keys[row.session, row.key] = row.run
        self._runs[row.run] = row

    def events(self, run: str, after: int = 0) -> list[Row]:
        return self._journals.get(run, [])[after:]

    def run(self, run: str) -> RunRow | None:
        return self._runs.get(run)

    def runs(
        self,
        *,
        session: str | None = None,
        workflow: str | None = None,
        states: Collection[str] | None = None,
        prefix: str = "",
    ) -> list[RunRow]:
        found = [
            row
            for row in self._runs.values()
            if (session is None or row.session == session)
            and (workflow is None or row.workflow == workflow)
            and (states is None or row.state in states)
            and row.run.startswith(prefix)
        ]
        return sorted(found, key=lambda row: (row.started, row.run))

    def run_by_key(self, session: str, key: str) -> RunRow | None:
        run = self._keys.get((session, key))
        return None if run is None else self._runs[run]

    def definition(self, hash: str) -> Definition | None:
        return self._definitions.get(hash)

    def close(self) -> None:
        pass


def _check(part: Append) -> None:
    for seq, row in enumerate(part.rows, part.after + 1):
        if row.seq != seq:
            raise refusals.out_of_order(part.run, seq, row.seq)
        # A character takes four bytes at most, so short text need not be encoded to know its size.
        if len(row.data) > VALUE_LIMIT // 4 and (size := len(row.data.encode())) > VALUE_LIMIT:
            raise refusals.too_large(part.run, row.seq, size)
