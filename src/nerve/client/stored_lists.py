"""Lists of runs and gates from a store that no process drives, for commands without a server.

The engine and the models of the API take longer to import than a list takes to read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Any, NamedTuple, Self

from nerve.core.gates import NO_PROGRESS, gate_hash, gate_progress_fields
from nerve.core.workflow.state import FINAL_STATE_VALUES, WorkflowState
from nerve.engine.run_summary import GATE_KIND, StoredSummary, events_of_waits
from nerve.engine.stored_gates import gate_of_wait
from nerve.errors import JournalBroken
from nerve.journal.index import read_start
from nerve.journal.waiting import describe_waits
from nerve.lazy_dataclass import dataclass
from nerve.session.project_store import open_project_store
from nerve.session.run_filters import RunFilters
from nerve.store.port import RunRow, Store, WaitRow

SESSION_NAME = "default"
"""The session of a project."""
CHILDLESS_STATES = (WorkflowState.PENDING.value, WorkflowState.WAITING.value)
"""Open states in which a run does not wait for a child run, whose journal would have to be read."""
GATES_PER_PAGE = 1000


class EngineRequired(Exception):
    """The rows of a store do not answer a question; an engine has to read journals."""


class StoredRecord:
    """What a response of the API has in common with an entry of these lists."""

    def model_dump(self, *, mode: str, include: Collection[str] | None = None) -> dict[str, Any]:
        """Return the fields as JSON values."""
        names = [each.name for each in fields(self) if include is None or each.name in include]  # type: ignore[arg-type]
        return {name: to_json_value(getattr(self, name)) for name in names}

    def model_copy(self, *, update: dict[str, Any]) -> Self:
        """Return a copy with other values of some fields."""
        return replace(self, **update)  # type: ignore[type-var]


def to_json_value(value: Any) -> Any:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


@dataclass(frozen=True)
class StoredGate(StoredRecord):
    """An open gate; its fields are those of a `GateResponse`."""

    gate_id: str
    run_id: str
    workflow: str
    label: str | None
    path: str
    prompt: str
    choices: list[str] | None
    options: list[str] | None
    node_id: str | None
    note: str | None
    input_preview: str | None
    created_at: datetime
    deadline: float | None
    action: dict[str, Any] | None
    form: dict[str, Any] | None
    hash: str
    policy: dict[str, Any] | None = None
    votes: list[dict[str, Any]] = field(default_factory=list)
    delegations: list[dict[str, Any]] = field(default_factory=list)
    claimed_by: str | None = None
    approvers: list[str] = field(default_factory=list)
    missing: str = ""


@dataclass(frozen=True)
class StoredRun(StoredRecord):
    """A run of a list; its fields are those of a `RunResponse`, without its outcome."""

    run_id: str
    workflow: str
    state: str
    label: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    started_at: datetime | None = None
    ended_at: datetime | None = None
    held: dict[str, Any] | None = None
    waiting_for: str | None = None
    gates: list[StoredGate] = field(default_factory=list)
    parent: str | None = None
    continued_as: str | None = None
    continued_from: str | None = None
    started_by: str | None = None
    started_via: str | None = None


class StoredRunPage(NamedTuple):
    """A page of runs, newest first, and whether there are more."""

    runs: list[StoredRun]
    more: bool


class StoredLists:
    """The methods of a `Client` that list runs and gates; EngineRequired for what rows do not tell."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    @contextmanager
    def open(cls, project: Path, location: str | Path) -> Iterator[Self]:
        """Open the store of a project; a file that does not exist has no runs."""
        exists = isinstance(location, str) or location.is_file()
        store = open_project_store(project, location if exists else None)
        try:
            yield cls(store)
        finally:
            store.close()

    async def runs(
        self, *, state: list[str], limit: int, before: str | None = None, **filters: Any
    ) -> StoredRunPage:
        """Return a page of the runs in these states, or in any state if there are none."""
        if filters.keys() - {"largest"}:
            raise EngineRequired  # names may be abbreviated
        last = None if before is None else self._store.run(before)
        found = RunFilters(states=state or None).find_newest(
            self._store, SESSION_NAME, last, limit + 1, time()
        )
        return StoredRunPage([self._read_run(row) for row in found[:limit]], len(found) > limit)

    async def all_gates(self, **filters: Any) -> list[StoredGate]:
        """Return all open gates, oldest first."""
        if filters:
            raise EngineRequired  # whom a gate waits for depends on the people, and on journals
        gates: list[StoredGate] = []
        waits = [*self._store.open_waits(SESSION_NAME, GATE_KIND, None, GATES_PER_PAGE)]
        while waits:
            for wait in waits:
                if (row := self._store.run(wait.run)) is not None:
                    self._check_journal(row)
                    gates.append(self._read_gate(row, wait))
            waits = self._store.open_waits(SESSION_NAME, GATE_KIND, waits[-1], GATES_PER_PAGE)
        return gates

    def modules_of(self, run_id: str) -> list[str]:
        """Return the files that registered the code of a run."""
        row = self._store.run(run_id)
        while row is not None and row.parent is not None and (parent := self._store.run(row.parent)):
            row = parent
        return [] if row is None else read_start(self._store, row.run).modules or []

    def _read_run(self, row: RunRow) -> StoredRun:
        summary = StoredSummary.of_row(row)
        if summary is None or row.state not in (*CHILDLESS_STATES, *FINAL_STATE_VALUES):
            raise EngineRequired
        self._check_journal(row)
        waits = self._store.waits_of_run(row.run) if row.ended is None else []
        is_waiting = row.state == WorkflowState.WAITING.value
        return StoredRun(
            run_id=row.run,
            workflow=row.workflow,
            state=row.state,
            label=row.label,
            tags=summary.tags,
            started_at=datetime.fromtimestamp(row.started, UTC),
            ended_at=None if row.ended is None else datetime.fromtimestamp(row.ended, UTC),
            waiting_for=describe_waits(events_of_waits(waits)) if is_waiting else None,
            gates=[self._read_gate(row, wait) for wait in waits if wait.kind == GATE_KIND],
            parent=row.parent,
            continued_as=summary.continued_as,
            continued_from=summary.continued_from,
            started_by=summary.find_starter(row),
            started_via=summary.started_via,
        )

    def _read_gate(self, row: RunRow, wait: WaitRow) -> StoredGate:
        gate = gate_of_wait(wait)
        own: dict[str, Any] = {
            "run_id": row.run,
            "workflow": row.workflow,
            "label": row.label,
            "hash": gate_hash(gate),
        }
        progress = gate_progress_fields(gate)
        names = [each.name for each in fields(StoredGate) if each.name not in own | NO_PROGRESS]
        return StoredGate(**own, **{name: getattr(gate, name) for name in names}, **progress)

    def _check_journal(self, row: RunRow) -> None:
        """Raise EngineRequired unless the first and last events of a journal are intact."""
        try:
            self._store.events(row.run, 0, 1)
            self._store.last_event(row.run)
        except JournalBroken:
            raise EngineRequired from None
