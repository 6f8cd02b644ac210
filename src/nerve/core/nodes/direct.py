"""The runtime of a context without a run: children are executed in memory and nothing is recorded."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from random import random
from typing import Any
from uuid import uuid4

from nerve.core.event import Sink, WorkflowEvent, deliver
from nerve.core.gates import gate_id, waiting
from nerve.core.nodes.attempt import attempt
from nerve.core.nodes.context import ExecutionContext
from nerve.core.policy import Retry
from nerve.core.result import Result
from nerve.core.runtime import Call, Gate, Signal, Timer, Wait


class DirectRuntime:
    """Executes at once, in the caller's own task; waits end by `receive_input` or by their timeout."""

    def __init__(self, sink: Sink | None, workflow_id: str = "", run_id: str = "") -> None:
        self._sink, self._workflow_id, self._run_id = sink, workflow_id, run_id
        self._tasks: set[asyncio.Future[Any]] = set()

    async def call(self, call: Call) -> Result:
        parent = call.context or ExecutionContext()
        context = parent.child(call.path, call.input)
        context.idempotency_key = context.idempotency_key or str(uuid4())
        kind = "step" if call.step else "node"
        named: dict[str, Any] = {"node_id": call.node_id} | ({"step_id": call.path.rsplit("/", 1)[-1]} if call.step else {})
        self.emit(call.path, f"{kind}_started", named)
        began = datetime.now(UTC)
        result = await self._attempts(call, context)
        named["duration_ms"] = round((datetime.now(UTC) - began).total_seconds() * 1000, 3)
        self.emit(call.path, *settled_event(call.step, named, result, call.policy.timeout))
        return result

    async def _attempts(self, call: Call, context: ExecutionContext) -> Result:
        retry = call.policy.retry or Retry(attempts=1)
        number = 0
        while True:
            number += 1
            result = await attempt(call.node, context, call.policy)
            if not retry.again(result, number):
                return result
            pause = retry.pause(number, random())
            self.emit(call.path, "node_retrying", retrying(call.node_id, number, retry, pause, result))
            await asyncio.sleep(pause)

    async def wait(self, wait: Wait) -> Any:
        if isinstance(wait, Timer):
            return await asyncio.sleep(wait.seconds)
        if isinstance(wait, Signal):
            raise RuntimeError("a signal can only be waited for inside a run")
        return await self._gate(wait)

    async def _gate(self, gate: Gate) -> str:
        identity = gate_id(self._run_id, gate.path)
        self.emit(gate.path, "gate_waiting", waiting(gate, identity, None))
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if gate.auto is not None:
            future.set_result(gate.auto)
        elif gate.receivers is not None:
            gate.receivers.append(future)
        try:
            answer = await asyncio.wait_for(future, gate.timeout)
        except TimeoutError:
            self.emit(gate.path, "gate_timeout", {"gate_id": identity, "timeout": gate.timeout})
            raise
        self.emit(gate.path, "gate_answered", {"gate_id": identity, "answer": answer, "response": answer})
        return answer

    def emit(self, place: str, type: str, data: dict[str, Any]) -> None:
        if self._sink is None:
            return
        event = WorkflowEvent(self._run_id, self._workflow_id, type, data, path=place)
        if awaitable := deliver(self._sink, event):
            task = asyncio.ensure_future(awaitable)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def now(self, place: str) -> datetime:
        return datetime.now(UTC)

    def random(self, place: str) -> float:
        return random()

    def new_id(self, place: str) -> str:
        return str(uuid4())


def settled_event(
    step: bool, named: dict[str, Any], result: Result, timeout: float | None
) -> tuple[str, dict[str, Any]]:
    """The name and the data of the event that says how a call ended."""
    if step:
        failure = {} if result.success else {"error": result.error, "error_type": result.error_type}
        return ("step_completed" if result.success else "step_failed"), {
            **named,
            "success": result.success,
            **failure,
        }
    if result.settled == "timeout":
        return "node_timeout", {**named, "timeout": timeout, "error": result.error}
    if result.settled == "error":
        return "node_error", {**named, "error": result.error, "error_type": result.error_type}
    return "node_completed", {**named, "success": result.success}


def retrying(node_id: str, attempt: int, retry: Retry, pause: float, result: Result) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "attempt": attempt,
        "attempts": retry.attempts,
        "delay": pause,
        "error": result.error,
        "error_type": result.error_type,
    }
