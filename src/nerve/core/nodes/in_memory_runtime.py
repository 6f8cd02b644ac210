"""The runtime of a context without a run: it executes children in memory and records nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from random import random
from typing import TYPE_CHECKING, Any, NamedTuple

from nerve.core.agent_threads import AgentThreads
from nerve.core.clock import SYSTEM_CLOCK, Clock, ClockTimeout, sleep_on_clock, utc_now
from nerve.core.events import Sink, WorkflowEvent, WorkflowEventType, deliver_event, log
from nerve.core.gates import gate_id, gate_waiting_data
from nerve.core.nodes.attempt import (
    AttemptTimer,
    InterruptedSteps,
    is_silent_at,
    pause_timers,
    reset_idle_timers,
    run_attempt,
    timers_around,
    with_unknown_outcome,
)
from nerve.core.nodes.base import node_role
from nerve.core.nodes.folder_users import FolderUsers
from nerve.core.policy import NO_RETRY, Retry
from nerve.core.result import Result, deep_copy_json
from nerve.core.runtime import GateWait, MessageWait, NodeCall, SignalWait, TimerWait, Wait
from nerve.core.steering import SteeringQueue
from nerve.core.tracebacks import FailureTrace

if TYPE_CHECKING:
    from nerve.core.nodes.context import ExecutionContext


RuntimeHome = tuple[int, asyncio.AbstractEventLoop | None]
"""The thread and the event loop that a runtime belongs to."""


class RuntimeOrigin(NamedTuple):
    """Where the events of a runtime come from, and where they are delivered."""

    sink: Sink | None
    workflow_id: str
    run_id: str
    home: RuntimeHome
    clock: Clock = SYSTEM_CLOCK


END_TYPES_BY_SETTLEMENT = {
    "error": WorkflowEventType.NODE_ERROR,
    "timeout": WorkflowEventType.NODE_TIMEOUT,
}


class InMemoryRuntime:
    """Executes calls at once, in the task of the caller; `receive_input` or a timeout settles waits."""

    is_restarted = False
    """Whether a leaf was started in an earlier process."""
    steering: SteeringQueue | None = None
    _last_delivery: asyncio.Future[None] | None = None

    def __init__(self, origin: RuntimeOrigin) -> None:
        self._given_origin = origin

    @property
    def _origin(self) -> RuntimeOrigin:
        return self._given_origin

    @cached_property
    def _timers(self) -> dict[str, AttemptTimer]:
        return {}

    @cached_property
    def _interrupted(self) -> InterruptedSteps:
        return InterruptedSteps()

    @cached_property
    def _folder_users(self) -> FolderUsers:
        return FolderUsers()

    @cached_property
    def threads(self) -> AgentThreads:
        return AgentThreads()

    async def record(self, path: str, type: str, data: dict[str, Any]) -> None:
        """Emit an event; without a journal, there is nothing to wait for."""
        self.emit(path, type, data)

    def recorded_thread(self) -> dict[str, Any] | None:
        """Return None: nothing is recorded."""
        return None

    def steering_so_far(self) -> list[str]:
        """Return no messages: only a run can be steered."""
        return []

    async def ask(self, gate: GateWait) -> Any:
        """Open a gate from inside a leaf and return the answer."""
        return await self._wait_for_gate(gate)

    async def wait_for_budget(self, used: Mapping[str, Any]) -> None:
        """Return at once: only runs have budgets."""

    async def begin_turn(self, used: Mapping[str, Any]) -> bool:
        return True

    async def end_turn(self, used: Mapping[str, Any]) -> None:
        pass

    def is_silent(self, path: str) -> bool:
        return is_silent_at(self._timers, path)

    def timers_paused(self, path: str) -> AbstractContextManager[None]:
        return pause_timers(timers_around(self._timers, path))

    async def call(self, call: NodeCall) -> Result:
        assert call.context is not None
        context = call.context.child(call.path, call.input)
        identity = {"node_id": call.node_id}
        if call.is_graph_step:
            identity["step_id"] = call.path.rsplit("/", 1)[-1]
        self._deliver(
            call.path,
            WorkflowEventType.STEP_STARTED if call.is_graph_step else WorkflowEventType.NODE_STARTED,
            identity,
        )
        began = time.perf_counter()
        result = self._folder_users.enter(call, is_restarted=False)
        if result is None:
            try:
                result = await self._run_attempts(call, context)
            finally:
                self._folder_users.leave(call)
        self._deliver(call.path, *call_end_event(call, identity, result, time.perf_counter() - began))
        return result

    async def _run_attempts(self, call: NodeCall, context: ExecutionContext) -> Result:
        retry = call.policy.retry or NO_RETRY
        number = 0

        def add_timer(timer: AttemptTimer) -> None:
            self._timers[call.path] = timer

        while True:
            number += 1
            try:
                result = await run_attempt(call.node, context, call.policy, add_timer, self._origin.clock)
            except asyncio.CancelledError:
                self._note_interrupted(call)
                raise
            finally:
                self._timers.pop(call.path, None)
            if result.settlement == "timeout":
                self._note_interrupted(call)
            if not result.success and (interrupted := self.interrupted_step(call.path)) is not None:
                return with_unknown_outcome(result, interrupted)
            result, more = retry.decide(result, number)
            if not more:
                return result
            pause = retry.backoff_seconds(number, random())
            self._deliver(
                call.path,
                WorkflowEventType.NODE_RETRYING,
                retry_event_data(call.node_id, number, retry, pause, result),
            )
            await sleep_on_clock(self._origin.clock, pause)

    def _note_interrupted(self, call: NodeCall) -> None:
        if call.policy.effect == "once" and node_role(call.node) == "leaf":
            self._interrupted.append(call.path)

    def interrupted_step(self, path: str) -> str | None:
        return self._interrupted.find_within(path)

    def begin_cleanup(self) -> None:
        pass

    def end_cleanup(self) -> bool:
        return False

    async def wait(self, wait: Wait) -> Any:
        if isinstance(wait, TimerWait):
            return await sleep_on_clock(self._origin.clock, wait.seconds)
        if isinstance(wait, SignalWait | MessageWait):
            raise RuntimeError("Waiting for a signal or a message requires a run")
        return await self._wait_for_gate(wait)

    async def _wait_for_gate(self, gate: GateWait) -> str:
        gate_data = {"gate_id": gate_id(self._origin.run_id, gate.path), "node_id": gate.node_id}
        self._deliver(
            gate.path,
            WorkflowEventType.GATE_WAITING,
            gate_waiting_data(gate, str(gate_data["gate_id"]), None),
        )
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if gate.auto_answer is not None:
            future.set_result(gate.auto_answer)
        elif gate.receivers is not None:
            gate.receivers.append(future)
        try:
            async with ClockTimeout(self._origin.clock, gate.timeout):
                answer = await future
        except TimeoutError:
            self._deliver(gate.path, WorkflowEventType.GATE_TIMEOUT, {**gate_data, "timeout": gate.timeout})
            raise
        finally:
            if gate.receivers is not None and future in gate.receivers:
                gate.receivers.remove(future)
        self._deliver(
            gate.path, WorkflowEventType.GATE_ANSWERED, {**gate_data, "answer": answer, "response": answer}
        )
        return answer

    def emit(self, path: str, type: str, data: dict[str, Any]) -> None:
        thread, loop = self._origin.home
        if loop is None or threading.get_ident() == thread:
            self._emit_snapshot(path, type, data)
            return
        try:
            loop.call_soon_threadsafe(self._emit_snapshot, path, type, snapshot_event_data(data))
        except RuntimeError:
            pass  # the loop is closed, so the sink is gone, too

    def _emit_snapshot(self, path: str, type: str, data: dict[str, Any]) -> None:
        self._deliver(path, type, snapshot_event_data(data))

    def _deliver(self, path: str, type: str, data: dict[str, Any]) -> None:
        """Pass an event to the sink only; an enclosing run does not receive the events of these children."""
        reset_idle_timers(self._timers, path)
        if self._origin.sink is None:
            return
        event = WorkflowEvent(self._origin.run_id, self._origin.workflow_id, type, data, path=path)
        if (answer := deliver_event(self._origin.sink, event)) is not None:
            self._last_delivery = asyncio.ensure_future(await_in_order(self._last_delivery, answer))

    async def flush_sinks(self) -> None:
        """Return when an async sink has processed all events."""
        while self._last_delivery is not None and not self._last_delivery.done():
            await asyncio.wait([self._last_delivery])

    def now(self, path: str) -> datetime:
        return utc_now(self._origin.clock)

    def random(self, path: str) -> float:
        return random()

    def new_id(self, path: str) -> str:
        return random_uuid()

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Do nothing: only a run has tags."""

    def check_may_continue(self) -> None:
        raise RuntimeError("ctx.continue_as_new needs a run: start the workflow with session.start")

    def is_patched(self, name: str) -> bool:
        return True


def snapshot_event_data(data: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of event data, because the emitter can change its own later."""
    try:
        snapshot: dict[str, Any] = deep_copy_json(data)
        return snapshot
    except (TypeError, ValueError, RecursionError):
        return dict(data)  # without a run, values need not be JSON


def random_uuid() -> str:
    from uuid import uuid4  # imported late: it takes milliseconds, and few runs need it

    return str(uuid4())


def current_home() -> RuntimeHome:
    try:
        return threading.get_ident(), asyncio.get_running_loop()
    except RuntimeError:
        return threading.get_ident(), None


async def await_in_order(previous: asyncio.Future[None] | None, answer: Awaitable[Any]) -> None:
    """Await the return value of an async sink after the previous one, to keep the order of events."""
    if previous is not None:
        await previous
    try:
        await answer
    except Exception:
        log.exception("event sink failed")


def call_end_event(
    call: NodeCall, identity: dict[str, str], result: Result, seconds: float
) -> tuple[str, dict[str, Any]]:
    """Return the type and data of the event for the end of a call."""
    data: dict[str, Any] = {**identity, "success": result.success, "duration_ms": round(seconds * 1000, 3)}
    if not result.success:
        data |= {"error": result.error, "error_type": result.error_type}
        data |= FailureTrace.of_result(result).to_data()
    if result.settlement == "timeout":
        data["timeout"] = result.timeout_seconds
    if call.is_graph_step:
        return WorkflowEventType.STEP_COMPLETED if result.success else WorkflowEventType.STEP_FAILED, data
    return END_TYPES_BY_SETTLEMENT.get(result.settlement, WorkflowEventType.NODE_COMPLETED), data


def retry_event_data(
    node_id: str, attempt: int, retry: Retry, pause: float, result: Result
) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "attempt": attempt,
        "attempts": retry.attempts,
        "delay": pause,
        "error": result.error,
        "error_type": result.error_type,
        **FailureTrace.of_result(result).to_data(),
    }
