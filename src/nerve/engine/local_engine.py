"""The local engine: executes runs in this process and keeps their journals in a store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from nerve.core.events import GATE_EVENTS, Sink
from nerve.core.json_codec import MAX_EVENT_DEPTH, decode_json, encode_json, is_scalar_json
from nerve.core.nodes.base import NodeRegistry
from nerve.core.result import Result
from nerve.core.runtime import NodeCall
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.special_workflows import MissingWorkflow
from nerve.core.workflow.state import FINAL_STATES, GateInfo, WorkflowState
from nerve.core.workflow.workflow import Workflow
from nerve.engine import child_runs, fork, run_logs
from nerve.engine.budget import DailyUsage, active_provider_limits
from nerve.engine.definitions import DefinitionCache
from nerve.engine.group_commit import GroupCommitter
from nerve.engine.open_waits import find_open_waits, gate_info, has_running_leaf
from nerve.engine.recovery import OPEN_STATES, RunRecovery, SkippedRun
from nerve.engine.run_commands import RunCommands
from nerve.engine.run_executor import RunExecutor
from nerve.engine.session_budgets import SessionBudgets
from nerve.engine.sink_dispatcher import SinkDispatcher
from nerve.engine.task_tracking import install_task_factory, shutdown_sentinel, spawn_detached
from nerve.errors import JournalBroken, NerveError, WorkflowAbsent
from nerve.journal.events import START_METADATA, limits_of_run, load_start_data
from nerve.store.port import EventRow, ReplyRow, RunRow, Store

if TYPE_CHECKING:
    from nerve.engine.durable_dataspace import DurableDataspace

log = logging.getLogger("nerve")

MAX_IDLE_RUNS = 256
"""Maximum number of waiting runs in memory; older ones are evicted and rebuilt when needed."""

LIMIT_SCAN_RUNS = 50
"""Number of ended runs, besides the open ones, that are searched for provider limits."""

CHILDLESS_STATES = (WorkflowState.PENDING, WorkflowState.WAITING)
"""States in which an inactive run does not wait for a child run."""

UNREADABLE_REASON = "unreadable"
"""The reason why a run with a damaged journal is held."""


class LocalEngine:
    """The engine of one session. Everything that happens to a run happens here, on one event loop."""

    def __init__(self, store: Store, session: NodeRegistry, session_name: str) -> None:
        self.store, self._session, self._session_name = store, session, session_name
        self.executors: dict[str, RunExecutor] = {}
        self.run_handles: WeakValueDictionary[str, WorkflowRun] = WeakValueDictionary()
        definitions = DefinitionCache(store, session)
        self.workflow_of, self.has_workflow = definitions.workflow_of, definitions.has_workflow
        self.definition_of, self._workflow_or_placeholder = (
            definitions.definition_of,
            definitions.workflow_or_placeholder,
        )
        self.modules_of = definitions.modules_of
        self.commands = RunCommands(self)
        self.budgets = SessionBudgets(self)
        self._recovery = RunRecovery(self)
        self._sink_dispatcher = SinkDispatcher()
        self.flush_sinks = self._sink_dispatcher.wait_flushed
        self.draining_tasks: dict[str, asyncio.Future[None]] = {}
        """Inactive runs whose last tasks and writes are still in progress."""
        self._idle_executors: dict[str, RunExecutor] = {}
        self._wake_timers: dict[str, asyncio.TimerHandle] = {}
        self._wake_tasks: set[asyncio.Task[None]] = set()
        self._starts_by_key: dict[str, asyncio.Task[WorkflowRun]] = {}
        self._shutdown_sentinel: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._committer: GroupCommitter | None = None
        self.watchers: list[Callable[[WorkflowRun, list[EventRow]], None]] = []
        """Subscribers to the events of all runs."""
        self.sinks: list[Sink] = []
        """Sinks of every run that is started or resumed from now on."""
        self._dataspace: DurableDataspace | None = None
        self._daily_usage: DailyUsage | None = None
        self.unreadable_runs: dict[str, str] = {}
        """The runs whose journals were found damaged, with the problem."""
        self.closed = False

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
        self._loop, self._shutdown_sentinel, self._committer = (
            loop,
            shutdown_sentinel(loop),
            GroupCommitter(self.store),
        )

    def _unbind_from_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop.is_running():
            raise RuntimeError(
                "The session is in use on another running event loop. Create a session for each loop."
            )
        if self.executors:
            raise RuntimeError(
                f"The session has open runs on an event loop that has ended: {', '.join(self.executors)}."
                " Wait for them before their loop ends, or close the session: `async with Session(…)` in"
                " each asyncio.run."
            )
        assert self._committer is not None
        self._committer.close()
        # Futures and timers of an ended loop never fire; the runs they belong to are rebuilt from the
        # store.
        for mapping in (self.draining_tasks, self._idle_executors, self._wake_timers, self._starts_by_key):
            mapping.clear()

    @property
    def daily_usage(self) -> DailyUsage:
        """Today's usage of agents by model; loaded on first use."""
        if self._daily_usage is None:
            self._daily_usage = DailyUsage(self.store, self._session_name)
        return self._daily_usage

    def provider_limits(self) -> dict[str, float]:
        """Return the providers at a rate limit, with the end of each limit, as far as the journals know."""
        return active_provider_limits(self.recent_runs(LIMIT_SCAN_RUNS), self.store, time.time())

    @property
    def dataspace(self) -> DurableDataspace:
        """The dataspace of the session, loaded on first use."""
        if self._dataspace is None:
            # Imported here: it takes milliseconds, and few sessions use facts.
            from nerve.engine.durable_dataspace import DurableDataspace

            self._dataspace = DurableDataspace(self, self._session_name)
        return self._dataspace

    @property
    def is_shutting_down(self) -> bool:
        """Whether the loop is cancelling everything; nothing that bodies do then affects their runs."""
        return self.closed or (
            self._shutdown_sentinel is not None and self._shutdown_sentinel.cancelling() > 0
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
            executor.detached = True
        # Tasks and writes of an ended loop cannot be awaited on this one.
        is_own_loop = self._loop is asyncio.get_running_loop()
        if is_own_loop:
            await asyncio.gather(*(executor.cancel_tasks() for executor in executors))
        for executor in executors:
            executor.release()
        await self._recovery.close()
        for run in list(self.run_handles.values()):
            run._notify()
        for timer in self._wake_timers.values():
            timer.cancel()
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

    def new_id(self) -> str:
        """Return a UUID that sorts by time (version 7)."""
        time_, chance = f"{int(time.time() * 1000):012x}", os.urandom(10).hex()
        variant = "89ab"[int(chance[0], 16) % 4]
        return f"{time_[:8]}-{time_[8:]}-7{chance[1:4]}-{variant}{chance[4:7]}-{chance[7:19]}"

    async def start(self, run: WorkflowRun, key: str | None = None, **lineage: Any) -> None:
        """Record the start of a run; the body begins once that is on disk."""
        if self.closed:
            raise RuntimeError("The session is closed")
        self.committer  # noqa: B018 - binds the engine to the running loop
        start_data = {
            "run_id": run.run_id,
            "workflow_id": run.workflow_id,
            "steps": run.workflow.steps,
            "input": run._input,
            "params": run._params,
            "session": self._session_name,
            "definition": run.workflow.definition()[0],
            "seed": os.urandom(16).hex(),
            "limits": run._limits.to_dict(),
        }
        start_data |= run._about | lineage
        if key is not None:
            start_data["key"] = key
        data = encode_json(start_data, max_depth=MAX_EVENT_DEPTH)
        # The body gets the input as the journal has it: changes by the caller, or tuples, would differ on
        # replay.
        if run._params or not is_scalar_json(run._input):
            start_data = decode_json(data)
            run._input, run._params = start_data["input"], start_data["params"]
        run._state, run._started_at = WorkflowState.RUNNING, datetime.now(UTC)
        self.attach_sinks(run)
        executor = RunExecutor(self, run, start_data, run._limits)
        executor.journal.attach_definition(self.definition_of(run.workflow))
        executor.journal.mark_row_dirty()
        # Tracked before the write: a command that comes while the start is being written finds the
        # executor.
        self._track(executor)
        await executor.journal.wait_durable(executor.journal.append("workflow_started", "", data))

    def attach_sinks(self, run: WorkflowRun, rows: Iterable[EventRow] = ()) -> None:
        """Attach the sinks of all runs, and the log, to a run."""
        run._sinks += [sink for sink in self.sinks if sink not in run._sinks]
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
        if timer := self._wake_timers.pop(run_id, None):
            timer.cancel()
        if (parent := self.executors.get(executor.start_data.get("parent", ""))) is not None:
            parent.budget.on_child_started(
                run_id, executor.start_data["parent_path"], executor.budget.own_budget
            )

    def on_released(self, executor: RunExecutor) -> None:
        """Remove an executor that was released; its pending writes still complete."""
        run_id, journal = executor.run.run_id, executor.journal
        if self.executors.get(run_id) is executor:
            del self.executors[run_id]
            # Commands wait for draining: a new executor that read the journal before the last write would
            # reuse its sequence numbers.
            if journal.committed_seq < journal.seq or executor.dispatcher.tasks - {executor.main_task}:
                drain_task = self.draining_tasks[run_id] = spawn_detached(drain_executor(executor))
                drain_task.add_done_callback(lambda _: self.draining_tasks.pop(run_id, None))
        self._idle_executors.pop(run_id, None)
        if executor.run.is_complete and self._dataspace is not None:
            self._dataspace.unwatch(run_id)

    def on_run_ended(self, run: WorkflowRun, state: WorkflowState) -> None:
        """Finish a run that ended while inactive."""
        run._mark_ended(state)
        if self._dataspace is not None:
            self._dataspace.unwatch(run.run_id)
        if timer := self._wake_timers.pop(run.run_id, None):
            timer.cancel()
        run._notify()

    # -- parking and recovery ------------------------------------------------------------------

    def on_idle(self, executor: RunExecutor) -> None:
        """Note that a run only waits; if too many do, evict the one that has waited longest."""
        if not self.store.durable:
            return
        self._idle_executors.pop(executor.run.run_id, None)
        self._idle_executors[executor.run.run_id] = executor
        while len(self._idle_executors) > MAX_IDLE_RUNS:
            oldest = self._idle_executors.pop(next(iter(self._idle_executors)))
            # It may have received an answer since it was queued.
            if oldest.open_waits.is_single_wait:
                self.evict(oldest)

    def evict(self, executor: RunExecutor) -> None:
        """Evict a run that only waits for an external event."""
        # Read before suspend(), which ends the open waits.
        wake = executor.open_waits.next_deadline
        executor.suspend()
        executor.run._forget_gates()
        self._schedule_wake(executor.run.run_id, wake)

    def _schedule_wake(self, run_id: str, deadline: float | None) -> None:
        if timer := self._wake_timers.pop(run_id, None):
            timer.cancel()
        if deadline is not None and run_id not in self.executors:
            delay = max(0.0, deadline - time.time())
            self._wake_timers[run_id] = asyncio.get_running_loop().call_later(delay, self._wake_run, run_id)

    def _wake_run(self, run_id: str) -> None:
        self._wake_timers.pop(run_id, None)
        row = self.store.run(run_id)
        if row is not None and row.state == WorkflowState.WAITING.value and not self.is_shutting_down:
            self._schedule_resume(row)

    def _schedule_resume(self, row: RunRow) -> None:
        """Resume a run as soon as no command holds its lock."""
        wake_task = spawn_detached(self._resume_waiting(row))
        self._wake_tasks.add(wake_task)
        wake_task.add_done_callback(self._wake_tasks.discard)

    async def _resume_waiting(self, row: RunRow) -> None:
        try:
            await self.commands.wake(self.run_handle(row))
        except (ValueError, RuntimeError) as error:
            if not self.closed:
                log.warning("skipped run %s: %s", row.run, error)

    def rebuild_run(self, run: WorkflowRun, rows: list[EventRow] | None = None) -> RunExecutor:
        """Rebuild a run from its journal and continue it."""
        # Another task may have rebuilt it: two executors of one run would both append to its journal.
        if (executor := self.executors.get(run.run_id)) is not None:
            return executor
        self.check_ready(run)
        rows = rows or self.store.events(run.run_id)
        executor = RunExecutor(self, run, load_start_data(rows), limits_of_run(rows), rows)
        self._track(executor)
        # The code requests them again, unless it has changed; until then commands must find them.
        run._children = (
            {} if executor.has_optional_history else child_runs.find_open_children(self, run.run_id, rows)
        )
        definition = self.definition_of(run.workflow)
        if definition.hash != executor.start_data.get("definition"):
            executor.start_data["definition"] = definition.hash
            executor.append_event("workflow_changed", "", {"definition": definition.hash})
            executor.journal.attach_definition(definition)
            executor.journal.mark_row_dirty()
        executor.start_body()
        run._notify()
        return executor

    def check_ready(self, run: WorkflowRun) -> None:
        """Raise ValueError if something that the workflow of an inactive run needs is missing."""
        if run.run_id in self.executors:
            return
        if isinstance(run.workflow, MissingWorkflow):
            raise WorkflowAbsent(run.workflow_id, run.run_id, run._about.get("modules", ()))
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
        run._workflow = current
        if executor is not None:
            executor.suspend()
            executor.cancel_other_tasks()
            run._forget_gates()
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
            start = decode_json(rows[0].data)
            about = {name: start[name] for name in START_METADATA if name in start}
            run = WorkflowRun(
                self._workflow_or_placeholder(row),
                start["input"],
                start["params"],
                run_id=row.run,
                about=about,
            )
            restore_run(run, row, rows)
            self.attach_sinks(run, rows)
            self.run_handles[row.run] = run
        elif isinstance(run.workflow, MissingWorkflow):
            run._workflow = self._workflow_or_placeholder(row)
        return run

    def _unreadable_run(self, row: RunRow, error: JournalBroken) -> WorkflowRun:
        # Not added to run_handles: code that iterates over those expects readable journals.
        about = {"label": row.label} if row.label else {}
        run = WorkflowRun(self._workflow_or_placeholder(row), run_id=row.run, about=about)
        run._state, run._held, run._error = WorkflowState.HELD, self.mark_unreadable(error), str(error)
        run._started_at = datetime.fromtimestamp(row.started, UTC)
        run._completed_at = datetime.fromtimestamp(row.ended, UTC) if row.ended else None
        return run

    def mark_unreadable(self, error: JournalBroken) -> dict[str, Any]:
        """Remember that the journal of a run is damaged; return the data of the hold."""
        if error.run not in self.unreadable_runs:
            log.error("unreadable: %s", error)
        self.unreadable_runs[error.run] = str(error)
        return {"reason": UNREADABLE_REASON, "message": str(error), "path": ""}

    async def recover(self) -> list[WorkflowRun]:
        """Resume every open run of this session; a run that only has open waits keeps waiting."""
        self.bind_to_running_loop()
        run_logs.complete_truncated_logs(self, self._session_name)
        runs = await self._recovery.recover()
        await self.budgets.resume_held_runs()
        return runs

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
        run = self.run_handle(row, rows)
        if row.state in (WorkflowState.WAITING.value, WorkflowState.RUNNING.value):
            self.check_ready(run)
        # A run can wait at a gate while another of its leaves was running; that leaf has to run again now.
        is_waiting = row.state == WorkflowState.WAITING.value and not has_running_leaf(rows)
        is_due = row.wake is not None and row.wake <= time.time()
        if is_waiting and not is_due and not self.watch_facts(row.run, rows):
            self._schedule_wake(row.run, row.wake)
        elif row.state in (WorkflowState.WAITING.value, WorkflowState.RUNNING.value):
            if row.run not in self.executors:
                # Counted on disk before any code of the run executes, so a run that crashes the process is
                # identified.
                self._recovery.mark_resuming([row.run])
            if self.commands.is_busy(run):
                self._schedule_resume(row)
            else:
                self.rebuild_run(run, rows)
        elif row.state in (WorkflowState.PAUSED.value, WorkflowState.HELD.value):
            self.watch_facts(row.run, rows)
        return run

    def watch_facts(self, run_id: str, rows: list[EventRow]) -> bool:
        """Subscribe an inactive run to the facts it waits for; return whether one exists already."""
        waits = [row for row in find_open_waits(rows).values() if row.type == "signal_waiting"]
        fact_matches = [
            self.dataspace.match_or_watch(run_id, row.path, decode_json(row.data)) for row in waits
        ]
        return any(fact_match is not None for fact_match in fact_matches)

    def publish(self, run: WorkflowRun, rows: list[EventRow]) -> None:
        """Publish committed events to watchers and sinks."""
        if self._recovery.on_probation:
            self._recovery.on_events(run.run_id, rows)
        if self._daily_usage is not None:
            self._daily_usage.on_events(run.run_id, rows)
        if run._sinks:
            self._sink_dispatcher.dispatch(run, map(run._event_from_row, rows))
        if gates := [row for row in rows if row.type in GATE_EVENTS]:
            self._publish_to_parents(run, gates)
        if self._dataspace is not None:
            notify_watcher(self._dataspace.on_events, run, rows)
        for watch in self.watchers:
            notify_watcher(watch, run, rows)

    def _publish_to_parents(self, run: WorkflowRun, rows: list[EventRow]) -> None:
        """Publish gate events of a run to the sinks of its enclosing runs."""
        for run_id, path in self.enclosing_runs(run.run_id):
            parent = self.run_handles.get(run_id)
            if parent is not None and parent._sinks:
                events = (run._event_from_row(row).with_shown_in(run_id, path) for row in rows)
                self._sink_dispatcher.dispatch(parent, events, excluded=run._sinks)

    def enclosing_runs(self, run_id: str) -> list[tuple[str, str]]:
        """Return the ids of the enclosing runs, innermost first, and the paths at which they called it."""
        enclosing: list[tuple[str, str]] = []
        path = ""
        while True:
            executor = self.executors.get(run_id)
            rows = self.store.events(run_id, 0, 1) if executor is None else ()
            start = executor.start_data if executor is not None else decode_json(rows[0].data) if rows else {}
            if start.get("parent") is None:
                return enclosing
            run_id, path = start["parent"], start["parent_path"] + path
            enclosing.append((run_id, path))

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

    def recent_runs(self, ended: int = 1000) -> list[RunRow]:
        """Return the open runs of the session and the most recent ended ones."""
        rows = [row for row in self.store.runs(session=self._session_name) if self.has_workflow(row)]
        ended_rows = [row for row in rows if WorkflowState(row.state) in FINAL_STATES]
        return [*ended_rows[-ended:], *(row for row in rows if WorkflowState(row.state) not in FINAL_STATES)]

    # -- what runs and executors call --------------------------------------------------------------

    def has_child_ended(self, run_id: str) -> bool:
        row = self.store.run(run_id)
        return row is not None and WorkflowState(row.state) in FINAL_STATES

    def child_attempts(self, run_id: str, key: str) -> list[str]:
        return [row.run for row in child_runs.find_child_attempts(self.store, run_id, key)]

    def usage_of_stopped_run(self, run_id: str) -> dict[str, Any]:
        return child_runs.usage_of_stopped_runs(self, run_id)

    async def run_child(self, parent: RunExecutor, call: NodeCall, attempt: int, is_late: bool) -> Result:
        return await child_runs.run_child(self, parent, call, attempt, is_late)

    def with_attempt_usage(self, parent: RunExecutor, call: NodeCall, result: Result) -> Result:
        return child_runs.with_attempt_usage(self, parent, call, result)

    def has_asked_person(self, run_id: str) -> bool:
        return child_runs.has_asked_person(self.store, run_id)

    def children_of(self, run: WorkflowRun) -> Mapping[str, WorkflowRun]:
        """Return the children a run waits for, by the paths of their calls, even if it is inactive."""
        is_active = run.run_id in self.executors
        if (
            run._children
            or is_active
            or run._state in (*FINAL_STATES, *CHILDLESS_STATES)
            or run.run_id in self.unreadable_runs
        ):
            return run._children
        return child_runs.find_open_children(self, run.run_id, self.store.events(run.run_id))

    async def stop_started_children(self, executor: RunExecutor, reason: str) -> None:
        await self.commands.stop_started_children(executor, reason)

    async def stop_children(self, run_id: str, reason: str, path: str | None = None) -> None:
        """Stop the open children of a run, or those called at a path."""
        for row in self.open_children(run_id):
            if (
                path is None
                or decode_json(self.store.events(row.run, 0, 1)[0].data).get("parent_path") == path
            ):
                await self.commands.stop(self.run_handle(row), reason)

    def open_children(self, run_id: str) -> list[RunRow]:
        return [
            row for row in child_runs.find_unsettled_children(self.store, run_id) if row.state in OPEN_STATES
        ]

    async def fork(
        self,
        source: str,
        at: str | None,
        input: Any,
        overrides: Mapping[str, Mapping[str, Any]],
        key: str | None = None,
        limits: Mapping[str, Any] | None = None,
        reply: ReplyRow | None = None,
    ) -> WorkflowRun:
        def begin() -> Coroutine[Any, Any, WorkflowRun]:
            return fork.fork_run(self, source, at, input, overrides, key, limits or {}, reply)

        return await self._fork_with_key(source, key, begin)

    async def retry(self, source: str, key: str | None = None, reply: ReplyRow | None = None) -> WorkflowRun:
        return await self._fork_with_key(source, key, lambda: fork.retry_failed_run(self, source, key, reply))

    async def _fork_with_key(
        self, source: str, key: str | None, start_fork: Callable[[], Coroutine[Any, Any, WorkflowRun]]
    ) -> WorkflowRun:
        if key is None:
            return await start_fork()
        if (row := self.store.run_by_key(self._session_name, key)) is not None:
            fork.check_fork_source(self, key, row.run, source)
        run = await self._start_with_key(key, start_fork)
        fork.check_fork_source(self, key, run.run_id, source)
        return run

    def rows(self, run_id: str, after: int = 0, limit: int | None = None) -> Iterable[EventRow]:
        return self.store.events(run_id, after, limit)

    def open_gates(self, run_id: str) -> dict[str, GateInfo]:
        """Return the open gates of an inactive run, read from its journal."""
        open_waits = find_open_waits(self.store.events(run_id))
        return {
            path: gate_info(path, decode_json(row.data), row.at)
            for path, row in open_waits.items()
            if row.type == "gate_waiting"
        }

    # Lists read from memory, or else from as little of the journal as possible: they cover thousands of runs.

    def stored_outcome(self, row: RunRow) -> StoredOutcome:
        """Return the outcome of a run that has ended."""
        last = self.store.last_event(row.run)
        return (
            StoredOutcome()
            if last is None
            else outcome_from_event(WorkflowState(row.state), decode_json(last.data))
        )

    def hold_data(self, row: RunRow) -> dict[str, Any] | None:
        """Return why a run is held."""
        if (run := self.run_handles.get(row.run)) is not None:
            return run.held
        try:
            last = self.store.last_event(row.run, "workflow_held")
        except JournalBroken as error:
            return {"run_id": row.run, **self.mark_unreadable(error)}
        return None if last is None else {"run_id": row.run, **decode_json(last.data)}

    def gates_of_run(self, row: RunRow) -> dict[str, GateInfo]:
        """Return the open gates of a run without those of its children; none if it is unreadable."""
        run = self.run_handles.get(row.run)
        try:
            return self.open_gates(row.run) if run is None else run._gates
        except JournalBroken as error:
            self.mark_unreadable(error)
            return {}

    async def wait_durable(self, run: WorkflowRun) -> None:
        """Return when everything that has happened to a run so far is on disk."""
        if (executor := self.executors.get(run.run_id)) is not None:
            await executor.journal.wait_durable(executor.journal.seq)

    def waits_for_person_or_fact(self, run: WorkflowRun) -> bool:
        """Whether a run, or a child of it, waits for a person or a fact, not just for a timer."""
        if (executor := self.executors.get(run.run_id)) is not None:
            return executor.open_waits.waits_for_person_or_fact or any(
                map(self.waits_for_person_or_fact, run._children.values())
            )
        open_waits = find_open_waits(self.store.events(run.run_id)).values()
        return any(row.type != "timer_started" for row in open_waits)

    def run_row(
        self, run: WorkflowRun, state: WorkflowState, wake: float | None, start: Mapping[str, Any], at: float
    ) -> RunRow:
        """Return the row of a run after an event; `pausing` is stored as `paused`."""
        stored_state = WorkflowState.PAUSED if state is WorkflowState.PAUSING else state
        ended = at if state in FINAL_STATES else None
        run._end_timestamp = ended
        return RunRow(
            run.run_id,
            self._session_name,
            run.workflow_id,
            stored_state.value,
            run._started_at.timestamp() if run._started_at else time.time(),
            ended,
            start.get("key"),
            start.get("parent"),
            wake,
            start.get("definition"),
            start.get("conversation"),
            start.get("label"),
        )


async def drain_executor(executor: RunExecutor) -> None:
    """Wait until a released executor has ended its tasks and writes."""
    await executor.cancel_tasks()
    with contextlib.suppress(NerveError):
        await executor.journal.wait_durable(executor.journal.seq)


def notify_watcher(
    watch: Callable[[WorkflowRun, list[EventRow]], None], run: WorkflowRun, rows: list[EventRow]
) -> None:
    """Call a watcher; a watcher that fails affects neither the run nor other watchers."""
    try:
        watch(run, rows)
    except Exception:
        log.exception("watcher failed for events of run %s", run.run_id)


def check_same_workflow(key: str, run: WorkflowRun, requested: WorkflowRun) -> WorkflowRun:
    """Return the run of a key; raise ValueError if it is of another workflow than requested."""
    if run.workflow_id != requested.workflow_id:
        raise ValueError(f"Key '{key}' belongs to run '{run.run_id}' of workflow '{run.workflow_id}'")
    return run


def restore_run(run: WorkflowRun, row: RunRow, rows: list[EventRow]) -> None:
    """Set a run's fields from its journal."""
    run._state = WorkflowState(row.state)
    run._started_at = datetime.fromtimestamp(row.started, UTC)
    run._completed_at = datetime.fromtimestamp(row.ended, UTC) if row.ended else None
    run._forget_gates()
    run._result, run._error, run._error_type = outcome_from_event(run._state, decode_json(rows[-1].data))
    if run._state is WorkflowState.HELD:
        run._held = next((decode_json(r.data) for r in reversed(rows) if r.type == "workflow_held"), None)


class StoredOutcome(NamedTuple):
    """The outcome of a run that has ended."""

    result: Any = None
    error: str | None = None
    error_type: str = ""


def outcome_from_event(state: WorkflowState, last: Mapping[str, Any]) -> StoredOutcome:
    """Return the outcome of a run from its last event."""
    match state:
        case WorkflowState.COMPLETED:
            return StoredOutcome(last["result"])
        case WorkflowState.FAILED:
            return StoredOutcome(None, last["error"], last["error_type"])
        case WorkflowState.CANCELLED:
            return StoredOutcome(None, last["reason"] or None, last.get("error_type", ""))
    return StoredOutcome()
