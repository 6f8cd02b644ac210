"""The local engine: drives runs in this process and keeps their journals in a store."""

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
"""How many runs that only wait stay in memory; older ones leave it and are rebuilt when needed."""

LIMIT_SCAN_RUNS = 50
"""Runs that are over, beside those that are open, in which limits of providers are looked for."""

CHILDLESS_STATES = (WorkflowState.PENDING, WorkflowState.WAITING)
"""States in which a run that nobody drives waits for no child."""

UNREADABLE_REASON = "unreadable"
"""Why a run is held whose journal is damaged."""


class LocalEngine:
    """One per session. Everything that happens to a run happens in here, on one event loop."""

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
        """Runs that are not driven any more, but whose last tasks and writes are not over."""
        self._idle_executors: dict[str, RunExecutor] = {}
        self._wake_timers: dict[str, asyncio.TimerHandle] = {}
        self._wake_tasks: set[asyncio.Task[None]] = set()
        self._starts_by_key: dict[str, asyncio.Task[WorkflowRun]] = {}
        self._shutdown_sentinel: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._committer: GroupCommitter | None = None
        self.watchers: list[Callable[[WorkflowRun, list[EventRow]], None]] = []
        """Whoever sees the events of all runs."""
        self.sinks: list[Sink] = []
        """Sinks of every run that starts, or is taken up, from now on."""
        self._dataspace: DurableDataspace | None = None
        self._daily_usage: DailyUsage | None = None
        self.unreadable_runs: dict[str, str] = {}
        """The runs whose journals were found damaged, each with what is wrong."""
        self.closed = False

    # -- what belongs to the loop --------------------------------------------------------------

    @property
    def committer(self) -> GroupCommitter:
        self.bind_to_running_loop()
        assert self._committer is not None
        return self._committer

    def bind_to_running_loop(self) -> None:
        """Belong to the event loop that is running, if nothing is left to do on another."""
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
                "the session is used on another event loop, which still runs; make a session for each"
            )
        if self.executors:
            raise RuntimeError(
                f"the session has open runs on an event loop that has ended: {', '.join(self.executors)}."
                " Wait for them before their loop ends, or close the session: `async with Session(…)` in"
                " each asyncio.run"
            )
        assert self._committer is not None
        self._committer.close()
        for mapping in (self.draining_tasks, self._idle_executors, self._wake_timers, self._starts_by_key):
            mapping.clear()

    @property
    def daily_usage(self) -> DailyUsage:
        """What agents took today, by model; read when somebody first asks."""
        if self._daily_usage is None:
            self._daily_usage = DailyUsage(self.store, self._session_name)
        return self._daily_usage

    def provider_limits(self) -> dict[str, float]:
        """The providers that are at a limit, and until when, as far as the journals know."""
        return active_provider_limits(self.recent_runs(LIMIT_SCAN_RUNS), self.store, time.time())

    @property
    def dataspace(self) -> DurableDataspace:
        """The dataspace of the session, read when somebody first needs it."""
        if self._dataspace is None:
            from nerve.engine.durable_dataspace import (
                DurableDataspace,
            )  # it takes milliseconds to import, and few need it

            self._dataspace = DurableDataspace(self, self._session_name)
        return self._dataspace

    @property
    def is_shutting_down(self) -> bool:
        """Whether the loop is cancelling everything; what bodies do then says nothing about their runs."""
        return self.closed or (
            self._shutdown_sentinel is not None and self._shutdown_sentinel.cancelling() > 0
        )

    async def close(self) -> None:
        """Park every run where it is, and let go of the store; `recover()` goes on from there."""
        await self.commands.wait_for_stops()
        self.closed = True
        executors = list(self.executors.values())
        for executor in executors:
            executor.detached = True
        is_own_loop = self._loop is asyncio.get_running_loop()  # what an ended loop had to do is over
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
        if self._committer is not None:
            if is_own_loop:
                await self._committer.wait_drained()
            self._committer.close()
        self.store.close()

    # -- starting ------------------------------------------------------------------------------

    def new_id(self) -> str:
        """A UUID that sorts by time (version 7)."""
        time_, chance = f"{int(time.time() * 1000):012x}", os.urandom(10).hex()
        variant = "89ab"[int(chance[0], 16) % 4]
        return f"{time_[:8]}-{time_[8:]}-7{chance[1:4]}-{variant}{chance[4:7]}-{chance[7:19]}"

    async def start(self, run: WorkflowRun, key: str | None = None, **lineage: Any) -> None:
        """Write that the run has started; its body begins when that is on disk."""
        if self.closed:
            raise RuntimeError("the session is closed")
        self.committer  # noqa: B018 - from here on the loop is known
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
        if run._params or not is_scalar_json(run._input):
            start_data = decode_json(data)
            run._input, run._params = start_data["input"], start_data["params"]
        run._state, run._started_at = WorkflowState.RUNNING, datetime.now(UTC)
        self.attach_sinks(run)
        executor = RunExecutor(self, run, start_data, run._limits)
        executor.journal.attach_definition(self.definition_of(run.workflow))
        executor.journal.mark_row_dirty()
        self._track(executor)
        await executor.journal.wait_durable(executor.journal.append("workflow_started", "", data))

    def attach_sinks(self, run: WorkflowRun, rows: Iterable[EventRow] = ()) -> None:
        """Let a run tell the sinks of all runs, and its log."""
        run._sinks += [sink for sink in self.sinks if sink not in run._sinks]
        run_logs.attach_log(run, rows)

    async def start_once(self, run: WorkflowRun, key: str) -> WorkflowRun:
        """Start a run under a key; if there is one with that key already, that is the run."""

        async def begin() -> WorkflowRun:
            await self.start(run, key)
            return run

        return check_same_workflow(key, await self._start_with_key(key, begin), run)

    async def _start_with_key(
        self, key: str, start_run: Callable[[], Coroutine[Any, Any, WorkflowRun]]
    ) -> WorkflowRun:
        """The run of a key, which begins if there is none, and nobody else is about to begin one."""
        if key not in self._starts_by_key:
            if (row := self.store.run_by_key(self._session_name, key)) is not None:
                return self.resume_run(row)
            start_task = self._starts_by_key[key] = spawn_detached(start_run())
            start_task.add_done_callback(lambda done: self._on_start_done(key, done))
        return await asyncio.shield(self._starts_by_key[key])

    def _on_start_done(self, key: str, start_task: asyncio.Task[WorkflowRun]) -> None:
        del self._starts_by_key[key]
        if not start_task.cancelled():
            start_task.exception()  # whoever still waits for the start is told; there may be nobody

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
        """A run is not driven any more; what it still has to write is on its way."""
        run_id, journal = executor.run.run_id, executor.journal
        if self.executors.get(run_id) is executor:
            del self.executors[run_id]
            if journal.committed_seq < journal.seq or executor.dispatcher.tasks - {executor.main_task}:
                drain_task = self.draining_tasks[run_id] = spawn_detached(drain_executor(executor))
                drain_task.add_done_callback(lambda _: self.draining_tasks.pop(run_id, None))
        self._idle_executors.pop(run_id, None)
        if executor.run.is_complete and self._dataspace is not None:
            self._dataspace.unwatch(run_id)

    def on_run_ended(self, run: WorkflowRun, state: WorkflowState) -> None:
        """A run that nobody drives has come to its end."""
        run._mark_ended(state)
        if self._dataspace is not None:
            self._dataspace.unwatch(run.run_id)
        if timer := self._wake_timers.pop(run.run_id, None):
            timer.cancel()
        run._notify()

    # -- parking and recovery ------------------------------------------------------------------

    def on_idle(self, executor: RunExecutor) -> None:
        """A run only waits now; the one that has waited longest of too many leaves memory."""
        if not self.store.durable:
            return
        self._idle_executors.pop(executor.run.run_id, None)
        self._idle_executors[executor.run.run_id] = executor
        while len(self._idle_executors) > MAX_IDLE_RUNS:
            oldest = self._idle_executors.pop(next(iter(self._idle_executors)))
            if oldest.open_waits.is_single_wait:
                self.evict(oldest)

    def evict(self, executor: RunExecutor) -> None:
        """Take a run out of memory that waits for the outside and does nothing else."""
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
        """Go on with a run as soon as nobody else is at it."""
        wake_task = spawn_detached(self._resume_waiting(row))
        self._wake_tasks.add(wake_task)
        wake_task.add_done_callback(self._wake_tasks.discard)

    async def _resume_waiting(self, row: RunRow) -> None:
        try:
            await self.commands.wake(self.run_handle(row))
        except (ValueError, RuntimeError) as error:
            if not self.closed:
                log.warning("run %s is left alone: %s", row.run, error)

    def rebuild_run(self, run: WorkflowRun, rows: list[EventRow] | None = None) -> RunExecutor:
        """Rebuild a run from its journal and go on."""
        if (executor := self.executors.get(run.run_id)) is not None:
            return executor
        self.check_ready(run)
        rows = rows or self.store.events(run.run_id)
        executor = RunExecutor(self, run, load_start_data(rows), limits_of_run(rows), rows)
        self._track(executor)
        # Its code asks for them again, unless it has changed; until then they are there all the same.
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
        """Raise ValueError for a run that would go on and find that what its workflow calls is not there."""
        if run.run_id in self.executors:
            return
        if isinstance(run.workflow, MissingWorkflow):
            raise WorkflowAbsent(run.workflow_id, run.run_id, run._about.get("modules", ()))
        self._session.check_names(run.workflow)

    def reload_definition(self, run: WorkflowRun, executor: RunExecutor | None) -> RunExecutor | None:
        """Let a run that stands still go on with the workflow as it is today; one in memory is rebuilt."""
        current: Workflow | None = self._session.get_workflow(run.workflow_id)
        if current is None or current.definition()[0] == run.workflow.definition()[0]:
            return executor
        if executor is not None and executor.call_runner.running_leaves:
            raise RuntimeError(f"Cannot change run '{run.run_id}' while steps of it run; wait for them")
        run._workflow = current
        if executor is not None:
            executor.suspend()
            executor.cancel_other_tasks()
            run._forget_gates()
        return None

    def run_handle(self, row: RunRow, rows: list[EventRow] | None = None) -> WorkflowRun:
        """The run of a row, as its users hold it; the same object as long as anybody holds it.

        A run whose journal is damaged is held as `unreadable`: it can be listed, and every command that
        reads or continues its journal raises `JournalBroken`.
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
        # It is not remembered in `known`: what goes over those runs expects a journal that can be read.
        about = {"label": row.label} if row.label else {}
        run = WorkflowRun(self._workflow_or_placeholder(row), run_id=row.run, about=about)
        run._state, run._held, run._error = WorkflowState.HELD, self.mark_unreadable(error), str(error)
        run._started_at = datetime.fromtimestamp(row.started, UTC)
        run._completed_at = datetime.fromtimestamp(row.ended, UTC) if row.ended else None
        return run

    def mark_unreadable(self, error: JournalBroken) -> dict[str, Any]:
        """Remember that the journal of a run is damaged; gives why the run is held."""
        if error.run not in self.unreadable_runs:
            log.error("unreadable: %s", error)
        self.unreadable_runs[error.run] = str(error)
        return {"reason": UNREADABLE_REASON, "message": str(error), "path": ""}

    async def recover(self) -> list[WorkflowRun]:
        """Take up every open run of this session; one that has nothing but open waits goes on waiting."""
        self.bind_to_running_loop()
        run_logs.complete_truncated_logs(self, self._session_name)
        runs = await self._recovery.recover()
        await self.budgets.resume_held_runs()
        return runs

    @property
    def left_alone(self) -> list[SkippedRun]:
        """Open runs that the last `recover()` found and could not take up."""
        return self._recovery.skipped_runs

    def owns(self, row: RunRow) -> bool:
        return row.session == self._session_name

    def resume_run(self, row: RunRow) -> WorkflowRun:
        """Go on with a run that nobody drives; one that waits is woken when its time comes."""
        if not self.owns(row):
            raise ValueError(f"it belongs to session '{row.session}'")
        self.workflow_of(row)
        rows = self.store.events(row.run)
        run = self.run_handle(row, rows)
        if row.state in (WorkflowState.WAITING.value, WorkflowState.RUNNING.value):
            self.check_ready(run)
        is_waiting = row.state == WorkflowState.WAITING.value and not has_running_leaf(rows)
        is_due = row.wake is not None and row.wake <= time.time()
        if is_waiting and not is_due and not self.watch_facts(row.run, rows):
            self._schedule_wake(row.run, row.wake)
        elif row.state in (WorkflowState.WAITING.value, WorkflowState.RUNNING.value):
            if row.run not in self.executors:
                self._recovery.mark_resuming([row.run])
            if self.commands.is_busy(run):
                self._schedule_resume(row)
            else:
                self.rebuild_run(run, rows)
        elif row.state in (WorkflowState.PAUSED.value, WorkflowState.HELD.value):
            self.watch_facts(row.run, rows)
        return run

    def watch_facts(self, run_id: str, rows: list[EventRow]) -> bool:
        """Let a run that nobody drives hear of the facts it waits for; whether one is there already."""
        waits = [row for row in find_open_waits(rows).values() if row.type == "signal_waiting"]
        fact_matches = [
            self.dataspace.match_or_watch(run_id, row.path, decode_json(row.data)) for row in waits
        ]
        return any(fact_match is not None for fact_match in fact_matches)

    def publish(self, run: WorkflowRun, rows: list[EventRow]) -> None:
        """Events are on disk: whoever watches may see them."""
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
        """Show events of a run to the sinks of those around it."""
        for run_id, path in self.enclosing_runs(run.run_id):
            parent = self.run_handles.get(run_id)
            if parent is not None and parent._sinks:
                events = (run._event_from_row(row).with_shown_in(run_id, path) for row in rows)
                self._sink_dispatcher.dispatch(parent, events, excluded=run._sinks)

    def enclosing_runs(self, run_id: str) -> list[tuple[str, str]]:
        """The ids of the runs around one, the nearest first, and the paths at which they called it."""
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
        """There is a new workflow: whoever watches may see it."""
        if self._dataspace is not None:
            self._dataspace.on_workflow_defined(workflow)

    def on_workflow_removed(self, name: str) -> None:
        """A workflow is not there any more; its runs keep what they were started from."""
        if self._dataspace is not None:
            self._dataspace.on_workflow_removed(name)

    def workflows(self) -> list[Workflow]:
        return [
            workflow
            for name in list(self._session.workflows)
            if (workflow := self._session.get_workflow(name))
        ]

    def recent_runs(self, ended: int = 1000) -> list[RunRow]:
        """The open runs of the session, and some that have ended."""
        rows = [row for row in self.store.runs(session=self._session_name) if self.has_workflow(row)]
        ended_rows = [row for row in rows if WorkflowState(row.state) in FINAL_STATES]
        return [*ended_rows[-ended:], *(row for row in rows if WorkflowState(row.state) not in FINAL_STATES)]

    # -- the rest of what runs and drives ask for ----------------------------------------------

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
        """The children that a run waits for, by the paths of their calls, also if nobody drives it."""
        driven = run.run_id in self.executors
        if (
            run._children
            or driven
            or run._state in (*FINAL_STATES, *CHILDLESS_STATES)
            or run.run_id in self.unreadable_runs
        ):
            return run._children
        return child_runs.find_open_children(self, run.run_id, self.store.events(run.run_id))

    async def stop_started_children(self, executor: RunExecutor, reason: str) -> None:
        await self.commands.stop_started_children(executor, reason)

    async def stop_children(self, run_id: str, reason: str, path: str | None = None) -> None:
        """Stop the open children of a run, or those that were called at a path."""
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
        """The open gates of a run that nobody drives, read from its journal."""
        open_waits = find_open_waits(self.store.events(run_id))
        return {
            path: gate_info(path, decode_json(row.data), row.at)
            for path, row in open_waits.items()
            if row.type == "gate_waiting"
        }

    # What lists tell of a run: from what is in memory, or from as little of its journal as will do.

    def stored_outcome(self, row: RunRow) -> StoredOutcome:
        """What came of a run that is over."""
        last = self.store.last_event(row.run)
        return (
            StoredOutcome()
            if last is None
            else outcome_from_event(WorkflowState(row.state), decode_json(last.data))
        )

    def hold_data(self, row: RunRow) -> dict[str, Any] | None:
        """Why a run is held."""
        if (run := self.run_handles.get(row.run)) is not None:
            return run.held
        try:
            last = self.store.last_event(row.run, "workflow_held")
        except JournalBroken as error:
            return {"run_id": row.run, **self.mark_unreadable(error)}
        return None if last is None else {"run_id": row.run, **decode_json(last.data)}

    def gates_of_run(self, row: RunRow) -> dict[str, GateInfo]:
        """The open gates of a run, without those of its children; an unreadable run has none."""
        run = self.run_handles.get(row.run)
        try:
            return self.open_gates(row.run) if run is None else run._gates
        except JournalBroken as error:
            self.mark_unreadable(error)
            return {}

    async def wait_durable(self, run: WorkflowRun) -> None:
        """Return when everything that has happened to a run until now is on disk."""
        if (executor := self.executors.get(run.run_id)) is not None:
            await executor.journal.wait_durable(executor.journal.seq)

    def waits_for_person_or_fact(self, run: WorkflowRun) -> bool:
        """Whether a run, or a child of it, waits for a person or a fact, and not only for a time."""
        if (executor := self.executors.get(run.run_id)) is not None:
            return executor.open_waits.waits_for_person_or_fact or any(
                map(self.waits_for_person_or_fact, run._children.values())
            )
        open_waits = find_open_waits(self.store.events(run.run_id)).values()
        return any(row.type != "timer_started" for row in open_waits)

    def run_row(
        self, run: WorkflowRun, state: WorkflowState, wake: float | None, start: Mapping[str, Any], at: float
    ) -> RunRow:
        """The projection of a run after an event at a time; `pausing` is `paused` after a restart."""
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
    """Return when a drive that was let go has come to its end."""
    await executor.cancel_tasks()
    with contextlib.suppress(NerveError):
        await executor.journal.wait_durable(executor.journal.seq)


def notify_watcher(
    watch: Callable[[WorkflowRun, list[EventRow]], None], run: WorkflowRun, rows: list[EventRow]
) -> None:
    """What is on disk goes on, whoever of those who watch cannot take it in."""
    try:
        watch(run, rows)
    except Exception:
        log.exception("what run %s has written could not be shown", run.run_id)


def check_same_workflow(key: str, run: WorkflowRun, requested: WorkflowRun) -> WorkflowRun:
    if run.workflow_id != requested.workflow_id:
        raise ValueError(f"key '{key}' is that of run '{run.run_id}' of workflow '{run.workflow_id}'")
    return run


def restore_run(run: WorkflowRun, row: RunRow, rows: list[EventRow]) -> None:
    """Set a run's fields to what its journal says."""
    run._state = WorkflowState(row.state)
    run._started_at = datetime.fromtimestamp(row.started, UTC)
    run._completed_at = datetime.fromtimestamp(row.ended, UTC) if row.ended else None
    run._forget_gates()
    run._result, run._error, run._error_type = outcome_from_event(run._state, decode_json(rows[-1].data))
    if run._state is WorkflowState.HELD:
        run._held = next((decode_json(r.data) for r in reversed(rows) if r.type == "workflow_held"), None)


class StoredOutcome(NamedTuple):
    """What came of a run that is over."""

    result: Any = None
    error: str | None = None
    error_type: str = ""


def outcome_from_event(state: WorkflowState, last: Mapping[str, Any]) -> StoredOutcome:
    """What came of a run, by its last event."""
    match state:
        case WorkflowState.COMPLETED:
            return StoredOutcome(last["result"])
        case WorkflowState.FAILED:
            return StoredOutcome(None, last["error"], last["error_type"])
        case WorkflowState.CANCELLED:
            return StoredOutcome(None, last["reason"] or None, last.get("error_type", ""))
    return StoredOutcome()
