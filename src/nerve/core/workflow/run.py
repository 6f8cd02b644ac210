"""WorkflowRun: the handle of one execution of a workflow."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from nerve.core.events import JournalRow, Sink, WorkflowEvent, validate_sink
from nerve.core.gates import read_edited_input, select_lowest, validate_answer
from nerve.core.json_codec import MAX_VALUE_BYTES, encode_json
from nerve.core.limits import Limits, validate_raise
from nerve.core.nodes.base import node_role
from nerve.core.run_view import RunView
from nerve.core.tracebacks import NO_TRACE, FailureTrace
from nerve.core.validation import require_name
from nerve.core.value_codec import ValueCodec
from nerve.core.workflow.body_handlers import BodyHandlers
from nerve.core.workflow.open_gates import OpenGates
from nerve.core.workflow.state import (
    FINAL_STATES,
    NO_CALLER,
    GateAction,
    GateAnswer,
    GateInfo,
    WorkflowRunInfo,
    WorkflowState,
)
from nerve.errors import GateNotOpen, RunHeld, WorkflowFailed
from nerve.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from nerve.core.gate_policy import Voter
    from nerve.core.workflow.workflow import Workflow

    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")

__all__ = ["GateInfo", "WorkflowRun", "WorkflowRunInfo"]


@dataclass(frozen=True, slots=True)
class RunOperations:
    """What the handles of runs ask of the engine that executes the runs."""

    start: Callable[[WorkflowRun], Awaitable[None]]
    stop: Callable[..., Awaitable[list[str]]]
    pause: Callable[..., Awaitable[None]]
    resume: Callable[..., Awaitable[None]]
    answer: Callable[[WorkflowRun, GateInfo, GateAnswer], Awaitable[None]]
    """Closes the gate at once, so that another answer is rejected, and writes the answer."""
    signal: Callable[[WorkflowRun, str, Any, str | None], Awaitable[int]]
    send: Callable[[WorkflowRun, str, Any, str | None, str, Any], Awaitable[None]]
    query: Callable[[WorkflowRun, str], Awaitable[Any]]
    update: Callable[[WorkflowRun, str, Any, str | None, str], Awaitable[Any]]
    steer: Callable[[WorkflowRun, str, str | None, str, Any], Awaitable[str]]
    resolve_doubt: Callable[..., Awaitable[None]]
    bind_to_running_loop: Callable[[], None]
    is_closed: Callable[[], bool]
    rows: Callable[[str, int, int | None], Iterable[JournalRow]]
    make_event: Callable[[str, str, JournalRow, bool], WorkflowEvent]
    read_view: Callable[[str, str, Iterable[JournalRow]], RunView]
    open_gates: Callable[[str], OpenGates]
    """Reads the open gates of an inactive run from its journal."""
    children_of: Callable[[WorkflowRun], Mapping[str, WorkflowRun]]
    describe_waiting: Callable[[WorkflowRun], str | None]
    current_run: Callable[[WorkflowRun], WorkflowRun]
    """Returns the current run of the chain of a run that continued as new."""
    flush_sinks: Callable[[WorkflowRun], Awaitable[None]]


NO_DETAILS: Mapping[str, Any] = MappingProxyType({})
"""The tags and details of most runs; shared, because ten thousand runs may wait."""


class RunState:
    """The mutable state of one run in memory.

    The executor of the run changes it, or the engine while the run has no executor; a WorkflowRun reads it.
    """

    status = WorkflowState.PENDING
    """The state of the run itself, whatever its child runs do."""
    # While a stop is in progress the store keeps the state from before it. A crash in the middle then
    # recovers a run that can still be resumed or stopped.
    recorded_status: WorkflowState | None = None
    """What the store gets instead: the state before a stop, or the final one until it is on disk."""
    hold: dict[str, Any] | None = None
    """Why the run needs a decision: reason, message and path."""
    start_time: float | None = None
    end_time: float | None = None
    recorded_end: float | None = None
    """The time of the end that the journal records, before that is on disk."""
    result: Any = None
    error: str | None = None
    error_type = ""
    trace = NO_TRACE
    """Where the run failed."""
    exception: BaseException | None = None
    continued_as: str | None = None
    """The next run of its chain, if it continued as new."""
    handlers: BodyHandlers | None = None
    """The queries and updates of the body that runs last; None before the first."""
    _watchers: list[asyncio.Future[None]] | None = None

    def __init__(
        self,
        input: Any,
        params: dict[str, Any],
        limits: Limits,
        tags: Mapping[str, str],
        run_id: str,
        read_gates: Callable[[str], OpenGates],
    ) -> None:
        self.input, self.params, self.limits, self.tags = input, params, limits, tags
        self.children: dict[str, WorkflowRun] = {}
        """The child runs it waits for, by the paths of their calls."""
        self.known_gates: OpenGates | None = OpenGates()
        """Its own open gates; None if they have to be read from the journal."""
        # Not the run itself: two objects that refer to each other would be left to the collector.
        self._run_id, self._read_gates = run_id, read_gates

    @property
    def gates(self) -> OpenGates:
        """Its own open gates."""
        if self.known_gates is None:
            self.known_gates = self._read_gates(self._run_id)
        return self.known_gates

    def close_gate(self, path: str) -> None:
        """Remove an open gate; without a gate the run no longer counts as waiting."""
        del self.gates[path]
        if not self.gates and self.status is WorkflowState.WAITING:
            self.status = WorkflowState.RUNNING

    def forget_gates(self) -> None:
        """Drop the known gates; the next access reads them from the journal."""
        self.known_gates = None

    @property
    def started_at(self) -> datetime | None:
        return None if self.start_time is None else datetime.fromtimestamp(self.start_time, UTC)

    @property
    def completed_at(self) -> datetime | None:
        return None if self.end_time is None else datetime.fromtimestamp(self.end_time, UTC)

    def mark_started(self, input: Any, params: dict[str, Any], now: float) -> None:
        """Set what the journal has as the start of the run."""
        self.input, self.params = input, params
        self.status, self.start_time = WorkflowState.RUNNING, now

    def restore(self, status: WorkflowState, started: float, ended: float | None) -> None:
        """Set what the store has about a run that is not in memory."""
        self.status, self.start_time, self.end_time = status, started, ended or None

    def set_running(self) -> None:
        self.status, self.hold = WorkflowState.RUNNING, None

    def set_held(self, hold: dict[str, Any]) -> None:
        self.status, self.hold = WorkflowState.HELD, hold

    def set_outcome(
        self, result: Any, error: str | None = None, error_type: str = "", trace: FailureTrace = NO_TRACE
    ) -> None:
        self.result, self.error, self.error_type, self.trace = result, error, error_type, trace

    def mark_ended(self, status: WorkflowState) -> None:
        """Set the final state; the time of its end is the recorded one, the same as after a restart."""
        self.status, self.hold, self.end_time = status, None, self.recorded_end

    def notify_watchers(self) -> None:
        """Wake all callers that wait for a change."""
        watchers, self._watchers = self._watchers, None
        for watcher in watchers or ():
            if not watcher.done():
                watcher.set_result(None)

    async def wait_for_change(self) -> None:
        """Return at the next call of `notify_watchers`."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers = [*(self._watchers or ()), watcher]
        try:
            await watcher
        finally:
            if self._watchers is not None and watcher in self._watchers:
                self._watchers.remove(watcher)


class WorkflowRun(Generic[R]):
    """Starts, observes, answers and stops one run. `session.start` creates one and starts it.

    `event_bus` and `event_callback` are aliases of `event_sink`; a graph that is passed as the workflow is
    registered.
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
        event_callback: Sink | None = None,
    ) -> None:
        if node_role(workflow) != "workflow":
            home: Any = session or workflow.session
            workflow = home.register_workflow(workflow)
        own_session = workflow.session
        if session is not None and session is not own_session:
            raise ValueError(
                f"Workflow '{workflow.id}' belongs to another session; register it with this one"
            )
        if event_bus is not None or event_callback is not None:
            event_sink = find_only_sink(event_sink, event_bus, event_callback)
        operations: RunOperations = own_session.engine.operations  # type: ignore[union-attr]
        self._operations = operations
        self.run_id: Final = run_id or new_run_id()
        """The id of the run."""
        self._workflow = workflow
        self.about: Mapping[str, Any] = dict(about) if about else NO_DETAILS
        """What its start records about it: label, branch, conversation, modules, tags, queue, caller."""
        self.continued_from: str | None = None
        """The previous run of its chain."""
        self.sinks: list[Sink] = [validate_sink(event_sink)] if event_sink is not None else []
        self.run_state = RunState(
            input,
            dict(params or {}),
            workflow.limits if limits is None else Limits.of(limits),
            self.about.get("tags", NO_DETAILS),
            self.run_id,
            operations.open_gates,
        )

    @property
    def label(self) -> str:
        """The label of the run, or its id."""
        return self.about.get("label") or self.run_id

    @property
    def branch(self) -> str:
        """The branch of the run, by default `main`."""
        return self.about.get("branch") or "main"

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the run: those of its start, and those that `ctx.tag` has set since."""
        return dict(self.run_state.tags)

    @property
    def workflow(self) -> Workflow:
        """The workflow of the run."""
        return self._workflow

    def use_workflow(self, workflow: Workflow) -> None:
        """Continue the run with another version of its workflow."""
        self._workflow = workflow

    @property
    def workflow_id(self) -> str:
        """The id of the workflow."""
        return self._workflow.name

    @property
    def input(self) -> Any:
        """The input of the run."""
        return self.run_state.input

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the run."""
        return self.run_state.params

    @property
    def result(self) -> R | None:
        """The value of the run, as `wait` returns it; None until completed, and if it continued as new."""
        if self.run_state.status is not WorkflowState.COMPLETED or self.continued_as is not None:
            return None
        value: R = self._workflow.decode_result(self.run_state.result)
        return value

    @property
    def error(self) -> str | None:
        """Why the run failed or was cancelled; None until then."""
        return self.run_state.error

    @property
    def started_at(self) -> datetime | None:
        """When the run was started; None until then."""
        return self.run_state.started_at

    @property
    def completed_at(self) -> datetime | None:
        """When the run ended; None until then."""
        return self.run_state.completed_at

    @property
    def state(self) -> WorkflowState:
        """The state of the run; while it only waits for child runs, their state."""
        if self.run_state.status is WorkflowState.RUNNING:
            states = {child.state for child in self.run_state.children.values()}
            for state in (WorkflowState.HELD, WorkflowState.WAITING):
                if state in states:
                    return state
            if states == {WorkflowState.PAUSED}:
                return WorkflowState.PAUSED
        return self.run_state.status

    @property
    def waiting_for(self) -> str | None:
        """What a waiting run waits for, such as `for signal shipped (key 42)` or `until 14:05`; else None."""
        return self._operations.describe_waiting(self)

    @property
    def held(self) -> dict[str, Any] | None:
        """Why the run, or a child run, needs a decision: `reason`, `message`, `path`, and `run_id`."""
        if self.run_state.hold is not None:
            return {"run_id": self.run_id, **self.run_state.hold}
        return next(
            (child.held for child in self.run_state.children.values() if child.held is not None), None
        )

    @property
    def is_complete(self) -> bool:
        """Whether the run has ended: completed, failed or cancelled."""
        return self.run_state.status in FINAL_STATES

    @property
    def continued_as(self) -> str | None:
        """The id of the next run of its chain, if the run continued as new."""
        return self.run_state.continued_as

    @property
    def current(self) -> WorkflowRun[R]:
        """The current run of its chain; the run itself unless it continued as new."""
        return self if self.run_state.continued_as is None else self._operations.current_run(self)

    @property
    def open_children(self) -> Mapping[str, WorkflowRun]:
        """The child runs that it waits for, by the paths of their calls."""
        return self._operations.children_of(self)

    @property
    def pending_gates(self) -> list[GateInfo]:
        """The open gates, oldest first; those of child runs are prefixed with the path of the child."""
        gates = list(self.run_state.gates.values())
        for path, child in self.open_children.items():
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
            self.event_from_row(row, untruncated) for row in self._operations.rows(self.run_id, after, limit)
        ]

    def event_from_row(self, row: JournalRow, untruncated: bool = False) -> WorkflowEvent:
        """Return the event of a journal row; long output is truncated unless `untruncated` is set."""
        return self._operations.make_event(self.run_id, self.workflow_id, row, untruncated)

    @property
    def view(self) -> RunView:
        """State, tree, open gates and usage, from the journal."""
        rows = self._operations.rows(self.run_id, 0, None)
        return self._operations.read_view(self.run_id, self.workflow_id, rows)

    async def start(self) -> None:
        """Start the run in the background and return when the start is on disk."""
        if self.run_state.status is not WorkflowState.PENDING:
            raise RuntimeError(f"Cannot start run in state {self.run_state.status.value}")
        await self._operations.start(self)

    async def wait(self) -> R:
        """Return the value of the run; raise the error that failed it, RunHeld, or CancelledError.

        The value has the type that a typed workflow function declares. A run that continues as new has the
        value of the last run of its chain.
        """
        if self.run_state.status is WorkflowState.PENDING:
            raise RuntimeError("Workflow not started")
        run = self.current
        while run.run_state.status not in FINAL_STATES:
            if (hold := run.held) is not None:
                raise RunHeld(hold["run_id"], hold["reason"], hold["message"])
            await run.wait_for_change()
            if run.run_state.status in FINAL_STATES and run.sinks:
                await self._operations.flush_sinks(run)
            run = run.current
        state = run.run_state
        if state.status is WorkflowState.CANCELLED:
            raise asyncio.CancelledError(state.error or "")
        if state.status is WorkflowState.FAILED:
            if isinstance(state.exception, Exception):
                raise state.exception
            raise WorkflowFailed(run.run_id, state.error or "", state.error_type) from state.exception
        value: R = run.workflow.decode_result(state.result)
        return value

    async def next_gate(self, name: str | None = None) -> GateInfo | None:
        """Wait for an open gate and return it; None when the run has ended or is held.

        With a `name`, wait for a gate with this id, path or node, or an id that starts with it.
        """
        run = self.current
        while (gate := run._find_pending_gate(name)) is None and not run.is_complete and run.held is None:
            await run.wait_for_change()
            run = run.current
        return gate

    def _find_pending_gate(self, name: str | None) -> GateInfo | None:
        """Return the oldest open gate, or the oldest that a name refers to."""
        if name is None:
            return self.pending_gate
        gates = [replace(owned.gate, path=owned.path) for owned in self.match_gates(name)]
        return min(gates, key=lambda gate: gate.created_at, default=None)

    async def stop(self, reason: str = "", *, about: Mapping[str, Any] = NO_CALLER) -> list[str]:
        """Stop the run and everything it started, and return what was running. An ended run is unchanged.

        `about` says who stops it; the journal has it with the reason.
        """
        return await self._operations.stop(self, reason, about=about)

    async def cancel(self) -> None:
        """Alias of stop()."""
        await self.stop()

    async def pause(self, *, about: Mapping[str, Any] = NO_CALLER) -> None:
        """Start no further steps. Running steps finish and are recorded; the body sees them on resume."""
        await self._operations.pause(self, about=about)

    async def resume(
        self,
        *,
        limits: Limits | Mapping[str, Any] | None = None,
        with_changes: bool = False,
        reply: Any = None,
        about: Mapping[str, Any] = NO_CALLER,
    ) -> None:
        """Resume a paused or held run, with `limits` raised for the run or for steps by path.

        With `with_changes`, a run that is held because its code changed resumes with the new code: steps
        whose calls changed run again. The store keeps `reply` in the same transaction.
        """
        await self._operations.resume(self, validate_raise(limits), with_changes, reply, about=about)

    async def steer(self, text: str, path: str | None = None, *, by: str = "", make_reply: Any = None) -> str:
        """Send a message to the agent of a running step and return the path of the step.

        The agent receives it during its turn if the provider supports that, else after the turn. `path` is
        optional if only one agent accepts messages; RuntimeError lists them otherwise. `make_reply` builds a
        reply from the path, which the store keeps in the same transaction.
        """
        return await self._operations.steer(self, text, path, by, make_reply)

    def answer_gate(self, answer: Any, gate_id: str | None = None) -> None:
        """Answer an open gate. The run resumes when the answer is on disk."""
        owner, gate = self._find_gate(gate_id)
        write = owner.write_answer(gate, accept_answer(gate, answer))
        asyncio.ensure_future(write).add_done_callback(ignore_task_error)

    async def answer(
        self,
        answer: Any,
        gate_id: str | None = None,
        *,
        by: str = "",
        key: str | None = None,
        about: Mapping[str, str] | None = None,
        reply: Any = None,
        voter: Voter | None = None,
        action: GateAction = "answer",
    ) -> None:
        """Answer an open gate and return when the answer is on disk.

        `by` is the person, `about` has the origin (`via`) and the `reason`; they are recorded with the answer
        and the idempotency `key`. The store keeps `reply` in the same transaction. A gate with a policy needs
        the `voter`; with `action`, the answer delegates to the person it names, claims the gate, or releases
        it.
        """
        owner, gate = self._find_gate(gate_id)
        accepted = accept_answer(gate, answer) if action == "answer" else answer
        await owner.write_answer(
            gate, accepted, by=by, key=key, about=about, reply=reply, voter=voter, action=action
        )

    def _require_usable_session(self) -> None:
        if self._operations.is_closed():
            raise RuntimeError("The session is closed")
        self._operations.bind_to_running_loop()

    def write_answer(
        self,
        gate: GateInfo,
        answer: Any,
        *,
        by: str = "",
        key: str | None = None,
        about: Mapping[str, str] | None = None,
        reply: Any = None,
        voter: Voter | None = None,
        action: GateAction = "answer",
    ) -> Awaitable[None]:
        """Close a gate of this run and record an accepted answer; await the result until it is on disk.

        A gate with a policy is closed if the answer decides it.
        """
        self._require_usable_session()
        given = GateAnswer(answer, by, key, dict(about or {}), reply, voter, action)
        return self._operations.answer(self, gate, given)

    def _find_gate(self, name: str | None) -> tuple[WorkflowRun, GateInfo]:
        # First: a loop that has ended closed the gates of its runs in memory, and the error must say so.
        self._require_usable_session()
        run = self.current
        matches = run.match_gates(name)
        if len(matches) == 1:
            return matches[0].run, matches[0].gate
        if not (gates := list(run.owned_gates())):
            raise GateNotOpen(f"No gate pending: run '{run.run_id}' is {run.state.value}")
        problem = (
            f"Several open gates have the name '{name}'" if matches else f"No gate '{name}' pending. Open"
        )
        raise GateNotOpen(several_gates_message(gates) if name is None else f"{problem}: {list_gates(gates)}")

    def match_gates(self, name: str | None) -> list[OwnedGate]:
        """Return the open gates of this run and its child runs that a name refers to; all if it is None.

        They have that id or path; if none does, that name; if none does, an id that starts with the name.
        """
        if name is None:
            return list(self.owned_gates())
        return select_lowest(
            (match, OwnedGate(run, gate, prefix + gate.path))
            for run, prefix in self._with_descendants()
            for match, gate in run.run_state.gates.find_matches(name, prefix)
        )

    def owned_gates(self) -> Iterator[OwnedGate]:
        """Yield the open gates of this run and its child runs, each with the run that it belongs to."""
        for run, prefix in self._with_descendants():
            for gate in run.run_state.gates.values():
                yield OwnedGate(run, gate, prefix + gate.path)

    def _with_descendants(self, prefix: str = "") -> Iterator[tuple[WorkflowRun, str]]:
        """Yield this run and its open child runs, each with the path of its call."""
        yield self, prefix
        for path, child in self.open_children.items():
            yield from child._with_descendants(prefix + path)

    async def signal(self, label: str, value: Any = None, key: str | None = None) -> int:
        """Settle the open waits for this signal and return their number."""
        self._require_usable_session()
        return await self._operations.signal(self, label, value, key)

    async def send(
        self, channel: str, value: Any = None, *, key: str | None = None, by: str = "", reply: Any = None
    ) -> None:
        """Put a message into the mailbox of the run and return when it is on disk.

        The body receives it with `ctx.receive(channel)`, once and in order, however busy the run is now.
        A second message with the same `key` is not sent. RuntimeError if the run has ended. The store keeps
        `reply` in the same transaction.
        """
        data = self._workflow.encode_message(channel, value)
        await self._operations.send(self, channel, data, require_key(key), by, reply)

    async def query(self, name: str) -> Any:
        """Return what the handler of `ctx.query(name, …)` says now, as JSON data; nothing is recorded.

        A parked run is loaded for it. ValueError for an unknown name, RuntimeError if the run has ended.
        """
        return await self._operations.query(self, require_name("a query", name))

    async def update(self, name: str, value: Any = None, *, key: str | None = None, by: str = "") -> Any:
        """Let the handler of `ctx.update(name, …)` change the run, and return its reply as JSON data.

        Updates of one name are handled one after the other. A second one with the same `key` gets the reply
        of the first. UpdateRejected if the validator rejects the value, UpdateFailed if the handler raises.
        """
        return await self._operations.update(
            self, require_name("an update", name), value, require_key(key), by
        )

    async def skip(
        self, path: str, output: Any = None, *, reply: Any = None, about: Mapping[str, Any] = NO_CALLER
    ) -> None:
        """Settle the step that the run is held at as completed, with this output."""
        await self._operations.resolve_doubt(self, path, "skip", output, reply, about=about)

    async def retry(
        self, path: str | None = None, *, reply: Any = None, about: Mapping[str, Any] = NO_CALLER
    ) -> None:
        """Resume a held run and execute the step with the unknown outcome again."""
        await self._operations.resolve_doubt(self, path or "", "retry", None, reply, about=about)

    async def fail(
        self,
        path: str,
        error: str = "declared failed",
        *,
        reply: Any = None,
        about: Mapping[str, Any] = NO_CALLER,
    ) -> None:
        """Settle the step that the run is held at as failed."""
        await self._operations.resolve_doubt(self, path, "fail", error, reply, about=about)

    def to_info(self) -> WorkflowRunInfo:
        """Return the state of the run, its times, its result or error, and its open gates."""
        gates = [gate.to_dict() for gate in self.pending_gates]
        return WorkflowRunInfo(
            self.run_id,
            self.workflow_id,
            self.state,
            self.run_state.started_at,
            self.run_state.completed_at,
            self.run_state.result,
            self.run_state.error,
            {name: gates[0][name] for name in ("gate_id", "prompt", "choices")} if gates else None,
            gates,
            self.held,
        )

    async def wait_until_ended(self) -> None:
        """Return when the run, or the last one of its chain, has ended, however long it is held."""
        run = self.current
        while not run.is_complete:
            await run.wait_for_change()
            run = run.current

    async def wait_for_change(self) -> None:
        """Return at the next change of the run that callers can wait for; at once if it has ended."""
        if self.is_complete:
            return
        if self._operations.is_closed():
            raise RuntimeError(f"The session is closed. Resume run '{self.run_id}' with recover()")
        self._operations.bind_to_running_loop()
        await self.run_state.wait_for_change()

    def __repr__(self) -> str:
        return (
            f"WorkflowRun(run_id='{self.run_id}', workflow='{self.workflow_id}', state='{self.state.value}')"
        )


def require_key(key: str | None) -> str | None:
    """Return an idempotency key, or None."""
    return None if key is None else require_name("an idempotency key", key)


TICKS_PER_MS = 4096
"""The time in an id of a run has the precision of the clock, about a quarter of a microsecond."""
VARIANT = 2 << 62
"""The variant of a UUID, in its last 64 bits."""
_last_tick = 0


def find_only_sink(*sinks: Sink | None) -> Sink:
    given = [sink for sink in sinks if sink is not None]
    if len(given) > 1:
        raise ValueError("event_sink, event_bus and event_callback are aliases; pass only one of them")
    return given[0]


def new_run_id() -> str:
    """Return a UUID that sorts by time (version 7), after all that this process has made before."""
    global _last_tick
    # Runs that start at the same time are listed by their ids.
    _last_tick = tick = max(int(time.time() * 1000 * TICKS_PER_MS), _last_tick + 1)
    ticks, chance = f"{tick:015x}", f"{VARIANT | int.from_bytes(os.urandom(8)) >> 2:016x}"
    return f"{ticks[:8]}-{ticks[8:12]}-7{ticks[12:]}-{chance[:4]}-{chance[4:]}"


class OwnedGate(NamedTuple):
    """An open gate, the run that it belongs to, and its path in the enclosing run."""

    run: WorkflowRun
    gate: GateInfo
    path: str


def list_gates(gates: Iterable[OwnedGate]) -> str:
    """Return the ids and paths of gates for a message."""
    return ", ".join(f"{owned.gate.gate_id} ({owned.path})" for owned in gates)


def several_gates_message(gates: Iterable[OwnedGate]) -> str:
    return f"Several gates are open, choose one of them: {list_gates(gates)}"


def accept_answer(gate: GateInfo, answer: Any) -> Any:
    """Return the answer that a gate accepts; ValueError says why it accepts none."""
    if answer is not None and not isinstance(answer, str | int | float | list | dict):
        answer = ValueCodec(type(answer), "The answer{field}").normalize(answer)
    edited = read_edited_input(answer, gate.action)
    answer = validate_answer(answer, gate.choices, gate.form) if edited is None else edited
    encode_json(answer, max_bytes=MAX_VALUE_BYTES // 2)  # the event contains the answer twice
    return answer


def gate_with_prefix(gate: GateInfo, path: str) -> GateInfo:
    """Return a gate of a child run with the path that it has in the parent."""
    return replace(gate, path=path + gate.path)


def ignore_task_error(done: asyncio.Future[None]) -> None:
    """Retrieve the exception of a failed answer; the run is already held for it."""
    if not done.cancelled():
        done.exception()
