"""Commands on runs (stop, pause, resume, answer, signal, steer), whether or not the run is active."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

from nerve.core.json_codec import decode_json, encode_json
from nerve.core.result import Result
from nerve.core.value_codec import ValueCodec
from nerve.core.workflow.body_handlers import BodyHandlers, update_channel
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import (
    ACTIVE_STATES,
    EXECUTED_STATES,
    FINAL_STATE_VALUES,
    NO_CALLER,
    GateAnswer,
    GateInfo,
    WorkflowState,
)
from nerve.engine.body_stack import STACK_QUERY, format_stack
from nerve.engine.open_waits import gate_closed_error, signal_received
from nerve.engine.run_chain import find_current_row
from nerve.engine.run_executor import RunExecutor
from nerve.engine.task_tracking import spawn_detached
from nerve.errors import RunHeld, UpdateFailed
from nerve.journal.events import (
    NodeCompleted,
    NodeRetrying,
    RunOnHold,
    RunStopping,
    SignalReceived,
    SignalWaiting,
    Steered,
    UpdateCompleted,
    encode_result,
)
from nerve.journal.index import JournalIndex
from nerve.journal.mailbox import Mailbox
from nerve.lazy_dataclass import dataclass
from nerve.store.port import ReplyRow, RunRow, Store

log = logging.getLogger("nerve")

PathReplyFactory = Callable[[str], ReplyRow]
"""Builds the stored reply to a command from the path it applied to."""

SettleWaits = Callable[[RunExecutor], int]
"""Settles waits of a run and returns the event to wait for."""

PAUSE_STATES = (WorkflowState.PAUSED, WorkflowState.PAUSING)
PAUSED_OR_HELD_STATES = (*PAUSE_STATES, WorkflowState.HELD)
CLEANUP_CHECK_INTERVAL_S = 0.05
"""Seconds after which a closing session looks again whether a stop has become a cleanup."""
UNUSED_EXECUTOR_S = 1.0
"""Seconds without an answer after which a paused or held run leaves memory again."""


@dataclass(frozen=True, slots=True)
class RunAccess:
    """The runs of an engine: those in memory, and how to get the others there."""

    store: Store
    executors: Mapping[str, RunExecutor]
    draining_tasks: Mapping[str, asyncio.Future[None]]
    """Inactive runs whose last tasks and writes are still in progress."""
    bind_to_running_loop: Callable[[], None]
    is_closed: Callable[[], bool]
    run_handle: Callable[[RunRow], WorkflowRun]
    current_run: Callable[[WorkflowRun], WorkflowRun]
    """Returns the current run of the chain of a run."""
    check_ready: Callable[[WorkflowRun], None]
    """Raises ValueError if something that the workflow of an inactive run needs is missing."""
    load_run: Callable[[WorkflowRun], RunExecutor]
    """Returns an executor without a body for a run that is not in memory."""
    rebuild_run: Callable[[WorkflowRun], RunExecutor]
    reload_definition: Callable[[WorkflowRun, RunExecutor | None], RunExecutor | None]
    open_children: Callable[[str], list[WorkflowRun]]
    enclosing_runs: Callable[[str], list[tuple[str, str]]]
    watch_facts: Callable[[str], object]


class RunCommands:
    """Run commands. Each returns when its effect is on disk; commands on one run are serialized."""

    def __init__(self, runs: RunAccess) -> None:
        self._runs = runs
        self._locks: WeakKeyDictionary[WorkflowRun, asyncio.Lock] = WeakKeyDictionary()
        self._stop_tasks: dict[asyncio.Task[list[str]], WorkflowRun] = {}

    @asynccontextmanager
    async def _exclusive(self, run: WorkflowRun) -> AsyncIterator[tuple[WorkflowRun, RunExecutor | None]]:
        """Lock a run, or the current run of its chain; yield it, and its executor if it is in memory."""
        self._runs.bind_to_running_loop()
        is_current = False
        while not is_current:
            run = self._runs.current_run(run)
            async with self._locks.setdefault(run, asyncio.Lock()):
                executor = await self._wait_for_executor(run)
                # Checked under the lock: the session may have closed while this command waited.
                if self._runs.is_closed():
                    raise RuntimeError("The session is closed")
                # The run may have continued as new while this command waited.
                is_current = self._runs.current_run(run) is run
                if is_current:
                    try:
                        yield run, executor
                    finally:
                        loaded = self._runs.executors.get(run.run_id)
                        if loaded is not None and not loaded.has_body:
                            self._release_soon(loaded)

    def _release_soon(self, executor: RunExecutor) -> None:
        """Release an executor without a body after the last command: each would read the whole journal."""
        if executor.barrier.is_detached:
            return
        if executor.state.status in EXECUTED_STATES or self._runs.is_closed():
            executor.release()
            return
        last_seq = executor.journal.seq

        def release_if_unused() -> None:
            if self.is_busy(executor.run):
                return  # the command that uses it releases it
            if executor.journal.seq == last_seq and not executor.barrier.is_detached:
                executor.release()
            else:
                self._release_soon(executor)

        asyncio.get_running_loop().call_later(UNUSED_EXECUTOR_S, release_if_unused)

    def is_busy(self, run: WorkflowRun) -> bool:
        """Whether a command holds the lock of a run."""
        lock = self._locks.get(run)
        return lock is not None and lock.locked()

    async def wake(self, run: WorkflowRun) -> None:
        """Continue an inactive run whose deadline has passed."""
        async with self._exclusive(run) as (run, executor):
            # An answer may have woken it meanwhile, or a command paused it.
            if executor is None and run.run_state.status in EXECUTED_STATES:
                self._runs.rebuild_run(run)

    async def _wait_for_executor(self, run: WorkflowRun) -> RunExecutor | None:
        """Return the executor of a run, after a previous executor has ended and written everything."""
        while True:
            executor = self._runs.executors.get(run.run_id)
            drain_task = self._runs.draining_tasks.get(run.run_id)
            if executor is not None and executor.barrier.is_detached:
                await run.wait_for_change()
            elif executor is None and drain_task is not None and not drain_task.done():
                await asyncio.wait([drain_task])
            else:
                return executor

    async def stop(
        self, run: WorkflowRun, reason: str, top: str | None = None, about: Mapping[str, Any] = NO_CALLER
    ) -> list[str]:
        """Stop a run and its children and return the paths that were running.

        The stop completes even if the caller is cancelled. `top` is the enclosing run being stopped, if any,
        and `about` says who stops it.
        """
        run = self._runs.current_run(run)
        executor = self._runs.executors.get(run.run_id)
        if executor is not None and asyncio.current_task() in executor.dispatcher.tasks:
            raise RuntimeError("A run cannot stop itself. Return or raise instead.")
        if executor is not None and executor.is_cleaning_up:
            executor.cancellation.abort_cleanup()
        # Half a stop (children ended, the run still open) must not remain because a client disconnected.
        return await asyncio.shield(self.schedule_stop(run, reason, top, about))

    def schedule_stop(
        self, run: WorkflowRun, reason: str, top: str | None, about: Mapping[str, Any] = NO_CALLER
    ) -> asyncio.Task[list[str]]:
        return self._track_stop(run, self._stop(run, reason, top, about))

    def _track_stop(self, run: WorkflowRun, stop: Coroutine[Any, Any, list[str]]) -> asyncio.Task[list[str]]:
        stop_task = spawn_detached(stop)
        self._stop_tasks[stop_task] = run
        stop_task.add_done_callback(self._on_stop_done)
        return stop_task

    def _on_stop_done(self, stop_task: asyncio.Task[list[str]]) -> None:
        self._stop_tasks.pop(stop_task, None)
        if not stop_task.cancelled():
            stop_task.exception()  # waiters get it from the shield; without one asyncio would log it

    async def wait_for_stops(self) -> None:
        """Return when every stop that has begun is complete, or is in a cleanup that recovery continues."""
        while pending := [task for task, run in self._stop_tasks.items() if not self._is_cleaning_up(run)]:
            await asyncio.wait(pending, timeout=CLEANUP_CHECK_INTERVAL_S)

    def _is_cleaning_up(self, run: WorkflowRun) -> bool:
        executor = self._runs.executors.get(run.run_id)
        return executor is not None and executor.is_cleaning_up

    async def _stop(
        self, run: WorkflowRun, reason: str, top: str | None, about: Mapping[str, Any]
    ) -> list[str]:
        async with self._exclusive(run) as (run, executor):
            if run.is_complete or run.run_state.status is WorkflowState.PENDING:
                return []
            if self._find_open_run(run.run_id) is None:
                return []  # the run ended, and this handle is stale
            if executor is not None and not executor.has_body:
                executor.release()  # its function may have to clean up
                executor = await self._wait_for_executor(run)
            executor = executor or self._open_to_stop(run)
            return await executor.stop(reason, top, about)

    def _open_to_stop(self, run: WorkflowRun) -> RunExecutor:
        """Rebuild an inactive run whose function may clean up; any other is stopped without its code."""
        status, workflow = run.run_state.status, run.workflow
        if workflow.kind == "python" and status in (*EXECUTED_STATES, *PAUSE_STATES):
            try:
                return self._runs.rebuild_run(run)
            except ValueError as error:
                log.warning("run %s is stopped without its code: %s", run.run_id, error)
        return self._runs.load_run(run)

    def finish_stop(self, executor: RunExecutor, stop: RunStopping) -> None:
        """End a run whose cleanup continues after a restart."""

        async def finish() -> list[str]:
            async with self._exclusive(executor.run):
                # A command may have stopped it at once meanwhile.
                is_open = not executor.barrier.is_detached
                return await executor.stop(stop.reason, stop.stopped_with, stop.extra) if is_open else []

        self._track_stop(executor.run, finish())

    async def stop_run(self, run_id: str, reason: str, top: str | None) -> list[str]:
        """Stop a run by its id, or the current run of its chain, unless it has ended."""
        row = self._runs.store.run(run_id)
        run = self._find_open_run(run_id if row is None else find_current_row(self._runs.store, row).run)
        return [] if run is None else await self.stop(run, reason, top)

    def _find_open_run(self, run_id: str) -> WorkflowRun | None:
        """Return a run that has not ended; its start may not be written yet."""
        if (executor := self._runs.executors.get(run_id)) is not None:
            return executor.run
        row = self._runs.store.run(run_id)
        return None if row is None or row.state in FINAL_STATE_VALUES else self._runs.run_handle(row)

    async def pause(self, run: WorkflowRun, about: Mapping[str, Any] = NO_CALLER) -> None:
        """Start no new work in the run and its children."""
        async with self._exclusive(run) as (run, executor):
            if run.run_state.status in PAUSE_STATES:
                return
            if run.run_state.status not in ACTIVE_STATES:
                raise RuntimeError(
                    f"Cannot pause run in state {run.run_state.status.value}: {describe_run_state(run)}"
                )
            executor = executor or self._runs.load_run(run)
            await executor.journal.wait_durable(executor.pause(about))
            run.run_state.notify_watchers()
            # Parent first: it could otherwise start a new child after its children were paused.
            for child in self._runs.open_children(run.run_id):
                if child.run_state.status in ACTIVE_STATES:
                    await self.pause(child, about)

    async def resume(
        self,
        run: WorkflowRun,
        limits: Mapping[str, Any],
        with_changes: bool = False,
        reply: ReplyRow | None = None,
        about: Mapping[str, Any] = NO_CALLER,
    ) -> None:
        """Resume a run; if a budget is exhausted, raise the exhausted one: of a child or an enclosing run."""
        run = self._runs.current_run(run)
        if limits and (budget_owner := self._budget_owner(run)) is not run:
            await self._raise_limits(budget_owner, limits, about)
            limits = {}
            if budget_owner.run_id in dict(self._runs.enclosing_runs(run.run_id)):
                # Siblings are held for the same budget, and the user has resumed only one of them.
                await self._resume_children(budget_owner, except_run=run)
        async with self._exclusive(run) as (run, executor):
            # Resuming without a decision would run a step with effect="once" a second time.
            if run.run_state.hold is not None and run.run_state.hold["reason"] == "in doubt":
                raise RuntimeError(f"Cannot resume: {run.run_state.hold['message']}")
            await self._resume(run, executor, limits, with_changes, reply, about)

    async def _resume(
        self,
        run: WorkflowRun,
        executor: RunExecutor | None,
        limits: Mapping[str, Any],
        with_changes: bool = False,
        reply: ReplyRow | None = None,
        about: Mapping[str, Any] = NO_CALLER,
    ) -> None:
        if (
            run.run_state.status not in PAUSED_OR_HELD_STATES
            and not is_held_for_budget(run.held)
            and not self._has_paused_child(run)
        ):
            raise RuntimeError(f"Cannot resume run in state {run.state.value}: {describe_run_state(run)}")
        if with_changes:
            executor = self._runs.reload_definition(run, executor) or await self._wait_for_executor(run)
        self._runs.check_ready(run)
        executor = executor or self._runs.load_run(run)
        seq = executor.resume(limits, with_changes, about)
        # In the same commit as the event: a repeated request then finds its reply exactly if the resume
        # happened.
        executor.journal.attach_reply(reply)
        await executor.journal.wait_durable(seq)
        if not executor.has_body:
            # The body is built from the journal, with everything that commands have added to it meanwhile.
            while executor.journal.committed_seq < executor.journal.seq:
                await executor.journal.wait_durable(executor.journal.seq)
            executor.release()
            rebuilt = self._runs.rebuild_run(run)
            if with_changes:
                # Only gates that the code requests again are open, and it has yet to run.
                rebuilt.open_waits.hide_gates()
        await self._resume_children(run)

    def _has_paused_child(self, run: WorkflowRun) -> bool:
        """Whether a run is active while a child of it is paused."""
        children = self._runs.open_children(run.run_id) if run.run_state.status in ACTIVE_STATES else []
        return any(
            child.run_state.status in PAUSE_STATES or self._has_paused_child(child) for child in children
        )

    async def _resume_children(self, run: WorkflowRun, except_run: WorkflowRun | None = None) -> None:
        """Resume the children of a run that are paused with it or held for a budget."""
        for child in self._runs.open_children(run.run_id):
            if child is not except_run and (
                child.run_state.status in PAUSE_STATES or is_held_for_budget(child.run_state.hold)
            ):
                await self.resume(child, {})
            else:
                await self._resume_children(child, except_run)

    def _budget_owner(self, run: WorkflowRun) -> WorkflowRun:
        """Return the run whose budget is exhausted and holds this run or its child, or the run itself."""
        hold_data = run.held
        if hold_data is None or not is_held_for_budget(hold_data) or hold_data.get("purse") == "day":
            return run
        row = self._runs.store.run(hold_data.get("purse") or hold_data["run_id"])
        return run if row is None else self._runs.run_handle(row)

    async def _raise_limits(
        self, run: WorkflowRun, limits: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        """Raise the budget of a run, whether the run or a child of it is held."""
        async with self._exclusive(run) as (run, executor):
            executor = executor or self._runs.load_run(run)
            await executor.journal.wait_durable(executor.raise_limits(limits, about))

    def answer(self, run: WorkflowRun, gate: GateInfo, answer: GateAnswer) -> Awaitable[None]:
        """Close a gate at once, and settle it with this answer."""
        self._runs.check_ready(run)
        if gate.policy is not None:
            # The engine decides whether it closes, in the order in which the answers arrive.
            return self._settle(run, lambda executor: executor.open_waits.act_at_gate(gate, answer), gate)
        # Closed before the answer is written, so that a concurrent answer is rejected.
        run.run_state.close_gate(gate.path)
        return self._settle(run, lambda executor: executor.open_waits.answer(gate, answer), gate)

    def _settle(self, run: WorkflowRun, settle: SettleWaits, gate: GateInfo | None = None) -> Awaitable[None]:
        """Settle waits of a run, in memory or not; await the result until that is on disk.

        If the run has ended, nothing is settled; an answer to a `gate` raises GateNotOpen then.
        """
        executor = self._runs.executors.get(run.run_id)
        # Without the lock: settle() decides races itself, and an answer must not wait for a slow command.
        if executor is not None and not executor.barrier.is_detached:
            return executor.journal.wait_durable(settle(executor))
        return self._load_and_settle(run, settle, gate)

    async def _load_and_settle(self, run: WorkflowRun, settle: SettleWaits, gate: GateInfo | None) -> None:
        async with self._exclusive(run) as (current, executor):
            # The next run of a chain may wait at the same path, but not with the same question.
            if current is run and not run.is_complete:
                executor = executor or self._open_run(run)
                await executor.journal.wait_durable(settle(executor))
            elif gate is not None:
                raise gate_closed_error(run, gate)

    def _open_run(self, run: WorkflowRun) -> RunExecutor:
        """Rebuild an inactive run; one that is paused or held gets no body before it is resumed."""
        is_active = run.run_state.status in EXECUTED_STATES
        return self._runs.rebuild_run(run) if is_active else self._runs.load_run(run)

    async def signal(self, run: WorkflowRun, label: str, value: Any, key: str | None) -> int:
        """Settle the open waits for a signal; return their number."""
        run = self._runs.current_run(run)
        received = SignalReceived(label, key, decode_json(encode_json(value)))
        paths: list[str] = []

        def settle(executor: RunExecutor) -> int:
            paths.extend(paths_waiting_for_signal(executor.journal.index, label, key))
            for path in paths:
                executor.open_waits.settle(path, received)
            return executor.journal.seq

        if run.run_id not in self._runs.executors:
            # A run that does not wait for the signal would write nothing, and stay in memory.
            index = JournalIndex(self._runs.store.events(run.run_id))
            if not paths_waiting_for_signal(index, label, key):
                return 0
        await self._settle(run, settle)
        return len(paths)

    async def send(
        self,
        run: WorkflowRun,
        channel: str,
        value: Any,
        key: str | None,
        by: str,
        reply: ReplyRow | None = None,
    ) -> None:
        """Put a message into the mailbox of a run; return when it is on disk."""
        async with self._exclusive(run) as (current, executor):
            # A caller that did not get the confirmation repeats its message, also after the end of the run.
            if self._find_in_ended((run, current), channel, key, value) is not None:
                return
            require_open_run(current, f"a message to channel '{channel}'")
            executor = executor or self._open_run(current)
            if key is not None and executor.previous_mailbox.find_same(channel, key, value) is not None:
                return
            seq = executor.open_waits.send(channel, value, key, by)
            executor.journal.attach_reply(reply)
            await executor.journal.wait_durable(seq)

    async def query(self, run: WorkflowRun, name: str) -> Any:
        """Return the answer of the body to a query, or its stack."""
        is_stack = name == STACK_QUERY
        executor, handlers = await self._wait_for_handlers(
            run, "a query", lambda it: not is_stack and it.has_query(name)
        )
        # A run that was loaded for the query writes nothing, and would stay in memory.
        executor.allow_eviction()
        return format_stack(executor.dispatcher.tasks) if is_stack else handlers.run_query(name)

    async def update(self, run: WorkflowRun, name: str, value: Any, key: str | None, by: str) -> Any:
        """Let the body handle an update; return the reply when it is on disk."""
        run, seq = await self._send_update(run, name, value, key, by)
        while (reply := self._read_reply(run, seq)) is None:
            if (carried := self._find_carried(run, seq)) is not None:
                run, seq = carried
                continue
            if run.is_complete:
                raise RuntimeError(f"Run '{run.run_id}' ended before it handled the update '{name}'")
            if (hold := run.run_state.hold) is not None:
                raise RunHeld(run.run_id, hold["reason"], hold["message"])
            await run.wait_for_change()
        if reply.error is not None:
            raise UpdateFailed(name, reply.error, reply.error_type or "")
        return reply.result

    async def _send_update(
        self, run: WorkflowRun, name: str, value: Any, key: str | None, by: str
    ) -> tuple[WorkflowRun, int]:
        """Put an update into the mailbox, unless it is there; return its run and event when it is on disk."""
        channel = update_channel(name)
        try:
            executor, handlers = await self._wait_for_handlers(
                run, "an update", lambda it: it.has_update(name)
            )
        except RuntimeError:
            # A caller that did not get the reply repeats its update, also after the end of the run.
            current = self._runs.current_run(run)
            found = self._find_ended_update((run, current), name, value, key) if current.is_complete else None
            if found is None:
                raise
            return found
        data = handlers.encode_update(name, value)
        if key is not None and (found := self._find_earlier_update(run, executor, channel, key, data)):
            return found
        # The state has changed since a repeated update was validated, maybe by that update itself.
        if executor.journal.index.mailbox.find_same(channel, key, data) is None:
            # Without an await in between: the state that the validator has seen is the state that is
            # changed, except by updates that came first.
            handlers.validate_update(name, data)
        seq = executor.open_waits.send(channel, data, key, by)
        await executor.journal.wait_durable(seq)
        return executor.run, seq

    def _find_earlier_update(
        self, run: WorkflowRun, executor: RunExecutor, channel: str, key: str, data: Any
    ) -> tuple[WorkflowRun, int] | None:
        """Return the update with a key, if the addressed or the previous run of the chain has it."""
        if (found := self._find_in_ended((run,), channel, key, data)) is not None:
            return found
        sent = executor.previous_mailbox.find_same(channel, key, data)
        row = self._runs.store.run(executor.start.previous_run or "") if sent is not None else None
        return None if row is None or sent is None else (self._runs.run_handle(row), sent.seq)

    def _find_ended_update(
        self, runs: Iterable[WorkflowRun], name: str, value: Any, key: str | None
    ) -> tuple[WorkflowRun, int] | None:
        """Return the update with a key in runs that have ended; ValueError if it has another value."""
        channel = update_channel(name)
        for run in dict.fromkeys(runs):
            data, sent = encode_ended_update(run, name, value), self._read_mailbox(run).find(channel, key)
            if sent is not None and isinstance(sent.value, dict) and isinstance(data, dict):
                data = {**sent.value, **data}  # without the handler, its defaults are unknown
            if sent is not None:
                return self._find_in_ended((run,), channel, key, data)
        return None

    def _find_in_ended(
        self, runs: Iterable[WorkflowRun], channel: str, key: str | None, value: Any
    ) -> tuple[WorkflowRun, int] | None:
        """Return the message with a key in those of the runs that have ended; ValueError if it is another."""
        for run in dict.fromkeys(runs) if key is not None else ():
            sent = self._read_mailbox(run).find_same(channel, key, value) if run.is_complete else None
            if sent is not None:
                return run, sent.seq
        return None

    def _find_carried(self, run: WorkflowRun, message: int) -> tuple[WorkflowRun, int] | None:
        """Return the message in the next run of the chain, if the run did not read it."""
        row = self._runs.store.run(run.continued_as) if run.continued_as is not None else None
        if row is None:
            return None
        next_run = self._runs.run_handle(row)
        carried = self._read_mailbox(next_run).carried.get(message)
        return None if carried is None else (next_run, carried)

    def _read_mailbox(self, run: WorkflowRun) -> Mailbox:
        """Return the mailbox of a run as the store has it."""
        return JournalIndex(self._runs.store.events(run.run_id)).mailbox

    def _read_reply(self, run: WorkflowRun, message: int) -> UpdateCompleted | None:
        """Return the reply to an update, if it is on disk."""
        executor = self._runs.executors.get(run.run_id)
        if executor is None:
            index, committed_seq = JournalIndex(self._runs.store.events(run.run_id)), None
        else:
            index, committed_seq = executor.journal.index, executor.journal.committed_seq
        seq, reply = index.mailbox.replies.get(message, (0, None))
        return reply if committed_seq is None or seq <= committed_seq else None

    async def _wait_for_handlers(
        self, run: WorkflowRun, command: str, is_found: Callable[[BodyHandlers], bool]
    ) -> tuple[RunExecutor, BodyHandlers]:
        """Return the handlers of a body that is as far as its journal, and its executor."""
        while True:
            async with self._exclusive(run) as (run, executor):
                require_open_run(run, command)
                executor = executor or self._open_run(run)
                if not executor.has_body:
                    problem = f"the run is {run.state.value} and not in memory. Resume it first"
                    raise RuntimeError(f"Run '{run.run_id}' cannot take {command}: {problem}.")
            handlers = run.run_state.handlers
            assert handlers is not None
            # During replay the state of the body is one of the past. A body that has just started may not
            # have registered its handlers yet.
            if executor.dispatcher.replay is not None or not is_found(handlers):
                await executor.dispatcher.wait_until_idle()
            if not executor.barrier.is_detached:
                return executor, handlers

    def on_fact(self, run_id: str, path: str, fact_match: Mapping[str, Any]) -> Awaitable[None] | None:
        """Settle a wait by a fact; return what to await until that is on disk, None if the run has ended."""
        if (run := self._find_open_run(run_id)) is None:
            return None
        return self._settle(run, lambda executor: settle_by_fact(executor, path, fact_match))

    async def steer(
        self,
        run: WorkflowRun,
        text: str,
        path: str | None,
        by: str,
        make_reply: PathReplyFactory | None = None,
    ) -> str:
        """Send a message to the agent of a running step; return the path of the step."""
        async with self._exclusive(run) as (run, executor):
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
            seq = executor.journal.append(Steered(text, by), paths[0])
            executor.journal.attach_reply(make_reply(paths[0]) if make_reply is not None else None)
            written = executor.journal.wait_durable(seq)
            # shield(): a message that is recorded reaches the agent even if the caller is gone.
            await asyncio.shield(listeners[paths[0]].put_when_written(text, written))
            return paths[0]

    async def resolve_doubt(
        self,
        run: WorkflowRun,
        path: str,
        decision: str,
        value: Any,
        reply: ReplyRow | None = None,
        about: Mapping[str, Any] = NO_CALLER,
    ) -> None:
        """Record the decision on the step a run is held at, and resume the run."""
        async with self._exclusive(run) as (run, executor):
            if run.run_state.status is not WorkflowState.HELD:
                problem = f"run '{run.run_id}' is {run.state.value}, but only a held run has a step in doubt"
                raise RuntimeError(f"Cannot {decision}: {problem}")
            hold_data = run.run_state.hold or {}
            executor = executor or self._runs.load_run(run)
            pending = executor.call_runner.pending_decisions.get(hold_data["path"])
            is_decidable = pending is not None or not executor.has_body
            is_in_doubt = hold_data["reason"] == "in doubt" and is_decidable
            if not is_in_doubt and (path or decision != "retry"):
                raise not_in_doubt_error(run, path or hold_data["path"], decision)
            if path and path != hold_data["path"]:
                raise ValueError(
                    f"Run '{run.run_id}' is held at '{hold_data['path'] or '/'}', not at '{path}'"
                )
            self._runs.check_ready(run)
            if is_in_doubt and pending is not None:
                pending.decision.set_result(decision_result(decision, value))
                await pending.decision_recorded  # so that it is on disk before the run resumes
            elif is_in_doubt:
                seq = record_decision(executor, hold_data["path"], decision, value)
                await executor.journal.wait_durable(seq)
            decided = {**about, "decision": decision, "at": hold_data["path"]}
            await self._resume(run, executor, {}, reply=reply, about=decided)

    async def hold(self, run: WorkflowRun, reason: str, message: str) -> None:
        """Hold an inactive run until the user decides; it still receives answers, signals and facts."""
        async with self._exclusive(run) as (run, executor):
            executor = executor or self._runs.load_run(run)
            executor.hold(RunOnHold(reason, message))
            await executor.journal.wait_durable(executor.journal.seq)
            self._runs.watch_facts(run.run_id)


def require_open_run(run: WorkflowRun, command: str) -> None:
    """Raise RuntimeError if a run cannot receive anything because it has ended or not started."""
    if run.is_complete:
        raise RuntimeError(f"Run '{run.run_id}' is {run.state.value} and cannot take {command}.")
    if run.run_state.status is WorkflowState.PENDING:
        raise RuntimeError(f"Run '{run.run_id}' has not been started and cannot take {command}.")


def encode_ended_update(run: WorkflowRun, name: str, value: Any) -> Any:
    """Return the value of an update to a run that has ended, as its journal would have it."""
    handlers = run.run_state.handlers
    if handlers is not None and handlers.has_update(name):
        return handlers.encode_update(name, value)
    return ValueCodec(type(value), f"The value{{field}} of update '{name}'").normalize(value)


def settle_by_fact(executor: RunExecutor, path: str, fact_match: Mapping[str, Any]) -> int:
    """Settle a wait by a fact, unless it was settled before; return the event to wait for."""
    # Imported here: few runs wait for facts.
    from nerve.engine.durable_dataspace import is_match_of

    request = executor.open_waits.request_at(path)
    if request is not None and is_match_of(request, fact_match):
        executor.open_waits.settle(path, signal_received(request, fact_match))
    # The executor may have settled the wait itself without having written it yet.
    return executor.journal.seq


def paths_waiting_for_signal(index: JournalIndex, label: str, key: str | None) -> list[str]:
    """Return the paths of the open waits that a signal settles."""
    requests = [(path, recorded.event) for path, recorded in index.open_waits.items()]
    return sorted(
        path
        for path, request in requests
        if isinstance(request, SignalWaiting) and request.label == label and request.key in (None, key)
    )


def record_decision(executor: RunExecutor, path: str, decision: str, value: Any) -> int:
    """Record a decision, unless it is recorded already and a crash prevented the resume; return the event."""
    journal, result = executor.journal, decision_result(decision, value)
    previous = journal.index.decisions.get(path)
    decided = None
    if result is not None:
        decided = NodeCompleted(path, result.success, encode_result(result)[0], decided=decision)
    if previous is not None:
        if decided is None or previous.to_data() != decided.to_data():
            problem = f"{previous.decided} is already recorded: {previous.result_json}"
            raise RuntimeError(f"Cannot {decision} '{path}': {problem}. Repeat the same decision.")
    elif decided is not None:
        return journal.append(decided, path, journal.settle_key(path))
    else:
        return journal.append(NodeRetrying(path, again=True, recovered=True), path)
    return journal.seq


def describe_run_state(run: WorkflowRun) -> str:
    """Describe why a run cannot be paused or resumed, and what to do instead."""
    run_name = f"run '{run.run_id}'"
    if run.is_complete:
        return f"{run_name} has ended; fork it to continue from an earlier step"
    if run.run_state.status is WorkflowState.STOPPING:
        return f"{run_name} is being stopped; stop it again to end it at once"
    if run.run_state.status is WorkflowState.HELD:
        return f"{run_name} is already held; resume or stop it"
    if (hold_data := run.held) is not None:
        return (
            f"its child run '{hold_data['run_id']}' is held ({hold_data['reason']}): {hold_data['message']}"
        )
    if run.state is WorkflowState.WAITING:
        return f"{run_name} continues when its wait is settled"
    if run.run_state.status is WorkflowState.PENDING:
        return f"{run_name} has not been started"
    return f"{run_name} is already running"


def is_paused(run: WorkflowRun) -> bool:
    return run.run_state.status in PAUSE_STATES


def is_held_for_budget(hold_data: Mapping[str, Any] | None) -> bool:
    return hold_data is not None and hold_data["reason"] == "budget"


def not_in_doubt_error(run: WorkflowRun, path: str, decision: str) -> RuntimeError:
    """Build the error for a decision on a path that is not in doubt."""
    hold_data = run.run_state.hold or {}
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
