"""The local engine: executes runs in this process and keeps their journals in a store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from nerve.core.clock import SYSTEM_CLOCK, Clock
from nerve.core.events import GATE_EVENTS, JournalRow, Sink
from nerve.core.json_codec import is_scalar_json
from nerve.core.limits import RunUsage
from nerve.core.nodes.base import NodeRegistry
from nerve.core.nodes.folder_users import FolderUsers
from nerve.core.nodes.in_memory_runtime import current_home
from nerve.core.queues import QueueRequest
from nerve.core.runtime import NodeCall
from nerve.core.workflow.run import RunOperations, WorkflowRun
from nerve.core.workflow.special_workflows import MissingWorkflow
from nerve.core.workflow.state import (
    EXECUTED_STATE_VALUES,
    EXECUTED_STATES,
    FINAL_STATE_VALUES,
    FINAL_STATES,
    OPEN_STATE_VALUES,
    WorkflowState,
)
from nerve.core.workflow.workflow import Workflow
from nerve.engine import child_runs, run_logs
from nerve.engine.budget import day_bounds
from nerve.engine.child_runner import ChildRunOperations, sum_run_usage
from nerve.engine.definitions import DefinitionCache
from nerve.engine.engine_host import PROCESS_HOST, EngineHost
from nerve.engine.group_commit import GroupCommitter
from nerve.engine.idle_runs import IdleRuns
from nerve.engine.journal_writer import JournalCallbacks
from nerve.engine.recovery import RecoveredRuns, RecoveryOperations, RunRecovery, SkippedRun
from nerve.engine.run_budget import SessionBudgets
from nerve.engine.run_chain import (
    NextRunJournal,
    carry_messages,
    find_current_row,
    find_run_of_chain,
    ignore_write_error,
)
from nerve.engine.run_commands import RunAccess, RunCommands
from nerve.engine.run_executor import ExecutorServices, RunExecutor, outcome_of_run
from nerve.engine.run_reader import RunReader
from nerve.engine.run_summary import (
    PROVIDER_LIMIT_KIND,
    SIGNAL_KIND,
    StoredSummary,
    event_of_wait,
    local_day,
    summarize_journal,
    tags_of_row,
    usage_by_model,
    usage_of_day,
)
from nerve.engine.sink_dispatcher import SinkDispatcher
from nerve.engine.task_tracking import (
    detached_context,
    install_task_factory,
    shutdown_sentinel,
    spawn_detached,
)
from nerve.errors import ContinuedAsNew, JournalBroken, NerveError, OwnershipLost, WorkflowAbsent
from nerve.journal.events import (
    ProviderLimited,
    RunCompleted,
    RunOnHold,
    RunStarted,
    SignalWaiting,
    decode_event,
    make_event,
)
from nerve.journal.index import JournalIndex, StoredJournal, read_limits, read_start
from nerve.store.port import EventRow, ReplyRow, RunRow, Store

if TYPE_CHECKING:
    from nerve.core.run_view import RunView
    from nerve.dataspace import Change
    from nerve.engine.durable_dataspace import ChangeReplyFactory, DurableDataspace
    from nerve.engine.fork import ForkPlan, ForkServices
    from nerve.engine.fork_preview import ForkPreview
    from nerve.engine.open_waits import RunFacts
    from nerve.engine.reused_answers import ReusedAnswer

log = logging.getLogger("nerve")

CHILDLESS_STATES = frozenset({WorkflowState.PENDING, WorkflowState.WAITING})
"""States in which an inactive run does not wait for a child run."""

UNREADABLE_REASON = "unreadable"
"""The reason why a run with a damaged journal is held."""


class LocalEngine:
    """The engine of one session. Everything that happens to a run happens here, on one event loop."""

    def __init__(
        self,
        store: Store,
        session: NodeRegistry,
        session_name: str,
        clock: Clock = SYSTEM_CLOCK,
        host: EngineHost = PROCESS_HOST,
    ) -> None:
        self.store, self._session, self._session_name, self.clock = store, session, session_name, clock
        self._host = host
        self.executors: dict[str, RunExecutor] = {}
        self.run_handles: WeakValueDictionary[str, WorkflowRun] = WeakValueDictionary()
        definitions = DefinitionCache(store, session)
        self.workflow_of, self.has_workflow = definitions.workflow_of, definitions.has_workflow
        self.definition_of, self._workflow_or_placeholder = (
            definitions.definition_of,
            definitions.workflow_or_placeholder,
        )
        self._definitions = definitions
        self.modules_of = definitions.modules_of
        self.draining_tasks: dict[str, asyncio.Future[None]] = {}
        """Inactive runs whose last tasks and writes are still in progress."""
        self.unreadable_runs: dict[str, str] = {}
        """The runs whose journals were found damaged, with the problem."""
        self.reader = RunReader(store, self.executors, self.run_handles, self.mark_unreadable)
        self.commands = RunCommands(self._run_access())
        self.budgets = SessionBudgets(
            store,
            session_name,
            getattr(session, "budget", None) if host.counts_days else None,
            self.resume_runs_held_for_day,
            clock,
        )
        self.idle_runs = IdleRuns(store, clock, self.executors, self.is_shutting_down, self._resume_waiting)
        self.queues = host.queue_class(
            store,
            session_name,
            lambda: getattr(session, "queues", {}),
            lambda: self.committer,
            self.is_shutting_down,
            self.idle_runs.wake_for_slot,
            clock,
        )
        self._recovery = RunRecovery(
            RecoveryOperations(
                store=store,
                clock=clock,
                executors=self.executors,
                is_closed=lambda: self.closed,
                owns=self.owns,
                run_handle=self.run_handle,
                resume=self.resume_run,
                park=self.park,
                mark_unreadable=self.mark_unreadable,
                stop=self.commands.stop,
                hold=self.commands.hold,
                leave_queues=self.queues.leave_unclaimed,
            )
        )
        self._sink_dispatcher = SinkDispatcher()
        self.flush_sinks = self._sink_dispatcher.wait_flushed
        self._starts_by_key: dict[str, asyncio.Task[WorkflowRun]] = {}
        self._shutdown_sentinel: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._committer: GroupCommitter | None = None
        self.commit_time_watchers: list[Callable[[float], None]] = []
        """Called with the seconds of every commit, in the thread that commits."""
        self._services: ExecutorServices | None = None
        self.watchers: list[Callable[[WorkflowRun, list[EventRow]], None]] = []
        """Subscribers to the events of all runs."""
        self.ownership_watchers: list[Callable[[OwnershipLost], None]] = []
        """Called when another process has taken over the session."""
        self.sinks: list[Sink] = []
        """Sinks of every run that is started or resumed from now on."""
        self._dataspace: DurableDataspace | None = None
        self._folder_users = FolderUsers(self.outermost_run)
        self.replace_leaf: Callable[[NodeCall], NodeCall] | None = None
        """Returns the call to execute instead of that of a leaf; set before the first run."""
        self.shared_facts: RunFacts | None = None
        """The facts that runs wait for, if other processes change them too; set before the first run."""
        self.closed = False
        self.operations = RunOperations(
            start=self.start,
            stop=self.commands.stop,
            pause=self.commands.pause,
            resume=self.commands.resume,
            answer=self.commands.answer,
            signal=self.commands.signal,
            send=self.commands.send,
            query=self.commands.query,
            update=self.commands.update,
            steer=self.commands.steer,
            resolve_doubt=self.commands.resolve_doubt,
            bind_to_running_loop=self.bind_to_running_loop,
            is_closed=lambda: self.closed,
            rows=self.store.events,
            make_event=make_event,
            read_view=read_run_view,
            open_gates=self.reader.open_gates,
            children_of=self.children_of,
            describe_waiting=self.reader.describe_waiting,
            current_run=self.current_run,
            flush_sinks=self.flush_sinks,
        )

    def _run_access(self) -> RunAccess:
        return RunAccess(
            store=self.store,
            executors=self.executors,
            draining_tasks=self.draining_tasks,
            bind_to_running_loop=self.bind_to_running_loop,
            is_closed=lambda: self.closed,
            run_handle=self.run_handle,
            current_run=self.current_run,
            check_ready=self.check_ready,
            load_run=self.load_run,
            rebuild_run=self.rebuild_run,
            reload_definition=self.reload_definition,
            open_children=lambda run_id: [self.run_handle(row) for row in self.open_children(run_id)],
            enclosing_runs=self.enclosing_runs,
            watch_facts=self.watch_facts,
        )

    # -- the event loop ---------------------------------------------------------------------------

    @property
    def committer(self) -> GroupCommitter:
        self.bind_to_running_loop()
        assert self._committer is not None
        return self._committer

    def bind_to_running_loop(self) -> None:
        """Bind the engine to the running event loop, if nothing is left to do on another one."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        if self._loop is not None:
            self._unbind_from_loop(self._loop)
        install_task_factory(loop)
        self._loop, self._shutdown_sentinel = loop, shutdown_sentinel(loop)
        self._committer = self._host.open_committer(self.store, self.commit_time_watchers)
        self.store.watch_ownership(partial(self._report_ownership_lost, loop))
        self._services = self._executor_services(self._committer)
        self._summarize_older_runs()

    def _report_ownership_lost(self, loop: asyncio.AbstractEventLoop, error: OwnershipLost) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and its runs with it
            loop.call_soon_threadsafe(self._on_ownership_lost, error)

    def _on_ownership_lost(self, error: OwnershipLost) -> None:
        """Suspend all runs and end their processes: another process executes their steps now."""
        self.idle_runs.cancel_all_wakes()
        for executor in list(self.executors.values()):
            executor.on_write_failed(error)
        for watcher in self.ownership_watchers:
            watcher(error)

    def _summarize_older_runs(self) -> None:
        """Store the summaries of open runs that an earlier version wrote without them."""
        since = 0 if self.store.read_only else self.store.summarized_since
        if since == 0:
            return
        upgrade, begins = RunRow("", "", "", "", since), day_bounds(self.clock.time())[0]
        # Of runs that have ended, only what they used today is needed.
        states = None if since > begins else OPEN_STATE_VALUES
        for row in self.store.runs(session=self._session_name, states=states, before=upgrade):
            is_needed = row.summary is None and (row.ended is None or row.ended >= begins)
            if is_needed and row.run not in self.executors:
                try:
                    part = summarize_journal(row, self.store.events(row.run), begins)
                except JournalBroken as error:
                    self.mark_unreadable(error)
                else:
                    self.store.append([part])

    def _executor_services(self, committer: GroupCommitter) -> ExecutorServices:
        return ExecutorServices(
            store=self.store,
            clock=self.clock,
            committer=committer,
            budgets=self.budgets,
            queues=self.queues,
            folder_users=self._folder_users,
            requests_around=self.requests_around,
            children=ChildRunOperations(
                store=self.store,
                start=self.start,
                resume=self.resume_run,
                handle=self.run_handle,
                usage_of_stopped_runs=self.usage_of_stopped_runs,
                stop_open_children=self.stop_open_children,
                schedule_stop=self.commands.schedule_stop,
                is_queued=self.queues.is_waiting,
            ),
            get_facts=lambda: self._run_facts,
            home=current_home(),
            has_asked_person=partial(child_runs.has_asked_person, self.store),
            is_shutting_down=self.is_shutting_down,
            count_active_runs=self.executors.__len__ if self._host.commits_alone else lambda: 0,
            replace_leaf=self.replace_leaf,
            host=self._host,
            make_run_row=self.run_row,
            publish=self.publish,
            on_idle=self.idle_runs.add,
            on_released=self.on_released,
            begin_next_run=self._begin_next_run,
            start_next_run=self._start_next_run,
            finish_stop=self.commands.finish_stop,
            stop_run=self.commands.stop_run,
        )

    def _unbind_from_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop.is_running():
            raise RuntimeError(
                "The session is in use on another running event loop. Create a session for each loop."
            )
        for executor in [executor for executor in self.executors.values() if not executor.has_body]:
            executor.release()
        if self.executors:
            raise RuntimeError(
                f"The session has open runs on an event loop that has ended: {', '.join(self.executors)}."
                " Wait for them before their loop ends, or close the session: `async with Session(…)` in"
                " each asyncio.run."
            )
        assert self._committer is not None
        self._committer.close()
        # Futures of an ended loop never fire; the runs they belong to are rebuilt from the store.
        self.draining_tasks.clear()
        self._starts_by_key.clear()
        self.idle_runs.forget_loop()
        self.queues.forget()

    def usage_today(self) -> RunUsage:
        """Return what all runs have used since midnight, as far as it counts against budgets."""
        return usage_of_day(self.store, self._session_name, local_day(self.clock.time()))

    def models_used_today(self) -> dict[str, dict[str, float]]:
        """Return what agents have used since midnight, by model."""
        return usage_by_model(self.store, self._session_name, local_day(self.clock.time()))

    def provider_limits(self) -> dict[str, float]:
        """Return the providers at a rate limit, with the end of each limit, as far as runs have seen them."""
        waits = self.store.open_waits(self._session_name, PROVIDER_LIMIT_KIND)
        limits = [ProviderLimited.decode(wait.data or "{}") for wait in waits]
        return {
            limit.provider or "": limit.until or 0.0
            for limit in limits
            if (limit.until or 0) > self.clock.time()
        }

    @property
    def dataspace(self) -> DurableDataspace:
        """The dataspace of the session, loaded on first use."""
        if self._dataspace is None:
            # Imported here: it takes milliseconds, and few sessions use facts.
            from nerve.engine.durable_dataspace import DataspaceSources, DurableDataspace

            sources = DataspaceSources(
                store=self.store,
                get_committer=lambda: self.committer,
                workflows=self.workflows,
                recent_runs=self.recent_runs,
                owns=self.owns,
                summary_of_active=self._summary_of_active,
                on_fact=self.commands.on_fact,
            )
            self._dataspace = DurableDataspace(sources, self._session_name)
        return self._dataspace

    @property
    def _run_facts(self) -> RunFacts:
        return self.shared_facts or self.dataspace

    async def load_dataspace(self) -> None:
        """Load the facts as all processes see them; those of this engine are up to date."""

    async def change_facts(
        self,
        asserted: Sequence[Any] = (),
        retracted: Sequence[Any] = (),
        by: str = "",
        make_reply: ChangeReplyFactory | None = None,
    ) -> list[Change]:
        """Retract and assert facts as `DurableDataspace.change` does."""
        return await self.dataspace.change(asserted, retracted, by, make_reply)

    def forget_dataspace(self) -> None:
        """Load the dataspace again on its next use, because another process may have changed it."""
        dataspace, self._dataspace = self._dataspace, None
        if dataspace is not None:
            dataspace.space.close()

    def _summary_of_active(self, run_id: str) -> str | None:
        executor = self.executors.get(run_id)
        return None if executor is None else executor.journal.summary.encode()

    def is_shutting_down(self) -> bool:
        """Whether the loop is cancelling everything; nothing that bodies do then affects their runs."""
        return self.closed or (
            self._shutdown_sentinel is not None and self._shutdown_sentinel.cancelling() > 0
        )

    def is_at_rest(self) -> bool:
        """Whether runs continue only after a timer, an answer or a command, once the event loop is idle."""
        if self._committer is not None and self._committer.has_pending_writes:
            self._committer.flush_all_soon()  # not after the delay of writes that no task waits for
            return False
        is_opening = self.draining_tasks or self._starts_by_key or self.idle_runs.is_resuming
        return (
            not is_opening
            and not self._recovery.is_resuming
            and all(executor.is_at_rest for executor in self.executors.values())
        )

    async def close(self) -> None:
        """Park every run as it is and close the store; `recover()` resumes the runs from there."""
        # A stop that has begun completes: it has already ended children, and half of it would be left for
        # recovery.
        await self.commands.wait_for_stops()
        self.closed = True
        executors = list(self.executors.values())
        # All are detached before the first is cancelled, so a parent does not record as an outcome that its
        # child was cancelled by the shutdown.
        for executor in executors:
            executor.detach()
        # Tasks and writes of an ended loop cannot be awaited on this one.
        is_own_loop = self._loop is asyncio.get_running_loop()
        if is_own_loop:
            await asyncio.gather(*(executor.cancel_tasks() for executor in executors))
        for executor in executors:
            executor.release()
        await self._recovery.close()
        for run in list(self.run_handles.values()):
            run.run_state.notify_watchers()
        self.idle_runs.cancel_all_wakes()
        if is_own_loop:
            await self._sink_dispatcher.wait_all_flushed()
        self._sink_dispatcher.close()
        self.budgets.close()
        if self._dataspace is not None:
            self._dataspace.space.close()
        # The store closes last: the committer still writes the events that the steps above appended.
        if self._committer is not None:
            if is_own_loop:
                await self._committer.wait_drained()
            self._committer.close()
        self.store.close()

    # -- starting ------------------------------------------------------------------------------

    async def start(self, run: WorkflowRun, key: str | None = None, **lineage: Any) -> None:
        """Start a run and return when its start is on disk; no leaf of it runs before that."""
        if self.closed:
            raise RuntimeError("The session is closed")
        self.bind_to_running_loop()
        start = self.make_start(run, key, lineage)
        executor = self._create_executor(run, start)
        seq = executor.journal.append(start, "")
        # The body gets the input as the journal has it: changes by the caller, or tuples, would differ on
        # replay.
        if start.params or not is_scalar_json(start.input):
            start = executor.journal.index.start
        run.run_state.mark_started(start.input, start.params, self.clock.time())
        self.attach_sinks(run)
        executor.journal.mark_row_dirty()
        if (definition := self._definitions.find_unstored(run.workflow)) is not None:
            executor.journal.attach_definition(definition)
        # Tracked before the write: a command that comes while the start is being written finds the
        # executor.
        self._track(executor)
        # The body's task is scheduled before the commit, so what the body records first shares that commit.
        executor.start_body()
        await executor.journal.wait_durable(seq)
        if definition is not None:
            self._definitions.note_stored(definition)

    def make_start(self, run: WorkflowRun, key: str | None, lineage: dict[str, Any]) -> RunStarted:
        """Return the first event of a run."""
        workflow, state = run.workflow, run.run_state
        return RunStarted(
            run.run_id,
            workflow.name,
            workflow.steps,
            state.input,
            state.params,
            self._session_name,
            workflow.definition()[0],
            self._host.make_seed(run.run_id),
            state.limits.to_dict(),
            key=key,
            **run.about,
            **lineage,
        )

    async def next_change(self, run: WorkflowRun) -> WorkflowRun:
        """Wait for the next change of a run; return the current run of its chain."""
        await run.wait_for_change()
        return run.current

    def current_run(self, run: WorkflowRun) -> WorkflowRun:
        """Return the current run of the chain of a run; the run itself unless it continued as new."""
        if run.continued_as is None:
            return run
        row = self.store.run(run.run_id)
        # A deleted run has no links; its chain may continue all the same.
        current = (
            find_run_of_chain(self.store, self._session_name, run.run_id)
            if row is None
            else find_current_row(self.store, row)
        )
        return run if current is None else self.run_handle(current)

    def _begin_next_run(self, executor: RunExecutor, continuation: ContinuedAsNew) -> WorkflowRun:
        """Queue the start of the next run of a chain, with the unread messages; return its handle."""
        previous, start = executor.run, executor.next_start(continuation)
        run = WorkflowRun(
            previous.workflow,
            start.input,
            start.params,
            run_id=start.run_id,
            limits=executor.state.limits,
            about=start.metadata,
        )
        run.continued_from = previous.run_id
        run.sinks = run_logs.drop_logs(previous.sinks)
        journal = NextRunJournal(
            executor.journal,
            run.run_id,
            self.committer,
            JournalCallbacks(
                # Stored as running: if the process ends before it executes, recovery resumes it.
                lambda at, summary: self.run_row(run, WorkflowState.RUNNING, None, start, at, summary),
                lambda rows: self.publish(run, rows, start.parent),
                ignore_write_error,
            ),
            self.clock.time,
        )
        run.run_state.mark_started(start.input, start.params, self.clock.time())
        self.attach_sinks(run)
        # Before the write: watchers of the previous run look the next one up when they hear of it.
        self.run_handles[run.run_id] = run
        journal.mark_row_dirty()
        journal.append(start, "", urgent=True)
        for message in carry_messages(executor.unread_messages):
            journal.append(message, "")
        return run

    def _start_next_run(self, run: WorkflowRun) -> None:
        """Execute the next run of a chain; a closed session leaves that to recovery."""
        if not self.is_shutting_down():
            # The task of the previous body calls this, and the next body must not inherit its owner.
            detached_context().run(self.rebuild_run, run)

    async def start_detached(self, run: WorkflowRun, started_by: dict[str, str]) -> None:
        """Start a run that a step of another run starts, unless an earlier attempt did."""
        if self.store.run(run.run_id) is None and run.run_id not in self.executors:
            await self.start(run, started_by=started_by)

    def _create_executor(
        self,
        run: WorkflowRun,
        start: RunStarted,
        stored: StoredJournal | None = None,
        has_body: bool = True,
    ) -> RunExecutor:
        self.bind_to_running_loop()
        assert self._services is not None
        return RunExecutor(self._services, run, start, stored, has_body=has_body)

    def attach_sinks(self, run: WorkflowRun, rows: Iterable[EventRow] = ()) -> None:
        """Attach the sinks of all runs, and the log, to a run."""
        run.sinks += [sink for sink in self.sinks if sink not in run.sinks]
        if self._host.writes_logs:
            run_logs.attach_log(run, rows)

    async def start_once(self, run: WorkflowRun, key: str) -> WorkflowRun:
        """Start a run under an idempotency key, or return the run that already has the key."""

        async def begin() -> WorkflowRun:
            await self.start(run, key)
            return run

        return check_same_workflow(key, await self._start_with_key(key, begin), run)

    async def _start_with_key(
        self, key: str, start_run: Callable[[], Coroutine[Any, Any, WorkflowRun]]
    ) -> WorkflowRun:
        """Return the run of a key; start it unless it exists or is being started."""
        if key not in self._starts_by_key:
            if (row := self.store.run_by_key(self._session_name, key)) is not None:
                return self.resume_run(row)
            # The start is a task of its own: if the first caller is cancelled, the others still get their
            # run.
            start_task = self._starts_by_key[key] = spawn_detached(start_run())
            start_task.add_done_callback(lambda done: self._on_start_done(key, done))
        return await asyncio.shield(self._starts_by_key[key])

    def _on_start_done(self, key: str, start_task: asyncio.Task[WorkflowRun]) -> None:
        del self._starts_by_key[key]
        if not start_task.cancelled():
            start_task.exception()  # waiters get it from the shield; without one asyncio would log it

    def _track(self, executor: RunExecutor) -> None:
        run_id = executor.run.run_id
        self.executors[run_id] = executor
        self.run_handles[run_id] = executor.run
        # An executor without a body is gone after one command; the run still has to be woken.
        if executor.has_body:
            self.idle_runs.cancel_wake(run_id)

    def on_released(self, executor: RunExecutor) -> None:
        """Remove an executor that was released; its pending writes still complete."""
        run_id, journal = executor.run.run_id, executor.journal
        if self.executors.get(run_id) is executor:
            del self.executors[run_id]
            # Commands wait for draining: a new executor that read the journal before the last write would
            # reuse its sequence numbers.
            tasks = executor.dispatcher.tasks
            if journal.committed_seq < journal.seq or len(tasks) > (executor.main_task in tasks):
                drain_task = self.draining_tasks[run_id] = spawn_detached(drain_executor(executor))
                drain_task.add_done_callback(lambda _: self.draining_tasks.pop(run_id, None))
        self.idle_runs.remove(run_id)
        is_complete = executor.run.is_complete
        if self.queues.has_entries(run_id) and (is_complete or executor.state.status not in EXECUTED_STATES):
            self.queues.leave_run(run_id, is_ended=is_complete)
        if is_complete:
            self.idle_runs.cancel_wake(run_id)
            if self._dataspace is not None:
                self._dataspace.unwatch(run_id)

    # -- parking and recovery ------------------------------------------------------------------

    async def _resume_waiting(self, row: RunRow) -> None:
        try:
            await self.commands.wake(self.run_handle(row))
        except (ValueError, RuntimeError) as error:
            if not self.closed:
                log.warning("skipped run %s: %s", row.run, error)
        finally:
            # A run that cannot continue must not keep a slot that others wait for.
            if row.run not in self.executors and self.queues.has_entries(row.run):
                self.queues.leave_unclaimed(row.run)

    def rebuild_run(self, run: WorkflowRun, stored: StoredJournal | None = None) -> RunExecutor:
        """Rebuild a run from its journal and continue it."""
        # Another task may have rebuilt it: two executors of one run would both append to its journal.
        if (executor := self.executors.get(run.run_id)) is not None:
            return executor
        self.check_ready(run)
        executor = self._load_executor(run, stored or StoredJournal(self.store.events(run.run_id)))
        executor.use_definition(self.definition_of(run.workflow))
        executor.start_body()
        run.run_state.notify_watchers()
        if self.queues.has_entries(run.run_id):
            # Changed code may not ask for them again.
            executor.dispatcher.call_when_idle(lambda: self.queues.leave_unclaimed(run.run_id))
        return executor

    def load_run(self, run: WorkflowRun) -> RunExecutor:
        """Return an executor without a body for an inactive run, whatever its workflow is."""
        return self._load_executor(run, StoredJournal(self.store.events(run.run_id)), has_body=False)

    def _load_executor(self, run: WorkflowRun, stored: StoredJournal, has_body: bool = True) -> RunExecutor:
        executor = self._create_executor(run, stored.index.start, stored, has_body)
        self._track(executor)
        # The code requests them again, unless it has changed; until then commands must find them.
        if not executor.has_optional_history:
            executor.state.children = self._find_open_children(run.run_id, stored.index)
        return executor

    def check_ready(self, run: WorkflowRun) -> None:
        """Raise ValueError if something that the workflow of an inactive run needs is missing."""
        if (executor := self.executors.get(run.run_id)) is not None and executor.has_body:
            return
        if isinstance(run.workflow, MissingWorkflow):
            raise WorkflowAbsent(run.workflow_id, run.run_id, run.about.get("modules", ()))
        self._session.check_names(run.workflow)

    def reload_definition(self, run: WorkflowRun, executor: RunExecutor | None) -> RunExecutor | None:
        """Switch a paused or held run to the current workflow definition; an active executor is released."""
        current: Workflow | None = self._session.get_workflow(run.workflow_id)
        if current is None or current.definition()[0] == run.workflow.definition()[0]:
            return executor
        if executor is not None and executor.call_runner.running_leaves:
            raise RuntimeError(
                f"Cannot change run '{run.run_id}' while its steps are running. Wait for them to end."
            )
        run.use_workflow(current)
        if executor is not None:
            executor.suspend()
            executor.cancel_other_tasks()
            run.run_state.forget_gates()
        return None

    def run_handle(self, row: RunRow, rows: list[EventRow] | None = None) -> WorkflowRun:
        """Return the handle of a run; the same object as long as any reference to it exists.

        A run whose journal is damaged is held as `unreadable`: it can be listed, and every command that reads
        or continues its journal raises `JournalBroken`.
        """
        run = self.run_handles.get(row.run)
        if run is None:
            try:
                rows = rows or self.store.events(row.run)
            except JournalBroken as error:
                return self._unreadable_run(row, error)
            start = decode_event(rows[0])
            assert isinstance(start, RunStarted)
            run = WorkflowRun(
                self._workflow_or_placeholder(row),
                start.input,
                start.params,
                run_id=row.run,
                about=start.metadata,
            )
            run.continued_from = start.previous_run
            run.run_state.limits = read_limits(start, rows)
            restore_run(run, row, rows)
            if self.store.read_only:
                # Not kept: another process changes the run.
                run.run_state.children.update(self.children_of(run))
            else:
                self.attach_sinks(run, rows)
                self.run_handles[row.run] = run
        elif isinstance(run.workflow, MissingWorkflow):
            run.use_workflow(self._workflow_or_placeholder(row))
        return run

    def _unreadable_run(self, row: RunRow, error: JournalBroken) -> WorkflowRun:
        # Not added to run_handles: code that iterates over those expects readable journals.
        about = {"label": row.label} if row.label else {}
        run = WorkflowRun(self._workflow_or_placeholder(row), run_id=row.run, about=about)
        run.run_state.restore(WorkflowState.HELD, row.started, row.ended)
        run.run_state.set_held(self.mark_unreadable(error))
        run.run_state.set_outcome(None, str(error), "")
        return run

    def mark_unreadable(self, error: JournalBroken) -> dict[str, Any]:
        """Remember that the journal of a run is damaged; return the data of the hold."""
        if error.run not in self.unreadable_runs:
            log.error("unreadable: %s", error)
        self.unreadable_runs[error.run] = str(error)
        return RunOnHold(UNREADABLE_REASON, str(error)).to_data()

    async def recover(self) -> RecoveredRuns:
        """Resume every open run of this session; a run that only has open waits keeps waiting."""
        self.bind_to_running_loop()
        run_logs.complete_truncated_logs(
            self.store, self._session_name, self._workflow_or_placeholder, self.run_handle
        )
        self.queues.restore()
        runs = await self._recovery.recover()
        self.queues.start_waiting()
        await self.resume_runs_held_for_day()
        return runs

    async def resume_runs_held_for_day(self) -> None:
        """Resume the runs that are held for the daily budget, unless it is still exhausted."""
        if self.closed:
            return
        runs = [executor.run for executor in self.executors.values()]
        rows = self.store.runs(session=self._session_name, states=[WorkflowState.HELD.value])
        runs = [run for run in runs if is_held_for_daily_budget(run.run_state.hold)]
        runs += [
            self.run_handle(row)
            for row in rows
            if row.run not in self.executors and is_held_for_daily_budget(self.reader.hold_data(row))
        ]
        if runs and self.budgets.update_day().find_exhausted() is not None:
            self.budgets.watch_for_midnight()
            return
        for run in runs:
            try:
                await self.commands.resume(run, {})
            except (RuntimeError, ValueError, NerveError) as error:
                if is_held_for_daily_budget(run.run_state.hold):
                    log.warning("run %s stays held: %s", run.run_id, error)

    @property
    def problem(self) -> str | None:
        """Why no run continues at the moment; None if runs do."""
        return None

    @property
    def skipped_runs(self) -> list[SkippedRun]:
        """Open runs that the last `recover()` could not resume."""
        return self._recovery.skipped_runs

    def owns(self, row: RunRow) -> bool:
        return row.session == self._session_name

    def resume_run(self, row: RunRow) -> WorkflowRun:
        """Resume an inactive run; a waiting one is woken at its deadline."""
        if not self.owns(row):
            raise ValueError(f"Run '{row.run}' belongs to session '{row.session}'")
        self.workflow_of(row)
        rows = self.store.events(row.run)
        run, stored = self.run_handle(row, rows), StoredJournal(rows)
        if row.state in EXECUTED_STATE_VALUES:
            self.check_ready(run)
        # A run can wait at a gate while another of its leaves was running; that leaf has to run again now.
        is_waiting = row.state == WorkflowState.WAITING.value and not stored.index.has_running_leaf
        is_due = row.wake is not None and row.wake <= self.clock.time()
        if is_waiting and not is_due and not self.watch_facts(row.run):
            self.idle_runs.schedule_wake(row.run, row.wake)
        elif row.state in EXECUTED_STATE_VALUES:
            if row.run not in self.executors:
                # Counted on disk before any code of the run executes, so a run that crashes the process is
                # identified.
                self._recovery.mark_resuming([row.run])
            if self.commands.is_busy(run):
                self.idle_runs.schedule_resume(row)
            else:
                self.rebuild_run(run, stored)
        elif row.state in (WorkflowState.PAUSED.value, WorkflowState.HELD.value):
            self.watch_facts(row.run)
        return run

    def park(self, row: RunRow) -> None:
        """Leave a run that only waits out of memory; wake it at its deadline, or by a fact."""
        # Checked now: a run that cannot continue is reported before a person answers it.
        self._session.check_names(self.workflow_of(row))
        self.store.last_event(row.run)
        if self.watch_facts(row.run):
            self.resume_run(row)
        else:
            self.idle_runs.schedule_wake(row.run, row.wake)

    def watch_facts(self, run_id: str) -> bool:
        """Subscribe an inactive run to the facts it waits for; return whether one exists already."""
        waits = [wait for wait in self.store.waits_of_run(run_id) if wait.kind == SIGNAL_KIND]
        requests = [(wait.path, event_of_wait(wait)) for wait in waits]
        fact_matches = [
            self._run_facts.match_or_watch(run_id, path, request)
            for path, request in requests
            if isinstance(request, SignalWaiting)
        ]
        return any(fact_match is not None for fact_match in fact_matches)

    def publish(self, run: WorkflowRun, rows: list[EventRow], parent: str | None) -> None:
        """Publish committed events to watchers and sinks, those of gates to the runs around the run too."""
        if self._recovery.on_probation:
            self._recovery.on_events(run.run_id, rows)
        if run.sinks:
            self._sink_dispatcher.dispatch(run, map(run.event_from_row, rows))
        if parent is not None and not GATE_EVENTS.isdisjoint(map(type_of_row, rows)):
            self._publish_to_parents(run, [row for row in rows if row.type in GATE_EVENTS])
        watchers = self.watchers
        if self._dataspace is not None:
            watchers = [self._dataspace.on_events, *watchers]
        for watch in watchers:
            try:
                watch(run, rows)
            # A watcher that fails affects neither the run nor other watchers.
            except Exception:
                log.exception("watcher failed for events of run %s", run.run_id)

    def _publish_to_parents(self, run: WorkflowRun, rows: list[EventRow]) -> None:
        """Publish gate events of a run to the sinks of its enclosing runs."""
        for run_id, path in self.enclosing_runs(run.run_id):
            parent = self.run_handles.get(run_id)
            if parent is not None and parent.sinks:
                events = (run.event_from_row(row).with_shown_in(run_id, path) for row in rows)
                self._sink_dispatcher.dispatch(parent, events, excluded=run.sinks)

    def enclosing_runs(self, run_id: str) -> list[tuple[str, str]]:
        """Return the ids of the enclosing runs, innermost first, and the paths at which they called it."""
        enclosing: list[tuple[str, str]] = []
        path = ""
        while True:
            executor = self.executors.get(run_id)
            start = executor.start if executor is not None else read_start(self.store, run_id)
            if start.parent is None:
                return enclosing
            run_id, path = start.parent, (start.parent_path or "") + path
            enclosing.append((run_id, path))

    def outermost_run(self, run_id: str) -> str:
        """Return the id of the run that no other run has called, around a run or itself."""
        enclosing = self.enclosing_runs(run_id)
        return enclosing[-1][0] if enclosing else run_id

    def requests_around(self, run_id: str) -> list[QueueRequest]:
        """Return the queues that a run, and the runs around it, are in until they end."""
        requests: list[QueueRequest] = []
        for each in (run_id, *(around for around, _ in self.enclosing_runs(run_id))):
            executor = self.executors.get(each)
            start = executor.start if executor is not None else read_start(self.store, each)
            if start.queue is not None:
                requests.append(QueueRequest.from_data(start.queue))
        return requests

    def on_workflow_defined(self, workflow: Workflow) -> None:
        """Report a new workflow to watchers."""
        if self._dataspace is not None:
            self._dataspace.on_workflow_defined(workflow)

    def on_workflow_removed(self, name: str) -> None:
        """Report a removed workflow to watchers; its runs keep their definition."""
        if self._dataspace is not None:
            self._dataspace.on_workflow_removed(name)

    def workflows(self) -> list[Workflow]:
        return [
            workflow
            for name in list(self._session.workflows)
            if (workflow := self._session.get_workflow(name))
        ]

    def recent_runs(self, open_limit: int, ended_limit: int) -> list[RunRow]:
        """Return the newest ended runs of the session, then the newest open ones, each oldest first."""
        recent: list[RunRow] = []
        for states, limit in ((FINAL_STATE_VALUES, ended_limit), (OPEN_STATE_VALUES, open_limit)):
            # One state at a time, because the store has an index for that.
            pages = (self.store.runs(session=self._session_name, states=[s], newest=limit) for s in states)
            rows = sorted((row for page in pages for row in page), key=lambda row: (row.started, row.run))
            recent += [row for row in rows[-limit:] if self.has_workflow(row)]
        return recent

    # -- what runs and executors call --------------------------------------------------------------

    def usage_of_stopped_runs(self, run_ids: Sequence[str]) -> dict[str, Any]:
        """Return the usage of stopped runs, including interrupted steps, and the models used."""
        rows = [row for run_id in run_ids if (row := self.store.run(run_id)) is not None]
        models = sum_run_usage([self.run_handle(row).view for row in rows]).get("models")
        usage = RunUsage()
        for run_id in run_ids:
            usage.add(self.budgets.budget_of_run(run_id).usage)
        used: dict[str, Any] = usage.to_dict()
        return {**used, "models": models} if models else used

    def children_of(self, run: WorkflowRun) -> Mapping[str, WorkflowRun]:
        """Return the children a run waits for, by the paths of their calls, even if it is inactive."""
        is_active = run.run_id in self.executors
        if (
            run.run_state.children
            or is_active
            or run.run_state.status in (*FINAL_STATES, *CHILDLESS_STATES)
            or run.run_id in self.unreadable_runs
        ):
            return run.run_state.children
        return self._find_open_children(run.run_id, JournalIndex(self.store.events(run.run_id)))

    def _find_open_children(self, run_id: str, index: JournalIndex) -> dict[str, WorkflowRun]:
        return child_runs.find_open_children(self.store, self.run_handle, run_id, index)

    async def stop_open_children(
        self, run_id: str, reason: str, path: str | None = None, top: str | None = None
    ) -> None:
        """Stop the open children of a run, or those called at a path."""
        for row in self.open_children(run_id):
            if path is None or read_start(self.store, row.run).parent_path == path:
                await self.commands.stop(self.run_handle(row), reason, top)

    def open_children(self, run_id: str) -> list[RunRow]:
        return [
            row
            for row in child_runs.find_unsettled_children(self.store, run_id)
            if row.state in OPEN_STATE_VALUES
        ]

    @cached_property
    def _fork_services(self) -> ForkServices:
        """What forks need; few processes fork a run, so the others do not load the code for it."""
        from nerve.engine.fork import ForkServices

        return ForkServices(
            store=self.store,
            clock=self.clock,
            session_name=self._session_name,
            get_committer=lambda: self.committer,
            workflow_of=self.workflow_of,
            has_workflow=self.has_workflow,
            definition_of=self.definition_of,
            attach_sinks=self.attach_sinks,
            make_run_row=self.run_row,
            publish=self.publish,
            rebuild_run=self.rebuild_run,
        )

    async def fork(
        self,
        source: str,
        at: str | None,
        input: Any,
        overrides: Mapping[str, Mapping[str, Any]],
        key: str | None = None,
        limits: Mapping[str, Any] | None = None,
        reply: ReplyRow | None = None,
        definition: str | None = None,
        caller: dict[str, str] | None = None,
    ) -> WorkflowRun:
        async def begin() -> WorkflowRun:
            from nerve.engine.fork import plan_fork

            plan = plan_fork(self._fork_services, source, at, input, overrides, definition)
            return await self._start_planned(plan, key, reply, limits=limits or {}, caller=caller)

        return await self._fork_with_key(source, key, begin)

    async def retry(
        self,
        source: str,
        key: str | None = None,
        reply: ReplyRow | None = None,
        caller: dict[str, str] | None = None,
    ) -> WorkflowRun:
        async def begin() -> WorkflowRun:
            from nerve.engine.fork import plan_retry

            plan = plan_retry(self._fork_services, source)
            return await self._start_planned(plan, key, reply, caller=caller)

        return await self._fork_with_key(source, key, begin)

    async def _start_planned(
        self, plan: ForkPlan, key: str | None, reply: ReplyRow | None, **options: Any
    ) -> WorkflowRun:
        from nerve.engine.fork import copy_planned, start_fork

        services = self._fork_services
        return await start_fork(services, copy_planned(services, plan, key, **options), reply)

    def preview_fork(
        self,
        source: str,
        at: str | None,
        input: Any,
        overrides: Mapping[str, Mapping[str, Any]],
        definition: str | None = None,
    ) -> ForkPreview:
        """Return what a fork would reuse and run again; nothing is started or written."""
        from nerve.engine.fork import plan_fork
        from nerve.engine.fork_preview import preview_plan

        services = self._fork_services
        return preview_plan(services, plan_fork(services, source, at, input, overrides, definition))

    def find_reused_answers(
        self,
        source: str,
        at: str | None,
        input: Any,
        overrides: Mapping[str, Mapping[str, Any]],
        definition: str | None = None,
    ) -> list[ReusedAnswer]:
        """Return the answers of people that a fork would reuse; nothing is started or written."""
        from nerve.engine.fork import plan_fork
        from nerve.engine.reused_answers import find_reused_answers  # few forks change steps

        services = self._fork_services
        return find_reused_answers(services, plan_fork(services, source, at, input, overrides, definition))

    def preview_retry(self, source: str) -> ForkPreview:
        """Return what a retry would reuse and run again."""
        from nerve.engine.fork import plan_retry
        from nerve.engine.fork_preview import preview_plan

        return preview_plan(self._fork_services, plan_retry(self._fork_services, source))

    async def _fork_with_key(
        self, source: str, key: str | None, start_fork: Callable[[], Coroutine[Any, Any, WorkflowRun]]
    ) -> WorkflowRun:
        from nerve.engine.fork import check_fork_source

        if key is None:
            return await start_fork()
        if (row := self.store.run_by_key(self._session_name, key)) is not None:
            check_fork_source(self.store, key, row.run, source)
        run = await self._start_with_key(key, start_fork)
        check_fork_source(self.store, key, run.run_id, source)
        return run

    def is_busy(self, run_id: str) -> bool:
        """Whether a run must not be deleted, because the engine still writes or needs it."""
        return run_id in self.executors or run_id in self.draining_tasks

    async def wait_finished(self, run_id: str) -> bool:
        """Return whether nothing is written any more for a run that has ended, after a moment if needed."""
        return True

    async def delete_executions(self, rows: Sequence[RunRow]) -> None:
        """Delete what an engine outside of this process keeps of runs that have ended."""

    async def wait_durable(self, run: WorkflowRun) -> None:
        """Return when everything that has happened to a run so far is on disk."""
        if (executor := self.executors.get(run.run_id)) is not None:
            await executor.journal.wait_durable(executor.journal.seq)

    def run_row(
        self,
        run: WorkflowRun,
        state: WorkflowState,
        wake: float | None,
        start: RunStarted,
        at: float,
        summary: str | None = None,
    ) -> RunRow:
        """Return the row of a run after an event; `pausing` is stored as `paused`."""
        stored_state = WorkflowState.PAUSED if state is WorkflowState.PAUSING else state
        ended = at if state in FINAL_STATES else None
        started = run.run_state.start_time
        return RunRow(
            run.run_id,
            self._session_name,
            run.workflow_id,
            stored_state.value,
            started if started is not None else self.clock.time(),
            ended,
            start.key,
            start.parent,
            wake,
            start.definition or None,
            start.conversation,
            start.label,
            summary,
        )


type_of_row = itemgetter(EventRow._fields.index("type"))


async def drain_executor(executor: RunExecutor) -> None:
    """Wait until a released executor has ended its tasks and writes."""
    await executor.cancel_tasks()
    with contextlib.suppress(NerveError):
        await executor.journal.wait_durable(executor.journal.seq)


def check_same_workflow(key: str, run: WorkflowRun, requested: WorkflowRun) -> WorkflowRun:
    """Return the run of a key; raise ValueError if it is of another workflow than requested."""
    if run.workflow_id != requested.workflow_id:
        raise ValueError(f"Key '{key}' belongs to run '{run.run_id}' of workflow '{run.workflow_id}'")
    return run


def read_run_view(run_id: str, workflow_id: str, rows: Iterable[JournalRow]) -> RunView:
    """Return what a journal shows of its run; most runs are never looked at in the process that runs them."""
    from nerve.journal.run_view import read_view

    return read_view(run_id, workflow_id, rows)


def restore_run(run: WorkflowRun, row: RunRow, rows: list[EventRow]) -> None:
    """Set a run's fields from its journal."""
    state = run.run_state
    state.restore(WorkflowState(row.state), row.started, row.ended)
    state.tags = tags_of_row(row)
    state.forget_gates()
    end = decode_event(rows[-1])
    state.set_outcome(*outcome_of_run(end))
    state.continued_as = end.continued_as if isinstance(end, RunCompleted) else None
    state.hold = None
    if state.status is WorkflowState.HELD:
        held = (decode_event(row).to_data() for row in reversed(rows) if row.type == RunOnHold.type)
        summary = StoredSummary.of_row(row)
        state.hold = summary.hold if summary is not None and summary.hold is not None else next(held, None)


def is_held_for_daily_budget(hold_data: Mapping[str, Any] | None) -> bool:
    return hold_data is not None and hold_data.get("reason") == "budget" and hold_data.get("purse") == "day"
