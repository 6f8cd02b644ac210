"""WorkflowRun: the handle of one execution of a workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from nerve.core.events import (
    LONG_TEXT_EVENTS,
    MAX_SHOWN_CHARS,
    JournalRow,
    Sink,
    WorkflowEvent,
    truncate_event_data,
    validate_sink,
)
from nerve.core.gates import validate_answer
from nerve.core.json_codec import MAX_VALUE_BYTES, decode_json, encode_json
from nerve.core.limits import Limits, validate_raise
from nerve.core.nodes.base import node_role
from nerve.core.run_view import RunView, fold_events
from nerve.core.workflow.state import FINAL_STATES, GateInfo, WorkflowRunInfo, WorkflowState
from nerve.errors import RunHeld, WorkflowFailed

MIN_GATE_ID_PREFIX_CHARS = 4
"""The shortest prefix of a gate id that identifies a gate."""

if TYPE_CHECKING:
    from nerve.core.workflow.workflow import Workflow

__all__ = ["GateInfo", "WorkflowRun", "WorkflowRunInfo"]


class RunCommandPort(Protocol):
    """Commands to a run."""

    async def stop(self, run: WorkflowRun, reason: str) -> list[str]: ...
    async def pause(self, run: WorkflowRun) -> None: ...
    async def resume(
        self, run: WorkflowRun, limits: Mapping[str, Any], with_changes: bool, reply: Any
    ) -> None: ...
    def answer(self, run: WorkflowRun, gate: GateInfo, answer: Any, by: str) -> Awaitable[None]: ...
    async def signal(self, run: WorkflowRun, label: str, value: Any, key: str | None) -> int: ...
    async def steer(self, run: WorkflowRun, text: str, path: str | None, by: str, make_reply: Any) -> str: ...
    async def resolve_doubt(
        self, run: WorkflowRun, path: str, decision: str, value: Any, reply: Any = None
    ) -> None: ...


class RunEngine(Protocol):
    """The services of the engine that a run handle uses."""

    closed: bool

    @property
    def commands(self) -> RunCommandPort: ...
    def new_id(self) -> str: ...
    def bind_to_running_loop(self) -> None: ...
    def check_ready(self, run: WorkflowRun) -> None: ...
    def rows(self, run_id: str, after: int = 0, limit: int | None = None) -> Iterable[JournalRow]: ...
    def open_gates(self, run_id: str) -> dict[str, GateInfo]: ...
    def children_of(self, run: WorkflowRun) -> Mapping[str, WorkflowRun]: ...
    async def start(self, run: WorkflowRun) -> None: ...
    async def flush_sinks(self, run: WorkflowRun) -> None: ...


class WorkflowRun:
    """Starts, observes, answers and stops one run. `session.start` creates one and starts it.

    `event_bus` is an alias of `event_sink`; a graph that is passed as the workflow is registered.
    """

    def __init__(
        self,
        workflow: Workflow,
        input: Any = None,
        params: Mapping[str, Any] | None = None,
        event_sink: Sink | None = None,
        *,
        run_id: str | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        about: Mapping[str, Any] | None = None,
        session: Any = None,
        event_bus: Sink | None = None,
    ) -> None:
        if node_role(workflow) != "workflow":
            home: Any = session or workflow.session
            workflow = home.register_workflow(workflow)
        if session not in (None, workflow.session):
            raise ValueError(
                f"Workflow '{workflow.id}' belongs to another session; register it with this one"
            )
        if event_sink is not None and event_bus is not None:
            raise ValueError("event_sink and event_bus are aliases; pass only one of them")
        event_sink = event_sink if event_sink is not None else event_bus
        self._engine: RunEngine = workflow.session.engine  # type: ignore[union-attr]
        self._run_id = run_id or self._engine.new_id()
        self._workflow = workflow
        self._input, self._params = input, dict(params or {})
        self._about = dict(about or {})
        self._sinks: list[Sink] = [validate_sink(event_sink)] if event_sink is not None else []
        self._limits = workflow.limits if limits is None else Limits.of(limits)
        self._state = WorkflowState.PENDING
        self._started_at: datetime | None = None
        self._completed_at: datetime | None = None
        self._end_timestamp: float | None = None
        """The time of its end, as recorded in the journal."""
        self._result: Any = None
        self._error: str | None = None
        self._error_type = ""
        self._exception: BaseException | None = None
        self._held: dict[str, Any] | None = None
        self._open_gates: dict[str, GateInfo] | None = {}
        self._children: dict[str, WorkflowRun] = {}
        self._watchers: list[asyncio.Future[None]] = []

    @property
    def _gates(self) -> dict[str, GateInfo]:
        if self._open_gates is None:
            self._open_gates = self._engine.open_gates(self._run_id)
        return self._open_gates

    def _forget_gates(self) -> None:
        """Drop the cached gates; the next access reads them from the journal."""
        self._open_gates = None

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run_id

    @property
    def label(self) -> str:
        """The label of the run, or its id."""
        return self._about.get("label") or self._run_id

    @property
    def branch(self) -> str:
        """The branch of the run, by default `main`."""
        return self._about.get("branch") or "main"

    @property
    def workflow(self) -> Workflow:
        """The workflow of the run."""
        return self._workflow

    @property
    def workflow_id(self) -> str:
        """The id of the workflow."""
        return self._workflow.name

    @property
    def input(self) -> Any:
        """The input of the run."""
        return self._input

    @property
    def state(self) -> WorkflowState:
        """The state of the run; while it only waits for child runs, their state."""
        if self._state is WorkflowState.RUNNING:
            states = {child.state for child in self._children.values()}
            for state in (WorkflowState.HELD, WorkflowState.WAITING):
                if state in states:
                    return state
            if states == {WorkflowState.PAUSED}:
                return WorkflowState.PAUSED
        return self._state

    @property
    def held(self) -> dict[str, Any] | None:
        """Why the run, or a child run, needs a decision: `reason`, `message`, `path`, and `run_id`."""
        if self._held is not None:
            return {"run_id": self._run_id, **self._held}
        return next((child.held for child in self._children.values() if child.held is not None), None)

    @property
    def is_complete(self) -> bool:
        """Whether the run has ended: completed, failed or cancelled."""
        return self._state in FINAL_STATES

    @property
    def pending_gates(self) -> list[GateInfo]:
        """The open gates, oldest first; those of child runs are prefixed with the path of the child."""
        gates = list(self._gates.values())
        for path, child in self._engine.children_of(self).items():
            gates += [gate_with_prefix(gate, path) for gate in child.pending_gates]
        return sorted(gates, key=lambda gate: gate.created_at)

    @property
    def pending_gate(self) -> GateInfo | None:
        """The oldest open gate, or None."""
        gates = self.pending_gates
        return gates[0] if gates else None

    @property
    def events(self) -> list[WorkflowEvent]:
        """All events in the journal."""
        return self._read_events(0)

    async def history(
        self, after: int = 0, limit: int | None = None, whole: bool = False
    ) -> list[WorkflowEvent]:
        """Return the events after the one with `seq` equal to `after`, at most `limit` of them.

        Long output is truncated and marked with `cut_characters`, unless `whole` is set.
        """
        return self._read_events(after, limit, whole)

    def _read_events(
        self, after: int, limit: int | None = None, untruncated: bool = False
    ) -> list[WorkflowEvent]:
        return [
            self._event_from_row(row, untruncated) for row in self._engine.rows(self._run_id, after, limit)
        ]

    def _event_from_row(self, row: JournalRow, untruncated: bool = False) -> WorkflowEvent:
        at, data = datetime.fromtimestamp(row.at, UTC), decode_json(row.data)
        if row.type in LONG_TEXT_EVENTS and not untruncated and len(row.data) > MAX_SHOWN_CHARS:
            data = truncate_event_data(data)
        return WorkflowEvent(self._run_id, self.workflow_id, row.type, data, at, seq=row.seq, path=row.path)

    @property
    def view(self) -> RunView:
        """State, tree, open gates and usage, folded from the journal."""
        return fold_events(self.events)

    async def start(self) -> None:
        """Start the run in the background and return when the start is on disk."""
        if self._state is not WorkflowState.PENDING:
            raise RuntimeError(f"Cannot start run in state {self._state.value}")
        await self._engine.start(self)

    async def wait(self) -> Any:
        """Return the value of the run; raise the error that failed it, RunHeld, or CancelledError."""
        if self._state is WorkflowState.PENDING:
            raise RuntimeError("Workflow not started")
        while not self.is_complete and (hold := self.held) is None:
            await self._wait_for_change()
            if self._state in FINAL_STATES:
                await self._engine.flush_sinks(self)
        if not self.is_complete and hold is not None:
            raise RunHeld(hold["run_id"], hold["reason"], hold["message"])
        if self._state is WorkflowState.CANCELLED:
            raise asyncio.CancelledError(self._error or "")
        if self._state is WorkflowState.FAILED:
            if isinstance(self._exception, Exception):
                raise self._exception
            raise WorkflowFailed(self._run_id, self._error or "", self._error_type) from self._exception
        return self._result

    async def next_gate(self) -> GateInfo | None:
        """Wait for an open gate and return it; None when the run has ended or is held."""
        while (gate := self.pending_gate) is None and not self.is_complete and self.held is None:
            await self._wait_for_change()
        return gate

    async def stop(self, reason: str = "") -> list[str]:
        """Stop the run and everything it started, and return what was running. An ended run is unchanged."""
        return await self._engine.commands.stop(self, reason)

    async def cancel(self) -> None:
        """Alias of stop()."""
        await self.stop()

    async def pause(self) -> None:
        """Start no further steps. Running steps finish and are recorded; the body sees them on resume."""
        await self._engine.commands.pause(self)

    async def resume(
        self,
        *,
        limits: Limits | Mapping[str, Any] | None = None,
        with_changes: bool = False,
        reply: Any = None,
    ) -> None:
        """Resume a paused or held run, with `limits` raised for the run or for steps by path.

        With `with_changes`, a run that is held because its code changed resumes with the new code: steps
        whose calls changed run again. The store keeps `reply` in the same transaction.
        """
        await self._engine.commands.resume(self, validate_raise(limits), with_changes, reply)

    async def steer(self, text: str, path: str | None = None, *, by: str = "", make_reply: Any = None) -> str:
        """Send a message to the agent of a running step and return the path of the step.

        The agent receives it during its turn if the provider supports that, else after the turn. `path` is
        optional if only one agent accepts messages; RuntimeError lists them otherwise. `make_reply` builds a
        reply from the path, which the store keeps in the same transaction.
        """
        return await self._engine.commands.steer(self, text, path, by, make_reply)

    def answer_gate(self, answer: Any, gate_id: str | None = None) -> None:
        """Answer an open gate. The run resumes when the answer is on disk."""
        owner, gate, answer = self._take_gate(answer, gate_id)
        asyncio.ensure_future(owner._engine.commands.answer(owner, gate, answer, "")).add_done_callback(
            ignore_task_error
        )

    async def answer(
        self,
        answer: Any,
        gate_id: str | None = None,
        *,
        by: str = "",
        key: str | None = None,
        about: Mapping[str, str] | None = None,
        reply: Any = None,
    ) -> None:
        """Answer an open gate and return when the answer is on disk.

        `by` is the person, `about` has the origin (`via`) and the `reason`; they are recorded with the answer
        and the idempotency `key`. The store keeps `reply` in the same transaction.
        """
        owner, gate, answer = self._take_gate(answer, gate_id)
        gate.key, gate.about, gate.reply = key, dict(about or {}), reply
        await owner._engine.commands.answer(owner, gate, answer, by)

    def _take_gate(self, answer: Any, gate_id: str | None) -> tuple[WorkflowRun, GateInfo, Any]:
        """Claim an open gate, so that a second answer cannot; return its run, the gate, and the answer."""
        if self._engine.closed:
            raise RuntimeError("The session is closed")
        self._engine.bind_to_running_loop()
        owner, gate = self._find_gate(gate_id)
        answer = validate_answer(answer, gate.choices, gate.form)
        encode_json(answer, max_bytes=MAX_VALUE_BYTES // 2)  # the event contains the answer twice
        owner._engine.check_ready(owner)
        # Remove the gate before the answer is written, so that a concurrent answer is rejected.
        del owner._gates[gate.path]
        if not owner._gates and owner._state is WorkflowState.WAITING:
            owner._state = WorkflowState.RUNNING
        return owner, gate, answer

    def _find_gate(self, name: str | None) -> tuple[WorkflowRun, GateInfo]:
        gates = list(self._owned_gates())
        if not gates:
            raise RuntimeError(f"No gate pending: run '{self._run_id}' is {self.state.value}")
        if name is None:
            if len(gates) > 1:
                names = ", ".join(f"{gate.gate_id} ({path})" for _, gate, path in gates)
                raise RuntimeError(f"Several gates are open, choose one of them: {names}")
            return gates[0][0], gates[0][1]
        exact = [(owner, gate) for owner, gate, path in gates if name in (gate.gate_id, path)]
        matches = exact or [(owner, gate) for owner, gate, _ in gates if name == gate.node_id]
        if not matches and len(name) >= MIN_GATE_ID_PREFIX_CHARS:
            matches = [(owner, gate) for owner, gate, _ in gates if gate.gate_id.startswith(name)]
        if len(matches) != 1:
            names = ", ".join(f"{gate.gate_id} ({path})" for _, gate, path in gates)
            problem = (
                f"Several gates of node '{name}' are open" if matches else f"No gate '{name}' pending. Open"
            )
            raise RuntimeError(f"{problem}: {names}")
        return matches[0]

    def _owned_gates(self, prefix: str = "") -> Iterable[tuple[WorkflowRun, GateInfo, str]]:
        for gate in self._gates.values():
            yield self, gate, prefix + gate.path
        for path, child in self._engine.children_of(self).items():
            yield from child._owned_gates(prefix + path)

    async def signal(self, label: str, value: Any = None, key: str | None = None) -> int:
        """Settle the open waits for this signal and return their number."""
        return await self._engine.commands.signal(self, label, value, key)

    async def skip(self, path: str, output: Any = None, *, reply: Any = None) -> None:
        """Settle the step that the run is held at as completed, with this output."""
        await self._engine.commands.resolve_doubt(self, path, "skip", output, reply)

    async def retry(self, path: str | None = None, *, reply: Any = None) -> None:
        """Resume a held run and execute the step with the unknown outcome again."""
        await self._engine.commands.resolve_doubt(self, path or "", "retry", None, reply)

    async def fail(self, path: str, error: str = "declared failed", *, reply: Any = None) -> None:
        """Settle the step that the run is held at as failed."""
        await self._engine.commands.resolve_doubt(self, path, "fail", error, reply)

    def to_info(self) -> WorkflowRunInfo:
        """Return the state of the run, its times, its result or error, and its open gates."""
        gates = [gate.to_dict() for gate in self.pending_gates]
        return WorkflowRunInfo(
            self._run_id,
            self.workflow_id,
            self.state,
            self._started_at,
            self._completed_at,
            self._result,
            self._error,
            {name: gates[0][name] for name in ("gate_id", "prompt", "choices")} if gates else None,
            gates,
            self.held,
        )

    def _mark_ended(self, state: WorkflowState) -> None:
        """Set the final state, with the recorded time, so that it is the same after a restart."""
        self._state, self._held = state, None
        self._completed_at = (
            datetime.fromtimestamp(self._end_timestamp, UTC) if self._end_timestamp is not None else None
        )

    async def _wait_until_ended(self) -> None:
        """Return when the run has ended, however long it is held."""
        while not self.is_complete:
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        """Return at the next change of the run that callers can wait for."""
        if self._engine.closed:
            raise RuntimeError(f"The session is closed. Resume run '{self._run_id}' with recover()")
        self._engine.bind_to_running_loop()
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        try:
            await watcher
        finally:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    def _notify(self) -> None:
        """Wake all callers that wait for a change."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    def __repr__(self) -> str:
        return (
            f"WorkflowRun(run_id='{self._run_id}', workflow='{self.workflow_id}', state='{self.state.value}')"
        )


def gate_with_prefix(gate: GateInfo, path: str) -> GateInfo:
    """Return a gate of a child run with the path that it has in the parent."""
    return replace(gate, path=path + gate.path)


def ignore_task_error(done: asyncio.Future[None]) -> None:
    """Retrieve the exception of a failed answer; the run is already held for it."""
    if not done.cancelled():
        done.exception()
