"""What lists and screens show of runs: from memory where a run is active, or else from the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nerve.core.workflow.open_gates import OpenGates
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import GateInfo, WorkflowState
from nerve.engine.run_executor import RunExecutor, StoredOutcome, outcome_of_run
from nerve.engine.run_summary import GATE_KIND, SIGNAL_KIND, StoredSummary, events_of_waits
from nerve.engine.stored_gates import gate_of_wait
from nerve.errors import JournalBroken
from nerve.journal.events import RunOnHold, WaitOpened, decode_event
from nerve.journal.waiting import describe_waits
from nerve.store.port import RunRow, Store, WaitRow


class RunReader:
    """Reads gates, waits, holds and outcomes without rebuilding runs: lists cover thousands of them."""

    def __init__(
        self,
        store: Store,
        executors: Mapping[str, RunExecutor],
        run_handles: Mapping[str, WorkflowRun],
        mark_unreadable: Callable[[JournalBroken], dict[str, Any]],
    ) -> None:
        """`mark_unreadable` remembers a damaged journal, and returns the data of the hold."""
        self._store, self._executors, self._run_handles = store, executors, run_handles
        self._mark_unreadable = mark_unreadable

    def open_gates(self, run_id: str) -> OpenGates:
        """Return the open gates of an inactive run."""
        waits = self._store.waits_of_run(run_id)
        return OpenGates(gate_of_wait(wait) for wait in waits if wait.kind == GATE_KIND)

    def describe_waiting(self, run: WorkflowRun) -> str | None:
        """Return what a run, or the child runs that it called, wait for; None if it does not wait."""
        is_waiting = run.state is WorkflowState.WAITING
        # A run that waits for a child run is stored as running.
        is_inactive = run.state is WorkflowState.RUNNING and run.run_id not in self._executors
        if not is_waiting and not is_inactive:
            return None
        open_children = run.open_children.values()
        waiting = {child.run_id: text for child in open_children if (text := child.waiting_for) is not None}
        return describe_waits(self.waits_of_run(run.run_id) if is_waiting else (), waiting)

    def waits_of_run(self, run_id: str) -> list[WaitOpened]:
        """Return the open waits of a run without those of its children."""
        if (executor := self._executors.get(run_id)) is not None:
            return executor.journal.summary.open_waits
        return events_of_waits(self._store.waits_of_run(run_id))

    def stored_outcome(self, row: RunRow) -> StoredOutcome:
        """Return the outcome of a run that has ended."""
        last = self._store.last_event(row.run)
        return outcome_of_run(None if last is None else decode_event(last))

    def hold_data(self, row: RunRow) -> dict[str, Any] | None:
        """Return why a run is held."""
        if (run := self._run_handles.get(row.run)) is not None:
            return run.held
        if (summary := StoredSummary.of_row(row)) is not None:
            return None if summary.hold is None else {"run_id": row.run, **summary.hold}
        try:
            last = self._store.last_event(row.run, RunOnHold.type)
        except JournalBroken as error:
            return {"run_id": row.run, **self._mark_unreadable(error)}
        return None if last is None else {"run_id": row.run, **decode_event(last).to_data()}

    def gates_of_run(self, row: RunRow) -> OpenGates:
        """Return the open gates of a run without those of its children; none if it is unreadable."""
        if (run := self._run_handles.get(row.run)) is not None:
            return run.run_state.gates
        return self.open_gates(row.run) if self.is_readable(row.run) else OpenGates()

    def find_gate(self, wait: WaitRow) -> GateInfo | None:
        """Return the open gate of a stored wait; None if the run is unreadable or does not ask any more."""
        if (run := self._run_handles.get(wait.run)) is not None:
            # Changed code may not have asked for the gate again.
            return run.run_state.gates.get(wait.path)
        return gate_of_wait(wait) if self.is_readable(wait.run) else None

    def may_ask_in_step(self, run_id: str) -> bool:
        """Whether a step of the run may be running that asks: here, or in the process that owns the run."""
        return self._store.read_only or run_id in self._executors

    def is_readable(self, run_id: str) -> bool:
        """Whether the first and last events of a journal are intact; the rest is verified when it is read."""
        try:
            self._store.events(run_id, 0, 1)
            self._store.last_event(run_id)
        except JournalBroken as error:
            self._mark_unreadable(error)
            return False
        return True

    def waits_for_person_or_fact(self, run: WorkflowRun) -> bool:
        """Whether a run, or a child of it, waits for a person or a fact, not just for a timer."""
        if (executor := self._executors.get(run.run_id)) is not None:
            if executor.open_waits.waits_for_person_or_fact:
                return True
        elif any(wait.kind in (GATE_KIND, SIGNAL_KIND) for wait in self._store.waits_of_run(run.run_id)):
            return True
        return any(map(self.waits_for_person_or_fact, run.run_state.children.values()))
