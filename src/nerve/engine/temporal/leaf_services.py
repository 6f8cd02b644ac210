"""The services that a leaf uses on a worker: rows, gates, messages and the clock of its attempt."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from temporalio.service import RPCError

from nerve.core.agent_threads import AgentThreads
from nerve.core.events import WorkflowEventType
from nerve.core.limits import RunUsage
from nerve.core.nodes.attempt import (
    AttemptTimer,
    is_silent_at,
    pause_timers,
    reset_idle_timers,
    timers_around,
)
from nerve.core.nodes.in_memory_runtime import InMemoryRuntime, RuntimeOrigin, current_home
from nerve.core.runtime import GateWait
from nerve.core.steering import SteeringQueue
from nerve.engine.run_budget import amount_of_turn, usage_of_step
from nerve.engine.run_summary import LEAF_GATE_KIND
from nerve.engine.temporal.cluster_budget import ClusterBudget
from nerve.engine.temporal.leaf_rows import JournalReader, LeafRows, follow_rows, wait_for_rows
from nerve.engine.temporal.messages import COMMAND_UPDATE, LeafInput, RunCommand, RunCommandReply
from nerve.journal.events import (
    EmittedEvent,
    GateAnswered,
    GateCancelled,
    GateTimeout,
    Steered,
    decode_event,
    outcome_of,
)
from nerve.journal.index import JournalIndex

if TYPE_CHECKING:
    from temporalio.client import WorkflowHandle

NOT_SENT = {"path", "receivers", "auto_answer", "policy"}
"""The fields of a `GateWait` that a gate of a leaf does not need elsewhere."""


FIRST_CHECK_S, MAX_CHECK_S = 1.0, 120.0
"""The first and the longest pause between two checks of a budget; each is an update of the workflow."""


MAX_DAY_CHECK_S = 5.0
"""The longest pause while other runs use the daily budget; such a check asks the database only."""


class CommandRefused(RuntimeError):
    """The workflow of the run refused a command of a leaf."""


class WorkerLeafRuntime(InMemoryRuntime):
    """The runtime of a leaf on a worker; nodes that the leaf executes itself are not recorded."""

    _is_short_for_day = False

    def __init__(
        self,
        leaf: LeafInput,
        rows: LeafRows,
        reader: JournalReader,
        workflow: WorkflowHandle[Any, Any],
        is_restarted: bool,
        budget: ClusterBudget,
    ) -> None:
        super().__init__(RuntimeOrigin(None, leaf.workflow, leaf.run_id, current_home()))
        self._leaf, self._rows, self._reader, self._workflow = leaf, rows, reader, workflow
        self.is_restarted = is_restarted
        self._budget = budget
        self._may_be_held_for_day = is_restarted
        """Whether the run is held because of the daily budget, perhaps by an earlier attempt."""
        self.path = leaf.path
        """The path of the recorded step, also of what the leaf executes itself."""
        self._index: JournalIndex | None = None
        self._seen = 0
        """The number of the last row of the run when the attempt began."""
        self._steering: SteeringQueue | None = None
        self._early_messages: list[str] = []
        self._follower: asyncio.Task[None] | None = None

    async def prepare(self) -> None:
        """Read what an earlier attempt recorded, and close the gates that it has left open."""
        run, prefix = self._leaf.run_id, f"{self._leaf.path}/"
        if not self.is_restarted:
            last = await asyncio.to_thread(self._reader.last_event, run)
            self._seen = 0 if last is None else last.seq
            return
        index = self._index = JournalIndex()
        index.add(await asyncio.to_thread(self._reader.events, run))
        self._seen = index.seq
        for wait in await asyncio.to_thread(self._reader.waits_of_run, run):
            if wait.kind == LEAF_GATE_KIND and wait.path.startswith(prefix):
                with suppress(CommandRefused):
                    await self._send("close_gate", {"path": wait.path})

    # -- what is recorded ----------------------------------------------------------------------

    def derive_run_id(self) -> str:
        return self._leaf.derived_run_id

    @cached_property
    def threads(self) -> AgentThreads:
        last = {(agent, provider): thread for agent, provider, thread in self._leaf.threads}
        return AgentThreads(last=last, totals={name: dict(each) for name, each in self._leaf.totals.items()})

    def is_silent(self, path: str) -> bool:
        return is_silent_at(self._timers, path)

    def set_timer(self, timer: AttemptTimer) -> None:
        self._timers[self._leaf.path] = timer

    def emit(self, path: str, type: str, data: dict[str, Any]) -> None:
        if threading.get_ident() != self._origin.home[0]:
            # Encoded here so that the emitting thread gets the error, not the event loop.
            EmittedEvent(type, data).encode()
        super().emit(path, type, data)

    def _emit_snapshot(self, path: str, type: str, data: dict[str, Any]) -> None:
        reset_idle_timers(self._timers, path)
        self._rows.add(type, data)

    async def record(self, path: str, type: str, data: dict[str, Any]) -> None:
        self._emit_snapshot(path, type, data)
        await self._rows.flush()

    def recorded_thread(self) -> dict[str, Any] | None:
        thread = None if self._index is None else self._index.last_thread(self._leaf.path)
        return None if thread is None else thread.to_data()

    # -- messages of users ---------------------------------------------------------------------

    def steering_so_far(self) -> list[str]:
        return [] if self._index is None else self._index.steering(self._leaf.path)

    @property
    def steering(self) -> SteeringQueue | None:
        """Messages of users, while the leaf accepts them; the first use starts to follow the journal."""
        return self._steering

    @steering.setter
    def steering(self, queue: SteeringQueue | None) -> None:
        self._steering = queue
        if queue is None:
            return
        if self._follower is None:
            self._follower = asyncio.ensure_future(self._follow_messages())
        for text in self._early_messages:
            queue.put_nowait(text)
        self._early_messages.clear()

    async def _follow_messages(self) -> None:
        """Hand the messages to the step to its agent, in the order of the journal."""
        async for row in follow_rows(self._reader, self._leaf.run_id, self._seen):
            if row.path != self._leaf.path or row.type != WorkflowEventType.STEERED:
                continue
            event = decode_event(row)
            if not isinstance(event, Steered) or event.text is None:
                continue
            if self._steering is None:
                self._early_messages.append(event.text)
            else:
                self._steering.put_nowait(event.text)

    # -- budgets -------------------------------------------------------------------------------

    async def begin_turn(self, used: Mapping[str, Any]) -> bool:
        if self._budget.is_limited and await self._budget.begin_turn(*self._turn(used)) is not None:
            return False
        if self._leaf.is_limited and not await self._send_turn("begin_turn", used):
            await self._end_turn_of_day(used)
            return False
        return True

    async def end_turn(self, used: Mapping[str, Any]) -> None:
        await self._end_turn_of_day(used)
        if self._leaf.is_limited:
            with suppress(CommandRefused):  # the run has ended and has counted what it knows
                await self._send_turn("end_turn", used)

    async def wait_for_budget(self, used: Mapping[str, Any]) -> None:
        """Ask the workflow and the other runs of the day until their budgets have room; the run is held."""
        if await self._has_room(used):
            return
        with pause_timers(timers_around(self._timers, self._leaf.path)):
            pause, after = FIRST_CHECK_S, 0
            while not await self._has_room(used):
                # What raises a budget of the run resumes it, which is a new row.
                after = await wait_for_rows(self._reader, self._leaf.run_id, after, pause)
                pause = min(2 * pause, MAX_DAY_CHECK_S if self._is_short_for_day else MAX_CHECK_S)

    async def _has_room(self, used: Mapping[str, Any]) -> bool:
        """Return whether all budgets have room for a turn; hold the run while one is exhausted."""
        if self._budget.is_limited:
            shortage = await self._budget.find_shortage(*self._turn(used))
            self._is_short_for_day = shortage is not None
            if shortage is not None and shortage.is_spent:
                await self._send_day_budget(shortage.message)
            if shortage is not None:
                return False
        if self._may_be_held_for_day:
            await self._send_day_budget(None)
        return not self._leaf.is_limited or bool(await self._send_turn("check_budget", used))

    async def _send_day_budget(self, problem: str | None) -> None:
        """Hold the run because of a problem, or resume it without one."""
        await self._send("day_budget", {"path": self._leaf.path, "problem": problem})
        self._may_be_held_for_day = problem is not None

    async def _end_turn_of_day(self, used: Mapping[str, Any]) -> None:
        if self._budget.is_limited:
            await self._budget.end_turn(self._leaf.run_id, self._leaf.path, usage_of_step(used))

    def _turn(self, used: Mapping[str, Any]) -> tuple[str, str, RunUsage, RunUsage]:
        """Return the step, what it has used, and what its next turn needs."""
        usage = usage_of_step(used)
        return self._leaf.run_id, self._leaf.path, usage, amount_of_turn(usage)

    async def _send_turn(self, verb: str, used: Mapping[str, Any]) -> Any:
        return await self._send(verb, {"path": self._leaf.path, "used": dict(used)})

    # -- gates ---------------------------------------------------------------------------------

    async def ask(self, gate: GateWait) -> Any:
        """Open a gate in the run of the leaf and return its answer, which is read from the journal."""
        data = {each.name: getattr(gate, each.name) for each in fields(gate) if each.name not in NOT_SENT}
        opened = await self._send("open_gate", {"path": self._leaf.path, "gate": {"path": gate.path, **data}})
        path = opened["path"]
        try:
            outcome = await self._wait_for_answer(path)
        except asyncio.CancelledError:
            with suppress(CommandRefused, RPCError):
                await asyncio.shield(self._send("close_gate", {"path": path}))
            raise
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def _wait_for_answer(self, path: str) -> Any:
        async for row in follow_rows(self._reader, self._leaf.run_id, self._seen):
            if row.path != path:
                continue
            event = decode_event(row)
            if isinstance(event, GateCancelled):
                raise CommandRefused(f"The gate {path} was cancelled")
            if isinstance(event, GateAnswered | GateTimeout):
                return outcome_of(event)
        raise AssertionError("follow_rows does not end")

    async def _send(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        """Send a command to the workflow of the run and return its value."""
        command = RunCommand(verb, self._leaf.run_id, arguments)
        data = await self._workflow.execute_update(COMMAND_UPDATE, command.to_data())
        reply = RunCommandReply.from_data(data)
        if reply.error is not None:
            raise CommandRefused(reply.error)
        return reply.value

    async def close(self) -> None:
        """Stop following the journal and write the last rows."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
        await self._rows.close()
