"""Commands on runs (stop, pause, resume, answer, signal, steer), whether or not the run is active."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from nerve.core.json_codec import MAX_EVENT_DEPTH, decode_json, encode_json
from nerve.core.result import Result
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import FINAL_STATES, GateInfo, WorkflowState
from nerve.engine.journal_writer import JournalWriter
from nerve.engine.open_waits import (
    find_open_waits,
    gate_answered_data,
    gate_closed_error,
    signal_received_data,
    stop_events,
)
from nerve.engine.run_executor import RunExecutor
from nerve.engine.task_tracking import spawn_detached
from nerve.errors import NerveError
from nerve.journal.events import find_resets, load_start_data, resume_event_data, settle_key
from nerve.journal.replay import ROOT_PATH
from nerve.store.port import EventRow, ReplyRow

if TYPE_CHECKING:
    from nerve.engine.local_engine import LocalEngine

PathReplyFactory = Callable[[str], ReplyRow]
"""Builds the stored reply to a command from the path it applied to."""

ACTIVE_STATES = (WorkflowState.RUNNING, WorkflowState.WAITING)
FINAL_STATE_VALUES = frozenset(state.value for state in FINAL_STATES)
PAUSE_STATES = (WorkflowState.PAUSED, WorkflowState.PAUSING)
PAUSED_OR_HELD_STATES = (*PAUSE_STATES, WorkflowState.HELD)


class RunCommands:
    """Run commands. Each returns when its effect is on disk; commands on one run are serialized."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self._locks: WeakKeyDictionary[WorkflowRun, asyncio.Lock] = WeakKeyDictionary()
        self._stop_tasks: set[asyncio.Task[list[str]]] = set()

    @asynccontextmanager
    async def _exclusive(self, run: WorkflowRun) -> AsyncIterator[RunExecutor | None]:
        """Lock a run; yield its executor, if it is active."""
        self._engine.bind_to_running_loop()
        async with self._locks.setdefault(run, asyncio.Lock()):
            executor = await self._wait_for_executor(run)
            # Checked under the lock: the session may have closed while this command waited.
            if self._engine.closed:
                raise RuntimeError("The session is closed")
            yield executor

    def is_busy(self, run: WorkflowRun) -> bool:
        """Whether a command holds the lock of a run."""
        lock = self._locks.get(run)
        return lock is not None and lock.locked()

    async def wake(self, run: WorkflowRun) -> None:
        """Continue an inactive run whose deadline has passed."""
        async with self._exclusive(run) as executor:
            # An answer may have woken it meanwhile, or a command paused it.
            if executor is None and run._state in ACTIVE_STATES:
                self._engine.rebuild_run(run)

    async def _wait_for_executor(self, run: WorkflowRun) -> RunExecutor | None:
        """Return the executor of a run, after a previous executor has ended and written everything."""
        while True:
            executor, drain_task = (
                self._engine.executors.get(run.run_id),
                self._engine.draining_tasks.get(run.run_id),
            )
            if executor is not None and executor.detached:
                await run._wait_for_change()
            elif executor is None and drain_task is not None and not drain_task.done():
                await asyncio.wait([drain_task])
            else:
                return executor

    async def stop(self, run: WorkflowRun, reason: str, top: str | None = None) -> list[str]:
        """Stop a run and its children and return the paths that were running.

        The stop completes even if the caller is cancelled. `top` is the enclosing run being stopped, if any.
        """
        executor = self._engine.executors.get(run.run_id)
        if executor is not None and asyncio.current_task() in executor.dispatcher.tasks:
            raise RuntimeError("A run cannot stop itself. Return or raise instead.")
        # Half a stop (children ended, the run still open) must not remain because a client disconnected.
        return await asyncio.shield(self.schedule_stop(run, reason, top))

    def schedule_stop(self, run: WorkflowRun, reason: str, top: str | None) -> asyncio.Task[list[str]]:
        stop_task = spawn_detached(self._stop(run, reason, top))
        self._stop_tasks.add(stop_task)
        stop_task.add_done_callback(self._on_stop_done)
        return stop_task

    def _on_stop_done(self, stop_task: asyncio.Task[list[str]]) -> None:
        self._stop_tasks.discard(stop_task)
        if not stop_task.cancelled():
            stop_task.exception()  # waiters get it from the shield; without one asyncio would log it

    async def wait_for_stops(self) -> None:
        """Return when every stop that has begun is complete."""
        while self._stop_tasks:
            await asyncio.wait(self._stop_tasks)

    async def _stop(self, run: WorkflowRun, reason: str, top: str | None) -> list[str]:
        async with self._exclusive(run) as executor:
            if run.is_complete or run._state is WorkflowState.PENDING:
                return []
            if executor is not None:
                return await self._stop_executor(executor, reason, top)
            if self._find_open_run(run.run_id) is None:
                return []  # the run ended, and this handle is stale
            stopped_children = self._open_children(run)
            # Children stop before their parent: after a crash in between, recovery finds the parent open
            # and finishes the stop. The other way around, the children would be orphans.
            for child in stopped_children:
                await self.stop(child, reason, top or run.run_id)
            data = cancellation_data(run, reason, [], top)
            ends = stop_events(self._engine.store.events(run.run_id))
            also = [*self._child_usage_events(stopped_children), *ends]
            await self._append_event(
                run, "workflow_cancelled", data, WorkflowState.CANCELLED, ROOT_PATH, preceding=also
            )
            run._gates.clear()
            run._error = reason or None
            self._engine.on_run_ended(run, WorkflowState.CANCELLED)
            return []

    def _child_usage_events(self, children: Iterable[WorkflowRun]) -> list[tuple[str, str, dict[str, Any]]]:
        """Return the events that record the usage of stopped child runs at the paths of their calls."""
        ids = [child.run_id for child in children]
        paths = {
            run_id: load_start_data(self._engine.store.events(run_id, 0, 1))["parent_path"] for run_id in ids
        }
        used = {run_id: self._engine.usage_of_stopped_run(run_id) for run_id in ids}
        spending_ids = [run_id for run_id in ids if used[run_id]]
        return [
            ("child_stopped", paths[run_id], {"run_id": run_id, "usage": used[run_id]})
            for run_id in spending_ids
        ]

    async def _stop_executor(self, executor: RunExecutor, reason: str, top: str | None) -> list[str]:
        run = executor.run
        # Set before the first await, so that nothing the body does from here on is recorded as its outcome.
        executor.is_stopping, executor.state_before_stop = True, run._state
        run._state = WorkflowState.STOPPING
        killed = list(executor.call_runner.running_leaves)
        try:
            for path, child in list(run._children.items()):
                killed += [path + inner for inner in await self.stop(child, reason, top or run.run_id)]
            await executor.cancel_tasks()
            # A task may have started a child between the loop above and its own cancellation.
            killed += await self.stop_started_children(executor, reason, top or run.run_id)
        except NerveError as unwritten:
            executor.on_write_failed(unwritten)
            raise
        executor.budget.record_stopped_children()
        # Buffered with the final event and committed in the same batch, or not at all.
        for kind, path, event_data in stop_events(executor.journal_rows()):
            executor.append_event(kind, path, event_data)
        data = encode_json(cancellation_data(run, reason, killed, top), max_depth=None)
        if (
            error := await executor.write_final_event("workflow_cancelled", data, WorkflowState.CANCELLED)
        ) is not None:
            raise error
        run._error = reason or None
        executor.finish(WorkflowState.CANCELLED)
        return killed

    async def stop_started_children(
        self, executor: RunExecutor, reason: str, top: str | None = None
    ) -> list[str]:
        """Stop the children that a run had just started when it ended."""
        killed: list[str] = []
        for path, run_id in executor.budget.open_children:
            if (child := self._find_open_run(run_id)) is not None:
                killed += [path + inner for inner in await self.stop(child, reason, top)]
        return killed

    def _find_open_run(self, run_id: str) -> WorkflowRun | None:
        """Return a run that has not ended; its start may not be written yet."""
        if (executor := self._engine.executors.get(run_id)) is not None:
            return executor.run
        row = self._engine.store.run(run_id)
        return None if row is None or row.state in FINAL_STATE_VALUES else self._engine.run_handle(row)

    async def pause(self, run: WorkflowRun) -> None:
        """Start no new work in the run and its children."""
        async with self._exclusive(run) as executor:
            if run._state in PAUSE_STATES:
                return
            if run._state not in ACTIVE_STATES:
                raise RuntimeError(f"Cannot pause run in state {run._state.value}: {describe_run_state(run)}")
            if executor is not None:
                await executor.journal.wait_durable(executor.pause())
            else:
                await self._append_event(run, "workflow_paused", {"run_id": run.run_id}, WorkflowState.PAUSED)
                run._state = WorkflowState.PAUSED
            run._notify()
            # Parent first: it could otherwise start a new child after its children were paused.
            for child in self._open_children(run):
                if child._state in ACTIVE_STATES:
                    await self.pause(child)

    def _open_children(self, run: WorkflowRun) -> list[WorkflowRun]:
        return [self._engine.run_handle(row) for row in self._engine.open_children(run.run_id)]

    async def resume(
        self,
        run: WorkflowRun,
        limits: Mapping[str, Any],
        with_changes: bool = False,
        reply: ReplyRow | None = None,
    ) -> None:
        """Resume a run; if a budget is exhausted, raise the exhausted one: of a child or an enclosing run."""
        if limits and (budget_owner := self._budget_owner(run)) is not run:
            await self._raise_limits(budget_owner, limits)
            limits = {}
            if budget_owner.run_id in dict(self._engine.enclosing_runs(run.run_id)):
                # Siblings are held for the same budget, and the user has resumed only one of them.
                await self._resume_children(budget_owner, except_run=run)
        async with self._exclusive(run) as executor:
            # Resuming without a decision would run a step with effect="once" a second time.
            if run._held is not None and run._held["reason"] == "in doubt":
                raise RuntimeError(f"Cannot resume: {run._held['message']}")
            await self._resume(run, executor, limits, with_changes, reply)

    async def _resume(
        self,
        run: WorkflowRun,
        executor: RunExecutor | None,
        limits: Mapping[str, Any],
        with_changes: bool = False,
        reply: ReplyRow | None = None,
    ) -> None:
        if (
            run._state not in PAUSED_OR_HELD_STATES
            and not is_held_for_budget(run.held)
            and not self._has_paused_child(run)
        ):
            raise RuntimeError(f"Cannot resume run in state {run.state.value}: {describe_run_state(run)}")
        if with_changes:
            executor = self._engine.reload_definition(run, executor) or await self._wait_for_executor(run)
        self._engine.check_ready(run)
        if executor is not None:
            seq = executor.resume(limits, with_changes)
            # In the same commit as the event: a repeated request then finds its reply exactly if the resume
            # happened.
            executor.journal.attach_reply(reply)
            await executor.journal.wait_durable(seq)
        else:
            data = resume_event_data(run.run_id, limits, with_changes)
            await self._append_event(run, "workflow_resumed", data, WorkflowState.RUNNING, reply=reply)
            run._held, run._state = None, WorkflowState.RUNNING
            self._engine.rebuild_run(run)
            if with_changes:
                run._gates.clear()  # only gates that the code requests again are open, and it has yet to run
        await self._resume_children(run)

    def _has_paused_child(self, run: WorkflowRun) -> bool:
        """Whether a run is active while a child of it is paused."""
        children = self._open_children(run) if run._state in ACTIVE_STATES else []
        return any(child._state in PAUSE_STATES or self._has_paused_child(child) for child in children)

    async def _resume_children(self, run: WorkflowRun, except_run: WorkflowRun | None = None) -> None:
        """Resume the children of a run that are paused with it or held for a budget."""
        for child in self._open_children(run):
            if child is not except_run and (child._state in PAUSE_STATES or is_held_for_budget(child._held)):
                await self.resume(child, {})
            else:
                await self._resume_children(child, except_run)

    def _budget_owner(self, run: WorkflowRun) -> WorkflowRun:
        """Return the run whose budget is exhausted and holds this run or its child, or the run itself."""
        hold_data = run.held
        if hold_data is None or not is_held_for_budget(hold_data) or hold_data.get("purse") == "day":
            return run
        row = self._engine.store.run(hold_data.get("purse") or hold_data["run_id"])
        return run if row is None else self._engine.run_handle(row)

    async def _raise_limits(self, run: WorkflowRun, limits: Mapping[str, Any]) -> None:
        """Raise the budget of a run, whether the run or a child of it is held."""
        async with self._exclusive(run) as executor:
            if executor is not None:
                await executor.journal.wait_durable(executor.raise_limits(limits))
            else:
                data = resume_event_data(run.run_id, limits)
                await self._append_event(run, "workflow_resumed", data, run._state)

    def answer(self, run: WorkflowRun, gate: GateInfo, answer: Any, by: str) -> Awaitable[None]:
        """Settle a gate that was claimed for this answer."""
        executor = self._engine.executors.get(run.run_id)
        # Without the lock: settle() decides races itself, and an answer must not wait for a slow command.
        if executor is not None and not executor.detached:
            return executor.journal.wait_durable(executor.open_waits.answer(gate, answer, by))
        return self._answer(run, gate, answer, by)

    async def _answer(self, run: WorkflowRun, gate: GateInfo, answer: Any, by: str) -> None:
        """Answer a gate of an inactive run: rebuild the run, unless it is paused or held."""
        async with self._exclusive(run) as executor:
            if run.is_complete:
                raise gate_closed_error(run, gate)
            if executor is None and run._state in ACTIVE_STATES:
                executor = self._engine.rebuild_run(run)
            if executor is not None:
                await executor.journal.wait_durable(executor.open_waits.answer(gate, answer, by))
                return
            if gate.path not in self._open_waits(run, executor):
                raise gate_closed_error(run, gate)
            data, _ = gate_answered_data(gate, answer, by)
            try:
                await self._append_event(
                    run, "gate_answered", data, run._state, gate.path, gate.path, gate.reply
                )
            except NerveError:  # nothing is written: the gate stays open
                run._gates[gate.path] = replace(gate, key=None, about={}, reply=None)
                raise

    async def signal(self, run: WorkflowRun, label: str, value: Any, key: str | None) -> int:
        """Settle the open waits for a signal; return their number."""
        async with self._exclusive(run) as executor:
            if run.is_complete or run._state is WorkflowState.PENDING:
                return 0
            paths = self._paths_waiting_for_signal(run, executor, label, key)
            data = {"label": label, "key": key, "value": decode_json(encode_json(value))}
            if paths and executor is None and run._state in ACTIVE_STATES:
                executor = self._engine.rebuild_run(run)
            if executor is not None:
                for path in paths:  # without an await in between: no other command can settle one of them
                    executor.open_waits.settle(path, "signal_received", data, data["value"])
                await executor.journal.wait_durable(executor.journal.seq)
                return len(paths)
            for path in paths:
                await self._append_event(run, "signal_received", data, run._state, path, path)
            return len(paths)

    def on_fact(self, run_id: str, path: str, fact_match: Mapping[str, Any]) -> Awaitable[None]:
        """Settle a wait by a fact, whether or not the run is active."""
        executor = self._engine.executors.get(run_id)
        if (
            executor is not None
            and not executor.detached
            and (request := executor.open_waits.request_at(path)) is not None
        ):
            seq = executor.open_waits.settle_by_fact(path, request, fact_match)
            return executor.journal.wait_durable(seq or executor.journal.seq)
        return self._settle_by_fact(run_id, path, fact_match)

    async def _settle_by_fact(self, run_id: str, path: str, fact_match: Mapping[str, Any]) -> None:
        """Settle a wait of an inactive run by a fact: rebuild the run, unless it is paused or held."""
        row = self._engine.store.run(run_id)
        if row is None:
            return
        run = self._engine.run_handle(row)
        async with self._exclusive(run) as executor:
            if run.is_complete:
                return
            request_row = self._open_waits(run, executor).get(path)
            if request_row is not None:
                data, outcome = signal_received_data(decode_json(request_row.data), fact_match)
                if executor is None and run._state not in ACTIVE_STATES:
                    await self._append_event(run, "signal_received", data, run._state, path, path)
                    return
                executor = executor or self._engine.rebuild_run(run)
                executor.open_waits.settle(path, "signal_received", data, outcome)
            # The executor may have settled the wait itself without having written it yet.
            if executor is not None:
                await executor.journal.wait_durable(executor.journal.seq)

    def _open_waits(self, run: WorkflowRun, executor: RunExecutor | None) -> dict[str, EventRow]:
        """Return the open waits of a run, including those not on disk yet."""
        return find_open_waits(
            executor.journal_rows() if executor is not None else self._engine.store.events(run.run_id)
        )

    def _paths_waiting_for_signal(
        self, run: WorkflowRun, executor: RunExecutor | None, label: str, key: str | None
    ) -> list[str]:
        """Return the paths of the open waits that a signal settles."""
        rows = [row for row in self._open_waits(run, executor).values() if row.type == "signal_waiting"]
        requests = [(row.path, decode_json(row.data)) for row in rows]
        labelled = [(path, data["key"]) for path, data in requests if data.get("label") == label]
        return sorted(path for path, expected_key in labelled if expected_key in (None, key))

    async def steer(
        self,
        run: WorkflowRun,
        text: str,
        path: str | None,
        by: str,
        make_reply: PathReplyFactory | None = None,
    ) -> str:
        """Send a message to the agent of a running step; return the path of the step."""
        async with self._exclusive(run) as executor:
            steering_by_path = (
                {}
                if executor is None
                else {at: leaf.steering for at, leaf in executor.call_runner.running_leaves.items()}
            )
            listeners = {at: queue for at, queue in steering_by_path.items() if queue is not None}
            paths = [path] if path is not None else list(listeners)
            if executor is None or len(paths) != 1 or paths[0] not in listeners:
                listening = ", ".join(listeners) or "none"
                raise RuntimeError(
                    f"Cannot steer {path or 'the run'}: steps with a listening agent: {listening}"
                )
            seq = executor.append_event("steered", paths[0], {"text": text, "by": by})
            executor.journal.attach_reply(make_reply(paths[0]) if make_reply is not None else None)
            listeners[paths[0]].put_nowait(text)  # at once: the turn may end while this is written
            await executor.journal.wait_durable(seq)
            return paths[0]

    async def resolve_doubt(
        self, run: WorkflowRun, path: str, decision: str, value: Any, reply: ReplyRow | None = None
    ) -> None:
        """Record the decision on the step a run is held at, and resume the run."""
        async with self._exclusive(run) as executor:
            if run._state is not WorkflowState.HELD:
                problem = f"run '{run.run_id}' is {run.state.value}, but only a held run has a step in doubt"
                raise RuntimeError(f"Cannot {decision}: {problem}")
            hold_data = run._held or {}
            pending = (
                executor.call_runner.pending_decisions.get(hold_data["path"])
                if executor is not None
                else None
            )
            is_in_doubt = hold_data["reason"] == "in doubt" and (executor is None or pending is not None)
            if not is_in_doubt and (path or decision != "retry"):
                raise not_in_doubt_error(run, path or hold_data["path"], decision)
            if path and path != hold_data["path"]:
                raise ValueError(
                    f"Run '{run.run_id}' is held at '{hold_data['path'] or '/'}', not at '{path}'"
                )
            self._engine.check_ready(run)
            if is_in_doubt and pending is not None:
                pending.decision.set_result(decision_result(decision, value))
                await pending.decision_recorded  # so that it is on disk before the run resumes
            elif is_in_doubt:
                await self._record_decision(run, hold_data["path"], decision, value)
            await self._resume(run, executor, {}, reply=reply)

    async def hold(self, run: WorkflowRun, reason: str, message: str) -> None:
        """Hold an inactive run until the user decides; it still receives answers, signals and facts."""
        hold_data = {"reason": reason, "message": message, "path": ""}
        async with self._exclusive(run):
            await self._append_event(run, "workflow_held", hold_data, WorkflowState.HELD)
            run._held, run._state = hold_data, WorkflowState.HELD
            self._engine.watch_facts(run.run_id, self._engine.store.events(run.run_id))
            run._notify()

    async def _record_decision(self, run: WorkflowRun, path: str, decision: str, value: Any) -> None:
        """Record a decision, unless it is recorded already and a crash prevented the resume."""
        data: dict[str, Any] = {}
        if (result := decision_result(decision, value)) is not None:
            data = {"node_id": path, "success": result.success, "result": result, "decided": decision}
        if (previous := self._find_decision(run, path)) is not None:
            if previous != decode_json(encode_json(data, max_depth=MAX_EVENT_DEPTH)):
                problem = (
                    f"{previous['decided']} is already recorded: "
                    f"{encode_json(previous['result'], max_depth=None)}"
                )
                raise RuntimeError(f"Cannot {decision} '{path}': {problem}. Repeat the same decision.")
        elif data:
            await self._append_event(run, "node_completed", data, WorkflowState.HELD, path, path)
        else:
            data = {"node_id": path, "attempt": 1, "again": True, "recovered": True, "delay": 0.0}
            await self._append_event(run, "node_retrying", data, WorkflowState.HELD, None, path)

    def _find_decision(self, run: WorkflowRun, path: str) -> dict[str, Any] | None:
        """Return the decision on a path since the run was held there."""
        for row in reversed(self._engine.store.events(run.run_id)):
            if row.type == "workflow_held":
                break
            if row.type == "node_completed" and row.path == path:
                decision: dict[str, Any] = decode_json(row.data)
                return decision if "decided" in decision else None
        return None

    async def _append_event(
        self,
        run: WorkflowRun,
        type: str,
        data: Mapping[str, Any],
        state: WorkflowState,
        settles: str | None = None,
        path: str = "",
        reply: ReplyRow | None = None,
        preceding: Sequence[tuple[str, str, Mapping[str, Any]]] = (),
    ) -> None:
        """Append an event, and `preceding` ones (type, path, data), to the journal of an inactive run."""
        engine = self._engine
        # Read under the lock of the run: the next sequence number follows from the last row.
        journal_rows = engine.store.events(run.run_id)
        start = load_start_data(journal_rows)
        journal = JournalWriter(
            run.run_id,
            journal_rows[-1].seq,
            engine.committer,
            lambda at: engine.run_row(run, state, None, start, at),
            lambda rows: engine.publish(run, rows),
            ignore_write_error,
        )
        journal.mark_row_dirty()
        key = settle_key(settles, find_resets(journal_rows)) if settles not in (None, ROOT_PATH) else settles
        for kind, event_path, event_data in preceding:
            journal.append(kind, event_path, encode_json(event_data, max_depth=MAX_EVENT_DEPTH), urgent=False)
        seq = journal.append(type, path, encode_json(data, max_depth=MAX_EVENT_DEPTH), key)
        journal.attach_reply(reply)
        await journal.wait_durable(seq)


def describe_run_state(run: WorkflowRun) -> str:
    """Describe why a run cannot be paused or resumed, and what to do instead."""
    run_name = f"run '{run.run_id}'"
    if run.is_complete:
        return f"{run_name} has ended; fork it to continue from an earlier step"
    if run._state is WorkflowState.HELD:
        return f"{run_name} is already held; resume or stop it"
    if (hold_data := run.held) is not None:
        return (
            f"its child run '{hold_data['run_id']}' is held ({hold_data['reason']}): {hold_data['message']}"
        )
    if run.state is WorkflowState.WAITING:
        return f"{run_name} continues when its wait is settled"
    if run._state is WorkflowState.PENDING:
        return f"{run_name} has not been started"
    return f"{run_name} is already running"


def is_held_for_budget(hold_data: Mapping[str, Any] | None) -> bool:
    return hold_data is not None and hold_data["reason"] == "budget"


def not_in_doubt_error(run: WorkflowRun, path: str, decision: str) -> RuntimeError:
    """Build the error for a decision on a path that is not in doubt."""
    hold_data = run._held or {}
    reason = f"run '{run.run_id}' is held ({hold_data['reason']}). {hold_data['message']}"
    if hold_data["reason"] == "in doubt":
        reason = f"the code of run '{run.run_id}' has abandoned it. Retry the run without a path."
    return RuntimeError(
        f"Cannot {decision} '{path or '/'}': only a step in doubt can be decided, but {reason}"
    )


def decision_result(decision: str, value: Any) -> Result | None:
    """Return the result a decision gives a step; None if the step runs again."""
    if decision == "retry":
        return None
    return Result.ok(value) if decision == "skip" else Result.failed(str(value), "DeclaredFailed")


def cancellation_data(run: WorkflowRun, reason: str, killed: list[str], top: str | None) -> dict[str, Any]:
    """Return the data of `workflow_cancelled`; `top` is the enclosing run being stopped."""
    stopped_with = {} if top is None else {"stopped_with": top}
    return {"run_id": run.run_id, "reason": reason, "killed": killed, **stopped_with}


def ignore_write_error(error: NerveError) -> None:
    """Do nothing: the task that awaits the write gets the error."""
