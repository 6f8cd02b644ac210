"""Drive: one run in memory; what its body asks for is answered from the journal, or done and recorded."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Awaitable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from nerve.core.limits import Limits, message
from nerve.core.misfits import readable
from nerve.core.nodes.context import ExecutionContext, numbered
from nerve.core.result import Result, text_of
from nerve.core.runtime import Call, Wait
from nerve.core.threads import Threads
from nerve.core.values import AROUND, decode, encode, is_plain, mended
from nerve.core.workflow.context import WorkflowContext
from nerve.core.workflow.replay import ROOT, Found, Mismatch, Outdated, Record, Replay, unclear
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import WorkflowState
from nerve.engine.budgets import Budgets
from nerve.engine.calls import DOUBT, Calls
from nerve.engine.children import child_id
from nerve.engine.delivery import Delivery
from nerve.engine.emits import Emits
from nerve.engine.journal import Journal
from nerve.engine.lending import Lending
from nerve.engine.purses import Purses
from nerve.engine.records import call_key, ids_of, lenient_upto, resets_in, resumed, settle_key, tally
from nerve.engine.spending import Spent
from nerve.engine.tasks import OWNER
from nerve.engine.waits import OPENS, Waits
from nerve.engine.writer import Writer
from nerve.errors import Conflict, LimitReached, NerveError, NotJson, Rejected, StoreFull, Suspended
from nerve.store.port import Row, RunRow, Store

if TYPE_CHECKING:
    from nerve.engine.facts import Facts

STUBBORN = 5.0
"""Seconds given to a body that was cancelled and does not end, before it is cancelled once more."""

TOLD = frozenset({"output_chunk", "tool_call", "plan", "usage", "log", "permission", "node_retrying"})
"""Events that tell what agents, commands and errors said: half a character in it is no reason to fail."""


class Host(Protocol):
    """What a drive needs of its engine."""

    @property
    def drives(self) -> Mapping[str, Drive]: ...
    @property
    def writer(self) -> Writer: ...
    @property
    def shutting_down(self) -> bool: ...
    @property
    def facts(self) -> Facts: ...
    @property
    def store(self) -> Store: ...
    @property
    def budgets(self) -> Budgets: ...
    def child_ended(self, run_id: str) -> bool: ...
    def attempts(self, run_id: str, key: str) -> list[str]: ...
    def taken_by(self, run_id: str) -> dict[str, Any]: ...
    async def stop_begun(self, drive: Drive, reason: str) -> None: ...
    async def stop_children(self, run_id: str, reason: str, path: str | None = None) -> None: ...
    async def run_child(self, parent: Drive, call: Call, attempt: int, late: bool) -> Result: ...
    def accounted(self, parent: Drive, call: Call, result: Result) -> Result: ...
    def child_asked(self, run_id: str) -> bool: ...
    def parked(self, drive: Drive) -> None: ...
    def dropped(self, drive: Drive) -> None: ...
    def row(
        self, run: WorkflowRun, state: WorkflowState, wake: float | None, start: Mapping[str, Any], at: float
    ) -> RunRow: ...
    def show(self, run: WorkflowRun, rows: list[Row]) -> None: ...


class Drive:
    """The runtime of one body, from its start to its end, to a hold, or until it leaves memory."""

    def __init__(
        self, host: Host, run: WorkflowRun, start: dict[str, Any], limits: Limits, past: Sequence[Row] = ()
    ) -> None:
        self.host, self.run, self.start, self.limits = host, run, start, limits
        self.overrides: dict[str, dict[str, Any]] = start.get("overrides") or {}
        self.changed = bool(past) and lenient_upto(past) > 0
        """Whether there may be child runs that the code does not ask for any more."""
        self.usage = tally(past)
        self.purses = Purses(self, past)
        self.detached = False
        """The body has been let go: whatever it still does says nothing about the run."""
        self.stopping = False
        self.before: WorkflowState | None = None
        """What it was before somebody began to stop it: after a crash it is that again."""
        self.final: WorkflowState | None = None
        self.verdict: Exception | None = None
        self.barrier: asyncio.Future[None] | None = None
        self.doubts: list[str] = []
        self.asked_anew: list[str] = []
        """Paths that the body asks for on replay and the journal does not have."""
        forked = "forked_from" in start
        self.threads = Threads(Lending(host.store, start, past)) if forked else Threads()
        self.main: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()
        self._scope = contextvars.copy_context()
        self._resets = resets_in(past)
        self.unclear = unclear(past) if self.changed else set()
        """Leaves that may have happened, also where what is recorded of them does not count any more."""
        replay = Replay(past[1:], lenient_upto(past), ids_of(start)) if len(past) > 1 else None
        self.delivery = Delivery(
            replay if replay and not replay.finished else None, self.stuck, self._may_go_live
        )
        self.journal = Journal(
            run.run_id, past[-1].seq if past else 0, host.writer, self._row, self._written, self.write_failed
        )
        self.delivery.committed = self.journal.seq
        self.calls, self.waits, self.emits = Calls(self), Waits(self, past), Emits(self)

    # -- the port ------------------------------------------------------------------------------

    def call(self, call: Call) -> Awaitable[Result]:
        return self.calls.call(call)

    def wait(self, wait: Wait) -> Awaitable[Any]:
        return self.waits.wait(wait)

    def cut_off(self, place: str) -> str | None:
        return self.calls.cut.within(place)

    def emit(self, place: str, type: str, data: dict[str, Any]) -> None:
        self.emits.emit(place, type, data)

    def now(self, place: str) -> datetime:
        return self.emits.now(place)

    def random(self, place: str) -> float:
        return self.emits.random(place)

    def new_id(self, place: str) -> str:
        return self.emits.new_id(place)

    # -- the life of the body ------------------------------------------------------------------

    def begin(self) -> None:
        """Run the body, from its start, in a task of its own."""
        run = self.run
        run._state, run._held = WorkflowState.RUNNING, None
        session = run.workflow.session
        execution = ExecutionContext(
            session,
            run._input,
            workflow_id=run.workflow_id,
            run_id=run.run_id,
            params=run._params,
            _runtime=self,
        )
        context = WorkflowContext(session, run._input, run._params, {}, run, execution)
        self._scope.run(OWNER.set, self.delivery)
        self.main = self._scope.run(self.loop.create_task, self._body(context), context=self._scope)
        self.waits.tick()

    async def _body(self, context: WorkflowContext) -> None:
        try:
            value = await self.run.workflow.drive(context)
            text = encode(value)
            if self.verdict is not None:
                raise self.verdict
        except (Suspended, asyncio.CancelledError) as error:
            if self.verdict is not None:
                await self._end_failed(self.verdict)
            elif isinstance(error, asyncio.CancelledError) and not self.host.shutting_down:
                await self._end_failed(RuntimeError("the workflow function raised CancelledError"))
        except KeyboardInterrupt:
            raise
        except Rejected as error:
            told = {"run_id": self.run.run_id, "reason": error.reason, "killed": [], "error_type": "Rejected"}
            await self._end(
                "workflow_cancelled", encode(told, deep=None), WorkflowState.CANCELLED, error=error
            )
        except BaseException as error:
            if isinstance(error, GeneratorExit) and asyncio.current_task(self.loop) is not self.main:
                raise  # nobody runs the body any more: it is thrown away
            await self._end_failed(self.verdict or error)
        else:
            data = f'{{"run_id":"{self.run.run_id}","result":{text},"duration_s":{self._age()}}}'
            result = value if is_plain(value) else decode(text)
            await self._end("workflow_completed", data, WorkflowState.COMPLETED, result=result)

    async def _end_failed(self, error: BaseException) -> None:
        name = getattr(error, "error_type", "") or type(error).__name__
        told = readable(getattr(error, "error", None) or text_of(error))
        data = {"run_id": self.run.run_id, "error": told, "error_type": name, "duration_s": self._age()}
        await self._end("workflow_failed", encode(data, deep=None), WorkflowState.FAILED, error=error)

    def _age(self) -> float:
        began = self.run._started_at
        return round((datetime.now(UTC) - began).total_seconds(), 3) if began else 0.0

    async def _end(
        self,
        type: str,
        data: str,
        state: WorkflowState,
        result: Any = None,
        error: BaseException | None = None,
    ) -> None:
        """Write how it ended, unless the body has not come as far as the journal says it was."""
        if self.stopping or self.left:
            return
        if (obstacle := self._left_over()) is not None:
            self.stuck(obstacle, f"the code {'raised ' + described(error) if error else 'ends'} now")
            return
        self.detached = True
        self.waits.disarm()
        try:
            for child in list(self.run._children.values()):
                await child.stop("its parent has ended")
            if self.changed:
                await self.host.stop_children(self.run.run_id, "its parent has ended")
            if len(self.delivery.tasks) > 1:
                await self.cancel_tasks(but=self.main)
                await self.host.stop_begun(self, "its parent has ended")
        except NerveError as unwritten:
            self.write_failed(unwritten)
            return
        self.emits.write_kept()
        self.purses.stopped()
        if await self.write_end(type, data, state) is not None:
            return
        run = self.run
        run._result, run._exception = result, error
        if error is not None:
            told = decode(data)
            run._error, run._error_type = told.get("error", told.get("reason")), told["error_type"]
        self.finish(state)

    def _left_over(self) -> Record | None:
        """What is recorded, must be asked for, and was not when the body ended."""
        replay = self.delivery.replay
        if replay is None:
            return None
        while (obstacle := replay.obstacle()) is not None:
            obstacle.done = self.delivery.awaits(obstacle)
            if not (obstacle.done or replay.untold(obstacle) or replay.give_way(obstacle)):
                break
        return obstacle

    async def write_end(self, type: str, data: str, state: WorkflowState) -> NerveError | None:
        """Write the last event of the run; gives the reason when that failed and the run is held instead."""
        self.detached = True
        self.run._gates.clear()
        self.final = state
        self.journal.row_changed()
        try:
            await self.journal.written_upto(self.journal.note(type, "", data, ROOT))
        except NerveError as error:
            self.final = None
            return error
        return None

    def finish(self, state: WorkflowState) -> None:
        """The run has ended and that is on disk."""
        self.run._end(state)
        self.let_go()
        self.run._notify()

    def let_go(self) -> None:
        """Nobody drives the run any more."""
        self.detached = True
        self.waits.disarm()
        self.delivery.stop()
        self.journal.close()
        self.purses.close()
        self.host.dropped(self)

    async def cancel_tasks(self, but: asyncio.Future[Any] | None = None) -> None:
        """Cancel what the body has started and wait until it has ended."""
        while tasks := [task for task in self.delivery.tasks if task is not but and not task.done()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=STUBBORN)

    def suspend(self) -> None:
        """Let the body leave memory; whatever it waits for tells it to go."""
        self.let_go()
        self.delivery.stop(Suspended())
        self.waits.suspend()

    def give_up(self, error: Exception) -> None:
        """Fail the run, whatever its body makes of it."""
        if self.left:
            return
        self.verdict = error
        if self.main is not None and asyncio.current_task() is not self.main:
            self.main.cancel()

    def check_limits(self, path: str) -> None:
        if name := self.usage.reached(self.limits):
            self.give_up(LimitReached(name, message(name, self.limits, path, kind=self.run.workflow.kind)))
            raise Suspended

    # -- holding -------------------------------------------------------------------------------

    def hold(self, reason: str, text: str, path: str = "") -> None:
        """Let the body go, and wait until somebody decides."""
        if self.left:
            return
        self._held(reason, text, path)
        self._note_held()
        self.suspend()
        self.cancel_all()

    def cancel_all(self) -> None:
        for task in self.delivery.tasks - {asyncio.current_task()}:
            task.cancel()

    def _held(self, reason: str, text: str, path: str, **more: Any) -> None:
        self.run._held = {"reason": reason, "message": text, "path": path, **more}
        self.run._state = WorkflowState.HELD

    def _note_held(self) -> None:
        self.waits.tell_stopped()
        seq = self.journal.note("workflow_held", "", encode(self.run._held, deep=None))
        self.journal.row_changed()
        self.journal.written_upto(seq).add_done_callback(lambda _: self.run._notify())

    def stuck(self, obstacle: Record, now: str = "") -> None:
        """The body does not ask for what is recorded."""
        asked = ", ".join(self.asked_anew)
        now = now or (f"the code asks for {asked} now" if asked else "the code does not ask for it now")
        key = obstacle.key
        what = key if isinstance(key, str) else f"{key[0] or '/'} {key[1]}"
        self.hold(
            "mismatch",
            f"{what}: the journal has {obstacle.row.type} (event {obstacle.seq}), {now}. {WAYS_ON}",
            obstacle.row.path,
        )

    def _may_go_live(self) -> bool:
        if not self.doubts:
            self.emits.write_kept()
            if (offers := self.delivery.offers) is not None:
                self._void(offers, offers.unasked(), "the code does not ask for it now")
            return True
        self._hold_in_doubt(self.doubts[0])
        return False

    def _hold_in_doubt(self, path: str) -> None:
        self.hold("in doubt", DOUBT.format(path=path), path)

    def hold_for_budget(self, spent: Spent, path: str) -> None:
        """Let nothing new begin until the budget is raised; what runs is finished and recorded."""
        if self.barrier is None:
            limit = {} if spent.limit is None else {"limit": spent.limit}
            self.hold_open("budget", str(spent), path, purse=spent.purse.run or "day", **limit)
            if spent.purse.run is None:
                self.host.budgets.held_for_day()

    def hold_open(self, reason: str, text: str, path: str, **more: Any) -> asyncio.Future[None]:
        """Let nothing new begin until somebody decides, unless that is so already; done when it goes on."""
        if self.barrier is None:
            self.barrier, self.delivery.stands = self.loop.create_future(), True
            self._held(reason, text, path, **more)
            self._note_held()
        return self.barrier

    def write_failed(self, error: NerveError) -> None:
        """Let the body go, since something of the run, or of a child, cannot be written."""
        self._held(*why_unwritten(error), "")
        self.suspend()
        self.run._forget_gates()
        self.cancel_all()
        self.run._notify()

    # -- between the body and the journal ------------------------------------------------------

    def check_in(self) -> None:
        """A body that was stopped or let go gets nothing more; it cannot catch that as an Exception."""
        if self.is_gone():
            raise Suspended

    def is_gone(self) -> bool:
        """Whether the body was stopped or let go: it is cancelled by the engine, and not by itself."""
        return self.detached or self.stopping or self.verdict is not None or self.host.shutting_down

    @property
    def left(self) -> bool:
        """Whether what the body does now says nothing about the run any more."""
        return self.detached or self.host.shutting_down

    def look_up(self, path: str, hashed: str, asked: str) -> Found | None:
        """What the journal has for something the body asks for."""
        source = self.delivery.replay or self.delivery.offers
        if source is None:
            return None
        try:
            found = source.find(path, hashed, asked)
        except Mismatch as mismatch:
            if not source.lenient(path):
                self.hold("mismatch", f"{mismatch}. {WAYS_ON}", path)
                raise Suspended from None
            self._reset(source, path, str(mismatch))
            return None
        if found is None and self.delivery.replay is not None:
            self.asked_anew.append(path)
        if found is not None and found.ask.lenient and found.given_up:
            self._reset(source, path, "the code may not give it up any more")
            return None
        return found

    def was_told(self, path: str) -> bool:
        """Whether the body was told, the first time, how something at a path ended."""
        source = self.delivery.replay or self.delivery.offers
        return source is not None and source.is_told(path)

    def _reset(self, source: Replay, path: str, because: str) -> None:
        """What is recorded at a path does not count any more: it is run again."""
        self.outdate(source.asked_at(path))
        self._note_reset(path, because)
        source.forget(path)

    def _note_reset(self, path: str, because: str) -> None:
        self._resets.append((path, self.note("path_reset", path, {"because": because})))
        self.purses.replaced(path)

    def outdate(self, after: float = 0) -> None:
        """Something is run that is not recorded: answers behind it were for what was shown then.

        Those that the body has not heard by now do not count, and are asked for again.
        """
        source = self.delivery.replay or self.delivery.offers
        if source is not None:
            places = source.unheard(after, self.host.child_asked)
            self._void(source, places, "something before it is run again: an answer is for what was shown")

    def _void(self, source: Replay, places: list[str], because: str) -> None:
        """What is recorded at places, and how what is around them ended, does not count any more."""
        if not places:
            return
        for place in places:
            self._note_reset(place, because)
            self.waits.forget(place)
        source.reopen(places)
        self.delivery.reordered()

    async def told(self, found: Found) -> Any:
        """The recorded outcome, in its turn; what was given up stays open until it is given up again.

        A call that has an outcome gives it also to a body that cancels: its leaf did so the first time.
        """
        record, delivery = found.settle, self.delivery
        assert record is not None
        if record.kind == "settle":
            future = delivery.recorded(record)
            insists = found.ask.row.type not in OPENS.values() and not record.lenient
            try:
                outcome = await (self._in_turn(future) if insists else delivery.awaited(future))
            except TimeoutError as late:
                outcome = late
            if record.void:
                raise Outdated
            record.done = True
            if isinstance(outcome, TimeoutError):
                raise outcome
            return outcome
        try:
            await delivery.never()
        except asyncio.CancelledError:
            if record.is_told and not self.is_gone():
                await self._in_turn(delivery.recorded(record))
            raise
        finally:
            record.done = True
            delivery.pump()

    def _in_turn(self, future: asyncio.Future[Any]) -> Awaitable[Any]:
        return self.delivery.awaited_in_turn(future, self.is_gone)

    @property
    def is_live(self) -> bool:
        """Whether something new may be done at once."""
        return self.delivery.replay is None and self.barrier is None

    @property
    def alone(self) -> bool:
        """Whether this is the only run that is driven, and its body has never had a second task."""
        return self.delivery.sequential and len(self.host.drives) == 1

    async def doubt(self, path: str) -> None:
        """Hold the run for a step that may have happened, when the replay is over; never returns."""
        if self.delivery.replay is not None:
            self.doubts.append(path)
            await self.delivery.awaited(self.delivery.live())
        self._hold_in_doubt(path)
        raise Suspended

    async def turn_live(self) -> None:
        """Wait until the replay is over, and while the run is paused."""
        if self.delivery.replay is not None:
            await self.delivery.awaited(self.delivery.live())
        while self.barrier is not None:
            await asyncio.shield(self.barrier)
        self.check_in()

    def abandon(
        self, path: str, type: str, found: Found | None, settled: bool, taken: Mapping[str, Any] | None = None
    ) -> int | None:
        """The body itself gave something up; on replay it will do so again. `taken` says what that took.

        Gives the number of the event that says so, if it is new.
        """
        if self.is_gone() or (found is not None and found.given_up):
            return None
        spent = taken is not None and taken["usage"] is not None and not settled
        if taken is not None and not settled:
            self.purses.spend(path, taken["usage"], by_child="run_id" in taken)
        data = {"result": {"attributes": taken}} if spent else {}
        return self.note(type, path, data, None if settled else self.settle_key(path))

    async def tell_end(self, seq: int) -> None:
        """Return when it is the turn of the event that says that a call which was given up has ended."""
        future = self.delivery.future()
        self.delivery.push(seq, future, None, durable=False)
        await self._in_turn(future)

    def free_path(self, path: str) -> str:
        """A path for something a leaf asks for: after a restart it may ask for more than it did."""
        taken = {row.path for row in self.rows() if row.path.startswith(path)}
        number = 1
        while (free := numbered(path, number)) in taken or free in self.run._gates:
            number += 1
        return free

    def child_id(self, path: str, attempt: int = 1) -> str:
        """The child run of a call; another one after the call was reset."""
        return child_id(self.run.run_id, self.call_key(path), attempt)

    def call_key(self, path: str) -> str:
        """What the child runs of a call are called after."""
        return call_key(path, self._resets)

    def settle_key(self, path: str) -> str:
        return settle_key(path, self._resets) if self._resets else path

    def note(
        self, type: str, path: str, data: Mapping[str, Any], settles: str | None = None, urgent: bool = False
    ) -> int:
        return self.journal.note(type, path, self.text_of(type, data), settles, urgent=urgent)

    def text_of(self, type: str, data: Mapping[str, Any]) -> str:
        """The data of an event as it is written; NotJson if it cannot be."""
        try:
            return encode(data, deep=AROUND)
        except NotJson:
            if type not in TOLD:
                raise
            return encode(mended(data), deep=AROUND)

    def rows(self, after: int = 0) -> list[Row]:
        """Everything that has happened to the run after an event, whether or not it is on disk yet."""
        unwritten = self.journal.unwritten
        if unwritten and unwritten[0].seq <= after + 1:
            return unwritten[after + 1 - unwritten[0].seq :]
        kept = self.host.store.events(self.run.run_id, after)
        return [*(row for row in kept if not unwritten or row.seq < unwritten[0].seq), *unwritten]

    def _written(self, rows: list[Row]) -> None:
        self.delivery.committed = self.journal.committed
        if self.main is None and not self.detached:
            self.begin()
        self.delivery.pump()
        self.host.show(self.run, rows)
        if self.waits.only_one:
            self.host.parked(self)

    def _row(self, at: float) -> RunRow:
        state = self.final or self.before or self.run._state
        return self.host.row(self.run, state, self.waits.wake, self.start, at)

    # -- pause ---------------------------------------------------------------------------------

    def pause(self) -> int:
        """Let nothing new begin; the number of the event that says so."""
        self.barrier, self.delivery.stands = self.barrier or self.loop.create_future(), True
        self.run._state = WorkflowState.PAUSING if self.calls.running else WorkflowState.PAUSED
        self.waits.tick()
        self.journal.row_changed()
        resting = {"resting": sorted(self.calls.resting)} if self.calls.resting else {}
        return self.note("workflow_paused", "", {"run_id": self.run.run_id, **resting}, urgent=True)

    def raise_to(self, limits: Mapping[str, Any]) -> int:
        """Raise budgets of a run that goes on: it is a child that is held for them."""
        self.purses.raise_to(limits)
        return self.note("workflow_resumed", "", resumed(self.run.run_id, limits), urgent=True)

    def resume(self, limits: Mapping[str, Any], with_changes: bool = False) -> int:
        self.purses.raise_to(limits)
        self.run._held, self.run._state = None, WorkflowState.RUNNING
        self.waits.restate()
        self.journal.row_changed()
        barrier, self.barrier, self.delivery.stands = self.barrier, None, False
        if barrier is not None:
            barrier.set_result(None)
        seq = self.note("workflow_resumed", "", resumed(self.run.run_id, limits, with_changes), urgent=True)
        self.delivery.pump()
        return seq


GOES_BACK = "Resume the run: it goes on from what is in its journal."
WAYS_ON = "Restore the code and resume the run, or resume it with_changes=True, or fork it."


def why_unwritten(error: NerveError) -> tuple[str, str]:
    """The reason and the message of a hold for something that could not be written."""
    told = str(error) if str(error).endswith(".") else f"{error}."
    if isinstance(error, Conflict):
        return "conflict", f"{told} What the run did after that is not written. {GOES_BACK}"
    reason = "storage_full" if isinstance(error, StoreFull) else "storage"
    return reason, f"{told} Resume the run when it can be written again."


def described(error: BaseException) -> str:
    """The type and text of an error, and where in the code it came from."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})" if trace else ""
    return f"{type(error).__name__}: {error}{where}"
