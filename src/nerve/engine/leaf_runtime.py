"""The runtime that leaves see."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nerve.core.agent_threads import AgentThreads
from nerve.core.nodes.attempt import AttemptTimer, pause_timers, reset_idle_timers, timers_around
from nerve.core.nodes.in_memory_runtime import InMemoryRuntime
from nerve.core.runtime import GateWait, NodeCall

if TYPE_CHECKING:
    from nerve.engine.run_executor import RunExecutor


class LeafRuntime(InMemoryRuntime):
    """The runtime of a leaf: it may emit from any thread; nodes it executes itself are not recorded."""

    def __init__(self, call: NodeCall, executor: RunExecutor, is_restarted: bool) -> None:
        context = call.context
        assert context is not None
        super().__init__(context.event_sink, context.workflow_id, context.run_id, executor.call_runner.home)
        self._call, self.path, self._executor, self.is_restarted = call, call.path, executor, is_restarted

    @property
    def threads(self) -> AgentThreads:
        return self._executor.threads

    def set_timer(self, timer: AttemptTimer) -> None:
        self._timers[self.path] = timer

    def emit(self, path: str, type: str, data: dict[str, Any]) -> None:
        if threading.get_ident() != self._home[0]:
            # Encoded here so that the emitting thread gets the error, not the event loop.
            self._executor.encode_event_data(type, data)
        super().emit(path, type, data)

    def _emit_snapshot(self, path: str, type: str, data: dict[str, Any]) -> None:
        self._deliver(path, type, data)
        self._executor.call_runner.on_leaf_event(self.path, type, data)

    async def record(self, path: str, type: str, data: dict[str, Any]) -> None:
        reset_idle_timers(self._timers, path)
        executor = self._executor
        # A pause that ends with this event has to precede it, or a crash would count the wait as step time.
        executor.open_waits.record_timer_pauses()
        await executor.journal.wait_durable(executor.append_event(type, self.path, data, urgent=True))

    def last_recorded(self, type: str) -> dict[str, Any] | None:
        return self._executor.open_waits.last_event_data(self.path, type)

    def steering_so_far(self) -> list[str]:
        return self._executor.open_waits.steering_since_start(self.path)

    async def wait_for_budget(self, used: Mapping[str, Any]) -> None:
        limits, budget = self._call.policy.limits, self._executor.budget
        with pause_timers(timers_around(self._timers, self.path)):
            await self._executor.call_runner.wait_for_budget(
                self.path,
                lambda include_reserved: budget.find_exhausted_for_turn(
                    self.path, limits, used, include_reserved
                ),
            )

    def begin_turn(self, used: Mapping[str, Any]) -> bool:
        return self._executor.budget.begin_turn(self.path, self._call.policy.limits, used)

    def end_turn(self, used: Mapping[str, Any]) -> None:
        self._executor.budget.end_turn(self.path, used)

    @contextmanager
    def timers_paused(self, path: str) -> Iterator[None]:
        with pause_timers(timers_around(self._timers, path)), self._executor.call_runner.timers_paused(path):
            yield

    async def ask(self, gate: GateWait) -> Any:
        return await self._executor.open_waits.open_leaf_gate(gate)
