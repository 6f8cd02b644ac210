"""Calls: nodes executed for a body, settled once, attempt after attempt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from nerve.core.nodes.attempt import Clock, CutOff, above, attempt, guarded, heard, stopped
from nerve.core.nodes.base import Role, role_of
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.direct import here, retrying
from nerve.core.nodes.inline import again
from nerve.core.policy import NO_POLICY, ONE_TRY, Policy
from nerve.core.result import UNCHANGING, Result, own
from nerve.core.runtime import Call
from nerve.core.values import digest, encode
from nerve.core.workflow.replay import ONCE, Found, Outdated
from nerve.core.workflow.state import WorkflowState
from nerve.engine import records
from nerve.engine.children import bound_of, note_all_cut_off
from nerve.engine.leaf import LeafRuntime
from nerve.engine.spending import Spent
from nerve.engine.tasks import OWNER
from nerve.errors import NotJson

if TYPE_CHECKING:
    from nerve.engine.drive import Drive

DOUBT = (
    "{path} was started, must happen at most once, and nobody knows whether it did. Say"
    " skip('{path}', output) if it happened, retry('{path}') to run it again, or fail('{path}')."
)

SHARE = 0.002
"""Seconds a run that is alone may keep the loop before everybody else on it has a turn."""


class Undecided(NamedTuple):
    """A step of which somebody must say whether it has happened, and whether what was said is noted."""

    decision: asyncio.Future[Result | None]
    noted: asyncio.Future[None]


class Calls:
    """The calls of one run."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self.home = here()
        self.running: dict[str, LeafRuntime] = {}
        """The leaves that are being executed, by their paths: what each of them sees of the engine."""
        self.resting: set[str] = set()
        """Those that wait for their next attempt."""
        self.clocks: dict[str, Clock] = {}
        self.undecided: dict[str, Undecided] = {}
        """Steps of which somebody must say whether they have happened, by their paths."""
        self.cut = CutOff()
        self._shared = 0.0

    async def call(self, call: Call) -> Result:
        drive, path = self._drive, call.path
        drive.check_in()
        if drive.overrides:
            call.input = drive.overrides.get(path, {}).get("input", call.input)
        text, unfit = as_json(call.input)
        hashed, role = digest(text), role_of(call.node)
        once = call.policy.effect == "once" and role == "leaf"
        found = drive.look_up(path, hashed, text) if drive.delivery.remembers else None
        begun, settled = found is not None, False
        if once and not begun and path in drive.unclear:
            self._started(call, role, text, hashed)
            await drive.doubt(path)
        try:
            if found is not None and found.settle is not None:
                settled = True
                if (told := await self._told(call, found)) is not None:
                    return told
                found, settled = drive.look_up(path, hashed, text), False
                begun = found is not None
            if type(call.input) not in UNCHANGING and role == "leaf" and unfit is None:
                call.input = own(call.input)
            if found is not None and role != "leaf":
                drive.delivery.pump()
            elif once and found is not None and found.in_doubt:
                await drive.doubt(path)
            elif not drive.is_live:
                await drive.turn_live()
            if found is None:
                if (room := self._counted(path, role)) is not None:
                    await room
                begun = True
                if (written := self._started(call, role, text, hashed)) is not None:
                    await written
            began = time.perf_counter()
            if unfit is not None:
                result = Result.raised(unfit)
            elif role == "leaf":
                result = await self._leaf(call, found)
            else:
                result = await self._part_of_the_body(call, role)
            if role == "workflow" and not drive.is_live:
                await drive.turn_live()
            outcome = self._settle(call, role, result, time.perf_counter() - began)
            settled = True
            if not isinstance(outcome, Result):
                handed: Result = await drive.delivery.awaited(outcome)
                return handed
            if began > self._shared + SHARE:
                await asyncio.sleep(0)  # nothing had to be waited for, but others must have their turn
                self._shared = time.perf_counter()
            return outcome
        except asyncio.CancelledError:
            if begun:
                await self._abandon(call, role, found, settled)
            raise

    async def _abandon(self, call: Call, role: Role, found: Found | None, settled: bool) -> None:
        """The body gave a call up that had begun: note what it took, and what may have happened in it.

        The call may have taken its time to end: the body is told in the turn of the event that says so.
        """
        drive, path, child = self._drive, call.path, role == "workflow"
        if role == "leaf" and call.policy.effect == "once":
            self.cut.append(path)
        elif child and found is not None and found.given_up:
            note_all_cut_off(drive, call)
        taken = self._given_up(call) if child else {"usage": self._noted(call)}
        if (seq := drive.abandon(path, "node_cancelled", found, settled, taken)) is not None:
            await drive.tell_end(seq)

    async def _told(self, call: Call, found: Found) -> Result | None:
        """What the journal says came of a call; None if that does not count any more."""
        try:
            told: Result = await self._drive.told(found)
        except Outdated:
            return None
        self._drive.threads.note(call.node_id, told)
        return told

    def _counted(self, path: str, role: Role) -> Awaitable[None] | None:
        """Count something new; gives what to wait for, where anything is bounded."""
        drive = self._drive
        if drive.delivery.remembers:
            drive.outdate()
        if role != "control":
            drive.usage.steps += 1
        if not drive.purses.counted and drive.host.budgets.day is None:
            return None
        drive.check_limits(path)
        return self.afford(path, lambda promised: drive.purses.short())

    async def afford(self, path: str, short: Callable[[bool], Spent | None]) -> None:
        """Wait while a budget is spent, or what is left of it is promised to turns under way.

        `short` says which that is, with what is promised or without: only what is spent holds the run.
        """
        if short(True) is None:
            return
        drive = self._drive
        with self.unhurried(path):
            while True:
                if (spent := short(False)) is not None:
                    drive.hold_for_budget(spent, path)
                elif short(True) is not None:
                    await drive.host.budgets.changed()
                else:
                    return
                await drive.turn_live()

    def unhurried(self, place: str) -> AbstractContextManager[None]:
        """Let no time pass for what is around a place: it waits for a person, a budget, or a limit to end."""
        return stopped([*above(self.clocks, place), *self._drive.waits.guards(place)])

    def _started(self, call: Call, role: Role, text: str, hashed: str) -> Awaitable[None] | None:
        """Note that the call has started; gives what to wait for if that must be on disk before it acts.

        What must not happen twice waits, and a leaf after a clock reading: its input may depend on that time,
        and another attempt after a crash has the same idempotency key.
        """
        drive = self._drive
        waits = call.policy.effect == "once"
        extra = ONCE if waits else ""
        if role == "workflow":
            waits, extra = True, f'"child":"{drive.child_id(call.path)}",'
        elif role == "leaf":
            waits = waits or getattr(call.node, "asks", False) or drive.emits.clock_unwritten
        data = records.started(call, role, text, hashed, extra)
        type = "step_started" if call.step else "node_started"
        seq = drive.journal.note(type, call.path, data, None, urgent=False)
        return drive.journal.written_upto(seq) if waits else None

    async def _part_of_the_body(self, call: Call, role: Role) -> Result:
        assert call.context is not None
        context = call.context.child(call.path, call.input)
        if role == "control":
            return await again(context, call.policy, lambda _: self._enter(call, context))
        result = await again(context, call.policy, lambda number: self._child(call, number))
        return self._drive.host.accounted(self._drive, call, result)

    async def _enter(self, call: Call, context: ExecutionContext) -> Result:
        """A control node runs as part of the body."""

        def hear(clock: Clock) -> None:
            self.clocks[call.path] = clock

        try:
            return await attempt(call.node, context, Policy(idle_timeout=call.policy.idle_timeout), hear)
        finally:
            self.clocks.pop(call.path, None)

    async def _child(self, call: Call, number: int) -> Result:
        if call.policy.idle_timeout is not None:
            return Result.failed("idle_timeout is for nodes; give a workflow a timeout", "ValueError")
        drive = self._drive
        late = call.policy.timeout is not None and drive.was_told(bound_of(call.path, number))
        return await drive.host.run_child(drive, call, number, late)

    async def _leaf(self, call: Call, found: Found | None) -> Result:
        """A leaf runs outside the body: what it starts and emits is not part of what is replayed."""
        assert call.context is not None
        drive, path = self._drive, call.path
        runtime = self.running[path] = LeafRuntime(call, drive, found is not None)
        context = call.context.child(path, call.input, runtime)
        context.overrides = drive.overrides.get(path, {})
        if found is not None and getattr(call.node, "asks", False):
            drive.waits.withdraw(path)
        token = OWNER.set(None)
        try:
            if found is None and call.policy is NO_POLICY:
                return await guarded(call.node, context)
            return await self._attempts(call, context, runtime, found)
        finally:
            OWNER.reset(token)
            self._rests(path)

    def _rests(self, path: str) -> None:
        """A leaf is not executed any more, or not now; when none is, a pause has come into effect."""
        run = self._drive.run
        self.running.pop(path, None)
        if run._state is WorkflowState.PAUSING and not self.running:
            run._state = WorkflowState.PAUSED
            run._notify()

    async def _attempts(self, call: Call, context: Any, runtime: LeafRuntime, found: Found | None) -> Result:
        drive = self._drive
        retry = call.policy.retry or ONE_TRY
        number, delay = await self._so_far(call, found) if found else (0, 0.0)
        while True:
            if number:
                await self._between(runtime, delay)
            number += 1
            result = await attempt(call.node, context, call.policy, runtime.hear)
            self._check(result)
            if result.settled == "timeout" and call.policy.effect == "once":
                if (decided := await self._decision(call)) is not None:
                    return decided
                delay = 0.0
            else:
                result, more = retry.judge(result, number)
                if not more:
                    return self._accounted(call, runtime, result)
                delay = retry.pause(number, drive.random(f"{call.path}~{number}"))
            drive.note("node_retrying", call.path, retrying(call.node_id, number, retry, delay, result))

    async def _between(self, runtime: LeafRuntime, delay: float) -> None:
        """The time between two attempts; none begins while the run is paused or held."""
        drive, path = self._drive, runtime.path
        self._rests(path)
        self.resting.add(path)
        try:
            if delay > 0:
                await asyncio.sleep(delay)
            while drive.barrier is not None:
                await asyncio.shield(drive.barrier)
        finally:
            self.resting.discard(path)
        self.running[path] = runtime

    async def _decision(self, call: Call) -> Result | None:
        """What a person says became of a step that must happen once and was cut off; None is run it again."""
        drive, path = self._drive, call.path
        decision: asyncio.Future[Result | None] = drive.loop.create_future()
        undecided = self.undecided[path] = Undecided(decision, drive.loop.create_future())
        try:
            with self.unhurried(path):
                while not decision.done():
                    ways: list[asyncio.Future[Any]] = [decision]
                    ways.append(drive.hold_open("in doubt", DOUBT.format(path=path), path))
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self.undecided[path]
            undecided.noted.set_result(None)  # whoever waits for it goes on in a later turn of the loop
        return decision.result()

    def _accounted(self, call: Call, runtime: LeafRuntime, result: Result) -> Result:
        """A step that was not let to say what it took: what it had noted of it counts."""
        if runtime.again and "usage" not in result["attributes"] and (used := self._noted(call)):
            result["attributes"] = {**result["attributes"], "usage": used}
        return result

    def _noted(self, call: Call) -> Any:
        """What an agent noted of what it took, if it is one."""
        if not getattr(call.node, "asks", False):
            return None
        return (self._drive.waits.recorded(call.path, "agent_thread") or {}).get("usage")

    def _given_up(self, call: Call) -> dict[str, Any]:
        """What a child run took that the body gave up; the day has it from the child's own journal."""
        drive = self._drive
        used = drive.purses.taken_by_child(call.path)
        return {"run_id": drive.child_id(call.path), "usage": used or None}

    async def _so_far(self, call: Call, found: Found) -> tuple[int, float]:
        """Attempts made before the engine died, and what is left of the pause behind the last one."""
        made = [entry for entry in found.retries if not entry.get("recovered")]
        number = made[-1]["attempt"] if made else 0
        delay = max(0.0, made[-1]["at"] + made[-1]["delay"] - time.time()) if made else 0.0
        data = {"node_id": call.node_id, "attempt": number + 1, "recovered": True, "delay": delay}
        seq = self._drive.note("node_retrying", call.path, data)
        if call.policy.effect == "once":
            await self._drive.journal.written_upto(seq)
        return number, delay

    def _settle(self, call: Call, role: Role, result: Result, seconds: float) -> Result | asyncio.Future[Any]:
        """Note how the call ended; gives the result if it may be used at once, else what to wait for."""
        drive, path, control, told = self._drive, call.path, role == "control", result["attributes"]
        self._check(result)
        if not control:
            if not result["success"]:
                drive.usage.errors += 1
            if told or drive.purses.own.under_way:
                drive.purses.spend(path, told.get("usage"), by_child=role == "workflow")
        if self.clocks:
            heard(self.clocks, path)
        type, data, kept = records.ended(call, result, seconds)
        if told:
            drive.threads.note(call.node_id, kept)
        alone = not control and drive.alone and drive.barrier is None
        seq = drive.journal.note(type, path, data, drive.settle_key(path), urgent=not (control or alone))
        if alone and drive.journal.write_at_once() >= seq:
            return kept
        future = drive.delivery.future()
        drive.delivery.push(seq, future, kept, durable=not control)
        return future

    def _check(self, result: Result) -> None:
        """Whoever fails when the run is stopped or left fails for that, and has not failed."""
        if not result["success"]:
            self._drive.check_in()

    def told_by_leaf(self, path: str, type: str, data: dict[str, Any]) -> None:
        """What a leaf tells watchers, as long as the run is not over."""
        heard(self.clocks, path)
        if self._drive.final is None and not self._drive.host.shutting_down:
            self._drive.note(type, path, data)


def as_json(value: Any) -> tuple[str, NotJson | None]:
    """The canonical text of an input, or why there is none."""
    try:
        return encode(value, canonical=True), None
    except NotJson as error:
        return "null", error
