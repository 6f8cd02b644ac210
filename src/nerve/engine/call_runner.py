"""Run the node calls of a body; each call is settled once, after one or more attempts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from nerve.core.json_codec import encode_json, short_sha256
from nerve.core.nodes.attempt import (
    AttemptTimer,
    InterruptedSteps,
    execute_safely,
    pause_timers,
    reset_idle_timers,
    run_attempt,
    timers_around,
)
from nerve.core.nodes.base import Role, node_role
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.in_memory_runtime import current_home, retry_event_data
from nerve.core.nodes.inline import run_with_retries
from nerve.core.policy import NO_POLICY, NO_RETRY, Policy
from nerve.core.result import IMMUTABLE_TYPES, Result, deep_copy_json
from nerve.core.runtime import NodeCall
from nerve.core.workflow.state import WorkflowState
from nerve.engine.budget import ExhaustedBudget
from nerve.engine.child_runs import attempt_timer_path, record_all_interrupted_steps
from nerve.engine.leaf_runtime import LeafRuntime
from nerve.engine.task_tracking import TASK_OWNER
from nerve.errors import NotJson
from nerve.journal import events
from nerve.journal.replay import ONCE_MARKER, RecordedCall, RecordInvalidated

if TYPE_CHECKING:
    from nerve.engine.run_executor import RunExecutor

IN_DOUBT_MESSAGE = (
    "{path} has effect=\"once\" and was interrupted; its outcome is unknown. Call skip('{path}', output)"
    " if it completed, retry('{path}') to run it again, or fail('{path}')."
)

MAX_LOOP_SHARE_S = 0.002
"""Seconds a single run may occupy the event loop before it yields."""


class PendingDecision(NamedTuple):
    """A step whose outcome the user must decide, and whether the decision is recorded."""

    decision: asyncio.Future[Result | None]
    decision_recorded: asyncio.Future[None]


class CallRunner:
    """The calls of one run."""

    def __init__(self, executor: RunExecutor) -> None:
        self._executor = executor
        self.home = current_home()
        self.running_leaves: dict[str, LeafRuntime] = {}
        """The leaves that are executing, by path, with the runtime each of them sees."""
        self.in_backoff: set[str] = set()
        """The leaves that wait for their next attempt."""
        self.attempt_timers: dict[str, AttemptTimer] = {}
        self.pending_decisions: dict[str, PendingDecision] = {}
        """Steps whose outcome the user must decide, by path."""
        self.interrupted_steps = InterruptedSteps()
        self._last_yield_at = 0.0

    async def call(self, call: NodeCall) -> Result:
        executor, path = self._executor, call.path
        executor.raise_if_cancelled()
        if executor.overrides:
            call.input = executor.overrides.get(path, {}).get("input", call.input)
        text, input_error = encode_call_input(call.input)
        input_hash, role = short_sha256(text), node_role(call.node)
        is_once = call.policy.effect == "once" and role == "leaf"
        recorded = (
            executor.lookup_recorded(path, input_hash, text) if executor.dispatcher.has_history else None
        )
        is_started, is_settled = recorded is not None, False
        # A reset removed the record of this step, but it may have run before. The start is recorded again
        # so that the hold, and the decision that ends it, have a call to refer to.
        if is_once and not is_started and path in executor.unknown_outcomes:
            self._record_started(call, role, text, input_hash)
            await executor.hold_in_doubt(path)
        try:
            if recorded is not None and recorded.outcome is not None:
                is_settled = True
                if (replayed := await self._replay_outcome(call, recorded)) is not None:
                    return replayed
                # The record was invalidated while the call waited for it: look again, since a reset also
                # changes the path's history.
                recorded, is_settled = executor.lookup_recorded(path, input_hash, text), False
                is_started = recorded is not None
            # The leaf gets a copy: the body may change its object meanwhile, and the journal has the input
            # as it was.
            if type(call.input) not in IMMUTABLE_TYPES and role == "leaf" and input_error is None:
                call.input = deep_copy_json(call.input)
            # Control nodes and child calls run again during replay, because their inner calls are replayed
            # one by one. Leaves may have effects, so an unsettled leaf waits until replay has ended.
            if recorded is not None and role != "leaf":
                executor.dispatcher.dispatch()
            elif is_once and recorded is not None and recorded.is_in_doubt:
                await executor.hold_in_doubt(path)
            elif not executor.is_live:
                await executor.wait_until_live()
            if recorded is None:
                # The budget is reserved before the start is recorded: a call that waits for its budget has
                # not started.
                if (reservation := self._count_and_reserve(path, role)) is not None:
                    await reservation
                is_started = True
                if (durable_start := self._record_started(call, role, text, input_hash)) is not None:
                    await durable_start
            started_at = time.perf_counter()
            if input_error is not None:
                result = Result.from_exception(input_error)
            elif role == "leaf":
                result = await self._run_leaf(call, recorded)
            else:
                result = await self._run_in_body(call, role)
            # A child may end while this run is paused or replays; its outcome is new and comes after
            # recorded ones.
            if role == "workflow" and not executor.is_live:
                await executor.wait_until_live()
            outcome = self._record_outcome(call, role, result, time.perf_counter() - started_at)
            is_settled = True
            if not isinstance(outcome, Result):
                delivered: Result = await executor.dispatcher.wait_for(outcome)
                return delivered
            if started_at > self._last_yield_at + MAX_LOOP_SHARE_S:
                await asyncio.sleep(0)  # a call that never blocks would starve other tasks on the loop
                self._last_yield_at = time.perf_counter()
            return outcome
        except asyncio.CancelledError:
            if is_started:
                await self._record_abandoned_call(call, role, recorded, is_settled)
            raise

    async def _record_abandoned_call(
        self, call: NodeCall, role: Role, recorded: RecordedCall | None, is_settled: bool
    ) -> None:
        """Record a started call that the body abandoned, with its usage and possible effects.

        A cancelled leaf may take time to end, so the body continues when the event of that end has its turn.
        """
        executor, path, is_child = self._executor, call.path, role == "workflow"
        if role == "leaf" and call.policy.effect == "once":
            self.interrupted_steps.append(path)
        elif is_child and recorded is not None and recorded.is_abandoned:
            record_all_interrupted_steps(executor, call)
        attributes = self._abandoned_child_usage(call) if is_child else {"usage": self._noted_usage(call)}
        if (
            seq := executor.record_abandoned(path, "node_cancelled", recorded, is_settled, attributes)
        ) is not None:
            await executor.wait_for_turn(seq)

    async def _replay_outcome(self, call: NodeCall, recorded: RecordedCall) -> Result | None:
        """Return the recorded outcome of a call, or None if it was invalidated."""
        try:
            result: Result = await self._executor.await_recorded(recorded)
        except RecordInvalidated:
            return None
        self._executor.threads.record_result(call.node_id, result)
        return result

    def _count_and_reserve(self, path: str, role: Role) -> Awaitable[None] | None:
        """Count a new call; return what to await if a limit or budget applies."""
        executor = self._executor
        if executor.dispatcher.has_history:
            executor.invalidate_later_answers()
        if role != "control":
            executor.usage.steps += 1
        if not executor.budget.is_counted and executor.host.budgets.daily_budget is None:
            return None
        executor.check_limits(path)
        return self.wait_for_budget(path, lambda promised: executor.budget.find_exhausted())

    async def wait_for_budget(
        self, path: str, find_exhausted_budget: Callable[[bool], ExhaustedBudget | None]
    ) -> None:
        """Wait while a budget is exhausted, or the rest of it is reserved by running turns.

        `find_exhausted_budget` takes whether to include reservations; only actual spending holds the run.
        """
        if find_exhausted_budget(True) is None:
            return
        executor = self._executor
        with self.timers_paused(path):
            while True:
                # Reservations end by themselves when their turns end, so those are waited for; spent budget
                # needs a user.
                if (exhausted := find_exhausted_budget(False)) is not None:
                    executor.hold_for_budget(exhausted, path)
                elif find_exhausted_budget(True) is not None:
                    await executor.host.budgets.wait_for_change()
                else:
                    return
                # The state may have changed while this task waited, so both checks run again.
                await executor.wait_until_live()

    def timers_paused(self, path: str) -> AbstractContextManager[None]:
        """Pause the timers around a path while it waits for a person, a budget or a provider limit."""
        return pause_timers(
            [*timers_around(self.attempt_timers, path), *self._executor.open_waits.bounding_timers(path)]
        )

    def _record_started(
        self, call: NodeCall, role: Role, text: str, input_hash: str
    ) -> Awaitable[None] | None:
        """Record that the call has started; return what to await if that must be durable first.

        Calls with effect="once" wait, and so does a leaf after a clock reading: its input may depend on that
        time, and the next attempt after a crash has the same idempotency key.
        """
        executor = self._executor
        must_be_durable = call.policy.effect == "once"
        extra = ONCE_MARKER if must_be_durable else ""
        if role == "workflow":
            # The child's id must be on disk before the child exists, or a crash would leave an orphan.
            must_be_durable, extra = True, f'"child":"{executor.child_id(call.path)}",'
        elif role == "leaf":
            must_be_durable = (
                must_be_durable
                or getattr(call.node, "asks", False)
                or executor.side_effects.has_unwritten_clock_reading
            )
        data = events.encode_call_started(call, role, text, input_hash, extra)
        type = "step_started" if call.is_graph_step else "node_started"
        seq = executor.journal.append(type, call.path, data, None, urgent=False)
        return executor.journal.wait_durable(seq) if must_be_durable else None

    async def _run_in_body(self, call: NodeCall, role: Role) -> Result:
        assert call.context is not None
        context = call.context.child(call.path, call.input)
        if role == "control":
            return await run_with_retries(
                context, call.policy, lambda _: self._run_control_node(call, context)
            )
        result = await run_with_retries(context, call.policy, lambda number: self._run_child(call, number))
        return self._executor.host.with_attempt_usage(self._executor, call, result)

    async def _run_control_node(self, call: NodeCall, context: ExecutionContext) -> Result:
        """Run a control node as part of the body."""

        def set_timer(timer: AttemptTimer) -> None:
            self.attempt_timers[call.path] = timer

        try:
            return await run_attempt(
                call.node, context, Policy(idle_timeout=call.policy.idle_timeout), set_timer
            )
        finally:
            self.attempt_timers.pop(call.path, None)

    async def _run_child(self, call: NodeCall, number: int) -> Result:
        if call.policy.idle_timeout is not None:
            return Result.failed(
                "idle_timeout applies to nodes only. Use timeout for a workflow.", "ValueError"
            )
        executor = self._executor
        is_late = call.policy.timeout is not None and executor.was_delivered(
            attempt_timer_path(call.path, number)
        )
        return await executor.host.run_child(executor, call, number, is_late)

    async def _run_leaf(self, call: NodeCall, recorded: RecordedCall | None) -> Result:
        """Run a leaf outside the body: tasks it starts and events it emits are not replayed."""
        assert call.context is not None
        executor, path = self._executor, call.path
        runtime = self.running_leaves[path] = LeafRuntime(call, executor, recorded is not None)
        context = call.context.child(path, call.input, runtime)
        context.overrides = executor.overrides.get(path, {})
        # The agent starts over and asks again; gates of the interrupted attempt have no receiver.
        if recorded is not None and getattr(call.node, "asks", False):
            executor.open_waits.cancel_leaf_gates(path)
        # Tasks that the leaf starts must not count as tasks of the body, or the body would never be idle.
        token = TASK_OWNER.set(None)
        try:
            if recorded is None and call.policy is NO_POLICY:
                return await execute_safely(call.node, context)
            return await self._run_attempts(call, context, runtime, recorded)
        finally:
            TASK_OWNER.reset(token)
            self._mark_leaf_idle(path)

    def _mark_leaf_idle(self, path: str) -> None:
        """Mark a leaf as not executing; a requested pause takes effect when none executes."""
        run = self._executor.run
        self.running_leaves.pop(path, None)
        if run._state is WorkflowState.PAUSING and not self.running_leaves:
            run._state = WorkflowState.PAUSED
            run._notify()

    async def _run_attempts(
        self, call: NodeCall, context: Any, runtime: LeafRuntime, recorded: RecordedCall | None
    ) -> Result:
        executor = self._executor
        retry = call.policy.retry or NO_RETRY
        number, delay = await self._previous_attempts(call, recorded) if recorded else (0, 0.0)
        while True:
            if number:
                await self._backoff(runtime, delay)
            number += 1
            result = await run_attempt(call.node, context, call.policy, runtime.set_timer)
            self._raise_if_cancelled(result)
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
                delay = retry.backoff_seconds(number, executor.random(f"{call.path}~{number}"))
            executor.append_event(
                "node_retrying", call.path, retry_event_data(call.node_id, number, retry, delay, result)
            )

    async def _backoff(self, runtime: LeafRuntime, delay: float) -> None:
        """Wait between two attempts; none starts while the run is paused or held."""
        executor, path = self._executor, runtime.path
        self._mark_leaf_idle(path)
        self.in_backoff.add(path)
        try:
            if delay > 0:
                await asyncio.sleep(delay)
            while executor.pause_barrier is not None:
                await asyncio.shield(executor.pause_barrier)
        finally:
            self.in_backoff.discard(path)
        self.running_leaves[path] = runtime

    async def _wait_for_decision(self, call: NodeCall) -> Result | None:
        """Return the user's decision on an interrupted effect="once" step; None means run it again."""
        executor, path = self._executor, call.path
        decision: asyncio.Future[Result | None] = executor.loop.create_future()
        pending = self.pending_decisions[path] = PendingDecision(decision, executor.loop.create_future())
        try:
            with self.timers_paused(path):
                # resume() lifts the hold without deciding anything, so the run is held again until there is
                # a decision.
                while not decision.done():
                    futures: list[asyncio.Future[Any]] = [decision]
                    futures.append(
                        executor.hold_new_work("in doubt", IN_DOUBT_MESSAGE.format(path=path), path)
                    )
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
        return (self._executor.open_waits.last_event_data(call.path, "agent_thread") or {}).get("usage")

    def _abandoned_child_usage(self, call: NodeCall) -> dict[str, Any]:
        """Return the usage of an abandoned child run; the daily budget reads it from the child's journal."""
        executor = self._executor
        used = executor.budget.taken_by_child(call.path)
        return {"run_id": executor.child_id(call.path), "usage": used or None}

    async def _previous_attempts(self, call: NodeCall, recorded: RecordedCall) -> tuple[int, float]:
        """Return the attempts made before the process ended, and the rest of the last backoff delay."""
        previous = [entry for entry in recorded.retries if not entry.get("recovered")]
        number = previous[-1]["attempt"] if previous else 0
        delay = max(0.0, previous[-1]["at"] + previous[-1]["delay"] - time.time()) if previous else 0.0
        # The restart is recorded before the attempt: a later crash then finds that the step may have run
        # again.
        data = {"node_id": call.node_id, "attempt": number + 1, "recovered": True, "delay": delay}
        seq = self._executor.append_event("node_retrying", call.path, data)
        if call.policy.effect == "once":
            await self._executor.journal.wait_durable(seq)
        return number, delay

    def _record_outcome(
        self, call: NodeCall, role: Role, result: Result, seconds: float
    ) -> Result | asyncio.Future[Any]:
        """Record how a call ended; return the result if it is usable at once, else a future for it."""
        executor, path, is_control, attributes = (
            self._executor,
            call.path,
            role == "control",
            result["attributes"],
        )
        self._raise_if_cancelled(result)
        if not is_control:
            if not result["success"]:
                executor.usage.errors += 1
            if attributes or executor.budget.own_budget.in_progress:
                executor.budget.spend(path, attributes.get("usage"), by_child=role == "workflow")
        if self.attempt_timers:
            reset_idle_timers(self.attempt_timers, path)
        type, data, stored_result = events.encode_call_ended(call, result, seconds)
        if attributes:
            executor.threads.record_result(call.node_id, stored_result)
        # With one run and one task nothing else can be ordered against this outcome, so it is committed
        # inline. That saves turns of the loop on every step.
        is_inline = not is_control and executor.can_commit_inline and executor.pause_barrier is None
        seq = executor.journal.append(
            type, path, data, executor.settle_key(path), urgent=not (is_control or is_inline)
        )
        if is_inline and executor.journal.flush_now() >= seq:
            return stored_result
        # Outcomes of control nodes need no sync: replay computes them again from their inner calls.
        future = executor.dispatcher.create_future()
        executor.dispatcher.enqueue(seq, future, stored_result, durable=not is_control)
        return future

    def _raise_if_cancelled(self, result: Result) -> None:
        """Raise Suspended for a failure caused by stopping or releasing the run; it is not an outcome."""
        if not result["success"]:
            self._executor.raise_if_cancelled()

    def on_leaf_event(self, path: str, type: str, data: dict[str, Any]) -> None:
        """Record an event of a leaf, unless the run has ended."""
        reset_idle_timers(self.attempt_timers, path)
        if self._executor.final_state is None and not self._executor.host.is_shutting_down:
            self._executor.append_event(type, path, data)


def encode_call_input(value: Any) -> tuple[str, NotJson | None]:
    """Return the canonical JSON of an input, or the reason why it cannot be encoded."""
    try:
        return encode_json(value, canonical=True), None
    except NotJson as error:
        return "null", error
