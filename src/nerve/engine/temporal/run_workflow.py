"""The workflow `nerve.run`: executes a family of runs with the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeout
from temporalio.workflow import ActivityCancellationType

from nerve.core.events import END_EVENTS
from nerve.core.nodes.base import NodeRegistry
from nerve.core.result import Result
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import EXECUTED_STATE_VALUES, EXECUTED_STATES, WorkflowState
from nerve.engine.hosted_engines import host_engine
from nerve.engine.leaf_runtime import LeafRuntime
from nerve.engine.local_engine import LocalEngine
from nerve.engine.task_tracking import spawn_detached
from nerve.engine.temporal import carried_runs
from nerve.engine.temporal.carried_runs import carry_family
from nerve.engine.temporal.family_workspaces import FamilyWorkspaces, next_host
from nerve.engine.temporal.messages import (
    APPEND_ACTIVITY,
    CLOSE_ACTIVITY,
    COMMAND_UPDATE,
    HOST_LOST,
    LEAF_ACTIVITY,
    LEAF_ELSEWHERE,
    SHARED_STATE_ACTIVITY,
    WORKFLOW_TYPE,
    AppendInput,
    CloseInput,
    FamilyOutcome,
    LeafInput,
    LeafResult,
    RunCommand,
    RunInput,
    SharedStateInput,
    SharedStateResult,
    host_queue,
    leaf_queue,
)
from nerve.engine.temporal.outbox import LeafOutcome, Outbox
from nerve.engine.temporal.remote_leaf import replace_leaf
from nerve.engine.temporal.run_command_handler import RunCommandHandler
from nerve.engine.temporal.workflow_facts import WorkflowFacts
from nerve.engine.temporal.workflow_host import LoopClock, WorkflowHost
from nerve.engine.temporal.workflow_queues import WorkflowQueues
from nerve.journal.events import RunOnHold
from nerve.journal.index import read_start
from nerve.lazy_dataclass import dataclass
from nerve.store.port import Append, EventRow, Store

HEARTBEAT_TIMEOUT = timedelta(seconds=10)
APPEND_TIMEOUT = timedelta(seconds=10)
"""An append that was given to a worker as it ended is repeated after this time; it writes nothing twice."""
UNLIMITED = timedelta(days=3650)
HOST_TIMEOUT = timedelta(minutes=10)
"""How long a leaf waits for a worker on the host of its run."""
ELSEWHERE_S = 1.0
"""Seconds after which a leaf with one attempt is offered to the workers again."""
RETRY_POLICY = RetryPolicy(
    initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=10)
)
ONCE = RetryPolicy(maximum_attempts=1)
PAUSE_TIMEOUT = timedelta(seconds=60)
"""How long a family starts no new steps while it waits for the running ones to continue in a new history."""
MAX_PAUSE_DELAY = timedelta(hours=1)
"""The longest time between two attempts; the first is as long as a pause."""
FULL_EVENTS = 40_000
"""Events of a history after which a run is held if it cannot continue in a new one; Temporal ends a workflow
with 51,200."""
EVENTS_TO_END = 2000
"""How many more it gets each time that a person resumes the run."""
UPGRADE = workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE
"""A new history is executed by the newest build of the workers."""
TIMEOUT_FACTOR, TIMEOUT_MARGIN_S = 1.5, 30.0
"""A worker measures the timeout of a leaf; after this much more, Temporal considers the leaf as lost."""


@dataclass(frozen=True, slots=True)
class HostedSession:
    """A session whose runs this process executes in workflows."""

    names: NodeRegistry
    make_store: Callable[[], Store]
    """Returns an empty store in memory, for the journals of one family."""


hosted_sessions: dict[str, HostedSession] = {}
"""The sessions of this process by name; a workflow class cannot be given anything else."""


class WorkflowActivities:
    """Starts the activities of one workflow."""

    def __init__(self, session: str, host: str | None, workspaces: FamilyWorkspaces) -> None:
        self._session, self._workspaces = session, workspaces
        self.host = host
        """The host on which the leaves run, once the first of them has said so."""
        self._attempts: dict[str, int] = {}
        self.closing: set[asyncio.Task[None]] = set()
        """The activities that remove the workspaces of runs that have ended."""

    def start_leaf(self, leaf: LeafInput, queue: str) -> asyncio.Task[LeafOutcome]:
        return asyncio.create_task(self._execute_leaf(leaf, queue))

    async def _execute_leaf(self, leaf: LeafInput, queue: str) -> LeafOutcome:
        if self._workspaces.needs_host(leaf, self.host):
            async with self._workspaces.placement:
                if self._workspaces.needs_host(leaf, self.host):
                    return await self._execute_on_host(leaf, queue)
        return await self._execute_on_host(leaf, queue)

    async def _execute_on_host(self, leaf: LeafInput, queue: str) -> LeafOutcome:
        while (outcome := await self._attempt_leaf(leaf, queue)) is None:
            # A worker that does not know the leaf has not begun it, so an attempt is left.
            await workflow.sleep(ELSEWHERE_S)
        self.host = next_host(self.host, leaf, outcome.result)
        if outcome.is_from_worker:
            self._workspaces.note_result(leaf, outcome.result)
        return outcome

    async def _attempt_leaf(self, leaf: LeafInput, queue: str) -> LeafOutcome | None:
        """Return the result of a leaf; None if its only attempt went to a worker that cannot execute it."""
        step = f"{leaf.run_id}{leaf.path}"
        number = self._attempts[step] = self._attempts.get(step, 0) + 1
        is_once, host = leaf.effect == "once", self.host
        seconds = None if leaf.timeout is None else leaf.timeout * TIMEOUT_FACTOR + TIMEOUT_MARGIN_S
        try:
            data = await workflow.execute_activity(
                LEAF_ACTIVITY,
                leaf.to_data(),
                task_queue=queue if host is None else host_queue(self._session, host),
                schedule_to_start_timeout=None if host is None else HOST_TIMEOUT,
                # The names of two leaves that change places in a replay differ, so that it is detected.
                activity_id=f"{step}#{number}",
                start_to_close_timeout=UNLIMITED if seconds is None else timedelta(seconds=seconds),
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=ONCE if is_once else RETRY_POLICY,
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=leaf.path,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            cause = error.cause
            if is_once and isinstance(cause, ApplicationError) and cause.type == LEAF_ELSEWHERE:
                return None
            if isinstance(cause, ActivityTimeout) and cause.type == TimeoutType.SCHEDULE_TO_START:
                self.host = None  # another attempt is placed on any host
                return LeafOutcome(result_of_lost_host(host), False)
            return LeafOutcome(result_of_lost_leaf(cause, is_once), False)
        return LeafOutcome(LeafResult.from_data(data), True)

    def close_workspaces(self, run_id: str, *, is_last: bool) -> None:
        """Remove the workspaces of a run that has ended, or those of the family after its last run."""
        if runs := self._workspaces.take_run(run_id, is_last=is_last):
            task = spawn_detached(self._close_workspaces(runs))
            self.closing.add(task)
            task.add_done_callback(self.closing.discard)

    async def _close_workspaces(self, runs: Sequence[str]) -> None:
        host = self.host
        try:
            await workflow.execute_activity(
                CLOSE_ACTIVITY,
                CloseInput(runs).to_data(),
                task_queue=leaf_queue(self._session) if host is None else host_queue(self._session, host),
                schedule_to_close_timeout=HOST_TIMEOUT,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=RETRY_POLICY,
            )
        except ActivityError as error:
            # They are removed when a worker is started there.
            workflow.logger.info("The workspaces of the runs %s stay: %s", runs, error.cause)

    async def append(self, parts: Sequence[Append]) -> None:
        await workflow.execute_activity(
            APPEND_ACTIVITY,
            AppendInput(parts).to_data(),
            start_to_close_timeout=APPEND_TIMEOUT,
            retry_policy=RETRY_POLICY,
        )

    async def exchange(self, request: SharedStateInput) -> SharedStateResult:
        data = await workflow.execute_activity(
            SHARED_STATE_ACTIVITY,
            replace(request, family=workflow.info().workflow_id).to_data(),
            start_to_close_timeout=APPEND_TIMEOUT,
            retry_policy=RETRY_POLICY,
        )
        return SharedStateResult.from_data(data)


def result_of_lost_host(host: str | None) -> LeafResult:
    """Return the result of a leaf that has not begun, because the host of its run has no worker."""
    waited = f"{HOST_TIMEOUT.total_seconds():g} s"
    problem = f"No worker on host '{host}', which has the files of the run, for {waited}"
    fix = "Start one there, or on a host with the files, and resume the run"
    return LeafResult(Result.failed(f"{problem}. {fix}.", HOST_LOST), "error")


def result_of_lost_leaf(cause: BaseException | None, is_once: bool) -> LeafResult:
    """Return the result of a leaf whose worker did not send one."""
    if is_once and isinstance(cause, ActivityTimeout):
        lost = Result.failed("The worker was lost while it executed the step", "TimeoutError")
        return LeafResult(lost, "timeout")
    kind = cause.type if isinstance(cause, ApplicationError) and cause.type else type(cause).__name__
    message = cause.message if isinstance(cause, ApplicationError) else str(cause)
    return LeafResult(Result.failed(message, kind), "error")


class FamilyPause:
    """A point at which nothing of a family is in progress, so that it can continue in a new history."""

    def __init__(self, engine: LocalEngine, outbox: Outbox, activities: WorkflowActivities) -> None:
        self._engine, self._outbox, self._activities = engine, outbox, activities
        self._delay = PAUSE_TIMEOUT
        self._long_leaves: list[LeafRuntime] = []
        """The leaves that were still running at the end of the last attempt."""

    async def reach(self) -> bool:
        """Start no new work until everything in progress has ended; return whether that was soon."""
        paused = [each for each in self._engine.executors.values() if not each.barrier.is_paused]
        for executor in paused:
            executor.barrier.pause()
        try:
            await workflow.wait_condition(self._is_at_rest, timeout=PAUSE_TIMEOUT)
            self._outbox.send_all()
            await workflow.wait_condition(lambda: self._outbox.is_empty and self._is_at_rest())
        except TimeoutError:
            self._long_leaves = self._find_running_leaves()
            for executor in paused:
                # A user may have paused or stopped the run meanwhile.
                if executor.state.status in EXECUTED_STATES and not executor.barrier.is_detached:
                    executor.barrier.resume()
                    executor.dispatcher.dispatch()
            return False
        return True

    async def wait_for_next_attempt(self, is_ended: Callable[[], bool]) -> None:
        """Return when another attempt does not hold up the runs for long, or when they have ended.

        That is as soon as nothing is in progress. If there is always something, it is after a delay that
        grows, so that most of the time is for work, and when the leaves have ended that took too long: how
        much longer they take is not known.
        """
        delay, self._delay = self._delay, min(2 * self._delay, MAX_PAUSE_DELAY)
        with suppress(TimeoutError):
            await workflow.wait_condition(lambda: is_ended() or self._is_idle(), timeout=delay)
        await workflow.wait_condition(lambda: is_ended() or not self._has_long_leaves())

    def _has_long_leaves(self) -> bool:
        running = self._find_running_leaves()
        return any(leaf in running for leaf in self._long_leaves)

    def _find_running_leaves(self) -> list[LeafRuntime]:
        executors = self._engine.executors.values()
        return [leaf for executor in executors for leaf in executor.call_runner.running_leaves.values()]

    def _is_idle(self) -> bool:
        """Whether no step is executed, no workspace is removed, and no command is in progress."""
        is_executing = self._find_running_leaves() or self._activities.closing
        return workflow.all_handlers_finished() and not is_executing

    def _is_at_rest(self) -> bool:
        """Whether nothing is in progress, and all runs are paused."""
        return self._is_idle() and all(
            executor.barrier.is_paused for executor in self._engine.executors.values()
        )


def count_journal_events(engine: LocalEngine) -> int:
    return sum(executor.journal.seq for executor in engine.executors.values())


def has_long_journals(engine: LocalEngine) -> bool:
    """Whether the journals of a family are too long for a new history to begin with them."""
    return count_journal_events(engine) > carried_runs.MAX_CARRIED_EVENTS


def describe_long_journals(engine: LocalEngine) -> str:
    count, limit = count_journal_events(engine), carried_runs.MAX_CARRIED_EVENTS
    return (
        f"The journal has {count:,} events with those of child runs. It cannot continue in a new history,"
        f" which begins with at most {limit:,}, and this one is nearly full. Use ctx.continue_as_new in the"
        " workflow; resume the run if it ends soon, or stop it"
    )


@workflow.defn(name=WORKFLOW_TYPE)
class RunWorkflow:
    """One family of runs, from its start, or from its journal, until its first run has ended."""

    def __init__(self) -> None:
        self._handler: RunCommandHandler | None = None
        self._max_events = 0
        self._full_events = FULL_EVENTS

    @workflow.run
    async def run(self, data: dict[str, Any]) -> dict[str, Any]:
        given = RunInput.from_data(data)
        if (hosted := hosted_sessions.get(given.session)) is None:
            raise RuntimeError(f"No session '{given.session}' on this worker")
        store = hosted.make_store()
        store.append(given.journal)
        workspaces = FamilyWorkspaces(given.workspaces)
        activities = WorkflowActivities(given.session, given.host, workspaces)
        outbox = Outbox(activities, given.projected, lambda run_id: engine.executors[run_id].journal.seq)
        seed = read_start(store, given.run_id).seed or given.run_id
        engine = LocalEngine(store, hosted.names, given.session, LoopClock(), WorkflowHost(seed, outbox.add))
        engine.replace_leaf = lambda call: replace_leaf(call, hosted.names, outbox)
        assert isinstance(engine.queues, WorkflowQueues)
        engine.queues.outbox = outbox
        engine.shared_facts = WorkflowFacts(outbox, engine.commands.on_fact)

        def on_events(run: WorkflowRun, rows: Iterable[EventRow]) -> None:
            # The next run of a chain may continue in its workspaces.
            if any(row.type in END_EVENTS for row in rows) and run.continued_as is None:
                row = store.run(run.run_id)
                activities.close_workspaces(run.run_id, is_last=row is None or row.parent is None)

        engine.watchers.append(on_events)
        host_engine(engine)
        engine.bind_to_running_loop()
        self._handler = RunCommandHandler(engine)
        outbox.add(given.journal)
        run = self._resume(engine, given.run_id)
        repeated = [RunCommand.from_data(data) for data in given.commands]
        if repeated:
            spawn_detached(self._repeat(repeated))
        pause = FamilyPause(engine, outbox, activities)
        self._max_events = given.history_events
        while not (run := run.current).is_complete:
            await self._wait_for_end_of_history(run)
            if has_long_journals(engine):
                await self._continue_in_history(run, engine)
                continue
            if not run.current.is_complete and await pause.reach():
                journal = carry_family(store, run.current.run_id)
                successor = RunInput(
                    given.session,
                    run.current.run_id,
                    journal,
                    outbox.written,
                    activities.host,
                    given.history_events,
                    workspaces.names,
                )
                workflow.continue_as_new(successor.to_data(), initial_versioning_behavior=UPGRADE)
            await pause.wait_for_next_attempt(lambda: run.current.is_complete)
        outbox.send_all()
        await workflow.wait_condition(
            lambda: outbox.is_empty and workflow.all_handlers_finished() and not activities.closing
        )
        if run.state is WorkflowState.FAILED:
            raise ApplicationError(run.error or "", type=run.run_state.error_type, non_retryable=True)
        return FamilyOutcome(run.run_id, run.state.value).to_data()

    async def _repeat(self, commands: Sequence[RunCommand]) -> None:
        """Execute commands again whose events are lost."""
        assert self._handler is not None
        for command in commands:
            await self._handler.execute(command)

    async def _wait_for_end_of_history(self, run: WorkflowRun) -> None:
        """Return when the run has ended, or must continue in a new history."""
        await workflow.wait_condition(lambda: run.current.is_complete or self._is_history_long())

    async def _continue_in_history(self, run: WorkflowRun, engine: LocalEngine) -> None:
        """Return when the run has ended, or can continue in a new history.

        It is held before this one is full.
        """
        while not run.current.is_complete and has_long_journals(engine):
            if self._is_history_full():
                self._full_events = workflow.info().get_current_history_length() + EVENTS_TO_END
                hold = RunOnHold("history_full", describe_long_journals(engine))
                for executor in list(engine.executors.values()):
                    executor.barrier.hold_new_work(hold)
            await workflow.wait_condition(
                lambda: run.current.is_complete or not has_long_journals(engine) or self._is_history_full()
            )

    def _is_history_full(self) -> bool:
        return workflow.info().get_current_history_length() >= self._full_events

    def _is_history_long(self) -> bool:
        """Whether the history must end: because of its length or size, or of a newer build of the workers."""
        info = workflow.info()
        return (
            info.get_current_history_length() >= self._max_events
            or info.is_continue_as_new_suggested()
            or info.is_target_worker_deployment_version_changed()
        )

    def _resume(self, engine: LocalEngine, run_id: str) -> WorkflowRun:
        """Continue the run from its journal; its child runs continue when it requests them."""
        row = engine.store.run(run_id)
        assert row is not None
        run = engine.run_handle(row)
        if row.state in EXECUTED_STATE_VALUES:
            engine.rebuild_run(run)
        return run

    @workflow.update(name=COMMAND_UPDATE)
    async def command(self, data: dict[str, Any]) -> dict[str, Any]:
        """Execute a command; it has happened when it is accepted."""
        # A workflow that was evicted begins again with its first task, which has no engine yet.
        await workflow.wait_condition(lambda: self._handler is not None)
        assert self._handler is not None
        return (await self._handler.execute(RunCommand.from_data(data))).to_data()
