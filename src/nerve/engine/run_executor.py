"""Execute one run in memory: requests of its body are answered from the journal, or run and recorded."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple
from weakref import proxy

from nerve.core.agent_threads import AgentThreads
from nerve.core.clock import Clock
from nerve.core.json_codec import decode_json, encode_json, is_scalar_json
from nerve.core.json_diagnostics import truncate_error_text
from nerve.core.limits import limit_message
from nerve.core.nodes.active_workspace import enter_shared_workspace, share_workspace
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.fact_nodes import FactChanges
from nerve.core.nodes.folder_users import FolderUsers
from nerve.core.nodes.in_memory_runtime import RuntimeHome
from nerve.core.queues import QueueRequest
from nerve.core.result import REJECTED_ERROR_TYPE, error_text
from nerve.core.runtime import NodeCall, Wait
from nerve.core.tracebacks import NO_TRACE, FailureTrace
from nerve.core.workflow.body_handlers import BodyHandlers, UpdateReply
from nerve.core.workflow.cleanup import IN_CLEANUP
from nerve.core.workflow.context import WorkflowContext
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import NO_CALLER, WorkflowState
from nerve.core.workflow.workspace_block import FRESH_PLACE, run_in_worktree
from nerve.engine.body_cancellation import CANCEL_RETRY_INTERVAL_S, NO_STOP, BodyCancellation
from nerve.engine.call_runner import CallRunner
from nerve.engine.child_runner import ChildRunner, ChildRunOperations, sum_run_usage
from nerve.engine.child_runs import child_id
from nerve.engine.engine_host import EngineHost
from nerve.engine.execution_barrier import ExecutionBarrier
from nerve.engine.group_commit import GroupCommitter
from nerve.engine.inherited_threads import InheritedThreads
from nerve.engine.leaf_runtime import LeafRuntime
from nerve.engine.open_waits import OpenWaits, RunFacts
from nerve.engine.recorded_history import MISMATCH_HINT, RecordedHistory
from nerve.engine.result_dispatcher import ResultDispatcher
from nerve.engine.run_budget import RunBudget, SessionBudgets
from nerve.engine.run_chain import make_next_start
from nerve.engine.run_journal import RunJournal
from nerve.engine.run_queues import RunQueues
from nerve.engine.run_timers import RunTimers
from nerve.engine.session_queues import SessionQueues
from nerve.engine.side_effects import SideEffects
from nerve.engine.task_tracking import TASK_OWNER
from nerve.engine.wall_clock import WallClock
from nerve.errors import (
    CompensationFailed,
    Conflict,
    ContinuedAsNew,
    InvalidRecord,
    LimitReached,
    NerveError,
    OwnershipLost,
    Rejected,
    StoreFull,
    Suspended,
)
from nerve.journal.events import (
    Event,
    FactsCopied,
    MessageReceived,
    RunCancelled,
    RunChanged,
    RunCompleted,
    RunEnd,
    RunFailed,
    RunOnHold,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopping,
    UpdateCompleted,
)
from nerve.journal.index import EMPTY_JOURNAL, JournalIndex, StoredJournal
from nerve.journal.mailbox import Mailbox, Message
from nerve.journal.paths import ROOT_PATH
from nerve.journal.replay import Replay, ReplayEntry
from nerve.lazy_dataclass import dataclass
from nerve.store.port import Definition, EventRow, RunRow, Store

NEXT_RUN_PATH = "/~next"
"""The path from which the id of the next run of a chain derives, so that there is only one."""


@dataclass(frozen=True, slots=True)
class ExecutorServices:
    """What the engine provides to the executors of its runs."""

    store: Store
    clock: Clock
    committer: GroupCommitter
    budgets: SessionBudgets
    queues: SessionQueues
    folder_users: FolderUsers
    requests_around: Callable[[str], Iterable[QueueRequest]]
    """Returns the queues that a run and those around it are in until they end."""
    children: ChildRunOperations
    get_facts: Callable[[], RunFacts]
    home: RuntimeHome
    has_asked_person: Callable[[str], bool]
    """Whether a run, or one that it called, has asked a person."""
    is_shutting_down: Callable[[], bool]
    count_active_runs: Callable[[], int]
    """Returns the number of runs of the session in memory; 0 if a single run has no commit of its own."""
    replace_leaf: Callable[[NodeCall], NodeCall] | None
    """Returns the call to execute instead of that of a leaf: a fake of a test, or one on another machine."""
    host: EngineHost
    make_run_row: Callable[[WorkflowRun, WorkflowState, float | None, RunStarted, float, str], RunRow]
    """Builds the stored row: from the state, wake time and start of a run, after an event at a time, and from
    its summary."""
    publish: Callable[[WorkflowRun, list[EventRow], str | None], None]
    """Publishes the committed events of a run, which may have a parent."""
    on_idle: Callable[[RunExecutor], None]
    on_released: Callable[[RunExecutor], None]
    begin_next_run: Callable[[RunExecutor, ContinuedAsNew], WorkflowRun]
    """Queues the start of the next run of a chain; it is written with the end of the run."""
    start_next_run: Callable[[WorkflowRun], None]
    """Executes the next run of a chain, whose start is on disk."""
    finish_stop: Callable[[RunExecutor, RunStopping], None]
    """Ends a run whose cleanup continues after a restart."""
    stop_run: Callable[[str, str, str | None], Awaitable[list[str]]]
    """Stops a run by its id, if it is open, for a reason and with an enclosing run."""


class RunExecutor:
    """The runtime of one body: from start until it ends, is held, or is evicted from memory.

    It composes the parts that do the work; each part knows only the other parts it is constructed with.
    An executor without a body applies commands to a run whose code must not, or cannot, run now.
    """

    main_task: asyncio.Task[None] | None = None
    _handlers: BodyHandlers | None = None
    _forced_stop = NO_STOP
    """Why the body is cancelled when the run fails, whatever the body does."""
    _next_run: WorkflowRun | None = None
    """The next run of the chain, if the body continues as new."""
    _side_effects: SideEffects | None = None
    _shared_workspace: dict[str, Any] | None = None
    """The workspace in which the next run of the chain works."""
    _undelivered_messages: frozenset[int] = frozenset()
    """The messages that settled waits of a body which continues as new before it gets them."""
    _cleanup_error: str | None = None
    """What the body raised while it was being stopped."""

    def __init__(
        self,
        services: ExecutorServices,
        run: WorkflowRun,
        start: RunStarted,
        stored: StoredJournal | None = None,
        *,
        has_body: bool = True,
    ) -> None:
        self._services, self.run, self.state, self.start = services, run, run.run_state, start
        self.has_body = has_body
        index = stored.index if stored is not None else EMPTY_JOURNAL
        events = stored.events if stored is not None else []
        self.state.recorded_status = None
        if stored is not None:
            self.state.limits, self.state.children, self.state.tags = index.limits, {}, dict(index.tags)
        self._is_stop_in_journal = index.stopping is not None
        """Whether the body was cancelled before a restart, and cleans up."""
        self._loop = asyncio.get_running_loop()
        # The parts call it back, and do not keep it alive: strong references in both directions would leave
        # every finished run to the garbage collector, which then costs a fifth of the time of short runs.
        owner: RunExecutor = proxy(self)
        # The body and its tasks share one copied context, so TASK_OWNER marks exactly the tasks of this
        # body and never leaks into the task that called start().
        self._body_context = contextvars.copy_context()
        is_replayed = has_body and len(events) > 1
        replay = Replay(events[1:], index.optional_until, start.origin_ids) if is_replayed else None
        self.dispatcher = ResultDispatcher(
            run.run_id,
            replay if replay and not replay.is_finished else None,
            owner,
        )
        if is_replayed:
            self.dispatcher.outcomes_per_turn = services.host.outcomes_per_turn
        self.journal = RunJournal(
            run.run_id,
            index if stored is not None else None,
            events,
            services.store,
            services.committer,
            owner,
            services.clock.time,
        )
        timers = RunTimers(services.clock)
        self._wall_clock = WallClock(run, index.clock.seconds, owner, services.clock)
        self.barrier = ExecutionBarrier(
            self.state, self.journal, self.dispatcher, timers, services.is_shutting_down
        )
        self.budget = RunBudget(
            run.run_id,
            self.state,
            start,
            index,
            self.journal,
            services.budgets,
            services.children.usage_of_stopped_runs,
        )
        self._history = RecordedHistory(
            index,
            self.state,
            self.journal,
            self.dispatcher,
            self.barrier,
            self.budget,
            owner,
            services.has_asked_person,
        )
        running_leaves: dict[str, LeafRuntime] = {}
        self.journal.summary.running_leaves = running_leaves
        self.open_waits = OpenWaits(
            run,
            self.journal,
            self.dispatcher,
            self.barrier,
            self._history,
            timers,
            self._wall_clock,
            running_leaves,
            services.get_facts,
        )
        self._initial_index, self._timers = index, timers
        if stored is not None:
            # They depend on what the journal has now, and its index grows while the run continues.
            _ = self.side_effects, self.queues
        is_forked = start.forked_from is not None
        inherited = InheritedThreads(services.store, start, events) if is_forked else None
        self.call_runner = CallRunner(
            self.state,
            start.overrides or {},
            self.journal,
            self.dispatcher,
            self.barrier,
            self._history,
            self.open_waits,
            self.budget,
            timers,
            AgentThreads(inherited) if inherited is not None else AgentThreads(),
            running_leaves,
            services.home,
            services.count_active_runs,
            services.replace_leaf,
            services.folder_users,
            owner,
        )
        self.call = self.call_runner.call

    @property
    def side_effects(self) -> SideEffects:
        """What the body does besides calls and waits; few runs do any of it."""
        if self._side_effects is None:
            self._side_effects = SideEffects(
                self.start,
                self._initial_index,
                self.state,
                self.journal,
                self.dispatcher,
                self.barrier,
                self._history,
                proxy(self),
                self._services.clock,
            )
        return self._side_effects

    @cached_property
    def child_runner(self) -> ChildRunner:
        """Runs child runs; few runs have any."""
        return ChildRunner(
            self.run,
            self.start,
            self.journal,
            self.dispatcher,
            self.barrier,
            self._history,
            self.budget,
            self._timers,
            self._wall_clock,
            self._services.children,
            proxy(self),
        )

    @cached_property
    def queues(self) -> RunQueues:
        """Waits for slots of queues; few runs need any."""
        services, run_id = self._services, self.run.run_id
        return RunQueues(
            self.run,
            self._initial_index,
            self.journal,
            self.dispatcher,
            self.barrier,
            self.open_waits,
            self._timers,
            services.queues,
            lambda: services.requests_around(run_id),
        )

    @cached_property
    def cancellation(self) -> BodyCancellation:
        """Cancels the body; few runs need it."""
        return BodyCancellation(self.state, self.journal, self.dispatcher, self.barrier, self.side_effects)

    @property
    def has_optional_history(self) -> bool:
        """Whether child runs may exist that the code no longer requests."""
        return self._history.has_optional_records

    @property
    def is_at_rest(self) -> bool:
        """Whether the run continues only after a timer, an answer or a command; its body is idle."""
        return self.dispatcher.replay is None and not self.call_runner.is_executing

    # -- the runtime that the body sees --------------------------------------------------------------

    def wait(self, wait: Wait) -> Awaitable[Any]:
        return self.open_waits.wait(wait)

    def interrupted_step(self, path: str) -> str | None:
        return self.child_runner.interrupted_steps.find_within(path)

    def begin_cleanup(self) -> None:
        self.cancellation.begin_cleanup()

    def end_cleanup(self) -> bool:
        return self.cancellation.end_cleanup()

    def emit(self, path: str, type: str, data: dict[str, Any]) -> None:
        self.side_effects.emit(path, type, data)

    def now(self, path: str) -> datetime:
        return self.side_effects.now(path)

    def random(self, path: str) -> float:
        return self.side_effects.random(path)

    def new_id(self, path: str) -> str:
        return self.side_effects.new_id(path)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        self.side_effects.set_tags(tags)

    def is_patched(self, name: str) -> bool:
        return self.side_effects.is_patched(name)

    def check_may_continue(self) -> None:
        # A task of the body has the dispatcher as its owner, and the code of a step has none.
        if TASK_OWNER.get() is not self.dispatcher:
            raise RuntimeError("ctx.continue_as_new was called in a step. Call it in the workflow function.")
        if IN_CLEANUP.get() or self.barrier.is_unwinding:
            raise RuntimeError(
                "ctx.continue_as_new was called in a cleanup, but the run ends after it. Call it elsewhere."
            )
        if asyncio.current_task() is not self.main_task:
            raise RuntimeError(
                "ctx.continue_as_new was called in a task or a handler. Call it in the workflow function."
            )

    def reply_to_update(self, reply: UpdateReply) -> None:
        completed = UpdateCompleted(
            reply.name, reply.message, reply.result, reply.error, error_type=reply.error_type
        )
        self.side_effects.complete_update(completed)

    # -- the life of the body ------------------------------------------------------------------

    def start_body(self) -> None:
        """Run the body from its start in a task of its own."""
        run, state = self.run, self.state
        state.set_running()
        if self._is_stop_in_journal:
            state.status = WorkflowState.STOPPING
        workflow = run.workflow
        session = workflow.session
        execution = ExecutionContext(
            session,
            state.input,
            workflow_id=workflow.name,
            run_id=run.run_id,
            params=state.params,
            _runtime=self,
        )
        if self.start.workspace is not None:
            execution = enter_shared_workspace(execution, self.start.workspace, self._artifacts_folder())
        state.handlers = self._handlers = BodyHandlers(execution, proxy(self))
        context = WorkflowContext(session, state.input, state.params, {}, run, execution)
        self._body_context.run(TASK_OWNER.set, self.dispatcher)
        if IN_CLEANUP.get():
            # A run that is started in the cleanup of another one does not clean up itself.
            self._body_context.run(IN_CLEANUP.set, False)
        self.main_task = self._body_context.run(
            self._loop.create_task, self._run_body(context), context=self._body_context
        )
        self._wall_clock.update()

    def _artifacts_folder(self) -> str:
        """Return the folder with the artifacts of the run, relative to the project."""
        folder, session = self.run.workflow.artifacts, self.run.workflow.session
        if folder is None or session is None:
            return f".nerve/artifacts/{self.run.run_id}"
        return os.path.join(os.path.relpath(folder, session.project), self.run.run_id)

    def use_definition(self, definition: Definition) -> None:
        """Continue the run with a definition; record it, if it is another than before."""
        if definition.hash != self.start.definition:
            self.start = replace(self.start, definition=definition.hash)
            self.journal.append(RunChanged(definition.hash), "")
            self.journal.attach_definition(definition)

    async def _run_body(self, context: WorkflowContext) -> None:
        barrier = self.barrier
        try:
            if self.start.queue is not None:
                await self.queues.enter_run(QueueRequest.from_data(self.start.queue))
            is_placed = self.start.place is not None
            value = await (self._run_in_place(context) if is_placed else self.run.workflow.run_body(context))
            text = encode_json(value)
            if barrier.forced_error is not None:
                raise barrier.forced_error
        except (Suspended, asyncio.CancelledError) as error:
            # A cancellation by the engine (stop, suspend) is not an outcome: the command that cancels writes
            # the event. Only a CancelledError that the code itself raised is a failure.
            if barrier.forced_error is not None:
                await self._end_with_failure(barrier.forced_error)
            elif isinstance(error, asyncio.CancelledError) and not barrier.is_shutting_down():
                await self._end_with_failure(RuntimeError("The workflow function raised CancelledError"))
        except KeyboardInterrupt:
            raise
        except ContinuedAsNew as continuation:
            if barrier.forced_error is not None:
                await self._end_with_failure(barrier.forced_error)
            else:
                self._shared_workspace = share_workspace(context.execution)
                await self._continue_as_new(continuation)
        except Rejected as error:
            rejected = RunCancelled(self.run.run_id, error.reason, error_type=REJECTED_ERROR_TYPE)
            await self._end_run(rejected, WorkflowState.CANCELLED, error=error)
        except InvalidRecord as error:
            self.hold(RunOnHold("mismatch", f"{error}. {MISMATCH_HINT}", error.path))
        except BaseException as error:
            if barrier.is_unwinding:
                self._cleanup_error = f"{type(error).__name__}: {error_text(error)}"
            if isinstance(error, GeneratorExit) and asyncio.current_task(self._loop) is not self.main_task:
                raise  # the garbage collector closes a body that the engine dropped: not an outcome
            await self._end_with_failure(barrier.forced_error or error)
        else:
            completed = RunCompleted(self.run.run_id, text, self._elapsed_seconds())
            # The caller gets the value as a later reader of the journal would, so results do not change
            # after a restart.
            result = value if is_scalar_json(value) else decode_json(text)
            await self._end_run(completed, WorkflowState.COMPLETED, result=result)

    async def _end_with_failure(self, error: BaseException) -> None:
        name = getattr(error, "error_type", "") or type(error).__name__
        # Of a failed compensation, its `error` is only what had failed before.
        own_error = None if isinstance(error, CompensationFailed) else getattr(error, "error", None)
        error_message = truncate_error_text(own_error or error_text(error))
        trace = FailureTrace.of(error)
        failed = RunFailed(self.run.run_id, error_message, name, self._elapsed_seconds(), *trace)
        await self._end_run(failed, WorkflowState.FAILED, error=error)

    async def _continue_as_new(self, continuation: ContinuedAsNew) -> None:
        # A pause applies to the chain: the next run does not start before a resume.
        await self.barrier.wait_until_resumed()
        # Now: the tasks that wait for them are cancelled when the run ends.
        outcomes = self.dispatcher.undelivered_outcomes
        self._undelivered_messages = frozenset(
            each.message for each in outcomes if isinstance(each, MessageReceived)
        )
        next_id = child_id(self.run.run_id, NEXT_RUN_PATH)
        end = RunCompleted(self.run.run_id, "null", self._elapsed_seconds(), extra={"continued_as": next_id})
        await self._end_run(end, WorkflowState.COMPLETED, continuation=continuation)

    async def _run_in_place(self, context: WorkflowContext) -> Any:
        """Run the body, in a worktree of the run if its start says so and it has no workspace of its own."""
        workflow = self.run.workflow
        if self.start.place != FRESH_PLACE or workflow.has_workspace:
            return await workflow.run_body(context)
        return await run_in_worktree(context.execution, lambda: workflow.run_body(context))

    def next_start(self, continuation: ContinuedAsNew) -> RunStarted:
        """Return the start of the next run of the chain."""
        index, used = self.journal.index, self.budget.usage.to_dict()
        next_id = child_id(self.run.run_id, NEXT_RUN_PATH)
        usage: dict[str, Any] = dict(used)
        if used:
            from nerve.journal.run_view import read_view  # few chains have used anything

            # The models are in the events of the run, and those of the runs before it in its start.
            view = read_view(self.run.run_id, self.run.workflow_id, self.journal.read_rows())
            usage |= {"models": models} if (models := sum_run_usage([view]).get("models")) else {}
        return make_next_start(
            replace(self.start, run_id=self.run.run_id),
            next_id,
            continuation.input,
            continuation.params,
            usage,
            definition=self.start.definition,
            seed=self._services.host.make_seed(next_id),
            limits=self.state.limits.to_dict(),
            raised=index.step_limits or None,
            tags=index.tags or None,
            workspace=self._shared_workspace,
        )

    @property
    def unread_messages(self) -> list[Message]:
        """The messages that the body has not received, in the order in which they were sent."""
        return self.journal.index.mailbox.find_unread(self._undelivered_messages)

    @cached_property
    def previous_mailbox(self) -> Mailbox:
        """The messages of the previous run of the chain, whose keys are still known."""
        previous = self.start.previous_run
        rows = self._services.store.events(previous) if previous is not None else []
        return JournalIndex(rows).mailbox

    def _elapsed_seconds(self) -> float:
        started = self.state.start_time
        return 0.0 if started is None else round(self._services.clock.time() - started, 3)

    async def _end_run(
        self,
        end: RunEnd,
        status: WorkflowState,
        result: Any = None,
        error: BaseException | None = None,
        continuation: ContinuedAsNew | None = None,
    ) -> None:
        """Write how the run ended, unless the body ended before it requested everything in the journal."""
        if self.barrier.is_inactive:
            return
        if self.barrier.is_stopping:
            self.cancellation.cancel_tasks_left_behind(self.main_task)
            return
        if (obstacle := self._history.find_unrequested_record()) is not None:
            self._history.hold_for_mismatch(
                obstacle, f"the code now {'raises ' + describe_error(error) if error else 'ends'}"
            )
            return
        # A body that ends during replay has not gone live; a step in doubt is decided before the run ends.
        if self.dispatcher.replay is not None and not self.prepare_to_go_live():
            return
        # Detach before the awaits below: while children stop, no task of the body may start new work or be
        # recorded as abandoned.
        self.detach()
        reason = "its parent has ended"
        try:
            for child in list(self.state.children.values()):
                await child.stop(reason)
            # Code that changed may no longer know children that earlier code started, so the store is asked
            # for them.
            if self.has_optional_history:
                await self._services.children.stop_open_children(self.run.run_id, reason)
            if len(self.dispatcher.tasks) > 1:
                await self.cancel_tasks(except_task=self.main_task)
                await self._stop_started_children(reason, None)
        except NerveError as unwritten:
            self.on_write_failed(unwritten)
            return
        # Children end first, their usage is recorded next, and the final event is written last: after it
        # nothing may follow in the journal, and a crash before it leaves the run open to be finished again.
        self._flush_deferred()
        self.budget.record_stopped_children()
        if await self._write_end(end, status, continuation) is not None:
            return
        self.state.exception = error
        self.state.set_outcome(*((result,) if error is None else outcome_of_run(end)))
        self._finish(status)

    async def stop(self, reason: str, top: str | None, about: Mapping[str, Any] = NO_CALLER) -> list[str]:
        """Stop the children, then the body, and end the run; return the paths that were running.

        `top` is the enclosing run that is being stopped, if any, and `about` says who stops it.
        """
        run_id, state = self.run.run_id, self.state
        # Set before the first await, so that nothing the body does from here on is recorded as its outcome.
        self.barrier.is_stopping = True
        is_cleaning_up = self.barrier.is_stop_recorded
        if not is_cleaning_up:
            state.recorded_status, state.status = state.status, WorkflowState.STOPPING
        killed, top_of_children = list(self.call_runner.running_leaves), top or run_id
        try:
            # Children stop before their parent: after a crash in between, recovery finds the parent open
            # and finishes the stop. The other way around, the children would be orphans.
            if not is_cleaning_up:
                self.barrier.stop_new_work()
                for path, child in list(state.children.items()):
                    inner_paths = await self._services.stop_run(child.run_id, reason, top_of_children)
                    killed += [path + inner for inner in inner_paths]
            if self.has_body:
                await self.cancellation.unwind(RunStopping(run_id, reason, top, extra=dict(about)))
            else:
                await self._services.children.stop_open_children(run_id, reason, top=top_of_children)
            await self.cancel_tasks()
            # A task may have started a child between the loop above and its own cancellation.
            killed += await self._stop_started_children(reason, top_of_children)
        except NerveError as unwritten:
            self.on_write_failed(unwritten)
            raise
        if self.barrier.is_detached:
            # Held, or the session was closed, during the cleanup; a later executor continues it.
            return killed
        self.budget.record_stopped_children()
        # Buffered with the final event and committed in the same batch, or not at all.
        for path, abandoned in self.journal.index.stop_events():
            self.journal.append(abandoned, path)
        self._flush_deferred()
        cancelled = RunCancelled(run_id, reason, killed, top, error=self._cleanup_error, extra=dict(about))
        if (error := await self._write_end(cancelled, WorkflowState.CANCELLED)) is not None:
            raise error
        state.error = reason or None
        self._finish(WorkflowState.CANCELLED)
        return killed

    def on_recorded_stop(self, event: Event) -> None:
        """Cancel the body where it was cancelled before the restart, and end the run after its cleanup."""
        assert isinstance(event, RunStopping)
        if event.error_type is not None:
            self.barrier.forced_error = RecordedFailure(event.error or "", event.error_type)
        else:
            self.barrier.is_stopping = True
        self.cancellation.repeat(event)
        if self.barrier.is_stopping:
            self._services.finish_stop(self, event)

    @property
    def is_cleaning_up(self) -> bool:
        """Whether the run is being stopped, and its journal says so: a crash loses nothing of its cleanup."""
        return self.barrier.is_stop_recorded

    async def _stop_started_children(self, reason: str, top: str | None) -> list[str]:
        """Stop the children that the run had just started when it ended."""
        killed: list[str] = []
        for path, run_id in self.budget.open_children:
            killed += [path + inner for inner in await self._services.stop_run(run_id, reason, top)]
        return killed

    async def _write_end(
        self, end: RunEnd, status: WorkflowState, continuation: ContinuedAsNew | None = None
    ) -> NerveError | None:
        """Write the last event of the run, and the start of the next one of its chain; return the error.

        If the write fails, the run is held.
        """
        self.detach()
        self.state.gates.clear()
        self.state.recorded_status = status
        self.journal.mark_row_dirty()
        try:
            # The settle key of the root is unique in the store, so two processes cannot both end the run.
            seq = self.journal.append(end, "", ROOT_PATH, urgent=True)
            # Queued without an await in between, so that one commit has both: a message that comes later
            # finds the next run.
            if continuation is not None:
                self._next_run = self._services.begin_next_run(self, continuation)
            await self.journal.wait_durable(seq)
        except NerveError as error:
            self.state.recorded_status = None
            return error
        return None

    def _finish(self, status: WorkflowState) -> None:
        """Mark the run as ended; its final event is on disk."""
        # The state is final before watchers hear of it, and the executor is gone from the engine: a
        # callback that looks the run up must not find it active.
        self.state.mark_ended(status)
        self.release()
        if self._next_run is not None:
            self.state.continued_as = self._next_run.run_id
            self._services.start_next_run(self._next_run)
        self.state.notify_watchers()

    def detach(self) -> None:
        """Let go of the body: nothing it does from here on affects the run."""
        if self.barrier.is_detached:
            return
        self.barrier.is_detached = self.dispatcher.is_cancelled = True
        self._wall_clock.close()
        self.open_waits.cancel_timers()

    def release(self) -> None:
        """Stop executing the run; pending writes still complete."""
        self.detach()
        self.dispatcher.stop()
        # They lead to the body and this executor, and the handle of a run outlives both: a program may keep
        # the handles of thousands of parked runs.
        if self.state.handlers is self._handlers:
            self.state.handlers = None
        self._handlers = None
        self.journal.close()
        self.budget.close()
        self._services.on_released(self)

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

    def cancel_other_tasks(self) -> None:
        current_task = asyncio.current_task()
        for task in [each for each in self.dispatcher.tasks if each is not current_task]:
            task.cancel()

    # -- limits --------------------------------------------------------------------------------

    def fail_run(self, error: Exception) -> None:
        """Fail the run with an error, even if the body catches it."""
        barrier = self.barrier
        if barrier.is_inactive or barrier.is_stopping or barrier.forced_error is not None:
            return
        barrier.forced_error = error
        barrier.stop_new_work()
        error_type = getattr(error, "error_type", "") or type(error).__name__
        self._forced_stop = RunStopping(self.run.run_id, error=error_text(error), error_type=error_type)
        self.cancellation.cancel_when_idle(self._forced_stop)

    def check_limits(self, path: str) -> bool:
        """Return whether the run may continue; fail it if it has reached a limit on its work."""
        limits = self.state.limits
        name = self.budget.usage.exceeded_limit(limits)
        if name:
            self.fail_run(LimitReached(name, limit_message(name, limits, path, kind=self.run.workflow.kind)))
        return not name

    def count_iteration(self, path: str) -> None:
        self.budget.usage.iterations += 1
        if not self.barrier.is_cleaning_up and not self.check_limits(path):
            self.cancellation.cancel(self._forced_stop, except_task=asyncio.current_task())
            raise Suspended

    def copy_facts(self, request: ReplayEntry, changes: FactChanges) -> None:
        """Change facts as a step did that a fork has copied, but once: the facts of the source name its id.

        Not awaited, since a body that waits for the disk during replay would seem to request nothing more.
        The facts are in the same commit as the event.
        """
        path = request.row.path
        if request.seq > self.start.copied_events or path in self.journal.index.copied_facts:
            return
        self.journal.append(FactsCopied(), path, urgent=True)
        durable = self._services.get_facts().change_now(*changes, by=self.run.run_id)
        if durable is not None:
            durable.add_done_callback(self._on_facts_written)

    def _on_facts_written(self, durable: asyncio.Future[None]) -> None:
        error = None if durable.cancelled() else durable.exception()
        if isinstance(error, NerveError) and not self.barrier.is_inactive:
            self.on_write_failed(error)

    # -- holds ---------------------------------------------------------------------------------

    def hold(self, hold: RunOnHold) -> None:
        """Suspend the body and hold the run until the user decides."""
        # A stop cancels the tasks of the body, which then does not request what the journal has next.
        if self.barrier.is_inactive or (self.barrier.is_stopping and not self.barrier.is_stop_recorded):
            return
        # The event goes to the journal before suspend() closes it.
        self.barrier.record_hold(hold)
        self.suspend()
        self.cancel_other_tasks()

    def on_write_failed(self, error: NerveError) -> None:
        """Suspend the body because an event of the run, or of a child run, cannot be written."""
        # No event is appended: the journal cannot be written. The hold exists in memory only, and recovery
        # resumes from the last committed event.
        self.state.set_held(hold_for_write_failure(error).to_data())
        self.suspend()
        self.state.forget_gates()
        self.cancel_other_tasks()
        self.state.notify_watchers()

    # -- what the dispatcher and the journal report ---------------------------------------------

    def on_mismatch(self, obstacle: ReplayEntry) -> None:
        self._history.hold_for_mismatch(obstacle)

    def prepare_to_go_live(self) -> bool:
        if self._history.hold_for_first_doubt():
            return False
        self._flush_deferred()
        self._history.invalidate_unrequested_gates()
        return True

    def _flush_deferred(self) -> None:
        """Write the events of the body that were deferred, if it has emitted any."""
        if self._side_effects is not None:
            self._side_effects.flush_deferred()

    def record_before_end(self) -> None:
        """Write what the body did, and that it is being stopped, before the end of a call."""
        self.cancellation.record_stop()
        self._flush_deferred()

    def on_rows_written(self, rows: list[EventRow]) -> None:
        if self.dispatcher.leaf_queue:
            self.dispatcher.deliver_to_leaves(self.journal.committed_seq)
        waits = self.open_waits
        if waits.unshown_gates:
            waits.show_recorded_gates()
        self._services.publish(self.run, rows, self.start.parent)
        if waits.by_path:
            self.allow_eviction()

    def allow_eviction(self) -> None:
        """Let the engine evict the run from memory, if it only waits."""
        if self.open_waits.is_single_wait:
            self._services.on_idle(self)

    def make_run_row(self, at: float, summary: str) -> RunRow:
        status = self.state.recorded_status or self.state.status
        # The row is written with the event of a gate, before the gate is shown.
        if status in (WorkflowState.RUNNING, WorkflowState.WAITING):
            status = self.open_waits.status
        wake = self.open_waits.wake_time
        row = self._services.make_run_row(self.run, status, wake, self.start, at, summary)
        self.state.recorded_end = row.ended
        return row

    # -- pause and resume ----------------------------------------------------------------------

    def pause(self, about: Mapping[str, Any] = NO_CALLER) -> int:
        """Start no new work; return the sequence number of the event."""
        self.barrier.pause()
        self.state.status = WorkflowState.PAUSING if self.call_runner.running_leaves else WorkflowState.PAUSED
        self._wall_clock.update()
        self.journal.mark_row_dirty()
        resting = sorted(self.call_runner.in_backoff) or None
        paused = RunPaused(self.run.run_id, resting, extra=dict(about))
        return self.journal.append(paused, "", urgent=True)

    def raise_limits(self, limits: Mapping[str, Any], about: Mapping[str, Any]) -> int:
        """Raise budgets of a running run, one of whose children is held for them."""
        self.budget.raise_limits(limits)
        raised = RunResumed(self.run.run_id, dict(limits) or None, extra=dict(about))
        return self.journal.append(raised, "", urgent=True)

    def resume(
        self, limits: Mapping[str, Any], with_changes: bool = False, about: Mapping[str, Any] = NO_CALLER
    ) -> int:
        """Let new work start again; return the sequence number of the event."""
        self.budget.raise_limits(limits)
        self.state.set_running()
        self.open_waits.update_run_state()
        self.journal.mark_row_dirty()
        # Waiting tasks wake in a later turn of the loop, so the event below precedes everything they record.
        self.barrier.resume()
        resumed = RunResumed(self.run.run_id, dict(limits) or None, with_changes, extra=dict(about))
        seq = self.journal.append(resumed, "", urgent=True)
        self.dispatcher.dispatch()
        return seq


class RecordedFailure(NerveError):
    """The failure of a run whose cleanup continues after a restart."""

    def __init__(self, error: str, error_type: str) -> None:
        super().__init__(error)
        self.error, self.error_type = error, error_type


RESUME_HINT = "Resume the run to continue from its journal."


class StoredOutcome(NamedTuple):
    """The outcome of a run that has ended."""

    result: Any = None
    error: str | None = None
    error_type: str = ""
    trace: FailureTrace = NO_TRACE


def outcome_of_run(end: Event | None) -> StoredOutcome:
    """Return the outcome of a run from its last event; without values if the run has not ended."""
    match end:
        case RunCompleted():
            return StoredOutcome(end.result)
        case RunFailed():
            return StoredOutcome(None, end.error, end.error_type, FailureTrace(end.location, end.traceback))
        case RunCancelled():
            return StoredOutcome(None, end.reason or None, end.error_type or "")
    return StoredOutcome()


def hold_for_write_failure(error: NerveError) -> RunOnHold:
    """Return the hold of a run after a failed write."""
    description = str(error) if str(error).endswith(".") else f"{error}."
    if isinstance(error, Conflict):
        return RunOnHold("conflict", f"{description} Later events of the run are not written. {RESUME_HINT}")
    if isinstance(error, OwnershipLost):
        return RunOnHold("storage", description)
    reason = "storage_full" if isinstance(error, StoreFull) else "storage"
    return RunOnHold(reason, f"{description} Resume the run when the store is writable again.")


def describe_error(error: BaseException) -> str:
    """Return the type and text of an error, and the line of the user's code that raised it."""
    location = FailureTrace.of(error).location
    return f"{type(error).__name__}: {error}" + (f" ({location})" if location else "")
