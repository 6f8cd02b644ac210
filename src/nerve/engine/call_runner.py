"""Run the node calls of a body; each call is settled once, after one or more attempts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from nerve.core.agent_threads import AgentThreads
from nerve.core.clock import sleep_on_clock
from nerve.core.json_codec import encode_json, short_sha256
from nerve.core.nodes.active_workspace import ActiveWorkspace
from nerve.core.nodes.attempt import AttemptTimer, execute_safely, run_attempt
from nerve.core.nodes.base import Role, node_role
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.fact_nodes import FactChanges
from nerve.core.nodes.folder_users import FolderUsers
from nerve.core.nodes.in_memory_runtime import RuntimeHome, retry_event_data
from nerve.core.nodes.inline import run_with_retries
from nerve.core.nodes.workspace import MergeWorkspace
from nerve.core.policy import NO_POLICY, NO_RETRY, Policy
from nerve.core.result import IMMUTABLE_TYPES, Result, deep_copy_json
from nerve.core.runtime import NodeCall
from nerve.core.workflow.run import RunState
from nerve.core.workflow.state import WorkflowState
from nerve.engine.child_runner import ChildRunner
from nerve.engine.child_runs import iterate_recorded_files
from nerve.engine.execution_barrier import ExecutionBarrier
from nerve.engine.leaf_runtime import LeafEnvironment, LeafRuntime
from nerve.engine.open_waits import OpenWaits
from nerve.engine.recorded_history import RecordedHistory, hold_in_doubt
from nerve.engine.result_dispatcher import ResultDispatcher
from nerve.engine.run_budget import RunBudget
from nerve.engine.run_journal import RunJournal
from nerve.engine.run_queues import RunQueues
from nerve.engine.run_timers import RunTimers
from nerve.engine.task_tracking import TASK_OWNER
from nerve.errors import NotJson
from nerve.journal.events import (
    NodeCancelled,
    NodeRetrying,
    open_call,
    settle_call,
)
from nerve.journal.replay import RecordedCall, RecordInvalidated, ReplayEntry

MAX_LOOP_SHARE_S = 0.002
"""Seconds a single run may occupy the event loop before it yields."""


class PendingDecision(NamedTuple):
    """A step whose outcome the user must decide, and whether the decision is recorded."""

    decision: asyncio.Future[Result | None]
    decision_recorded: asyncio.Future[None]


class CallOwner(Protocol):
    """What the calls of a run ask of it."""

    @property
    def child_runner(self) -> ChildRunner: ...

    @property
    def queues(self) -> RunQueues: ...

    def random(self, path: str) -> float:
        """Return the random number of a path, from the seed of the run."""

    def check_limits(self, path: str) -> bool:
        """Return whether the run may continue; fail it if it has reached a limit on its work."""

    def record_before_end(self) -> None:
        """Record what precedes the end of a call: what the body did, and that it was stopped."""

    def copy_facts(self, request: ReplayEntry, changes: FactChanges) -> None:
        """Change facts as a step did that a fork has copied."""


class CallRunner:
    """The calls of one run."""

    _next_yield_at = 0.0
    _recorded_files: list[tuple[str, dict[str, Any]]] | None = None
    """What the steps in the journal have recorded about the files of workspaces, with their paths."""
    in_backoff: frozenset[str] = frozenset()
    """The leaves that wait for their next attempt."""

    def __init__(
        self,
        state: RunState,
        overrides: Mapping[str, dict[str, Any]],
        journal: RunJournal,
        dispatcher: ResultDispatcher,
        barrier: ExecutionBarrier,
        history: RecordedHistory,
        waits: OpenWaits,
        budget: RunBudget,
        timers: RunTimers,
        threads: AgentThreads,
        running_leaves: dict[str, LeafRuntime],
        home: RuntimeHome,
        count_active_runs: Callable[[], int],
        replace_leaf: Callable[[NodeCall], NodeCall] | None,
        folder_users: FolderUsers,
        owner: CallOwner,
    ) -> None:
        self._state, self._overrides = state, overrides
        self._journal, self._dispatcher, self._barrier, self._history = journal, dispatcher, barrier, history
        self._waits, self._budget, self._timers = waits, budget, timers
        self._clock, self._monotonic = timers.clock, timers.clock.monotonic
        self._threads, self._count_active_runs = threads, count_active_runs
        self._replace_leaf, self._owner = replace_leaf, owner
        self._folder_users = folder_users
        self.running_leaves = running_leaves
        """The leaves that are executing, by path, with the runtime each of them sees."""
        self.pending_decisions: dict[str, PendingDecision] = {}
        """Steps whose outcome the user must decide, by path."""
        self._leaf_environment = LeafEnvironment(
            home, state, threads, journal, waits, budget, timers, barrier
        )

    async def call(self, call: NodeCall) -> Result:
        path, node, context, policy = call.path, call.node, call.context, call.policy
        history, dispatcher, barrier = self._history, self._dispatcher, self._barrier
        barrier.check_request(path)
        if self._overrides:
            call.input = self._overrides.get(path, {}).get("input", call.input)
        input_error: NotJson | None = None
        try:
            text = encode_json(call.input, canonical=True)
        except NotJson as error:
            text, input_error = "null", error
        role: Role = getattr(node, "role", "leaf")
        is_leaf = role == "leaf"
        input_hash = short_sha256(text)
        is_once = policy.effect == "once" and is_leaf
        workspace = context.workspace if context is not None else None
        recorded: RecordedCall | None = None
        if dispatcher.history is not None:
            is_outdated = workspace is not None and workspace.is_live and role != "control"
            recorded = history.lookup(path, input_hash, text, is_outdated)
        is_started, is_settled = recorded is not None, False
        edits_files, refusal = hasattr(node, "find_edited_folder"), None
        queues = self._owner.queues if policy.queue is not None else None
        # A reset removed the record of this step, but it may have run before. The start is recorded again
        # so that the hold, and the decision that ends it, have a call to refer to.
        if is_once and not is_started and path in history.unknown_outcomes:
            self._record_started(call, role, text, input_hash)
            await history.hold_in_doubt(path)
        try:
            if recorded is not None and recorded.outcome is not None:
                is_settled = True
                if (replayed := await self._replay_outcome(call, recorded)) is not None:
                    return replayed
                # The record was invalidated while the call waited for it: look again, since a reset also
                # changes the path's history.
                recorded, is_settled = history.lookup(path, input_hash, text), False
                is_started = recorded is not None
            # The leaf gets a copy: the body may change its object meanwhile, and the journal has the input
            # as it was.
            if is_leaf and type(call.input) not in IMMUTABLE_TYPES and input_error is None:
                call.input = deep_copy_json(call.input)
            # Control nodes and child calls run again during replay, because their inner calls are replayed
            # one by one. Leaves may have effects, so an unsettled leaf waits until replay has ended.
            if recorded is not None and not is_leaf:
                dispatcher.dispatch()
            elif is_once and recorded is not None and recorded.is_in_doubt:
                await history.hold_in_doubt(path)
            elif dispatcher.replay is not None or barrier.resumed is not None:
                await barrier.wait_until_live()
            if recorded is None:
                # The budget is reserved before the start is recorded: a call that waits for its budget has
                # not started.
                if (reservation := self._count_and_reserve(path, role)) is not None:
                    await reservation
                if queues is not None:
                    # A child run waits for its slot itself; only a wrong name is reported here.
                    request = queues.request_of_call(call)
                    if is_leaf:
                        await queues.enter_step(path, request)
            if edits_files:
                refusal = self._folder_users.enter(call, is_restarted=recorded is not None)
            if recorded is None:
                is_started = True
                seq = self._record_started(call, role, text, input_hash)
                if role != "control" and (durable_start := self._sync_start(seq)) is not None:
                    await durable_start
            started_at = self._monotonic()
            if input_error is not None:
                result = Result.from_exception(input_error)
            elif refusal is not None:
                result = refusal
            elif is_leaf:
                result = await self._run_leaf(call, recorded)
            else:
                result = await self._run_in_body(call, role)
            if workspace is not None and role != "control":
                workspace.note_result(result)
            # A child may end while this run is paused or replays; its outcome is new and comes after
            # recorded ones.
            if role == "workflow" and not barrier.is_live:
                await barrier.wait_until_live()
            outcome = self._record_outcome(call, role, result, self._monotonic() - started_at)
            is_settled = True
            if not isinstance(outcome, Result):
                delivered: Result = await dispatcher.wait_for(outcome)
                return delivered
            return outcome
        except asyncio.CancelledError:
            if is_started:
                await self._record_abandoned_call(call, role, recorded, is_settled)
            raise
        finally:
            if edits_files:
                self._folder_users.leave(call)
            if queues is not None:
                queues.leave(path)

    async def _record_abandoned_call(
        self, call: NodeCall, role: Role, recorded: RecordedCall | None, is_settled: bool
    ) -> None:
        """Record a started call that the body abandoned, with its usage and possible effects.

        A cancelled leaf may take time to end, so the body continues when the event of that end has its turn.
        """
        path, is_child = call.path, role == "workflow"
        if role == "leaf" and call.policy.effect == "once":
            self._owner.child_runner.interrupted_steps.append(path)
        elif is_child and recorded is not None and recorded.is_abandoned:
            self._owner.child_runner.record_interrupted_steps(call)
        if not self._history.must_record_abandoned(recorded, takes_time=role != "control"):
            return
        is_stopped = self._barrier.is_cancelled_by_engine()
        result: dict[str, Any] | None = None
        # A call that was settled before keeps that outcome, and its usage is known; only an unsettled one is
        # settled by being abandoned.
        if not is_settled:
            attributes = self._abandoned_child_usage(call) if is_child else {"usage": self._noted_usage(call)}
            self._budget.spend(path, attributes["usage"], by_child=is_child)
            if attributes["usage"] is not None:
                result = {"attributes": attributes}
        cancelled = NodeCancelled(result=result, stopped=is_stopped)
        seq = self._history.record_abandoned(cancelled, path, is_settled)
        await self._history.wait_for_turn(seq)

    async def _replay_outcome(self, call: NodeCall, recorded: RecordedCall) -> Result | None:
        """Return the recorded outcome of a call, or None if it was invalidated."""
        try:
            result: Result = await self._history.await_outcome(recorded)
        except RecordInvalidated:
            return None
        self._threads.record_result(call.node_id, result)
        if call.context is not None and (workspace := call.context.workspace) is not None:
            if node_role(call.node) == "control":
                self._note_files_below(call.path, workspace)
            workspace.note_result(result)
        copied_facts: Callable[[Any], FactChanges] | None = getattr(call.node, "copied_facts", None)
        if copied_facts is not None and result.success and recorded.request.is_optional:
            self._owner.copy_facts(recorded.request, copied_facts(call.input))
        return result

    def _note_files_below(self, path: str, workspace: ActiveWorkspace) -> None:
        """Note the files after a control node whose outcome is replayed, so that its steps are not."""
        if self._recorded_files is None:
            self._recorded_files = list(iterate_recorded_files(self._journal.read_rows()))
        for step_path, files in self._recorded_files:
            if step_path.startswith(f"{path}/"):
                workspace.note_files(files)

    def _count_and_reserve(self, path: str, role: Role) -> Awaitable[None] | None:
        """Count a new call; return what to await if a limit or budget applies."""
        budget = self._budget
        if self._dispatcher.history is not None:
            self._history.invalidate_later_answers()
        if role != "control":
            budget.usage.steps += 1
        # What cleans up after a limit was reached must not fail by the same limit.
        if not budget.is_limited or self._barrier.is_cleaning_up:
            return None
        if not self._owner.check_limits(path):
            return self._dispatcher.wait_forever()
        return self._leaf_environment.wait_for_budget(path, lambda promised: budget.find_exhausted())

    def _record_started(self, call: NodeCall, role: Role, text: str, input_hash: str) -> int:
        """Record that the call has started; return the sequence number of the event."""
        child = self._journal.child_id(call.path) if role == "workflow" else None
        return self._journal.append(open_call(call, input_hash, text, role == "control", child), call.path)

    def _sync_start(self, seq: int) -> Awaitable[None] | None:
        """Commit the start of a leaf or child run; return what to await until it is on disk.

        A leaf has effects and a child run is visible, so everything the body did up to here is on disk before
        either exists: a crash then repeats no step whose result a later one has used.
        """
        # With one run and one task nothing else can share the commit; inline it saves turns of the loop.
        if (
            self._dispatcher.is_sequential
            and self._count_active_runs() == 1
            and self._journal.flush_now() >= seq
        ):
            return self._yield_to_loop() if time.perf_counter() > self._next_yield_at else None
        return self._journal.wait_durable(seq)

    async def _yield_to_loop(self) -> None:
        """Let other tasks run: a body whose commits are inline never blocks, and would starve them."""
        await asyncio.sleep(0)
        self._next_yield_at = time.perf_counter() + MAX_LOOP_SHARE_S

    async def _run_in_body(self, call: NodeCall, role: Role) -> Result:
        assert call.context is not None
        context = call.context.child(call.path, call.input)
        if role == "control":
            return await run_with_retries(
                context, call.policy, lambda _: self._run_control_node(call, context)
            )
        children = self._owner.child_runner
        result = await run_with_retries(
            context, call.policy, lambda number: children.run_attempt(call, number)
        )
        return children.with_attempt_usage(call, result)

    async def _run_control_node(self, call: NodeCall, context: ExecutionContext) -> Result:
        """Run a control node as part of the body."""

        def set_timer(timer: AttemptTimer) -> None:
            self._timers.attempt_timers[call.path] = timer

        try:
            return await run_attempt(
                call.node, context, Policy(idle_timeout=call.policy.idle_timeout), set_timer, self._clock
            )
        finally:
            self._timers.attempt_timers.pop(call.path, None)

    async def _run_leaf(self, call: NodeCall, recorded: RecordedCall | None) -> Result:
        """Run a leaf outside the body: tasks it starts and events it emits are not replayed."""
        assert call.context is not None
        path = call.path
        executed = call if self._replace_leaf is None else self._replace_leaf(call)
        runtime = self.running_leaves[path] = LeafRuntime(call, self._leaf_environment, recorded is not None)
        context = call.context.child(path, call.input, runtime)
        if (workspace := context.workspace) is not None:
            if getattr(call.node, "changes_files", False):
                workspace.is_live = True
            elif isinstance(call.node, MergeWorkspace):
                workspace.mark_live()
        if self._overrides:
            context.overrides = self._overrides.get(path, {})
        # The agent starts over and asks again; gates of the interrupted attempt have no receiver.
        if recorded is not None and getattr(call.node, "asks", False):
            self._waits.cancel_leaf_gates(path)
        # Tasks that the leaf starts must not count as tasks of the body, or the body would never be idle.
        token = TASK_OWNER.set(None)
        try:
            if recorded is None and executed.policy is NO_POLICY:
                return await execute_safely(executed.node, context)
            return await self._run_attempts(call, executed, context, runtime, recorded)
        finally:
            TASK_OWNER.reset(token)
            self._mark_leaf_idle(path)

    @property
    def is_executing(self) -> bool:
        """Whether a leaf does something else than to wait for a person, a budget, a limit or the clock."""
        return any(
            not leaf.is_waiting and path not in self.pending_decisions
            for path, leaf in self.running_leaves.items()
        )

    def _mark_leaf_idle(self, path: str) -> None:
        """Mark a leaf as not executing; a requested pause takes effect when none executes."""
        self.running_leaves.pop(path, None)
        if self._state.status is WorkflowState.PAUSING and not self.running_leaves:
            self._state.status = WorkflowState.PAUSED
            self._state.notify_watchers()

    async def _run_attempts(
        self,
        call: NodeCall,
        executed: NodeCall,
        context: Any,
        runtime: LeafRuntime,
        recorded: RecordedCall | None,
    ) -> Result:
        """Attempt a call, by the node and the timeouts of `executed`, until its policy is satisfied."""
        retry = call.policy.retry or NO_RETRY
        number, delay = await self._previous_attempts(call, recorded) if recorded else (0, 0.0)
        while True:
            if number:
                await self._backoff(runtime, delay)
            if call.policy.queue is not None and not self._owner.queues.holds(call.path):
                await self._enter_queue_again(call, runtime)
            number += 1
            result = await run_attempt(
                executed.node, context, executed.policy, runtime.set_timer, self._clock
            )
            if not result.success:
                self._barrier.raise_if_cancelled()
            # An attempt has its own slot: others run during a backoff, and a rate counts every attempt.
            if call.policy.queue is not None:
                self._owner.queues.leave(call.path)
            # After a timeout the effect may have happened, so a step with effect="once" is never retried
            # unasked.
            if result.settlement == "timeout" and call.policy.effect == "once":
                if (decision := await self._wait_for_decision(call)) is not None:
                    return decision
                delay = 0.0
            else:
                result, is_retried = retry.decide(result, number)
                if not is_retried:
                    return self._with_noted_usage(call, runtime, result)
                # The jitter comes from the seeded generator of the run, so replay computes the same delay.
                delay = retry.backoff_seconds(number, self._owner.random(f"{call.path}~{number}"))
            retrying = retry_event_data(call.node_id, number, retry, delay, result)
            self._journal.append(NodeRetrying.from_data(retrying), call.path)

    async def _backoff(self, runtime: LeafRuntime, delay: float) -> None:
        """Wait between two attempts; none starts while the run is paused or held."""
        path = runtime.path
        self._mark_leaf_idle(path)
        self.in_backoff |= {path}
        try:
            if delay > 0:
                await sleep_on_clock(self._clock, delay)
            await self._barrier.wait_until_resumed()
        finally:
            self.in_backoff -= {path}
        self.running_leaves[path] = runtime

    async def _enter_queue_again(self, call: NodeCall, runtime: LeafRuntime) -> None:
        """Wait for the slot of another attempt; meanwhile the leaf does not execute."""
        self._mark_leaf_idle(call.path)
        self.in_backoff |= {call.path}
        try:
            await self._owner.queues.enter_attempt(call)
        finally:
            self.in_backoff -= {call.path}
        self.running_leaves[call.path] = runtime

    async def _wait_for_decision(self, call: NodeCall) -> Result | None:
        """Return the user's decision on an interrupted effect="once" step; None means run it again."""
        path, loop = call.path, asyncio.get_running_loop()
        decision: asyncio.Future[Result | None] = loop.create_future()
        pending = self.pending_decisions[path] = PendingDecision(decision, loop.create_future())
        try:
            with self._timers.paused(path):
                # resume() lifts the hold without deciding anything, so the run is held again until there is
                # a decision.
                while not decision.done():
                    resumed = self._barrier.hold_new_work(hold_in_doubt(path))
                    futures: list[asyncio.Future[Any]] = [decision, resumed]
                    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self.pending_decisions[path]
            # Waiters wake in a later turn of the loop, after this task has recorded the decision.
            pending.decision_recorded.set_result(None)
        return decision.result()

    def _with_noted_usage(self, call: NodeCall, runtime: LeafRuntime, result: Result) -> Result:
        """Charge the usage recorded so far to a step that was cut off before reporting it."""
        if runtime.is_restarted and "usage" not in result["attributes"] and (used := self._noted_usage(call)):
            result["attributes"] = {**result["attributes"], "usage": used}
        return result

    def _noted_usage(self, call: NodeCall) -> Any:
        """Return the usage an agent has recorded so far; None for other nodes."""
        if not getattr(call.node, "asks", False):
            return None
        thread = self._journal.index.last_thread(call.path)
        return None if thread is None else thread.usage

    def _abandoned_child_usage(self, call: NodeCall) -> dict[str, Any]:
        """Return the usage of an abandoned child run; the daily budget reads it from the child's journal."""
        used = self._budget.taken_by_child(call.path)
        return {"run_id": self._journal.child_id(call.path), "usage": used or None}

    async def _previous_attempts(self, call: NodeCall, recorded: RecordedCall) -> tuple[int, float]:
        """Return the attempts made before the process ended, and the rest of the last backoff delay."""
        number, delay = 0, 0.0
        for retry in recorded.retries:
            if isinstance(retry.event, NodeRetrying) and not retry.event.recovered:
                ends_at = retry.at + retry.event.delay
                number, delay = retry.event.attempt, max(0.0, ends_at - self._clock.time())
        # The restart is recorded before the attempt: a later crash then finds that the step may have run
        # again.
        restarted = NodeRetrying(call.node_id, number + 1, recovered=True, delay=delay)
        seq = self._journal.append(restarted, call.path)
        if call.policy.effect == "once":
            await self._journal.wait_durable(seq)
        return number, delay

    def _record_outcome(
        self, call: NodeCall, role: Role, result: Result, seconds: float
    ) -> Result | asyncio.Future[Any]:
        """Record how a call ended; return the result if it is usable at once, else a future for it."""
        path, is_control, attributes = call.path, role == "control", result.get("attributes")
        if not result.get("success"):
            # A failure that was caused by stopping or releasing the run is not an outcome.
            self._barrier.raise_if_cancelled()
            if not is_control:
                self._budget.usage.errors += 1
        if not is_control:
            usage = attributes.get("usage") if attributes else None
            # Most steps are not agents.
            if usage is not None or role == "workflow" or self._budget.agent_steps:
                self._budget.spend(path, usage, by_child=role == "workflow")
        if self._barrier.is_unwinding:
            self._owner.record_before_end()
        if self._timers.attempt_timers:
            self._timers.reset_idle(path)
        settled, stored_result = settle_call(call, result, seconds)
        if attributes:
            self._threads.record_result(call.node_id, stored_result)
        journal, dispatcher = self._journal, self._dispatcher
        # Outcomes of control nodes need no sync: replay computes them again from their inner calls.
        seq = journal.append(settled, path, journal.settle_key(path), urgent=not is_control)
        if not is_control and dispatcher.can_deliver_inline():
            return stored_result
        future = dispatcher.create_future()
        dispatcher.enqueue(seq, future, stored_result)
        return future
