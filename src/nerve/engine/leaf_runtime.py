"""The runtime that leaves see."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nerve.core.agent_threads import AgentThreads
from nerve.core.nodes.attempt import (
    AttemptTimer,
    is_silent_at,
    pause_timers,
    reset_idle_timers,
    timers_around,
)
from nerve.core.nodes.in_memory_runtime import InMemoryRuntime, RuntimeHome, RuntimeOrigin
from nerve.core.runtime import GateWait, NodeCall
from nerve.core.workflow.run import RunState
from nerve.core.workflow.state import FINAL_STATES
from nerve.engine.budget import ExhaustedBudget
from nerve.engine.execution_barrier import ExecutionBarrier
from nerve.engine.open_waits import OpenWaits
from nerve.engine.run_budget import RunBudget
from nerve.engine.run_journal import RunJournal
from nerve.engine.run_timers import RunTimers
from nerve.journal.events import EmittedEvent, RunOnHold


class LeafEnvironment:
    """What the leaves of one run share."""

    __slots__ = ("barrier", "budget", "home", "journal", "state", "threads", "timers", "waits")

    def __init__(
        self,
        home: RuntimeHome,
        state: RunState,
        threads: AgentThreads,
        journal: RunJournal,
        waits: OpenWaits,
        budget: RunBudget,
        timers: RunTimers,
        barrier: ExecutionBarrier,
    ) -> None:
        self.home, self.state, self.threads, self.journal = home, state, threads, journal
        self.waits, self.budget, self.timers, self.barrier = waits, budget, timers, barrier

    @property
    def accepts_events(self) -> bool:
        """Whether the run has not ended, so that events of a leaf are recorded."""
        return self.state.recorded_status not in FINAL_STATES and not self.barrier.is_shutting_down()

    async def wait_for_budget(
        self, path: str, find_exhausted_budget: Callable[[bool], ExhaustedBudget | None]
    ) -> None:
        """Wait while a budget is exhausted, or the rest of it is reserved by running turns.

        `find_exhausted_budget` takes whether to include reservations; only actual spending holds the run.
        """
        if find_exhausted_budget(True) is None:
            return
        with self.timers.paused(path):
            while True:
                # Reservations end by themselves when their turns end, so those are waited for; spent budget
                # needs a user.
                if (exhausted := find_exhausted_budget(False)) is not None:
                    self._hold_for_budget(exhausted, path)
                elif find_exhausted_budget(True) is not None:
                    await self.budget.wait_for_change()
                else:
                    return
                # The state may have changed while this task waited, so both checks run again.
                await self.barrier.wait_until_live()

    def _hold_for_budget(self, exhausted: ExhaustedBudget, path: str) -> None:
        """Start no new work until the budget is raised; running work is finished and recorded."""
        if self.barrier.is_paused:
            return
        budget_name = exhausted.budget.run_id or "day"
        self.barrier.hold_new_work(RunOnHold("budget", str(exhausted), path, budget_name, exhausted.limit))
        if exhausted.budget.run_id is None:
            self.budget.watch_for_midnight()


class LeafRuntime(InMemoryRuntime):
    """The runtime of a leaf: it may emit from any thread; nodes it executes itself are not recorded."""

    _wait_count = 0

    def __init__(self, call: NodeCall, environment: LeafEnvironment, is_restarted: bool) -> None:
        # Little is set here: most leaves use nothing of it.
        self._call, self.path, self._environment = call, call.path, environment
        if is_restarted:
            self.is_restarted = True

    @property
    def _origin(self) -> RuntimeOrigin:
        context, environment = self._call.context, self._environment
        assert context is not None
        return RuntimeOrigin(
            context.event_sink,
            context.workflow_id,
            context.run_id,
            environment.home,
            environment.timers.clock,
        )

    def derive_run_id(self) -> str:
        return self._environment.journal.child_id(self.path)

    @property
    def threads(self) -> AgentThreads:
        return self._environment.threads

    @property
    def is_agent(self) -> bool:
        """Whether it can ask a person, and receive messages."""
        return getattr(self._call.node, "asks", False)

    @property
    def is_limited(self) -> bool:
        """Whether a budget applies to its turns."""
        return self._call.policy.limits is not None or self._environment.budget.is_limited

    @property
    def is_waiting(self) -> bool:
        """Whether it only waits: for a person, a budget, a rate limit, or the clock."""
        return self._wait_count > 0

    @contextmanager
    def marked_waiting(self) -> Iterator[None]:
        """Note that the leaf only waits while the block runs."""
        self._wait_count += 1
        try:
            yield
        finally:
            self._wait_count -= 1

    def set_timer(self, timer: AttemptTimer) -> None:
        self._timers[self.path] = timer

    def emit(self, path: str, type: str, data: dict[str, Any]) -> None:
        if threading.get_ident() != self._environment.home[0]:
            # Encoded here so that the emitting thread gets the error, not the event loop.
            EmittedEvent(type, data).encode()
        super().emit(path, type, data)

    def _emit_snapshot(self, path: str, type: str, data: dict[str, Any]) -> None:
        self._deliver(path, type, data)
        self._environment.timers.reset_idle(self.path)
        if self._environment.accepts_events:
            self._environment.journal.append(EmittedEvent(type, data), self.path)

    async def record(self, path: str, type: str, data: dict[str, Any]) -> None:
        reset_idle_timers(self._timers, path)
        # A pause that ends with this event has to precede it, or a crash would count the wait as step time.
        self._environment.timers.record_pauses()
        journal = self._environment.journal
        await journal.wait_durable(journal.append(EmittedEvent(type, data), self.path, urgent=True))

    def recorded_thread(self) -> dict[str, Any] | None:
        thread = self._environment.journal.index.last_thread(self.path)
        return None if thread is None else thread.to_data()

    def steering_so_far(self) -> list[str]:
        return self._environment.journal.index.steering(self.path)

    async def wait_for_budget(self, used: Mapping[str, Any]) -> None:
        limits, budget = self._call.policy.limits, self._environment.budget
        with self.marked_waiting(), pause_timers(timers_around(self._timers, self.path)):
            await self._environment.wait_for_budget(
                self.path,
                lambda include_reserved: budget.find_exhausted_for_turn(
                    self.path, limits, used, include_reserved
                ),
            )

    async def hold(self, hold: RunOnHold) -> None:
        """Hold the run, and return when it is resumed."""
        with self.timers_paused(self.path):
            await asyncio.wait([self._environment.barrier.hold_new_work(hold)])
            await self._environment.barrier.wait_until_live()

    async def begin_turn(self, used: Mapping[str, Any]) -> bool:
        return self._environment.budget.begin_turn(self.path, self._call.policy.limits, used)

    async def end_turn(self, used: Mapping[str, Any]) -> None:
        self._environment.budget.end_turn(self.path, used)

    def is_silent(self, path: str) -> bool:
        return is_silent_at(self._timers, path)

    @contextmanager
    def timers_paused(self, path: str) -> Iterator[None]:
        attempt_timers = pause_timers(timers_around(self._timers, path))
        with self.marked_waiting(), attempt_timers, self._environment.timers.paused(path):
            yield

    async def ask(self, gate: GateWait) -> Any:
        with self.marked_waiting():
            return await self._environment.waits.open_leaf_gate(gate)
