"""Execute one run in memory: requests of its body are answered from the journal, or run and recorded."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Awaitable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from nerve.core.agent_threads import AgentThreads
from nerve.core.json_codec import (
    MAX_EVENT_DEPTH,
    decode_json,
    encode_json,
    is_scalar_json,
    replace_invalid_text,
)
from nerve.core.json_diagnostics import truncate_error_text
from nerve.core.limits import Limits, limit_message
from nerve.core.nodes.context import ExecutionContext, numbered_path
from nerve.core.result import Result, error_text
from nerve.core.runtime import NodeCall, Wait
from nerve.core.workflow.context import WorkflowContext
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import WorkflowState
from nerve.engine.budget import ExhaustedBudget
from nerve.engine.call_runner import IN_DOUBT_MESSAGE, CallRunner
from nerve.engine.child_runs import child_id
from nerve.engine.group_commit import GroupCommitter
from nerve.engine.inherited_threads import InheritedThreads
from nerve.engine.journal_writer import JournalWriter
from nerve.engine.open_waits import EVENT_BY_WAIT_KIND, OpenWaits
from nerve.engine.result_dispatcher import ResultDispatcher
from nerve.engine.run_budget import RunBudget
from nerve.engine.session_budgets import SessionBudgets
from nerve.engine.side_effects import SideEffects
from nerve.engine.task_tracking import TASK_OWNER
from nerve.errors import Conflict, LimitReached, NerveError, NotJson, Rejected, StoreFull, Suspended
from nerve.journal.events import (
    call_key,
    find_resets,
    optional_until,
    origin_ids,
    resume_event_data,
    settle_key,
    usage_of_rows,
)
from nerve.journal.replay import (
    ROOT_PATH,
    RecordedCall,
    RecordInvalidated,
    Replay,
    ReplayEntry,
    ReplayMismatch,
    unknown_outcomes,
)
from nerve.store.port import EventRow, RunRow, Store

if TYPE_CHECKING:
    from nerve.engine.durable_dataspace import DurableDataspace

CANCEL_RETRY_INTERVAL_S = 5.0
"""Seconds a cancelled body gets to end before the engine cancels it again."""

REPAIRABLE_EVENTS = frozenset(
    {"output_chunk", "tool_call", "plan", "usage", "log", "permission", "node_retrying"}
)
"""Events with text from agents, commands and errors; invalid characters in it must not fail the run."""


class ExecutorHost(Protocol):
    """What an executor needs from its engine."""

    @property
    def executors(self) -> Mapping[str, RunExecutor]: ...
    @property
    def committer(self) -> GroupCommitter: ...
    @property
    def is_shutting_down(self) -> bool: ...
    @property
    def dataspace(self) -> DurableDataspace: ...
    @property
    def store(self) -> Store: ...
    @property
    def budgets(self) -> SessionBudgets: ...
    def has_child_ended(self, run_id: str) -> bool: ...
    def child_attempts(self, run_id: str, key: str) -> list[str]: ...
    def usage_of_stopped_run(self, run_id: str) -> dict[str, Any]: ...
    async def stop_started_children(self, executor: RunExecutor, reason: str) -> None: ...
    async def stop_children(self, run_id: str, reason: str, path: str | None = None) -> None: ...
    async def run_child(self, parent: RunExecutor, call: NodeCall, attempt: int, is_late: bool) -> Result: ...
    def with_attempt_usage(self, parent: RunExecutor, call: NodeCall, result: Result) -> Result: ...
    def has_asked_person(self, run_id: str) -> bool: ...
    def on_idle(self, executor: RunExecutor) -> None: ...
    def on_released(self, executor: RunExecutor) -> None: ...
    def run_row(
        self, run: WorkflowRun, state: WorkflowState, wake: float | None, start: Mapping[str, Any], at: float
    ) -> RunRow: ...
    def publish(self, run: WorkflowRun, rows: list[EventRow]) -> None: ...


class RunExecutor:
    """The runtime of one body: from start until it ends, is held, or is evicted from memory."""

    def __init__(
        self,
        host: ExecutorHost,
        run: WorkflowRun,
        start_data: dict[str, Any],
        limits: Limits,
        rows: Sequence[EventRow] = (),
    ) -> None:
        self.host, self.run, self.start_data, self.limits = host, run, start_data, limits
        self.overrides: dict[str, dict[str, Any]] = start_data.get("overrides") or {}
        self.has_optional_history = bool(rows) and optional_until(rows) > 0
        """Whether child runs may exist that the code no longer requests."""
        self.usage = usage_of_rows(rows)
        self.budget = RunBudget(self, rows)
        self.detached = False
        """Whether the executor has let go of the body; nothing the body does from then on affects the run."""
        # While a stop is in progress the run row keeps the state from before it. A crash in the middle then
        # recovers a run that can still be resumed or stopped.
        self.is_stopping = False
        self.state_before_stop: WorkflowState | None = None
        """The state before a stop began, which recovery finds after a crash during the stop."""
        self.final_state: WorkflowState | None = None
        self.forced_error: Exception | None = None
        self.pause_barrier: asyncio.Future[None] | None = None
        self.steps_in_doubt: list[str] = []
        self.newly_requested_paths: list[str] = []
        """Paths that the body requests during replay and that are not in the journal."""
        is_forked = "forked_from" in start_data
        self.threads = (
            AgentThreads(InheritedThreads(host.store, start_data, rows)) if is_forked else AgentThreads()
        )
        self.main_task: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()
        # The body and its tasks share one copied context, so TASK_OWNER marks exactly the tasks of this
        # body and never leaks into the task that called start().
        self._body_context = contextvars.copy_context()
        self._resets = find_resets(rows)
        # Resets hide the rows of a step from replay, but a step with effect="once" may still have run; only
        # a run with optional history (a fork, or changed code) can contain such rows.
        self.unknown_outcomes = unknown_outcomes(rows) if self.has_optional_history else set()
        """Leaves that may have run, including those whose records have been reset."""
        replay = Replay(rows[1:], optional_until(rows), origin_ids(start_data)) if len(rows) > 1 else None
        self.dispatcher = ResultDispatcher(
            replay if replay and not replay.is_finished else None,
            self.hold_for_mismatch,
            self._prepare_to_go_live,
        )
        self.journal = JournalWriter(
            run.run_id,
            rows[-1].seq if rows else 0,
            host.committer,
            self._current_row,
            self._on_commit,
            self.on_write_failed,
        )
        # Every row the journal was loaded with is on disk; only newer outcomes have to wait for a commit.
        self.dispatcher.committed_seq = self.journal.seq
        self.call_runner, self.open_waits, self.side_effects = (
            CallRunner(self),
            OpenWaits(self, rows),
            SideEffects(self),
        )

    # -- the runtime that the body sees --------------------------------------------------------------

    def call(self, call: NodeCall) -> Awaitable[Result]:
        return self.call_runner.call(call)

    def wait(self, wait: Wait) -> Awaitable[Any]:
        return self.open_waits.wait(wait)

    def interrupted_step(self, path: str) -> str | None:
        return self.call_runner.interrupted_steps.find_within(path)

    def emit(self, path: str, type: str, data: dict[str, Any]) -> None:
        self.side_effects.emit(path, type, data)

    def now(self, path: str) -> datetime:
        return self.side_effects.now(path)

    def random(self, path: str) -> float:
        return self.side_effects.random(path)

    def new_id(self, path: str) -> str:
        return self.side_effects.new_id(path)

    # -- the life of the body ------------------------------------------------------------------

    def start_body(self) -> None:
        """Run the body from its start in a task of its own."""
        run = self.run
        run._state, run._held = WorkflowState.RUNNING, None
        session = run.workflow.session
        execution = ExecutionContext(
            session,
            run._input,
            workflow_id=run.workflow_id,
            run_id=run.run_id,
            params=run._params,
            _runtime=self,
        )
        context = WorkflowContext(session, run._input, run._params, {}, run, execution)
        self._body_context.run(TASK_OWNER.set, self.dispatcher)
        self.main_task = self._body_context.run(
            self.loop.create_task, self._run_body(context), context=self._body_context
        )
        self.open_waits.update_wall_clock()

    async def _run_body(self, context: WorkflowContext) -> None:
        try:
            value = await self.run.workflow.run_body(context)
            text = encode_json(value)
            if self.forced_error is not None:
                raise self.forced_error
        except (Suspended, asyncio.CancelledError) as error:
            # A cancellation by the engine (stop, suspend) is not an outcome: the command that cancels writes
            # the event. Only a CancelledError that the code itself raised is a failure.
            if self.forced_error is not None:
                await self._end_with_failure(self.forced_error)
            elif isinstance(error, asyncio.CancelledError) and not self.host.is_shutting_down:
                await self._end_with_failure(RuntimeError("The workflow function raised CancelledError"))
        except KeyboardInterrupt:
            raise
        except Rejected as error:
            cancellation = {
                "run_id": self.run.run_id,
                "reason": error.reason,
                "killed": [],
                "error_type": "Rejected",
            }
            await self._end_run(
                "workflow_cancelled",
                encode_json(cancellation, max_depth=None),
                WorkflowState.CANCELLED,
                error=error,
            )
        except BaseException as error:
            if isinstance(error, GeneratorExit) and asyncio.current_task(self.loop) is not self.main_task:
                raise  # the garbage collector closes a body that the engine dropped: not an outcome
            await self._end_with_failure(self.forced_error or error)
        else:
            data = f'{{"run_id":"{self.run.run_id}","result":{text},"duration_s":{self._elapsed_seconds()}}}'
            # The caller gets the value as a later reader of the journal would, so results do not change
            # after a restart.
            result = value if is_scalar_json(value) else decode_json(text)
            await self._end_run("workflow_completed", data, WorkflowState.COMPLETED, result=result)

    async def _end_with_failure(self, error: BaseException) -> None:
        name = getattr(error, "error_type", "") or type(error).__name__
        error_message = truncate_error_text(getattr(error, "error", None) or error_text(error))
        data = {
            "run_id": self.run.run_id,
            "error": error_message,
            "error_type": name,
            "duration_s": self._elapsed_seconds(),
        }
        await self._end_run(
            "workflow_failed", encode_json(data, max_depth=None), WorkflowState.FAILED, error=error
        )

    def _elapsed_seconds(self) -> float:
        started_at = self.run._started_at
        return round((datetime.now(UTC) - started_at).total_seconds(), 3) if started_at else 0.0

    async def _end_run(
        self,
        type: str,
        data: str,
        state: WorkflowState,
        result: Any = None,
        error: BaseException | None = None,
    ) -> None:
        """Write how the run ended, unless the body ended before it requested everything in the journal."""
        if self.is_stopping or self.is_inactive:
            return
        if (obstacle := self._find_unrequested_record()) is not None:
            self.hold_for_mismatch(
                obstacle, f"the code now {'raises ' + describe_error(error) if error else 'ends'}"
            )
            return
        # Detach before the awaits below: while children stop, no task of the body may start new work or be
        # recorded as abandoned.
        self.detached = True
        self.open_waits.cancel_timers()
        try:
            for child in list(self.run._children.values()):
                await child.stop("its parent has ended")
            # Code that changed may no longer know children that earlier code started, so the store is asked
            # for them.
            if self.has_optional_history:
                await self.host.stop_children(self.run.run_id, "its parent has ended")
            if len(self.dispatcher.tasks) > 1:
                await self.cancel_tasks(except_task=self.main_task)
                await self.host.stop_started_children(self, "its parent has ended")
        except NerveError as unwritten:
            self.on_write_failed(unwritten)
            return
        # Children end first, their usage is recorded next, and the final event is written last: after it
        # nothing may follow in the journal, and a crash before it leaves the run open to be finished again.
        self.side_effects.flush_deferred()
        self.budget.record_stopped_children()
        if await self.write_final_event(type, data, state) is not None:
            return
        run = self.run
        run._result, run._exception = result, error
        if error is not None:
            payload = decode_json(data)
            run._error, run._error_type = payload.get("error", payload.get("reason")), payload["error_type"]
        self.finish(state)

    def _find_unrequested_record(self) -> ReplayEntry | None:
        """Return the first record the body had to request and had not when it ended."""
        replay = self.dispatcher.replay
        if replay is None:
            return None
        while (obstacle := replay.next_unmatched()) is not None:
            obstacle.is_done = self.dispatcher.is_awaited(obstacle)
            if not (obstacle.is_done or replay.skip_unawaited(obstacle) or replay.skip_optional(obstacle)):
                break
        return obstacle

    async def write_final_event(self, type: str, data: str, state: WorkflowState) -> NerveError | None:
        """Write the last event of the run; return the error if that fails, in which case the run is held."""
        self.detached = True
        self.run._gates.clear()
        self.final_state = state
        self.journal.mark_row_dirty()
        try:
            # The settle key of the root is unique in the store, so two processes cannot both end the run.
            await self.journal.wait_durable(self.journal.append(type, "", data, ROOT_PATH))
        except NerveError as error:
            self.final_state = None
            return error
        return None

    def finish(self, state: WorkflowState) -> None:
        """Mark the run as ended; its final event is on disk."""
        # The state is final before watchers hear of it, and the executor is gone from the engine: a
        # callback that looks the run up must not find it active.
        self.run._mark_ended(state)
        self.release()
        self.run._notify()

    def release(self) -> None:
        """Stop executing the run; pending writes still complete."""
        self.detached = True
        self.open_waits.cancel_timers()
        self.dispatcher.stop()
        self.journal.close()
        self.budget.close()
        self.host.on_released(self)

    async def cancel_tasks(self, except_task: asyncio.Future[Any] | None = None) -> None:
        """Cancel the tasks the body started and wait until they have ended."""
        # A task may swallow a cancellation or start another task while it cleans up, so this repeats until
        # none is left.
        while tasks := [
            task for task in self.dispatcher.tasks if task is not except_task and not task.done()
        ]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CANCEL_RETRY_INTERVAL_S)

    def suspend(self) -> None:
        """Evict the body from memory; every pending wait of it raises Suspended."""
        self.release()
        self.dispatcher.stop(Suspended())
        self.open_waits.suspend()

    def fail_run(self, error: Exception) -> None:
        """Fail the run with an error, even if the body catches it."""
        if self.is_inactive:
            return
        self.forced_error = error
        # The current task raises by itself; cancelling it would also cancel the write of the failure.
        if self.main_task is not None and asyncio.current_task() is not self.main_task:
            self.main_task.cancel()

    def check_limits(self, path: str) -> None:
        if name := self.usage.exceeded_limit(self.limits):
            self.fail_run(
                LimitReached(name, limit_message(name, self.limits, path, kind=self.run.workflow.kind))
            )
            raise Suspended

    # -- holding -------------------------------------------------------------------------------

    def hold(self, reason: str, message: str, path: str = "") -> None:
        """Suspend the body and hold the run until the user decides."""
        if self.is_inactive:
            return
        self._set_held(reason, message, path)
        # The event goes to the journal before suspend() closes it.
        self._record_held()
        self.suspend()
        self.cancel_other_tasks()

    def cancel_other_tasks(self) -> None:
        for task in self.dispatcher.tasks - {asyncio.current_task()}:
            task.cancel()

    def _set_held(self, reason: str, message: str, path: str, **extra: Any) -> None:
        self.run._held = {"reason": reason, "message": message, "path": path, **extra}
        self.run._state = WorkflowState.HELD

    def _record_held(self) -> None:
        self.open_waits.record_timer_pauses()
        seq = self.journal.append("workflow_held", "", encode_json(self.run._held, max_depth=None))
        self.journal.mark_row_dirty()
        self.journal.wait_durable(seq).add_done_callback(lambda _: self.run._notify())

    def hold_for_mismatch(self, obstacle: ReplayEntry, found_instead: str = "") -> None:
        """Hold the run because the body does not request what the journal has next."""
        requested = ", ".join(self.newly_requested_paths)
        found_instead = found_instead or (
            f"the code now requests {requested}" if requested else "the code no longer requests it"
        )
        key = obstacle.key
        request_name = key if isinstance(key, str) else f"{key[0] or '/'} {key[1]}"
        self.hold(
            "mismatch",
            f"{request_name}: the journal has {obstacle.row.type} (event {obstacle.seq}), {found_instead}. "
            f"{MISMATCH_HINT}",
            obstacle.row.path,
        )

    def _prepare_to_go_live(self) -> bool:
        # A step in doubt is decided before anything new runs: new work could depend on an effect that never
        # happened.
        if not self.steps_in_doubt:
            self.side_effects.flush_deferred()
            if (optional_replay := self.dispatcher.optional_replay) is not None:
                self._invalidate(
                    optional_replay, optional_replay.unrequested_gates(), "the code no longer requests it"
                )
            return True
        self._hold_for_step_in_doubt(self.steps_in_doubt[0])
        return False

    def _hold_for_step_in_doubt(self, path: str) -> None:
        self.hold("in doubt", IN_DOUBT_MESSAGE.format(path=path), path)

    def hold_for_budget(self, exhausted: ExhaustedBudget, path: str) -> None:
        """Start no new work until the budget is raised; running work is finished and recorded."""
        if self.pause_barrier is None:
            limit = {} if exhausted.limit is None else {"limit": exhausted.limit}
            self.hold_new_work(
                "budget", str(exhausted), path, purse=exhausted.budget.run_id or "day", **limit
            )
            if exhausted.budget.run_id is None:
                self.host.budgets.watch_for_midnight()

    def hold_new_work(self, reason: str, message: str, path: str, **extra: Any) -> asyncio.Future[None]:
        """Start no new work until the user decides; return the future that completes on resume."""
        if self.pause_barrier is None:
            # The barrier stops new work and the flag stops new outcomes; set together, since an outcome
            # that still came through would be journaled before the event that holds the run.
            self.pause_barrier, self.dispatcher.is_paused = self.loop.create_future(), True
            self._set_held(reason, message, path, **extra)
            self._record_held()
        return self.pause_barrier

    def on_write_failed(self, error: NerveError) -> None:
        """Suspend the body because an event of the run, or of a child run, cannot be written."""
        # No event is appended: the journal cannot be written. The hold exists in memory only, and recovery
        # resumes from the last committed event.
        self._set_held(*describe_write_failure(error), "")
        self.suspend()
        self.run._forget_gates()
        self.cancel_other_tasks()
        self.run._notify()

    # -- between the body and the journal ------------------------------------------------------

    def raise_if_cancelled(self) -> None:
        """Raise Suspended in a stopped or released body, which `except Exception` does not catch."""
        if self.is_cancelled_by_engine():
            raise Suspended

    def is_cancelled_by_engine(self) -> bool:
        """Whether the engine, and not the body itself, cancels the tasks of the body."""
        return (
            self.detached or self.is_stopping or self.forced_error is not None or self.host.is_shutting_down
        )

    @property
    def is_inactive(self) -> bool:
        """Whether the body no longer affects the run."""
        return self.detached or self.host.is_shutting_down

    def lookup_recorded(self, path: str, request_hash: str, request_text: str) -> RecordedCall | None:
        """Return what the journal has for a request of the body."""
        source = self.dispatcher.replay or self.dispatcher.optional_replay
        if source is None:
            return None
        try:
            recorded = source.lookup(path, request_hash, request_text)
        except ReplayMismatch as mismatch:
            if not source.is_optional(path):
                self.hold("mismatch", f"{mismatch}. {MISMATCH_HINT}", path)
                raise Suspended from None
            self._reset_path(source, path, str(mismatch))
            return None
        if recorded is None and self.dispatcher.replay is not None:
            self.newly_requested_paths.append(path)
        # In optional history an abandoned call is not replayed as abandoned: the changed code may wait for
        # it.
        if recorded is not None and recorded.request.is_optional and recorded.is_abandoned:
            self._reset_path(source, path, "the code may now wait for it")
            return None
        return recorded

    def was_delivered(self, path: str) -> bool:
        """Whether the outcome at a path was delivered to the body in the recorded run."""
        source = self.dispatcher.replay or self.dispatcher.optional_replay
        return source is not None and source.is_settled(path)

    def _reset_path(self, source: Replay, path: str, because: str) -> None:
        """Discard what is recorded at a path, so that it runs again."""
        # Answers first: which answers come later is found in the records that forget() drops.
        self.invalidate_later_answers(source.request_seq(path))
        self._record_reset(path, because)
        source.forget(path)

    def _record_reset(self, path: str, because: str) -> None:
        self._resets.append((path, self.append_event("path_reset", path, {"because": because})))
        self.budget.on_replaced(path)

    def invalidate_later_answers(self, after: float = 0) -> None:
        """Discard answers recorded after an event, because something before them runs again.

        A person answered for what was shown then. Answers not yet delivered are requested again.
        """
        source = self.dispatcher.replay or self.dispatcher.optional_replay
        if source is not None:
            paths = source.undelivered_answers(after, self.host.has_asked_person)
            self._invalidate(source, paths, "a step before it runs again, so the answer may not apply")

    def _invalidate(self, source: Replay, paths: list[str], because: str) -> None:
        """Discard what is recorded at paths, and the outcomes of the steps around them."""
        if not paths:
            return
        for path in paths:
            self._record_reset(path, because)
            self.open_waits.forget_path(path)
        source.reopen(paths)
        self.dispatcher.release_unordered()

    async def await_recorded(self, recorded: RecordedCall) -> Any:
        """Return the recorded outcome in its turn; an abandoned call stays open until abandoned again.

        A recorded outcome is delivered even to a body that is cancelling: in the recorded run its leaf also
        ended first.
        """
        record, delivery = recorded.outcome, self.dispatcher
        assert record is not None
        if record.kind == "settle":
            future = delivery.recorded_outcome(record)
            is_ordered = (
                recorded.request.row.type not in EVENT_BY_WAIT_KIND.values() and not record.is_optional
            )
            try:
                outcome = await (self._wait_in_turn(future) if is_ordered else delivery.wait_for(future))
            # The exception is caught so that is_void is checked in one place; it is raised again below.
            except TimeoutError as timeout:
                outcome = timeout
            if record.is_void:
                raise RecordInvalidated
            record.is_done = True
            if isinstance(outcome, TimeoutError):
                raise outcome
            return outcome
        try:
            await delivery.wait_forever()
        except asyncio.CancelledError:
            if record.is_outcome and not self.is_cancelled_by_engine():
                await self._wait_in_turn(delivery.recorded_outcome(record))
            raise
        finally:
            record.is_done = True
            delivery.dispatch()

    def _wait_in_turn(self, future: asyncio.Future[Any]) -> Awaitable[Any]:
        return self.dispatcher.wait_in_turn(future, self.is_cancelled_by_engine)

    @property
    def is_live(self) -> bool:
        """Whether new work may start at once."""
        return self.dispatcher.replay is None and self.pause_barrier is None

    @property
    def can_commit_inline(self) -> bool:
        """Whether this is the only active run and its body has never had a second task."""
        return self.dispatcher.is_sequential and len(self.host.executors) == 1

    async def hold_in_doubt(self, path: str) -> None:
        """Hold the run after replay for a step that may have run already; never returns."""
        if self.dispatcher.replay is not None:
            self.steps_in_doubt.append(path)
            await self.dispatcher.wait_for(self.dispatcher.wait_for_live())
        self._hold_for_step_in_doubt(path)
        raise Suspended

    async def wait_until_live(self) -> None:
        """Wait until replay has ended and the run is not paused."""
        if self.dispatcher.replay is not None:
            await self.dispatcher.wait_for(self.dispatcher.wait_for_live())
        while self.pause_barrier is not None:
            # shield(): the barrier is shared by all tasks of the body, and cancelling one must not cancel
            # it for all.
            await asyncio.shield(self.pause_barrier)
        self.raise_if_cancelled()

    def record_abandoned(
        self,
        path: str,
        type: str,
        recorded: RecordedCall | None,
        is_settled: bool,
        attributes: Mapping[str, Any] | None = None,
    ) -> int | None:
        """Record that the body abandoned a call or wait, so that replay does so again.

        Return the sequence number of the event, or None if none is written. `attributes` has the usage to
        charge.
        """
        if self.is_cancelled_by_engine() or (recorded is not None and recorded.is_abandoned):
            return None
        has_usage = attributes is not None and attributes["usage"] is not None and not is_settled
        if attributes is not None and not is_settled:
            self.budget.spend(path, attributes["usage"], by_child="run_id" in attributes)
        data = {"result": {"attributes": attributes}} if has_usage else {}
        # A request that was settled before keeps that outcome; only an unsettled one is settled by being
        # abandoned.
        return self.append_event(type, path, data, None if is_settled else self.settle_key(path))

    async def wait_for_turn(self, seq: int) -> None:
        """Return when the event that ends an abandoned call has its turn."""
        future = self.dispatcher.create_future()
        self.dispatcher.enqueue(seq, future, None, durable=False)
        await self._wait_in_turn(future)

    def unused_path(self, path: str) -> str:
        """Return an unused path for a request of a leaf: after a restart a leaf may make more requests."""
        used_paths = {row.path for row in self.journal_rows() if row.path.startswith(path)}
        number = 1
        while (candidate := numbered_path(path, number)) in used_paths or candidate in self.run._gates:
            number += 1
        return candidate

    def child_id(self, path: str, attempt: int = 1) -> str:
        """Return the id of the child run of a call; a reset of the call changes the id."""
        return child_id(self.run.run_id, self.call_key(path), attempt)

    def call_key(self, path: str) -> str:
        """Return the key that the ids of a call's child runs derive from."""
        return call_key(path, self._resets)

    def settle_key(self, path: str) -> str:
        return settle_key(path, self._resets) if self._resets else path

    def append_event(
        self, type: str, path: str, data: Mapping[str, Any], settles: str | None = None, urgent: bool = False
    ) -> int:
        return self.journal.append(type, path, self.encode_event_data(type, data), settles, urgent=urgent)

    def encode_event_data(self, type: str, data: Mapping[str, Any]) -> str:
        """Return the JSON of an event's data; raise NotJson if it cannot be encoded."""
        try:
            return encode_json(data, max_depth=MAX_EVENT_DEPTH)
        except NotJson:
            if type not in REPAIRABLE_EVENTS:
                raise
            return encode_json(replace_invalid_text(data), max_depth=MAX_EVENT_DEPTH)

    def journal_rows(self, after: int = 0) -> list[EventRow]:
        """Return all rows after an event, including those not on disk yet."""
        unwritten = self.journal.pending_rows
        if unwritten and unwritten[0].seq <= after + 1:
            return unwritten[after + 1 - unwritten[0].seq :]
        stored = self.host.store.events(self.run.run_id, after)
        # The commit runs in another thread: rows may be in the store and still be pending, and must count
        # once.
        return [*(row for row in stored if not unwritten or row.seq < unwritten[0].seq), *unwritten]

    def _on_commit(self, rows: list[EventRow]) -> None:
        self.dispatcher.committed_seq = self.journal.committed_seq
        # The first commit is workflow_started. Nothing of the body runs before the run exists on disk.
        if self.main_task is None and not self.detached:
            self.start_body()
        self.dispatcher.dispatch()
        self.host.publish(self.run, rows)
        if self.open_waits.is_single_wait:
            self.host.on_idle(self)

    def _current_row(self, at: float) -> RunRow:
        state = self.final_state or self.state_before_stop or self.run._state
        return self.host.run_row(self.run, state, self.open_waits.wake_time, self.start_data, at)

    # -- pause ---------------------------------------------------------------------------------

    def pause(self) -> int:
        """Start no new work; return the sequence number of the event."""
        self.pause_barrier, self.dispatcher.is_paused = self.pause_barrier or self.loop.create_future(), True
        self.run._state = WorkflowState.PAUSING if self.call_runner.running_leaves else WorkflowState.PAUSED
        self.open_waits.update_wall_clock()
        self.journal.mark_row_dirty()
        resting = {"resting": sorted(self.call_runner.in_backoff)} if self.call_runner.in_backoff else {}
        return self.append_event("workflow_paused", "", {"run_id": self.run.run_id, **resting}, urgent=True)

    def raise_limits(self, limits: Mapping[str, Any]) -> int:
        """Raise budgets of a running run, one of whose children is held for them."""
        self.budget.raise_limits(limits)
        return self.append_event(
            "workflow_resumed", "", resume_event_data(self.run.run_id, limits), urgent=True
        )

    def resume(self, limits: Mapping[str, Any], with_changes: bool = False) -> int:
        self.budget.raise_limits(limits)
        self.run._held, self.run._state = None, WorkflowState.RUNNING
        self.open_waits.update_run_state()
        self.journal.mark_row_dirty()
        # Waiting tasks wake in a later turn of the loop, so the event below precedes everything they
        # record.
        barrier, self.pause_barrier, self.dispatcher.is_paused = self.pause_barrier, None, False
        if barrier is not None:
            barrier.set_result(None)
        seq = self.append_event(
            "workflow_resumed", "", resume_event_data(self.run.run_id, limits, with_changes), urgent=True
        )
        self.dispatcher.dispatch()
        return seq


RESUME_HINT = "Resume the run to continue from its journal."
MISMATCH_HINT = "Restore the code and resume the run, resume it with with_changes=True, or fork it."


def describe_write_failure(error: NerveError) -> tuple[str, str]:
    """Return the reason and the message of a hold after a failed write."""
    description = str(error) if str(error).endswith(".") else f"{error}."
    if isinstance(error, Conflict):
        return "conflict", f"{description} Later events of the run are not written. {RESUME_HINT}"
    reason = "storage_full" if isinstance(error, StoreFull) else "storage"
    return reason, f"{description} Resume the run when the store is writable again."


def describe_error(error: BaseException) -> str:
    """Return the type and text of an error, and the line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    location = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})" if trace else ""
    return f"{type(error).__name__}: {error}{location}"
