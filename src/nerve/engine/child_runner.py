"""Run the calls of a body that are workflows, each as a child run of its own, started at most once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from nerve.core.limits import BUDGET_FIELDS, Limits, RunUsage
from nerve.core.nodes.active_workspace import ActiveWorkspace, share_workspace
from nerve.core.nodes.attempt import InterruptedSteps
from nerve.core.result import CHILD_REJECTED_ERROR_TYPE, REJECTED_ERROR_TYPE, Result
from nerve.core.run_view import RunView
from nerve.core.runtime import NodeCall
from nerve.core.usage_ledger import UsageEntry, sum_entries
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import FINAL_STATES, WorkflowState
from nerve.core.workflow.workflow import Workflow, recursion_error
from nerve.engine.child_runs import (
    attempt_timer_path,
    find_child_attempts,
    find_interrupted_step,
    find_shared_files,
)
from nerve.engine.execution_barrier import ExecutionBarrier
from nerve.engine.recorded_history import RecordedHistory
from nerve.engine.result_dispatcher import ResultDispatcher
from nerve.engine.run_budget import RunBudget
from nerve.engine.run_chain import find_current_row
from nerve.engine.run_journal import RunJournal
from nerve.engine.run_queues import RunQueues
from nerve.engine.run_timers import RunTimers
from nerve.engine.wall_clock import WallClock
from nerve.errors import NerveError
from nerve.journal.events import RunCancelled, RunStarted, decode_event
from nerve.lazy_dataclass import dataclass
from nerve.store.port import RunRow, Store


@dataclass(frozen=True, slots=True)
class ChildRunOperations:
    """What the calls of child runs ask of the engine."""

    store: Store
    start: Callable[..., Awaitable[None]]
    """Starts a run, with its parent, the path of the call and the lineage."""
    resume: Callable[[RunRow], WorkflowRun]
    handle: Callable[[RunRow], WorkflowRun]
    usage_of_stopped_runs: Callable[[Sequence[str]], dict[str, Any]]
    stop_open_children: Callable[..., Awaitable[None]]
    """Stops the open children of a run, or those at a `path`; `top` is an enclosing run that is stopped."""
    schedule_stop: Callable[[WorkflowRun, str, str | None], object]
    is_queued: Callable[[str], bool]
    """Whether a run waits for a queue before it starts."""


class ParentRun(Protocol):
    """The run that starts the child runs."""

    @property
    def queues(self) -> RunQueues: ...

    def on_write_failed(self, error: NerveError) -> None:
        """Suspend the body because an event of a child run cannot be written."""


class ChildRunner:
    """The child runs of one run."""

    def __init__(
        self,
        run: WorkflowRun,
        start: RunStarted,
        journal: RunJournal,
        dispatcher: ResultDispatcher,
        barrier: ExecutionBarrier,
        history: RecordedHistory,
        budget: RunBudget,
        timers: RunTimers,
        wall_clock: WallClock,
        operations: ChildRunOperations,
        owner: ParentRun,
    ) -> None:
        self._run, self._state, self._journal, self._dispatcher = run, run.run_state, journal, dispatcher
        self._barrier, self._history, self._budget = barrier, history, budget
        self._timers, self._wall_clock, self._operations = timers, wall_clock, operations
        self._owner = owner
        self._lineage = [*(start.lineage or ()), run.workflow_id]
        self.interrupted_steps = InterruptedSteps()
        """Steps of the run and its children that were interrupted and may have had their effect."""

    async def run_attempt(self, call: NodeCall, attempt: int) -> Result:
        """Start or resume the child run of a call, and return its result when it ends."""
        if call.policy.idle_timeout is not None:
            return Result.failed(
                "idle_timeout applies to nodes only. Use timeout for a workflow.", "ValueError"
            )
        workflow = call.node
        assert isinstance(workflow, Workflow)
        if refusal := recursion_error(workflow.name, self._lineage, self._state.limits.depth):
            return refusal
        workspace = None if call.context is None else call.context.workspace
        run_id = self._journal.child_id(call.path, attempt)
        # The journal may say that this attempt timed out; then it times out again whatever the child did.
        is_late = call.policy.timeout is not None and self._history.was_delivered(
            attempt_timer_path(call.path, attempt)
        )
        # During replay a child that has not ended must not run ahead: the recorded parent may abandon it.
        if is_late or not (self._barrier.is_live or self._has_ended(run_id)):
            await self._wait_for_replay_end(call, run_id, is_late)
        row = self._current_row(run_id)
        # After a reset the call has a new child. The previous one would otherwise keep running unsupervised.
        if row is None and self._history.has_optional_records:
            await self._operations.stop_open_children(self._run.run_id, "its parent replaced it", call.path)
            self._budget.record_stopped_children(call.path)
        try:
            child = self._operations.resume(row) if row is not None else self._create(workflow, call, run_id)
        except ValueError as error:
            return Result.from_exception(error)
        child, previous_runs = await self._run_to_end(call, child, attempt, is_new=row is None)
        # The stop ended the child first, and a crash kept it from the parent; see RunCommands._stop().
        if (top := find_stop_origin(self._operations.store, child)) is not None:
            await self._stop_with_child(child, top)
        if child.run_state.status is not WorkflowState.COMPLETED:
            self._record_interrupted_step(call, child.run_id)
        result = child_run_result(child, previous_runs)
        return result if workspace is None else self._with_files(result, child, workspace)

    async def _run_to_end(
        self, call: NodeCall, child: WorkflowRun, attempt: int, is_new: bool
    ) -> tuple[WorkflowRun, list[WorkflowRun]]:
        """Wait until a child run has ended; return it, and the runs of earlier attempts, which count as well.

        If it continues as new, the last run of its chain is returned.
        """
        children = self._state.children
        # Registered before the first await, so that a stop or a pause of the parent finds the child.
        if not child.is_complete:
            children[call.path] = child
        try:
            if is_new:
                await self._operations.start(
                    child,
                    parent=self._run.run_id,
                    parent_path=call.path,
                    lineage=self._lineage,
                    workspace=None if call.context is None else share_workspace(call.context),
                )
            while not child.is_complete:
                await self._wait_for_change(call, child)
                if child.continued_as is not None:
                    child = children[call.path] = child.current
        except asyncio.CancelledError:
            await self._abandon(call, child)
            raise
        finally:
            if children.get(call.path) is child:
                del children[call.path]
            self._wall_clock.update()
        return child, self._previous_runs(call.path, attempt)

    def _current_row(self, run_id: str) -> RunRow | None:
        """Return a child run, or the current run of its chain."""
        row = self._operations.store.run(run_id)
        return None if row is None else find_current_row(self._operations.store, row)

    def _has_ended(self, run_id: str) -> bool:
        row = self._current_row(run_id)
        return row is not None and WorkflowState(row.state) in FINAL_STATES

    def _create(self, workflow: Workflow, call: NodeCall, run_id: str) -> WorkflowRun:
        """Create the handle of a new child run with its limits and parameters."""
        # A child never gets more than its caller allows: the smaller of both limits applies.
        depth = min(workflow.limits.depth, self._state.limits.depth)
        sources = (workflow.limits, call.policy.limits or Limits())
        budget_limits: dict[str, Any] = {}
        for name in BUDGET_FIELDS:
            for bound in (getattr(limits, name) for limits in sources):
                if bound is not None:
                    budget_limits[name] = min(bound, budget_limits.get(name, bound))
        limits = workflow.limits.with_raised({"depth": depth, **budget_limits})
        params = workflow.check_params(call.params or {})
        about: dict[str, Any] = {}
        if call.policy.queue is not None:
            about["queue"] = self._owner.queues.request_of_call(call).to_data()
        return WorkflowRun(workflow, call.input, params, run_id=run_id, limits=limits, about=about)

    def _with_files(self, result: Result, child: WorkflowRun, workspace: ActiveWorkspace) -> Result:
        """Add the files of the caller's workspace after a child run that has changed them to its result."""
        recorded = find_shared_files(self._operations.store, child.run_id)
        if recorded is None:
            return result
        workspace.is_live = True
        owner = {} if workspace.run_id == self._run.run_id else {"run": workspace.run_id}
        files = {"name": workspace.name, **owner, **recorded}
        attributes = {**result["attributes"], "workspace": files}
        return Result({**result, "attributes": attributes}).with_settlement(result)

    def _previous_runs(self, path: str, attempt: int) -> list[WorkflowRun]:
        rows = (self._current_row(self._journal.child_id(path, number)) for number in range(1, attempt))
        return [self._operations.handle(row) for row in rows if row is not None]

    async def _stop_with_child(self, child: WorkflowRun, top: str) -> None:
        """Finish stopping the run when a crash interrupted the stop after its children."""
        if not self._barrier.is_stopping:
            stopped_with = None if self._run.run_id == top else top
            self._operations.schedule_stop(self._run, child.run_state.error or "", stopped_with)
        # The body must not see the child's cancellation as an outcome; the stop cancels this wait.
        await self._dispatcher.wait_forever()

    async def _wait_for_replay_end(self, call: NodeCall, run_id: str, is_late: bool) -> None:
        """Wait until replay has ended; stop the child if the body abandons it before that."""
        row = self._current_row(run_id)
        try:
            await (self._dispatcher.wait_forever() if is_late else self._barrier.wait_until_live())
        except asyncio.CancelledError:
            if row is not None and not self._barrier.is_inactive:
                self._state.children.pop(call.path, None)
                await self._abandon(call, self._operations.handle(row))
            raise

    async def _abandon(self, call: NodeCall, child: WorkflowRun) -> None:
        """Stop a child its parent no longer waits for; hold both if that cannot be written."""
        # A stop handles the children itself, and on shutdown a child stays open for recovery.
        if self._barrier.is_stopping or self._barrier.is_inactive:
            return
        try:
            await child.stop("its parent abandoned it")
        except NerveError as unwritten:
            self._owner.on_write_failed(unwritten)
        self._record_interrupted_step(call, child.run_id, is_abandoned=True)

    async def _wait_for_change(self, call: NodeCall, child: WorkflowRun) -> None:
        """Wait until a child changes; pause the timers of its call while it is held or waits to start."""
        if not self._is_kept_back(child):
            await self._wait_for_event(child)
            return
        with self._timers.paused(call.path):
            while self._is_kept_back(child):
                await self._wait_for_event(child)

    def _is_kept_back(self, child: WorkflowRun) -> bool:
        return child.held is not None or self._operations.is_queued(child.run_id)

    async def _wait_for_event(self, child: WorkflowRun) -> None:
        self._wall_clock.update()
        self._state.notify_watchers()
        await child.wait_for_change()

    def _record_interrupted_step(self, call: NodeCall, run_id: str, is_abandoned: bool = False) -> None:
        """Record a step with effect="once" that a failed child run started and may have completed."""
        if is_abandoned and call.policy.effect == "once":
            self.interrupted_steps.append(call.path)
        elif (step_path := find_interrupted_step(self._operations.store, run_id)) is not None:
            self.interrupted_steps.append(call.path + step_path)

    def record_interrupted_steps(self, call: NodeCall) -> None:
        """Record the interrupted steps of all attempts at a child run that the body abandoned."""
        for run_id in self._attempt_ids(call.path):
            self._record_interrupted_step(call, run_id, is_abandoned=True)

    def _attempt_ids(self, path: str) -> list[str]:
        store = self._operations.store
        rows = find_child_attempts(store, self._run.run_id, self._journal.call_key(path))
        return [find_current_row(store, row).run for row in rows]

    def with_attempt_usage(self, call: NodeCall, result: Result) -> Result:
        """Add the usage of child runs to the result of a call that timed out and does not name them."""
        attributes = result["attributes"]
        attempt_ids = self._attempt_ids(call.path) if "run_id" not in attributes else []
        if not attempt_ids:
            return result
        usage = self._operations.usage_of_stopped_runs(attempt_ids)
        attributes = {**attributes, "run_id": attempt_ids[-1]} | ({"usage": usage} if usage else {})
        return Result({**result, "attributes": attributes}).with_settlement(result)


def find_stop_origin(store: Store, child: WorkflowRun) -> str | None:
    """Return the run that was stopped, if the child was stopped as part of an enclosing run."""
    is_cancelled = child.run_state.status is WorkflowState.CANCELLED
    last = store.last_event(child.run_id) if is_cancelled else None
    end = decode_event(last) if last is not None else None
    return end.stopped_with if isinstance(end, RunCancelled) else None


def child_run_result(child: WorkflowRun, previous_runs: Sequence[WorkflowRun] = ()) -> Result:
    """Return the result of a call from the ended child run, with the usage of all attempts."""
    attributes: dict[str, object] = {"run_id": child.run_id}
    if usage := sum_run_usage([run.view for run in (*previous_runs, child)]):
        attributes["usage"] = usage
    state = child.run_state
    if state.status is WorkflowState.COMPLETED:
        return Result.ok(state.result, attributes)
    if state.error_type == REJECTED_ERROR_TYPE:
        return Result.failed(state.error or "rejected", CHILD_REJECTED_ERROR_TYPE, attributes=attributes)
    if state.status is WorkflowState.CANCELLED:
        reason = f": {state.error}" if state.error else ""
        return Result.failed(f"child run was cancelled{reason}", "CancelledError", attributes=attributes)
    return Result.failed(state.error or "failed", state.error_type or "WorkflowFailed", attributes=attributes)


def sum_run_usage(views: Sequence[RunView]) -> dict[str, Any]:
    """Return the usage of runs and of the earlier runs of their chains, and the models used."""
    usage = RunUsage()
    entries: list[tuple[str, UsageEntry]] = []
    for view in views:
        usage.add(view.usage)
        usage.spend(view.used_before)
        entries += [(model, entry) for (_, model), entry in view.ledger.entries.items()]
        for model, amounts in view.used_before.get("models", {}).items():
            entry = UsageEntry()
            entry.add(amounts)
            entries.append((model, entry))
    used, models = usage.to_dict(), sum_entries(entries)
    return {**used, "models": models} if used or models else {}
