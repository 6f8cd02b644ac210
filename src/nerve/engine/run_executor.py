"""Drive: one run in memory; what its body asks for is answered from the journal, or done and recorded."""

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
"""Seconds given to a body that was cancelled and does not end, before it is cancelled once more."""

REPAIRABLE_EVENTS = frozenset(
    {"output_chunk", "tool_call", "plan", "usage", "log", "permission", "node_retrying"}
)
"""Events that tell what agents, commands and errors said: half a character in it is no reason to fail."""


class ExecutorHost(Protocol):
    """What a drive needs of its engine."""

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
    """The runtime of one body, from its start to its end, to a hold, or until it leaves memory."""

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
        """Whether there may be child runs that the code does not ask for any more."""
        self.usage = usage_of_rows(rows)
        self.budget = RunBudget(self, rows)
        self.detached = False
        """The body has been let go: whatever it still does says nothing about the run."""
        self.is_stopping = False
        self.state_before_stop: WorkflowState | None = None
        """What it was before somebody began to stop it: after a crash it is that again."""
        self.final_state: WorkflowState | None = None
        self.forced_error: Exception | None = None
        self.pause_barrier: asyncio.Future[None] | None = None
        self.steps_in_doubt: list[str] = []
        self.newly_requested_paths: list[str] = []
        """Paths that the body asks for on replay and the journal does not have."""
        is_forked = "forked_from" in start_data
        self.threads = (
            AgentThreads(InheritedThreads(host.store, start_data, rows)) if is_forked else AgentThreads()
        )
        self.main_task: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()
        self._body_context = contextvars.copy_context()
        self._resets = find_resets(rows)
        self.unknown_outcomes = unknown_outcomes(rows) if self.has_optional_history else set()
        """Leaves that may have happened, also where what is recorded of them does not count any more."""
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
        self.dispatcher.committed_seq = self.journal.seq
        self.call_runner, self.open_waits, self.side_effects = (
            CallRunner(self),
            OpenWaits(self, rows),
            SideEffects(self),
        )

    # -- the port ------------------------------------------------------------------------------

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
        """Run the body, from its start, in a task of its own."""
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
            if self.forced_error is not None:
                await self._end_with_failure(self.forced_error)
            elif isinstance(error, asyncio.CancelledError) and not self.host.is_shutting_down:
                await self._end_with_failure(RuntimeError("the workflow function raised CancelledError"))
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
                raise  # nobody runs the body any more: it is thrown away
            await self._end_with_failure(self.forced_error or error)
        else:
            data = f'{{"run_id":"{self.run.run_id}","result":{text},"duration_s":{self._elapsed_seconds()}}}'
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
        """Write how it ended, unless the body has not come as far as the journal says it was."""
        if self.is_stopping or self.is_inactive:
            return
        if (obstacle := self._find_unrequested_record()) is not None:
            self.hold_for_mismatch(
                obstacle, f"the code {'raised ' + describe_error(error) if error else 'ends'} now"
            )
            return
        self.detached = True
        self.open_waits.cancel_timers()
        try:
            for child in list(self.run._children.values()):
                await child.stop("its parent has ended")
            if self.has_optional_history:
                await self.host.stop_children(self.run.run_id, "its parent has ended")
            if len(self.dispatcher.tasks) > 1:
                await self.cancel_tasks(except_task=self.main_task)
                await self.host.stop_started_children(self, "its parent has ended")
        except NerveError as unwritten:
            self.on_write_failed(unwritten)
            return
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
        """What is recorded, must be asked for, and was not when the body ended."""
        replay = self.dispatcher.replay
        if replay is None:
            return None
        while (obstacle := replay.next_unmatched()) is not None:
            obstacle.is_done = self.dispatcher.is_awaited(obstacle)
            if not (obstacle.is_done or replay.skip_unawaited(obstacle) or replay.skip_optional(obstacle)):
                break
        return obstacle

    async def write_final_event(self, type: str, data: str, state: WorkflowState) -> NerveError | None:
        """Write the last event of the run; gives the reason when that failed and the run is held instead."""
        self.detached = True
        self.run._gates.clear()
        self.final_state = state
        self.journal.mark_row_dirty()
        try:
            await self.journal.wait_durable(self.journal.append(type, "", data, ROOT_PATH))
        except NerveError as error:
            self.final_state = None
            return error
        return None

    def finish(self, state: WorkflowState) -> None:
        """The run has ended and that is on disk."""
        self.run._mark_ended(state)
        self.release()
        self.run._notify()

    def release(self) -> None:
        """Nobody drives the run any more."""
        self.detached = True
        self.open_waits.cancel_timers()
        self.dispatcher.stop()
        self.journal.close()
        self.budget.close()
        self.host.on_released(self)

    async def cancel_tasks(self, except_task: asyncio.Future[Any] | None = None) -> None:
        """Cancel what the body has started and wait until it has ended."""
        while tasks := [
            task for task in self.dispatcher.tasks if task is not except_task and not task.done()
        ]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CANCEL_RETRY_INTERVAL_S)

    def suspend(self) -> None:
        """Let the body leave memory; whatever it waits for tells it to go."""
        self.release()
        self.dispatcher.stop(Suspended())
        self.open_waits.suspend()

    def fail_run(self, error: Exception) -> None:
        """Fail the run, whatever its body makes of it."""
        if self.is_inactive:
            return
        self.forced_error = error
        if self.main_task is not None and asyncio.current_task() is not self.main_task:
            self.main_task.cancel()

    def check_limits(self, path: str) -> None:
        if name := self.usage.exceeded_limit(self.limits):
            self.fail_run(
                LimitReached(name, limit_message(name, self.limits, path, kind=self.run.workflow.kind))
            )
            raise Suspended

    # -- holding -------------------------------------------------------------------------------

    def hold(self, reason: str, text: str, path: str = "") -> None:
        """Let the body go, and wait until somebody decides."""
        if self.is_inactive:
            return
        self._set_held(reason, text, path)
        self._record_held()
        self.suspend()
        self.cancel_other_tasks()

    def cancel_other_tasks(self) -> None:
        for task in self.dispatcher.tasks - {asyncio.current_task()}:
            task.cancel()

    def _set_held(self, reason: str, text: str, path: str, **more: Any) -> None:
        self.run._held = {"reason": reason, "message": text, "path": path, **more}
        self.run._state = WorkflowState.HELD

    def _record_held(self) -> None:
        self.open_waits.record_timer_pauses()
        seq = self.journal.append("workflow_held", "", encode_json(self.run._held, max_depth=None))
        self.journal.mark_row_dirty()
        self.journal.wait_durable(seq).add_done_callback(lambda _: self.run._notify())

    def hold_for_mismatch(self, obstacle: ReplayEntry, found_instead: str = "") -> None:
        """The body does not ask for what is recorded."""
        requested = ", ".join(self.newly_requested_paths)
        found_instead = found_instead or (
            f"the code asks for {requested} now" if requested else "the code does not ask for it now"
        )
        key = obstacle.key
        what = key if isinstance(key, str) else f"{key[0] or '/'} {key[1]}"
        self.hold(
            "mismatch",
            f"{what}: the journal has {obstacle.row.type} (event {obstacle.seq}), {found_instead}. "
            f"{MISMATCH_HINT}",
            obstacle.row.path,
        )

    def _prepare_to_go_live(self) -> bool:
        if not self.steps_in_doubt:
            self.side_effects.flush_deferred()
            if (optional_replay := self.dispatcher.optional_replay) is not None:
                self._invalidate(
                    optional_replay, optional_replay.unrequested_gates(), "the code does not ask for it now"
                )
            return True
        self._hold_for_step_in_doubt(self.steps_in_doubt[0])
        return False

    def _hold_for_step_in_doubt(self, path: str) -> None:
        self.hold("in doubt", IN_DOUBT_MESSAGE.format(path=path), path)

    def hold_for_budget(self, exhausted: ExhaustedBudget, path: str) -> None:
        """Let nothing new begin until the budget is raised; what runs is finished and recorded."""
        if self.pause_barrier is None:
            limit = {} if exhausted.limit is None else {"limit": exhausted.limit}
            self.hold_new_work(
                "budget", str(exhausted), path, purse=exhausted.budget.run_id or "day", **limit
            )
            if exhausted.budget.run_id is None:
                self.host.budgets.watch_for_midnight()

    def hold_new_work(self, reason: str, text: str, path: str, **more: Any) -> asyncio.Future[None]:
        """Let nothing new begin until somebody decides, unless that is so already; done when it goes on."""
        if self.pause_barrier is None:
            self.pause_barrier, self.dispatcher.is_paused = self.loop.create_future(), True
            self._set_held(reason, text, path, **more)
            self._record_held()
        return self.pause_barrier

    def on_write_failed(self, error: NerveError) -> None:
        """Let the body go, since something of the run, or of a child, cannot be written."""
        self._set_held(*describe_write_failure(error), "")
        self.suspend()
        self.run._forget_gates()
        self.cancel_other_tasks()
        self.run._notify()

    # -- between the body and the journal ------------------------------------------------------

    def raise_if_cancelled(self) -> None:
        """A body that was stopped or let go gets nothing more; it cannot catch that as an Exception."""
        if self.is_cancelled_by_engine():
            raise Suspended

    def is_cancelled_by_engine(self) -> bool:
        """Whether the body was stopped or let go: it is cancelled by the engine, and not by itself."""
        return (
            self.detached or self.is_stopping or self.forced_error is not None or self.host.is_shutting_down
        )

    @property
    def is_inactive(self) -> bool:
        """Whether what the body does now says nothing about the run any more."""
        return self.detached or self.host.is_shutting_down

    def lookup_recorded(self, path: str, request_hash: str, request_text: str) -> RecordedCall | None:
        """What the journal has for something the body asks for."""
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
        if recorded is not None and recorded.request.is_optional and recorded.is_abandoned:
            self._reset_path(source, path, "the code may not give it up any more")
            return None
        return recorded

    def was_delivered(self, path: str) -> bool:
        """Whether the body was told, the first time, how something at a path ended."""
        source = self.dispatcher.replay or self.dispatcher.optional_replay
        return source is not None and source.is_settled(path)

    def _reset_path(self, source: Replay, path: str, because: str) -> None:
        """What is recorded at a path does not count any more: it is run again."""
        self.invalidate_later_answers(source.request_seq(path))
        self._record_reset(path, because)
        source.forget(path)

    def _record_reset(self, path: str, because: str) -> None:
        self._resets.append((path, self.append_event("path_reset", path, {"because": because})))
        self.budget.on_replaced(path)

    def invalidate_later_answers(self, after: float = 0) -> None:
        """Something is run that is not recorded: answers behind it were for what was shown then.

        Those that the body has not heard by now do not count, and are asked for again.
        """
        source = self.dispatcher.replay or self.dispatcher.optional_replay
        if source is not None:
            paths = source.undelivered_answers(after, self.host.has_asked_person)
            self._invalidate(
                source, paths, "something before it is run again: an answer is for what was shown"
            )

    def _invalidate(self, source: Replay, paths: list[str], because: str) -> None:
        """What is recorded at places, and how what is around them ended, does not count any more."""
        if not paths:
            return
        for path in paths:
            self._record_reset(path, because)
            self.open_waits.forget_path(path)
        source.reopen(paths)
        self.dispatcher.release_unordered()

    async def await_recorded(self, recorded: RecordedCall) -> Any:
        """The recorded outcome, in its turn; what was given up stays open until it is given up again.

        A call that has an outcome gives it also to a body that cancels: its leaf did so the first time.
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
        """Whether something new may be done at once."""
        return self.dispatcher.replay is None and self.pause_barrier is None

    @property
    def can_commit_inline(self) -> bool:
        """Whether this is the only run that is driven, and its body has never had a second task."""
        return self.dispatcher.is_sequential and len(self.host.executors) == 1

    async def hold_in_doubt(self, path: str) -> None:
        """Hold the run for a step that may have happened, when the replay is over; never returns."""
        if self.dispatcher.replay is not None:
            self.steps_in_doubt.append(path)
            await self.dispatcher.wait_for(self.dispatcher.wait_for_live())
        self._hold_for_step_in_doubt(path)
        raise Suspended

    async def wait_until_live(self) -> None:
        """Wait until the replay is over, and while the run is paused."""
        if self.dispatcher.replay is not None:
            await self.dispatcher.wait_for(self.dispatcher.wait_for_live())
        while self.pause_barrier is not None:
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
        """The body itself gave something up; on replay it will do so again. `taken` says what that took.

        Gives the number of the event that says so, if it is new.
        """
        if self.is_cancelled_by_engine() or (recorded is not None and recorded.is_abandoned):
            return None
        has_usage = attributes is not None and attributes["usage"] is not None and not is_settled
        if attributes is not None and not is_settled:
            self.budget.spend(path, attributes["usage"], by_child="run_id" in attributes)
        data = {"result": {"attributes": attributes}} if has_usage else {}
        return self.append_event(type, path, data, None if is_settled else self.settle_key(path))

    async def wait_for_turn(self, seq: int) -> None:
        """Return when it is the turn of the event that says that a call which was given up has ended."""
        future = self.dispatcher.create_future()
        self.dispatcher.enqueue(seq, future, None, durable=False)
        await self._wait_in_turn(future)

    def unused_path(self, path: str) -> str:
        """A path for something a leaf asks for: after a restart it may ask for more than it did."""
        used_paths = {row.path for row in self.journal_rows() if row.path.startswith(path)}
        number = 1
        while (candidate := numbered_path(path, number)) in used_paths or candidate in self.run._gates:
            number += 1
        return candidate

    def child_id(self, path: str, attempt: int = 1) -> str:
        """The child run of a call; another one after the call was reset."""
        return child_id(self.run.run_id, self.call_key(path), attempt)

    def call_key(self, path: str) -> str:
        """What the child runs of a call are called after."""
        return call_key(path, self._resets)

    def settle_key(self, path: str) -> str:
        return settle_key(path, self._resets) if self._resets else path

    def append_event(
        self, type: str, path: str, data: Mapping[str, Any], settles: str | None = None, urgent: bool = False
    ) -> int:
        return self.journal.append(type, path, self.encode_event_data(type, data), settles, urgent=urgent)

    def encode_event_data(self, type: str, data: Mapping[str, Any]) -> str:
        """The data of an event as it is written; NotJson if it cannot be."""
        try:
            return encode_json(data, max_depth=MAX_EVENT_DEPTH)
        except NotJson:
            if type not in REPAIRABLE_EVENTS:
                raise
            return encode_json(replace_invalid_text(data), max_depth=MAX_EVENT_DEPTH)

    def journal_rows(self, after: int = 0) -> list[EventRow]:
        """Everything that has happened to the run after an event, whether or not it is on disk yet."""
        unwritten = self.journal.pending_rows
        if unwritten and unwritten[0].seq <= after + 1:
            return unwritten[after + 1 - unwritten[0].seq :]
        stored = self.host.store.events(self.run.run_id, after)
        return [*(row for row in stored if not unwritten or row.seq < unwritten[0].seq), *unwritten]

    def _on_commit(self, rows: list[EventRow]) -> None:
        self.dispatcher.committed_seq = self.journal.committed_seq
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
        """Let nothing new begin; the number of the event that says so."""
        self.pause_barrier, self.dispatcher.is_paused = self.pause_barrier or self.loop.create_future(), True
        self.run._state = WorkflowState.PAUSING if self.call_runner.running_leaves else WorkflowState.PAUSED
        self.open_waits.update_wall_clock()
        self.journal.mark_row_dirty()
        resting = {"resting": sorted(self.call_runner.in_backoff)} if self.call_runner.in_backoff else {}
        return self.append_event("workflow_paused", "", {"run_id": self.run.run_id, **resting}, urgent=True)

    def raise_limits(self, limits: Mapping[str, Any]) -> int:
        """Raise budgets of a run that goes on: it is a child that is held for them."""
        self.budget.raise_limits(limits)
        return self.append_event(
            "workflow_resumed", "", resume_event_data(self.run.run_id, limits), urgent=True
        )

    def resume(self, limits: Mapping[str, Any], with_changes: bool = False) -> int:
        self.budget.raise_limits(limits)
        self.run._held, self.run._state = None, WorkflowState.RUNNING
        self.open_waits.update_run_state()
        self.journal.mark_row_dirty()
        barrier, self.pause_barrier, self.dispatcher.is_paused = self.pause_barrier, None, False
        if barrier is not None:
            barrier.set_result(None)
        seq = self.append_event(
            "workflow_resumed", "", resume_event_data(self.run.run_id, limits, with_changes), urgent=True
        )
        self.dispatcher.dispatch()
        return seq


RESUME_HINT = "Resume the run: it goes on from what is in its journal."
MISMATCH_HINT = "Restore the code and resume the run, or resume it with_changes=True, or fork it."


def describe_write_failure(error: NerveError) -> tuple[str, str]:
    """The reason and the message of a hold for something that could not be written."""
    description = str(error) if str(error).endswith(".") else f"{error}."
    if isinstance(error, Conflict):
        return "conflict", f"{description} What the run did after that is not written. {RESUME_HINT}"
    reason = "storage_full" if isinstance(error, StoreFull) else "storage"
    return reason, f"{description} Resume the run when it can be written again."


def describe_error(error: BaseException) -> str:
    """The type and text of an error, and where in the code it came from."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})" if trace else ""
    return f"{type(error).__name__}: {error}{where}"
