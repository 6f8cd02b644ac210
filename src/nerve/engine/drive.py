"""Drive: one run in memory, the runtime of its body."""

from __future__ import annotations

import asyncio
import contextvars
import random
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nerve.core.event import is_reserved
from nerve.core.limits import Limits, message
from nerve.core.nodes.attempt import attempt
from nerve.core.nodes.base import role_of
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.direct import retrying
from nerve.core.policy import Retry
from nerve.core.result import Result
from nerve.core.runtime import Call, Gate, Timer, Wait
from nerve.core.values import decode, digest, encode
from nerve.core.workflow.context import WorkflowContext
from nerve.core.workflow.replay import ROOT, Found, Mismatch, Record, Replay
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import WorkflowState
from nerve.engine import records
from nerve.engine.delivery import Delivery
from nerve.engine.journal import Journal
from nerve.engine.leaf import LeafRuntime, idempotency_key
from nerve.engine.tasks import OWNER
from nerve.engine.waits import OPENS, OpenWait, content, deadline_of, gate_info, kind_of, opening, time_out
from nerve.errors import LimitReached, NerveError, NotJson, StoreFull, Suspended
from nerve.store.port import Row

if TYPE_CHECKING:
    from nerve.engine.local import LocalEngine

ONE_TRY = Retry(attempts=1)
STUBBORN = 5.0
"""Seconds given to a body that is cancelled and does not end, before it is cancelled once more."""


class Drive:
    """Everything the body asks for comes in here: answered from the journal, or done and recorded."""

    def __init__(self, engine: LocalEngine, run: WorkflowRun, past: list[Row], lenient_upto: int = 0) -> None:
        self.engine, self.run = engine, run
        self.detached = self.stopping = False
        start: dict[str, Any] = decode(past[0].data) if past else {}
        self.start = start
        self.limits = limits_of(past)
        self._overrides: dict[str, dict[str, Any]] = start.get("overrides") or {}
        self.usage = records.tally(past)
        self.running: dict[str, Call] = {}
        self.waits: dict[str, OpenWait] = {}
        self.barrier: asyncio.Future[None] | None = None
        self._final: WorkflowState | None = None
        self._verdict: Exception | None = None
        self._counts: dict[tuple[str, str], int] = {}
        self._unwritten: list[tuple[str, str, str]] = []
        self._doubts: list[str] = []
        self._resets = [(row.path, row.seq) for row in past if row.type == "path_reset"]
        self._loop = asyncio.get_running_loop()
        replay = Replay(past[1:], lenient_upto) if len(past) > 1 else None
        self.delivery = Delivery(
            replay if replay and not replay.finished else None, self._stuck, self._may_go_live
        )
        self.journal = Journal(
            run.run_id,
            past[-1].seq if past else 0,
            engine.writer,
            self._row,
            self._written,
            self._write_failed,
        )
        self.delivery.committed = self.journal.seq
        self.main: asyncio.Task[None] | None = None
        self._clock: asyncio.TimerHandle | None = None

    # -- the life of the body ------------------------------------------------------------------

    def begin(self) -> None:
        """Run the body, from its start, in a task of its own."""
        run = self.run
        if run._state is not WorkflowState.PAUSED:
            run._state = WorkflowState.RUNNING
        execution = ExecutionContext(
            run.workflow.session,
            run._input,
            workflow_id=run.workflow_id,
            run_id=run.run_id,
            auto_approve=bool(self.start.get("auto_approve")),
            _runtime=self,
        )
        context = WorkflowContext(run.workflow.session, run._input, run._params, {}, run, execution)
        scope = contextvars.copy_context()
        scope.run(OWNER.set, self.delivery)
        self.main = self._loop.create_task(self._body(context), context=scope)
        self.delivery.adopt(self.main)
        if self.limits.wall_time is not None:
            self._clock = self._loop.call_later(self.limits.wall_time, self._out_of_time)

    async def _body(self, context: WorkflowContext) -> None:
        try:
            value = await self.run.workflow.drive(context)
            text = encode(value)
        except Suspended:
            if self._verdict is not None:
                await self._end_failed(self._verdict)
        except asyncio.CancelledError:
            if self._verdict is not None:
                await self._end_failed(self._verdict)
            elif not (self.stopping or self.detached or self.engine.shutting_down):
                await self._end_failed(RuntimeError("the workflow function was cancelled from inside"))
        except Exception as error:
            await self._end_failed(self._verdict or error)
        else:
            data = f'{{"run_id":"{self.run.run_id}","result":{text},"duration_s":{self._age():.3f}}}'
            await self._end("workflow_completed", data, WorkflowState.COMPLETED, result=decode(text))

    async def _end_failed(self, error: Exception) -> None:
        name = getattr(error, "error_type", "") or type(error).__name__
        told = getattr(error, "error", None) or str(error) or name
        data = encode(
            {"run_id": self.run.run_id, "error": told, "error_type": name, "duration_s": self._age()}
        )
        await self._end("workflow_failed", data, WorkflowState.FAILED, error=error)

    def _age(self) -> float:
        began = self.run._started_at
        return round((datetime.now(UTC) - began).total_seconds(), 3) if began else 0.0

    async def _end(
        self, type: str, data: str, state: WorkflowState, result: Any = None, error: Exception | None = None
    ) -> None:
        """Write how it ended, unless the body has not come as far as the journal says it was."""
        if self.stopping or self.detached:
            return
        replay = self.delivery.replay
        if replay is not None and (obstacle := replay.obstacle()) is not None:
            self._stuck(obstacle, ended=True)
            return
        self.detached = True
        await self.cancel_tasks(but=self.main)
        self._write_unwritten()
        seq = self.journal.note(type, "", data, ROOT)
        run = self.run
        run._gates.clear()
        self._final = state
        self.journal.row_changed()
        try:
            await self.journal.written_upto(seq)
        except NerveError:
            return
        run._result, run._exception = result, error
        if error is not None:
            told = decode(data)
            run._error, run._error_type = told["error"], told["error_type"]
        self.finish(state)

    def finish(self, state: WorkflowState) -> None:
        """The run has ended and that is on disk."""
        self.run._state, self.run._completed_at = state, datetime.now(UTC)
        self.drop()
        self.run._notify()

    def drop(self) -> None:
        """Leave the engine; nothing is driven any more."""
        self.detached = True
        for handle in [self._clock, *(wait.handle for wait in self.waits.values())]:
            if handle is not None:
                handle.cancel()
        self.engine.dropped(self)

    async def cancel_tasks(self, but: asyncio.Future[Any] | None = None) -> None:
        """Cancel what the body has started and wait until it has ended."""
        while tasks := [task for task in self.delivery.tasks if task is not but and not task.done()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=STUBBORN)

    def suspend(self) -> None:
        """Let the body leave memory; what it waits for is told to stop waiting."""
        self.detached = True
        error = Suspended()
        for wait in self.waits.values():
            if wait.handle is not None:
                wait.handle.cancel()
            if not wait.future.done():
                wait.future.set_exception(error)
        self.delivery.stop(error)
        self.engine.dropped(self)

    def hold(self, reason: str, text: str, path: str = "") -> None:
        """Stop here until somebody decides."""
        if self.detached:
            return
        run = self.run
        run._held = {"reason": reason, "message": text, "path": path}
        run._state = WorkflowState.HELD
        self.journal.note("workflow_held", path, encode(run._held))
        self.journal.row_changed()
        self.suspend()
        if self.main is not None and asyncio.current_task() is not self.main:
            self.main.cancel()
        written = self.journal.written_upto(self.journal.seq)
        written.add_done_callback(lambda _: run._notify())

    def _stuck(self, obstacle: Record, ended: bool = False) -> None:
        what = (
            obstacle.key if isinstance(obstacle.key, str) else f"{obstacle.key[0] or '/'} {obstacle.key[1]}"
        )
        now = "the code ends now" if ended else "the code asks for something else now"
        self.hold(
            "mismatch",
            f"the journal has {obstacle.row.type} at {what} (event {obstacle.seq}), but {now}. Restore the code the"
            " run was started with and resume it, or resume it with_changes=True, or fork it.",
            what,
        )

    def _may_go_live(self) -> bool:
        if not self._doubts:
            self._write_unwritten()
            return True
        path = self._doubts[0]
        self.hold(
            "in doubt",
            f"{path} was started, must happen at most once, and nobody knows whether it did. Say"
            f" skip('{path}', output) if it happened, retry('{path}') to run it again, or fail('{path}').",
            path,
        )
        return False

    def _written(self, rows: list[Row]) -> None:
        self.delivery.committed = self.journal.committed
        self.delivery.pump()
        if self.run._sinks:
            self.engine.show(self.run, rows)

    def _write_failed(self, error: NerveError) -> None:
        reason = "storage_full" if isinstance(error, StoreFull) else "storage"
        self.run._held = {
            "reason": reason,
            "message": f"{error} Resume the run when it can be written again.",
            "path": "",
        }
        self.run._state = WorkflowState.HELD
        self.suspend()
        if self.main is not None and not self.main.done():
            self.main.cancel()
        self.run._notify()

    # -- calls ---------------------------------------------------------------------------------

    async def call(self, call: Call) -> Result:
        if self.detached:
            raise Suspended
        path = call.path
        if self._overrides:
            call.input = self._overrides.get(path, {}).get("input", call.input)
        unfit: NotJson | None = None
        try:
            text = encode(call.input, canonical=True)
        except NotJson as error:
            unfit, text = error, "null"
        found = self._look_up(path, digest(text), text)
        begun = settled = False
        try:
            if found is not None and found.settle is not None:
                begun = settled = True
                told: Result = await self._told(found)
                return told
            begun = found is not None
            await self._turn_live(path, call, found)
            if found is None:
                await self._start(call, text)
                begun = True
            began = time.perf_counter()
            result = Result.raised(unfit) if unfit else await self._perform(call, found)
            future = self._settle(call, result, time.perf_counter() - began)
            settled = True
            outcome: Result = await self.delivery.awaited(future)
            return outcome
        except asyncio.CancelledError:
            if begun:
                self._abandon(path, "node_cancelled", {"node_id": call.node_id}, found, settled)
            raise

    def _look_up(self, path: str, hashed: str, asked: str) -> Found | None:
        source = self.delivery.replay or self.delivery.offers
        if source is None:
            return None
        try:
            return source.find(path, hashed, asked)
        except Mismatch as mismatch:
            if source.lenient(path):
                self._reset(path, str(mismatch))
                source.forget(path)
                return None
            self.hold(
                "mismatch",
                f"{mismatch}. Restore the code, or resume with_changes=True, or fork the run.",
                path,
            )
            raise Suspended from None

    def _reset(self, path: str, because: str) -> None:
        seq = self.journal.note("path_reset", path, encode({"because": because}), urgent=False)
        self._resets.append((path, seq))

    async def _turn_live(self, path: str, call: Call | None, found: Found | None) -> None:
        """Wait until the replay is over, and while the run is paused."""
        if self.delivery.replay is not None:
            if call is not None and found is not None and in_doubt(call, found):
                self._doubts.append(path)
            parked = self.delivery.live()
            if parked is not None:
                await self.delivery.awaited(parked)
        else:
            self.delivery.live()
        if call is not None and found is None:
            self._count(path, call)
        while self.barrier is not None:
            await asyncio.shield(self.barrier)
        if self.detached:
            raise Suspended

    def _count(self, path: str, call: Call) -> None:
        if role_of(call.node) != "control":
            self.usage.steps += 1
        if name := self.usage.reached(self.limits):
            self._give_up(LimitReached(name, message(name, self.limits, path)))
            raise Suspended
        if name := self.usage.spent(self.limits):
            self._hold_for_budget(name, path)

    def _give_up(self, error: Exception) -> None:
        """Fail the run, whatever its body does with it."""
        self._verdict = error
        if self.main is not None and asyncio.current_task() is not self.main:
            self.main.cancel()

    def _hold_for_budget(self, name: str, path: str) -> None:
        if self.barrier is not None:
            return
        self.barrier = self._loop.create_future()
        used = getattr(self.usage, name)
        self.run._held = {
            "reason": "budget",
            "message": f"{name} used: {used:g} of {getattr(self.limits, name):g}. Go on with"
            f" resume(limits={{'{name}': …}}).",
            "path": path,
        }
        self.run._state = WorkflowState.HELD
        seq = self.journal.note("workflow_held", "", encode(self.run._held))
        self.journal.row_changed()
        self.journal.written_upto(seq).add_done_callback(lambda _: self.run._notify())

    def _out_of_time(self) -> None:
        self._give_up(LimitReached("wall_time", message("wall_time", self.limits, "")))

    async def _told(self, found: Found) -> Any:
        """The recorded outcome, when its turn comes; what was given up stays open until it is given up again."""
        record = found.settle
        assert record is not None
        if record.kind == "settle":
            return await self.delivery.awaited(self.delivery.recorded(record, records.outcome_of(record.row)))
        try:
            await self.delivery.awaited(self.delivery.future())
        finally:
            record.done = True
            self.delivery.pump()

    async def _start(self, call: Call, text: str) -> None:
        child = role_of(call.node) == "workflow"
        extra = f'"child":"{self.engine.child_id(self.run.run_id, call.path)}",' if child else ""
        data = records.started(call, text, digest(text), extra)
        seq = self.journal.note(
            "step_started" if call.step else "node_started", call.path, data, urgent=False
        )
        if child or call.policy.effect == "once":
            await self.journal.written_upto(seq)

    async def _perform(self, call: Call, found: Found | None) -> Result:
        role = role_of(call.node)
        if role == "control":
            return await self._control(call)
        if role == "workflow":
            return await self.engine.run_child(self, call)
        return await self._leaf(call, found)

    async def _control(self, call: Call) -> Result:
        """A control node runs as part of the body; between its attempts the body sleeps."""
        assert call.context is not None
        context = call.context.child(call.path, call.input)
        retry = call.policy.retry or ONE_TRY
        number = 0
        while True:
            number += 1
            result = await attempt(call.node, context, call.policy)
            if not retry.again(result, number):
                return result
            pause = retry.pause(number, self.random(f"{call.path}~{number}"))
            await self.wait(Timer(context.take("~retry"), pause))

    async def _leaf(self, call: Call, found: Found | None) -> Result:
        assert call.context is not None
        runtime = LeafRuntime(call.path, self._leaf_emit, self._loop)
        context = call.context.child(call.path, call.input)
        context._runtime = runtime
        context.overrides = self._overrides.get(call.path, {})
        context.idempotency_key = idempotency_key(self.run.run_id, call.path)
        number, delay = self._attempts_so_far(call, found) if found else (0, 0.0)
        retry = call.policy.retry or ONE_TRY
        self.running[call.path] = call
        token = OWNER.set(None)
        try:
            while True:
                if delay > 0:
                    await asyncio.sleep(delay)
                number += 1
                result = await attempt(call.node, context, call.policy, runtime.hear)
                if not retry.again(result, number):
                    return result
                delay = retry.pause(number, self.random(f"{call.path}~{number}"))
                self._note("node_retrying", call.path, retrying(call.node_id, number, retry, delay, result))
        finally:
            OWNER.reset(token)
            self.running.pop(call.path, None)
            self._rest()

    def _attempts_so_far(self, call: Call, found: Found) -> tuple[int, float]:
        """Attempts made before the engine died, and what is left of the pause behind the last one."""
        made = [entry for entry in found.retries if not entry.get("recovered")]
        number = made[-1]["attempt"] if made else 0
        delay = made[-1]["at"] + made[-1]["delay"] - time.time() if made else 0.0
        self._note(
            "node_retrying",
            call.path,
            {"node_id": call.node_id, "attempt": number + 1, "recovered": True, "delay": max(0.0, delay)},
        )
        return number, delay

    def _settle(self, call: Call, result: Result, seconds: float) -> asyncio.Future[Any]:
        control = role_of(call.node) == "control"
        if not control:
            if not result.success:
                self.usage.errors += 1
            self.usage.spend(result.attributes.get("usage"))
        type, data, kept = records.ended(call, result, seconds)
        seq = self.journal.note(type, call.path, data, self._settle_key(call.path), urgent=not control)
        future = self.delivery.future()
        self.delivery.push(seq, future, kept, durable=not control)
        return future

    def _settle_key(self, path: str) -> str:
        """A path settles once, and once more after each reset of it."""
        for place, seq in reversed(self._resets):
            if path == place or path.startswith(place + "/"):
                return f"{path}#{seq}"
        return path

    def _abandon(
        self, path: str, type: str, data: dict[str, Any], found: Found | None, settled: bool
    ) -> None:
        """The body itself gave something up; on replay it will do so again."""
        if self.detached or self.stopping or self._verdict is not None or self.engine.shutting_down:
            return
        if found is not None and found.settle is not None and found.settle.kind == "drop":
            return
        self._note(type, path, data, None if settled else self._settle_key(path))

    # -- waits ---------------------------------------------------------------------------------

    async def wait(self, wait: Wait) -> Any:
        if self.detached:
            raise Suspended
        asked = encode(content(wait), canonical=True)
        found = self._look_up(wait.path, digest(asked), asked)
        opened: OpenWait | None = None
        try:
            if found is not None and found.settle is not None:
                return await self._told(found)
            await self._turn_live(wait.path, None, found)
            opened = self._open(wait, digest(asked), found)
            return await self.delivery.awaited(opened.future)
        except asyncio.CancelledError:
            settled = opened is not None and wait.path not in self.waits
            if not self.detached:
                self._close_wait(wait.path)
            if opened is not None or found is not None:
                self._abandon(wait.path, f"{kind_of(wait)}_cancelled", {}, found, settled)
            raise

    def _open(self, wait: Wait, hashed: str, found: Found | None) -> OpenWait:
        run = self.run
        if found is None:
            taken = {gate.gate_id for gate in run._gates.values()}
            data = opening(wait, run.run_id, taken, deadline_of(wait))
            self.journal.note(OPENS[kind_of(wait)], wait.path, encode(data | {"hash": hashed}))
        else:
            data = found.data
        opened = OpenWait(wait, self.delivery.future(), data.get("deadline"))
        self.waits[wait.path] = opened
        if isinstance(wait, Gate):
            run._gates[wait.path] = gate_info(wait.path, data, time.time())
            run._gates[wait.path].future = opened.future
        self._restate()
        self.journal.row_changed()
        if isinstance(wait, Gate) and wait.auto is not None:
            self.answer(run._gates[wait.path], wait.auto, "auto")
        elif opened.deadline is not None:
            opened.handle = self._loop.call_later(
                max(0.0, opened.deadline - time.time()), self._time_is_up, wait
            )
        self.engine.parked(self)
        return opened

    def _time_is_up(self, wait: Wait) -> None:
        type, outcome = time_out(wait)
        data: dict[str, Any] = {}
        if isinstance(wait, Gate) and wait.path in self.run._gates:
            data = {"gate_id": self.run._gates[wait.path].gate_id, "timeout": wait.timeout}
        self.settle_wait(wait.path, type, data, outcome)

    def answer(self, gate: Any, answer: Any, by: str) -> int:
        """Settle a gate; the number of the event that says so."""
        text = encode(answer)
        data = {"gate_id": gate.gate_id, "answer": decode(text), "response": decode(text), "by": by}
        return self.settle_wait(gate.path, "gate_answered", data, decode(text))

    def settle_wait(self, path: str, type: str, data: dict[str, Any], outcome: Any) -> int:
        opened = self._close_wait(path)
        if opened is None:
            return 0
        seq = self._note(type, path, data, self._settle_key(path), urgent=True)
        self.journal.row_changed()
        self.delivery.push(seq, opened.future, outcome)
        return seq

    def _close_wait(self, path: str) -> OpenWait | None:
        opened = self.waits.pop(path, None)
        self.run._gates.pop(path, None)
        if opened is not None and opened.handle is not None:
            opened.handle.cancel()
        self._restate()
        return opened

    def _restate(self) -> None:
        if self.run._state not in (WorkflowState.RUNNING, WorkflowState.WAITING):
            return
        waiting = any(wait.keeps_waiting for wait in self.waits.values())
        state = WorkflowState.WAITING if waiting else WorkflowState.RUNNING
        if state is not self.run._state:
            self.run._state = state
            self.journal.row_changed()

    @property
    def evictable(self) -> bool:
        """Whether all there is of the body is one task that waits for the outside."""
        return (
            len(self.waits) == 1
            and len(self.delivery.tasks) == 1
            and self.delivery.blocked == 1
            and self.delivery.replay is None
            and self.barrier is None
            and not self.detached
            and self.journal.committed == self.journal.seq
            and next(iter(self.waits.values())).keeps_waiting
        )

    # -- everything else that leaves the body --------------------------------------------------

    def emit(self, place: str, type: str, data: dict[str, Any]) -> None:
        if self.detached:
            return
        if is_reserved(type):
            raise ValueError(f"'{type}' is written by the engine only; emit another name")
        text = encode(data)
        if self._recorded(place, type) is not None:
            self.delivery.pump()
            return
        if type == "loop_iteration":
            self.usage.iterations += 1
        self._write_or_keep(type, place, text)
        if name := self.usage.reached(self.limits):
            self._give_up(LimitReached(name, message(name, self.limits, place)))
            raise Suspended

    def _recorded(self, place: str, type: str) -> Record | None:
        count = self._counts[(place, type)] = self._counts.get((place, type), 0) + 1
        source = self.delivery.replay or self.delivery.offers
        return source.made((place, type, count)) if source is not None else None

    def _write_or_keep(self, type: str, place: str, text: str) -> None:
        """Nothing new is written before the replay is known to match."""
        if self.delivery.replay is not None:
            self._unwritten.append((type, place, text))
        else:
            self.journal.note(type, place, text, urgent=False)

    def _write_unwritten(self) -> None:
        for type, place, text in self._unwritten:
            self.journal.note(type, place, text, urgent=False)
        self._unwritten.clear()

    def _leaf_emit(self, path: str, type: str, data: dict[str, Any]) -> None:
        if self._final is None and not self.engine.closed:
            self.journal.note(type, path, encode(data), urgent=False)

    def now(self, place: str) -> datetime:
        record = self._recorded(place, "clock_read")
        if record is not None:
            self.delivery.pump()
            return datetime.fromisoformat(record.data["now"])
        now = datetime.now(UTC)
        self._write_or_keep("clock_read", place, encode({"now": now.isoformat()}))
        return now

    def random(self, place: str) -> float:
        return random.Random(f"{self.start.get('seed')}{place}").random()

    def new_id(self, place: str) -> str:
        return str(
            uuid.UUID(int=random.Random(f"{self.start.get('seed')}{place}").getrandbits(128), version=4)
        )

    # -- pause and the projection --------------------------------------------------------------

    def pause(self) -> int:
        if self.barrier is None:
            self.barrier = self._loop.create_future()
        self.run._state = WorkflowState.PAUSING if self.running else WorkflowState.PAUSED
        seq = self._note("workflow_paused", "", {"run_id": self.run.run_id}, urgent=True)
        self.journal.row_changed()
        return seq

    def _rest(self) -> None:
        if self.run._state is WorkflowState.PAUSING and not self.running:
            self.run._state = WorkflowState.PAUSED

    def resume(self, limits: dict[str, Any]) -> int:
        self.limits = self.limits.raised(limits)
        data = {"run_id": self.run.run_id} | ({"limits": limits} if limits else {})
        seq = self._note("workflow_resumed", "", data, urgent=True)
        self.run._held = None
        self.run._state = WorkflowState.RUNNING
        self._restate()
        self.journal.row_changed()
        barrier, self.barrier = self.barrier, None
        if barrier is not None and not barrier.done():
            barrier.set_result(None)
        return seq

    def _note(
        self, type: str, path: str, data: dict[str, Any], settles: str | None = None, urgent: bool = False
    ) -> int:
        return self.journal.note(type, path, encode(data), settles, urgent=urgent)

    def _row(self) -> Any:
        deadlines = [wait.deadline for wait in self.waits.values() if wait.deadline is not None]
        return self.engine.row(
            self.run, self._final or self.run._state, min(deadlines, default=None), self.start
        )


def in_doubt(call: Call, found: Found) -> bool:
    """Whether a step that must happen at most once may have happened."""
    return call.policy.effect == "once" and not any(entry.get("again") for entry in found.retries)


def limits_of(past: list[Row]) -> Limits:
    """The limits a run was started with, as they were raised since."""
    limits = Limits.read(decode(past[0].data).get("limits")) if past else Limits()
    for row in past:
        if row.type == "workflow_resumed":
            limits = limits.raised(decode(row.data).get("limits", {}))
    return limits
