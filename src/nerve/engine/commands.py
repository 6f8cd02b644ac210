"""Commands: what people do to runs, whether somebody drives them or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from nerve.core.result import Result
from nerve.core.values import AROUND, decode, encode
from nerve.core.workflow.replay import ROOT
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import FINAL, GateInfo, WorkflowState
from nerve.engine.drive import Drive
from nerve.engine.journal import Journal
from nerve.engine.records import resets_in, resumed, settle_key, start_of
from nerve.engine.tasks import apart
from nerve.engine.waits import answered, ends_by_stop, no_gate, open_in, received
from nerve.errors import NerveError
from nerve.store.port import ReplyRow, Row

if TYPE_CHECKING:
    from nerve.engine.local import LocalEngine

Saying = Callable[[str], ReplyRow]
"""What is said to a command about a path."""

RUNS = (WorkflowState.RUNNING, WorkflowState.WAITING)
OVER = frozenset(state.value for state in FINAL)
PAUSES = (WorkflowState.PAUSED, WorkflowState.PAUSING)
STANDS = (*PAUSES, WorkflowState.HELD)


class Commands:
    """Each returns when what it did is on disk; those for one run wait for each other."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self._locks: WeakKeyDictionary[WorkflowRun, asyncio.Lock] = WeakKeyDictionary()
        self._stops: set[asyncio.Task[list[str]]] = set()

    @asynccontextmanager
    async def _turn(self, run: WorkflowRun) -> AsyncIterator[Drive | None]:
        """Have a run to oneself; gives its drive, if anybody drives it."""
        self._engine.attend()
        async with self._locks.setdefault(run, asyncio.Lock()):
            drive = await self._driven(run)
            if self._engine.closed:
                raise RuntimeError("the session is closed")
            yield drive

    def busy(self, run: WorkflowRun) -> bool:
        """Whether somebody has a run to oneself."""
        lock = self._locks.get(run)
        return lock is not None and lock.locked()

    async def wake(self, run: WorkflowRun) -> None:
        """Go on with a run that nobody drives: the time it waits for has come."""
        async with self._turn(run) as drive:
            if drive is None and run._state in RUNS:
                self._engine.revive(run)

    async def _driven(self, run: WorkflowRun) -> Drive | None:
        """Who drives a run, when whoever is about to leave it has left and written everything."""
        while True:
            drive, leaving = self._engine.drives.get(run.run_id), self._engine.leaving.get(run.run_id)
            if drive is not None and drive.detached:
                await run._change()
            elif drive is None and leaving is not None and not leaving.done():
                await asyncio.wait([leaving])
            else:
                return drive

    async def stop(self, run: WorkflowRun, reason: str, top: str | None = None) -> list[str]:
        """End a run and its children; says what was running. It is done, also when nobody waits for it.

        `top` is the run around it that is stopped, if it is not only this one.
        """
        driving = self._engine.drives.get(run.run_id)
        if driving is not None and asyncio.current_task() in driving.delivery.tasks:
            raise RuntimeError("a run cannot stop itself; return or raise instead")
        return await asyncio.shield(self.begin_to_stop(run, reason, top))

    def begin_to_stop(self, run: WorkflowRun, reason: str, top: str | None) -> asyncio.Task[list[str]]:
        stopping = apart(self._stop(run, reason, top))
        self._stops.add(stopping)
        stopping.add_done_callback(self._stopped)
        return stopping

    def _stopped(self, done: asyncio.Task[list[str]]) -> None:
        self._stops.discard(done)
        if not done.cancelled():
            done.exception()  # whoever still waits for it is told; there may be nobody

    async def stops(self) -> None:
        """Return when every stop that has begun is over."""
        while self._stops:
            await asyncio.wait(self._stops)

    async def _stop(self, run: WorkflowRun, reason: str, top: str | None) -> list[str]:
        async with self._turn(run) as drive:
            if run.is_complete or run._state is WorkflowState.PENDING:
                return []
            if drive is not None:
                return await self._stop_driven(drive, reason, top)
            if self._open(run.run_id) is None:
                return []  # it ended by itself, and this handle has not noticed yet
            stopped = self._open_children(run)
            for child in stopped:
                await self.stop(child, reason, top or run.run_id)
            data = cancelled(run, reason, [], top)
            ends = ends_by_stop(self._engine.store.events(run.run_id))
            also = [*self._took(stopped), *ends]
            await self._append(run, "workflow_cancelled", data, WorkflowState.CANCELLED, ROOT, also=also)
            run._gates.clear()
            run._error = reason or None
            self._engine.ended(run, WorkflowState.CANCELLED)
            return []

    def _took(self, children: Iterable[WorkflowRun]) -> list[tuple[str, str, dict[str, Any]]]:
        """The events that say where child runs were called, and what they took."""
        ids = [child.run_id for child in children]
        places = {each: start_of(self._engine.store.events(each, 0, 1))["parent_path"] for each in ids}
        used = {each: self._engine.taken_by(each) for each in ids}
        taken = [each for each in ids if used[each]]
        return [("child_stopped", places[each], {"run_id": each, "usage": used[each]}) for each in taken]

    async def _stop_driven(self, drive: Drive, reason: str, top: str | None) -> list[str]:
        run = drive.run
        drive.stopping, drive.before = True, run._state
        run._state = WorkflowState.STOPPING
        killed = list(drive.calls.running)
        try:
            for path, child in list(run._children.items()):
                killed += [path + inner for inner in await self.stop(child, reason, top or run.run_id)]
            await drive.cancel_tasks()
            killed += await self.stop_begun(drive, reason, top or run.run_id)
        except NerveError as unwritten:
            drive.write_failed(unwritten)
            raise
        drive.purses.stopped()
        for kind, path, ended in ends_by_stop(drive.rows()):  # on disk with what ends the run, or not at all
            drive.note(kind, path, ended)
        data = encode(cancelled(run, reason, killed, top), deep=None)
        if (error := await drive.write_end("workflow_cancelled", data, WorkflowState.CANCELLED)) is not None:
            raise error
        run._error = reason or None
        drive.finish(WorkflowState.CANCELLED)
        return killed

    async def stop_begun(self, drive: Drive, reason: str, top: str | None = None) -> list[str]:
        """Stop the children that a run had just begun when it was to end."""
        killed: list[str] = []
        for path, run_id in drive.purses.children:
            if (child := self._open(run_id)) is not None:
                killed += [path + inner for inner in await self.stop(child, reason, top)]
        return killed

    def _open(self, run_id: str) -> WorkflowRun | None:
        """A run that is not over; its start may have yet to be written."""
        if (drive := self._engine.drives.get(run_id)) is not None:
            return drive.run
        row = self._engine.store.run(run_id)
        return None if row is None or row.state in OVER else self._engine.handle(row)

    async def pause(self, run: WorkflowRun) -> None:
        """Let nothing new begin, in the run and in its children."""
        async with self._turn(run) as drive:
            if run._state in PAUSES:
                return
            if run._state not in RUNS:
                raise RuntimeError(f"Cannot pause run in state {run._state.value}: {standing(run)}")
            if drive is not None:
                await drive.journal.written_upto(drive.pause())
            else:
                await self._append(run, "workflow_paused", {"run_id": run.run_id}, WorkflowState.PAUSED)
                run._state = WorkflowState.PAUSED
            run._notify()
            for child in self._open_children(run):
                if child._state in RUNS:
                    await self.pause(child)

    def _open_children(self, run: WorkflowRun) -> list[WorkflowRun]:
        return [self._engine.handle(row) for row in self._engine.open_children(run.run_id)]

    async def resume(
        self,
        run: WorkflowRun,
        limits: Mapping[str, Any],
        with_changes: bool = False,
        reply: ReplyRow | None = None,
    ) -> None:
        """Go on. If a budget is spent, it is that which is raised: a child's, or that of a run around it."""
        if limits and (spender := self._spender(run)) is not run:
            await self._raise(spender, limits)
            limits = {}
            if spender.run_id in dict(self._engine.around(run.run_id)):
                await self._go_on_below(spender, but=run)
        async with self._turn(run) as drive:
            if run._held is not None and run._held["reason"] == "in doubt":
                raise RuntimeError(f"Cannot resume: {run._held['message']}")
            await self._resume(run, drive, limits, with_changes, reply)

    async def _resume(
        self,
        run: WorkflowRun,
        drive: Drive | None,
        limits: Mapping[str, Any],
        with_changes: bool = False,
        reply: ReplyRow | None = None,
    ) -> None:
        if run._state not in STANDS and not is_for_budget(run.held) and not self._pauses_below(run):
            raise RuntimeError(f"Cannot resume run in state {run.state.value}: {standing(run)}")
        if with_changes:
            drive = self._engine.renew(run, drive) or await self._driven(run)
        self._engine.ready(run)
        if drive is not None:
            seq = drive.resume(limits, with_changes)
            drive.journal.keep(reply)
            await drive.journal.written_upto(seq)
        else:
            data = resumed(run.run_id, limits, with_changes)
            await self._append(run, "workflow_resumed", data, WorkflowState.RUNNING, reply=reply)
            run._held, run._state = None, WorkflowState.RUNNING
            self._engine.revive(run)
            if with_changes:
                run._gates.clear()  # open is what the code asks for now, and that it has yet to say
        await self._go_on_below(run)

    def _pauses_below(self, run: WorkflowRun) -> bool:
        """Whether a run goes on, and a child of it does not: it was paused alone, or not resumed yet."""
        below = self._open_children(run) if run._state in RUNS else []
        return any(child._state in PAUSES or self._pauses_below(child) for child in below)

    async def _go_on_below(self, run: WorkflowRun, but: WorkflowRun | None = None) -> None:
        """Go on with the children of a run that pause with it, or are held for a budget."""
        for child in self._open_children(run):
            if child is not but and (child._state in PAUSES or is_for_budget(child._held)):
                await self.resume(child, {})
            else:
                await self._go_on_below(child, but)

    def _spender(self, run: WorkflowRun) -> WorkflowRun:
        """The run whose budget is spent, if a run, or a child of it, is held for one; else the run itself."""
        held = run.held
        if held is None or not is_for_budget(held) or held.get("purse") == "day":
            return run
        row = self._engine.store.run(held.get("purse") or held["run_id"])
        return run if row is None else self._engine.handle(row)

    async def _raise(self, run: WorkflowRun, limits: Mapping[str, Any]) -> None:
        """Raise the budget of a run, whether it stands or a child of it does."""
        async with self._turn(run) as drive:
            if drive is not None:
                await drive.journal.written_upto(drive.raise_to(limits))
            else:
                data = resumed(run.run_id, limits)
                await self._append(run, "workflow_resumed", data, run._state)

    def answer(self, run: WorkflowRun, gate: GateInfo, answer: Any, by: str) -> Awaitable[None]:
        """Settle a gate that was claimed for this answer."""
        drive = self._engine.drives.get(run.run_id)
        if drive is not None and not drive.detached:
            return drive.journal.written_upto(drive.waits.answer(gate, answer, by))
        return self._answer(run, gate, answer, by)

    async def _answer(self, run: WorkflowRun, gate: GateInfo, answer: Any, by: str) -> None:
        """A run that is not in memory is rebuilt for its answer, unless it is paused or held."""
        async with self._turn(run) as drive:
            if run.is_complete:
                raise no_gate(run, gate)
            if drive is None and run._state in RUNS:
                drive = self._engine.revive(run)
            if drive is not None:
                await drive.journal.written_upto(drive.waits.answer(gate, answer, by))
                return
            if gate.path not in self._waits(run, drive):
                raise no_gate(run, gate)
            data, _ = answered(gate, answer, by)
            try:
                await self._append(run, "gate_answered", data, run._state, gate.path, gate.path, gate.reply)
            except NerveError:  # nothing has happened: it is open as it was
                run._gates[gate.path] = replace(gate, key=None, about={}, reply=None)
                raise

    async def signal(self, run: WorkflowRun, label: str, value: Any, key: str | None) -> int:
        """Settle the open waits for a signal; says how many there were."""
        async with self._turn(run) as drive:
            if run.is_complete or run._state is WorkflowState.PENDING:
                return 0
            paths = self._waiting_for(run, drive, label, key)
            data = {"label": label, "key": key, "value": decode(encode(value))}
            if paths and drive is None and run._state in RUNS:
                drive = self._engine.revive(run)
            if drive is not None:
                for path in paths:  # in one go: nobody else settles one of them in between
                    drive.waits.settle(path, "signal_received", data, data["value"])
                await drive.journal.written_upto(drive.journal.seq)
                return len(paths)
            for path in paths:
                await self._append(run, "signal_received", data, run._state, path, path)
            return len(paths)

    def came(self, run_id: str, path: str, seen: Mapping[str, Any]) -> Awaitable[None]:
        """A fact has come that a wait is for, whether or not the run is in memory."""
        drive = self._engine.drives.get(run_id)
        if drive is not None and not drive.detached and (asked := drive.waits.asked(path)) is not None:
            seq = drive.waits.came(path, asked, seen)
            return drive.journal.written_upto(seq or drive.journal.seq)
        return self._came(run_id, path, seen)

    async def _came(self, run_id: str, path: str, seen: Mapping[str, Any]) -> None:
        """A run that is not in memory is rebuilt for what came, unless it is paused or held."""
        row = self._engine.store.run(run_id)
        if row is None:
            return
        run = self._engine.handle(row)
        async with self._turn(run) as drive:
            if run.is_complete:
                return
            asked = self._waits(run, drive).get(path)
            if asked is not None:
                data, outcome = received(decode(asked.data), seen)
                if drive is None and run._state not in RUNS:
                    await self._append(run, "signal_received", data, run._state, path, path)
                    return
                drive = drive or self._engine.revive(run)
                drive.waits.settle(path, "signal_received", data, outcome)
            if drive is not None:  # which may have settled it by itself, and not have written that yet
                await drive.journal.written_upto(drive.journal.seq)

    def _waits(self, run: WorkflowRun, drive: Drive | None) -> dict[str, Row]:
        """The waits that are open, by all that has happened to a run, whether or not it is on disk yet."""
        return open_in(drive.rows() if drive is not None else self._engine.store.events(run.run_id))

    def _waiting_for(self, run: WorkflowRun, drive: Drive | None, label: str, key: str | None) -> list[str]:
        """The paths of the open waits that a signal settles."""
        rows = [row for row in self._waits(run, drive).values() if row.type == "signal_waiting"]
        asked = [(row.path, decode(row.data)) for row in rows]
        named = [(path, data["key"]) for path, data in asked if data.get("label") == label]
        return sorted(path for path, wanted in named if wanted in (None, key))

    async def steer(
        self, run: WorkflowRun, text: str, path: str | None, by: str, saying: Saying | None = None
    ) -> str:
        """Say something to an agent at work; gives the path of its step."""
        async with self._turn(run) as drive:
            listening = {} if drive is None else {at: leaf.words for at, leaf in drive.calls.running.items()}
            heard = {at: words for at, words in listening.items() if words is not None}
            found = [path] if path is not None else list(heard)
            if drive is None or len(found) != 1 or found[0] not in heard:
                who = ", ".join(heard) or "none"
                raise RuntimeError(f"Cannot steer {path or 'the run'}: steps whose agents listen now: {who}")
            seq = drive.note("steered", found[0], {"text": text, "by": by})
            drive.journal.keep(saying(found[0]) if saying is not None else None)
            heard[found[0]].put_nowait(text)  # at once: the turn may end while this is written
            await drive.journal.written_upto(seq)
            return found[0]

    async def decide(
        self, run: WorkflowRun, path: str, decision: str, value: Any, reply: ReplyRow | None = None
    ) -> None:
        """Say what became of the path a run is held at, and go on."""
        async with self._turn(run) as drive:
            if run._state is not WorkflowState.HELD:
                told = (
                    f"run '{run.run_id}' is {run.state.value}, and only a held run is in doubt about a step"
                )
                raise RuntimeError(f"Cannot {decision}: {told}")
            held = run._held or {}
            undecided = drive.calls.undecided.get(held["path"]) if drive is not None else None
            doubt = held["reason"] == "in doubt" and (drive is None or undecided is not None)
            if not doubt and (path or decision != "retry"):
                raise undecidable(run, path or held["path"], decision)
            if path and path != held["path"]:
                raise ValueError(f"run '{run.run_id}' is held at '{held['path'] or '/'}', not at '{path}'")
            self._engine.ready(run)
            if doubt and undecided is not None:
                undecided.decision.set_result(outcome_of(decision, value))
                await undecided.noted  # so that it is on disk with what says that the run goes on
            elif doubt:
                await self._decided(run, held["path"], decision, value)
            await self._resume(run, drive, {}, reply=reply)

    async def hold(self, run: WorkflowRun, reason: str, message: str) -> None:
        """Hold a run that nobody drives until somebody decides; it still hears what it waits for."""
        held = {"reason": reason, "message": message, "path": ""}
        async with self._turn(run):
            await self._append(run, "workflow_held", held, WorkflowState.HELD)
            run._held, run._state = held, WorkflowState.HELD
            self._engine.watch(run.run_id, self._engine.store.events(run.run_id))
            run._notify()

    async def _decided(self, run: WorkflowRun, path: str, decision: str, value: Any) -> None:
        """Write what a person has decided, unless it is written and a crash kept the run from going on."""
        data: dict[str, Any] = {}
        if (result := outcome_of(decision, value)) is not None:
            data = {"node_id": path, "success": result.success, "result": result, "decided": decision}
        if (before := self._decision(run, path)) is not None:
            if before != decode(encode(data, deep=AROUND)):
                told = f"{before['decided']} was decided already: {encode(before['result'], deep=None)}"
                raise RuntimeError(f"Cannot {decision} '{path}': {told}. Say the same again")
        elif data:
            await self._append(run, "node_completed", data, WorkflowState.HELD, path, path)
        else:
            data = {"node_id": path, "attempt": 1, "again": True, "recovered": True, "delay": 0.0}
            await self._append(run, "node_retrying", data, WorkflowState.HELD, None, path)

    def _decision(self, run: WorkflowRun, path: str) -> dict[str, Any] | None:
        """What was decided of the path since the run is held at it."""
        for row in reversed(self._engine.store.events(run.run_id)):
            if row.type == "workflow_held":
                break
            if row.type == "node_completed" and row.path == path:
                found: dict[str, Any] = decode(row.data)
                return found if "decided" in found else None
        return None

    async def _append(
        self,
        run: WorkflowRun,
        type: str,
        data: Mapping[str, Any],
        state: WorkflowState,
        settles: str | None = None,
        path: str = "",
        reply: ReplyRow | None = None,
        also: Sequence[tuple[str, str, Mapping[str, Any]]] = (),
    ) -> None:
        """Add an event to the journal of a run that nobody drives, and before it others: type, path, data."""
        engine = self._engine
        past = engine.store.events(run.run_id)
        start = start_of(past)
        journal = Journal(
            run.run_id,
            past[-1].seq,
            engine.writer,
            lambda at: engine.row(run, state, None, start, at),
            lambda rows: engine.show(run, rows),
            ignore,
        )
        journal.row_changed()
        key = settle_key(settles, resets_in(past)) if settles not in (None, ROOT) else settles
        for kind, place, told in also:
            journal.note(kind, place, encode(told, deep=AROUND), urgent=False)
        seq = journal.note(type, path, encode(data, deep=AROUND), key)
        journal.keep(reply)
        await journal.written_upto(seq)


def standing(run: WorkflowRun) -> str:
    """How it stands with a run that cannot be paused or resumed, and what can be done."""
    named = f"run '{run.run_id}'"
    if run.is_complete:
        return f"{named} has ended; fork it to go another way"
    if run._state is WorkflowState.HELD:
        return f"{named} is held already; resume or stop it"
    if (held := run.held) is not None:
        return f"its child run '{held['run_id']}' is held ({held['reason']}): {held['message']}"
    if run.state is WorkflowState.WAITING:
        return f"{named} goes on when what it waits for has come"
    if run._state is WorkflowState.PENDING:
        return f"{named} has not been started"
    return f"{named} goes on by itself"


def is_for_budget(held: Mapping[str, Any] | None) -> bool:
    return held is not None and held["reason"] == "budget"


def undecidable(run: WorkflowRun, path: str, decision: str) -> RuntimeError:
    """Why nobody can say what became of a path, and what can be done instead."""
    held = run._held or {}
    why = f"run '{run.run_id}' is held ({held['reason']}). {held['message']}"
    if held["reason"] == "in doubt":
        why = f"the code of run '{run.run_id}' has given it up meanwhile. Retry the run without a path."
    return RuntimeError(
        f"Cannot {decision} '{path or '/'}': only a step that is in doubt can be decided, and {why}"
    )


def outcome_of(decision: str, value: Any) -> Result | None:
    """What became of a step, as a person has decided; nothing yet if it is to be run again."""
    if decision == "retry":
        return None
    return Result.ok(value) if decision == "skip" else Result.failed(str(value), "DeclaredFailed")


def cancelled(run: WorkflowRun, reason: str, killed: list[str], top: str | None) -> dict[str, Any]:
    stopped_with = {} if top is None else {"stopped_with": top}
    return {"run_id": run.run_id, "reason": reason, "killed": killed, **stopped_with}


def ignore(error: NerveError) -> None:
    """Whoever waits for the write is told; there is nobody else."""
