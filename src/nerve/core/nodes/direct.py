"""The runtime of a context without a run: children are executed in memory and nothing is recorded."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cached_property
from random import random
from typing import TYPE_CHECKING, Any

from nerve.core.event import Sink, WorkflowEvent, deliver, log
from nerve.core.gates import gate_id, waiting
from nerve.core.nodes.attempt import Clock, CutOff, above, attempt, heard, stopped, unsure
from nerve.core.nodes.base import role_of
from nerve.core.policy import ONE_TRY, Retry
from nerve.core.result import Result, own
from nerve.core.runtime import Call, Gate, Signal, Timer, Wait, Words
from nerve.core.threads import Threads

if TYPE_CHECKING:
    from nerve.core.nodes.context import ExecutionContext


Home = tuple[int, asyncio.AbstractEventLoop | None]
"""The thread that a runtime belongs to, and its event loop."""


class DirectRuntime:
    """Executes at once, in the caller's own task; waits end by `receive_input` or by their timeout."""

    again = False
    """Whether a leaf had begun in an earlier process."""
    words: Words | None = None
    _shown: asyncio.Future[None] | None = None

    def __init__(
        self, sink: Sink | None, workflow_id: str = "", run_id: str = "", home: Home | None = None
    ) -> None:
        self._sink, self._workflow_id, self._run_id = sink, workflow_id, run_id
        self._home = home or here()
        self._clocks: dict[str, Clock] = {}
        self._cut = CutOff()

    @cached_property
    def threads(self) -> Threads:
        return Threads()

    async def record(self, place: str, type: str, data: dict[str, Any]) -> None:
        """Tell something, and wait until it is on disk where there is one."""
        self.emit(place, type, data)

    def recorded(self, type: str) -> dict[str, Any] | None:
        """What a leaf told last under that name, in this process or an earlier one."""
        return None

    def said(self) -> list[str]:
        """What people said to a leaf so far."""
        return []

    async def ask(self, gate: Gate) -> Any:
        """A gate in the middle of a leaf."""
        return await self._gate(gate)

    async def afford(self, used: Mapping[str, Any]) -> None:
        """Without a run there is no budget."""

    def begin_turn(self, used: Mapping[str, Any]) -> bool:
        return True

    def end_turn(self, used: Mapping[str, Any]) -> None:
        pass

    def unhurried(self, place: str) -> AbstractContextManager[None]:
        return stopped(above(self._clocks, place))

    async def call(self, call: Call) -> Result:
        assert call.context is not None
        context = call.context.child(call.path, call.input)
        named = {"node_id": call.node_id}
        if call.step:
            named["step_id"] = call.path.rsplit("/", 1)[-1]
        self._tell(call.path, "step_started" if call.step else "node_started", named)
        began = time.perf_counter()
        result = await self._attempts(call, context)
        self._tell(call.path, *settled_event(call, named, result, time.perf_counter() - began))
        return result

    async def _attempts(self, call: Call, context: ExecutionContext) -> Result:
        retry = call.policy.retry or ONE_TRY
        number = 0

        def hear(clock: Clock) -> None:
            self._clocks[call.path] = clock

        while True:
            number += 1
            try:
                result = await attempt(call.node, context, call.policy, hear)
            except asyncio.CancelledError:
                self._note_cut_off(call)
                raise
            finally:
                self._clocks.pop(call.path, None)
            if result.settled == "timeout":
                self._note_cut_off(call)
            if not result.success and (cut := self.cut_off(call.path)) is not None:
                return unsure(result, cut)
            result, more = retry.judge(result, number)
            if not more:
                return result
            pause = retry.pause(number, random())
            self._tell(call.path, "node_retrying", retrying(call.node_id, number, retry, pause, result))
            await asyncio.sleep(pause)

    def _note_cut_off(self, call: Call) -> None:
        if call.policy.effect == "once" and role_of(call.node) == "leaf":
            self._cut.append(call.path)

    def cut_off(self, place: str) -> str | None:
        return self._cut.within(place)

    async def wait(self, wait: Wait) -> Any:
        if isinstance(wait, Timer):
            return await asyncio.sleep(wait.seconds)
        if isinstance(wait, Signal):
            raise RuntimeError("a signal can only be waited for inside a run")
        return await self._gate(wait)

    async def _gate(self, gate: Gate) -> str:
        told = {"gate_id": gate_id(self._run_id, gate.path), "node_id": gate.node_id}
        self._tell(gate.path, "gate_waiting", waiting(gate, str(told["gate_id"]), None))
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if gate.auto is not None:
            future.set_result(gate.auto)
        elif gate.receivers is not None:
            gate.receivers.append(future)
        try:
            answer = await asyncio.wait_for(future, gate.timeout)
        except TimeoutError:
            self._tell(gate.path, "gate_timeout", {**told, "timeout": gate.timeout})
            raise
        finally:
            if gate.receivers is not None and future in gate.receivers:
                gate.receivers.remove(future)
        self._tell(gate.path, "gate_answered", {**told, "answer": answer, "response": answer})
        return answer

    def emit(self, place: str, type: str, data: dict[str, Any]) -> None:
        thread, loop = self._home
        if loop is None or threading.get_ident() == thread:
            self._emitted(place, type, data)
            return
        try:
            loop.call_soon_threadsafe(self._emitted, place, type, as_told(data))
        except RuntimeError:
            pass  # the loop is closed: nobody is left to tell

    def _emitted(self, place: str, type: str, data: dict[str, Any]) -> None:
        self._tell(place, type, as_told(data))

    def _tell(self, place: str, type: str, data: dict[str, Any]) -> None:
        """Tell the sink; what happens to children is told to nobody else, not even to a run around this."""
        heard(self._clocks, place)
        if self._sink is None:
            return
        event = WorkflowEvent(self._run_id, self._workflow_id, type, data, path=place)
        if (answer := deliver(self._sink, event)) is not None:
            self._shown = asyncio.ensure_future(in_turn(self._shown, answer))

    async def shown(self) -> None:
        """Return when an async sink is done with all that it was told."""
        while self._shown is not None and not self._shown.done():
            await asyncio.wait([self._shown])

    def now(self, place: str) -> datetime:
        return datetime.now(UTC)

    def random(self, place: str) -> float:
        return random()

    def new_id(self, place: str) -> str:
        return any_id()


def as_told(data: dict[str, Any]) -> dict[str, Any]:
    """The data of an event as it is now: whoever emits it may go on changing its own."""
    try:
        told: dict[str, Any] = own(data)
        return told
    except (TypeError, ValueError, RecursionError):
        return dict(data)  # without a run there may be values that cannot be copied


def any_id() -> str:
    from uuid import uuid4  # it takes milliseconds to import, and few need it

    return str(uuid4())


def here() -> Home:
    try:
        return threading.get_ident(), asyncio.get_running_loop()
    except RuntimeError:
        return threading.get_ident(), None


async def in_turn(before: asyncio.Future[None] | None, answer: Awaitable[Any]) -> None:
    """Await what an async sink returned, after what it returned before."""
    if before is not None:
        await before
    try:
        await answer
    except Exception:
        log.exception("event sink failed")


def settled_event(
    call: Call, named: dict[str, str], result: Result, seconds: float
) -> tuple[str, dict[str, Any]]:
    """The name and the data of the event that says how a call ended."""
    data: dict[str, Any] = {**named, "success": result.success, "duration_ms": round(seconds * 1000, 3)}
    if not result.success:
        data |= {"error": result.error, "error_type": result.error_type}
    if result.settled == "timeout":
        data["timeout"] = result.allowed
    if call.step:
        return "step_completed" if result.success else "step_failed", data
    return {"error": "node_error", "timeout": "node_timeout"}.get(result.settled, "node_completed"), data


def retrying(node_id: str, attempt: int, retry: Retry, pause: float, result: Result) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "attempt": attempt,
        "attempts": retry.attempts,
        "delay": pause,
        "error": result.error,
        "error_type": result.error_type,
    }
