"""The local engine: drives runs in this process and keeps their journals in a store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

from nerve.core.event import deliver
from nerve.core.nodes.base import Names
from nerve.core.result import Result
from nerve.core.runtime import Call
from nerve.core.values import decode, encode
from nerve.core.workflow.replay import ASKS, ROOT, Row
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import FINAL, GateInfo, WorkflowState
from nerve.core.workflow.workflow import Workflow
from nerve.engine.drive import Drive
from nerve.engine.fork import kept
from nerve.engine.journal import Journal
from nerve.engine.tasks import count_tasks
from nerve.engine.waits import gate_info
from nerve.engine.writer import Writer
from nerve.errors import NerveError, WorkflowFailed
from nerve.store.port import Definition, RunRow, Store

log = logging.getLogger("nerve")

KEEP_PARKED = 256
"""How many runs that only wait stay in memory; older ones leave it and are rebuilt when needed."""


class LocalEngine:
    """One per session. Everything that happens to a run happens in here, on one event loop."""

    def __init__(self, store: Store, session: Names, session_name: str) -> None:
        self.store, self._session, self._name = store, session, session_name
        self.drives: dict[str, Drive] = {}
        self.known: WeakValueDictionary[str, WorkflowRun] = WeakValueDictionary()
        self.closed = False
        self._parked: dict[str, Drive] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._keys: dict[str, asyncio.Future[WorkflowRun]] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._writer: Writer | None = None
        self._shows: dict[WorkflowRun, asyncio.Queue[Any]] = {}
        self.left_alone: list[RunRow] = []
        """Open runs that the last `recover()` found and could not take up."""

    # -- what belongs to the loop --------------------------------------------------------------

    @property
    def writer(self) -> Writer:
        if self._writer is None:
            count_tasks(asyncio.get_running_loop())
            self._writer = Writer(self.store)
            self._keeper = asyncio.create_task(forever())
        return self._writer

    @property
    def shutting_down(self) -> bool:
        """Whether the loop is cancelling everything; what bodies do then says nothing about the run."""
        return self.closed or (
            self._keeper is not None and (self._keeper.done() or self._keeper.cancelling() > 0)
        )

    async def close(self) -> None:
        """Park every run where it is, and let go of the store; `recover()` goes on from there."""
        self.closed = True
        drives = list(self.drives.values())
        for drive in drives:
            drive.detached = True
        await asyncio.gather(*(drive.cancel_tasks() for drive in drives))
        for drive in drives:
            drive.drop()
        for timer in self._timers.values():
            timer.cancel()
        if self._writer is not None:
            await self._writer.drained()
            self._writer.close()
        if self._keeper is not None:
            self._keeper.cancel()
        self.store.close()

    # -- starting ------------------------------------------------------------------------------

    def new_id(self) -> str:
        """A UUID that sorts by time (version 7)."""
        head = int(time.time() * 1000).to_bytes(6, "big")
        return str(uuid.UUID(bytes=head + os.urandom(10), version=4)).replace("-4", "-7", 1)

    def child_id(self, parent: str, path: str) -> str:
        return str(
            uuid.uuid5(uuid.UUID(parent) if is_uuid(parent) else uuid.NAMESPACE_OID, f"{parent}{path}")
        )

    async def start(
        self, run: WorkflowRun, key: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        if self.closed:
            raise RuntimeError("the session is closed")
        workflow = run.workflow
        definition, source, canonical = workflow.definition()
        run._state, run._started_at = WorkflowState.RUNNING, datetime.now(UTC)
        self.writer  # noqa: B018 - the loop is known from here on
        drive = Drive(self, run, [])
        drive.start = {
            "run_id": run.run_id,
            "workflow_id": run.workflow_id,
            "steps": workflow.steps,
            "input": run._input,
            "params": run._params,
            "session": self._name,
            "definition": definition,
            "seed": uuid.uuid4().hex,
            "limits": run._limits.to_dict(),
        } | {name: value for name, value in {"key": key, **(extra or {})}.items() if value is not None}
        drive.limits = run._limits
        data = encode(drive.start)
        drive.start = decode(data)
        run._input, run._params = drive.start["input"], drive.start["params"]
        drive.journal.pin(Definition(definition, run.workflow_id, workflow.kind, source, canonical))
        drive.journal.row_changed()
        self._own(drive)
        seq = drive.journal.note("workflow_started", "", data)
        try:
            await drive.journal.written_upto(seq)
        except NerveError:
            self.dropped(drive)
            raise
        if not drive.detached:
            drive.begin()

    async def start_keyed(self, run: WorkflowRun, key: str) -> WorkflowRun:
        """Start a run under a key; if there is one with that key already, that is the run."""
        pending = self._keys.get(key)
        if pending is not None:
            return await asyncio.shield(pending)
        row = self.store.run_by_key(self._name, key)
        if row is not None:
            return self.handle(row)
        future = self._keys[key] = asyncio.get_running_loop().create_future()
        try:
            await self.start(run, key)
            future.set_result(run)
        except BaseException as error:
            future.set_exception(error)
            future.exception()
            raise
        finally:
            del self._keys[key]
        return run

    def _own(self, drive: Drive) -> None:
        self.drives[drive.run.run_id] = drive
        self.known[drive.run.run_id] = drive.run
        if timer := self._timers.pop(drive.run.run_id, None):
            timer.cancel()

    def dropped(self, drive: Drive) -> None:
        """A run is not driven any more."""
        if self.drives.get(drive.run.run_id) is drive:
            del self.drives[drive.run.run_id]
        self._parked.pop(drive.run.run_id, None)

    # -- parking and recovery ------------------------------------------------------------------

    def parked(self, drive: Drive) -> None:
        """A run has opened a wait: the oldest of too many that only wait leaves memory."""
        if not self.store.durable:
            return
        self._parked.pop(drive.run.run_id, None)
        self._parked[drive.run.run_id] = drive
        if len(self._parked) > KEEP_PARKED:
            oldest = next(iter(self._parked.values()))
            del self._parked[oldest.run.run_id]
            if oldest.evictable:
                self.evict(oldest)

    def evict(self, drive: Drive) -> None:
        wake = next(iter(drive.waits.values())).deadline
        drive.suspend()
        drive.run._forget_gates()
        self._wake_at(drive.run, wake)

    def _wake_at(self, run: WorkflowRun, deadline: float | None) -> None:
        if deadline is None:
            return
        delay = max(0.0, deadline - time.time())
        loop = asyncio.get_running_loop()
        self._timers[run.run_id] = loop.call_later(delay, self._wake, run.run_id)

    def _wake(self, run_id: str) -> None:
        self._timers.pop(run_id, None)
        row = self.store.run(run_id)
        if row is not None and run_id not in self.drives and not self.closed:
            self.revive(self.handle(row))

    def revive(self, run: WorkflowRun, lenient: bool = False) -> Drive:
        """Rebuild a run from its journal and go on."""
        if run.run_id in self.drives:
            return self.drives[run.run_id]
        past = self.store.events(run.run_id)
        start = decode(past[0].data)
        copied = int((start.get("forked_from") or {}).get("copied", 0))
        self.writer  # noqa: B018
        drive = Drive(self, run, list(past), past[-1].seq if lenient else copied)
        self._own(drive)
        definition = run.workflow.definition()[0]
        if definition != start.get("definition") and not any(
            row.type == "workflow_changed" and definition in row.data for row in past
        ):
            drive.journal.note("workflow_changed", "", encode({"definition": definition}), urgent=False)
        drive.begin()
        return drive

    def handle(self, row: RunRow) -> WorkflowRun:
        """The run of a row, as its users hold it; the same object while anybody holds it."""
        run = self.known.get(row.run)
        if run is not None:
            return run
        workflow = self._session.get_workflow(row.workflow)
        past = self.store.events(row.run)
        start = decode(past[0].data)
        if workflow is None:
            raise ValueError(f"Workflow '{row.workflow}' of run '{row.run}' not found in session")
        run = WorkflowRun(workflow, start["input"], start["params"], run_id=row.run)
        restore(run, row, past)
        self.known[row.run] = run
        return run

    async def recover(self) -> list[WorkflowRun]:
        """Take up every open run of this session that nobody drives; one with open waits only is left to wait."""
        final = {state.value for state in FINAL}
        states = [state.value for state in WorkflowState if state.value not in final]
        runs: list[WorkflowRun] = []
        self.left_alone = [row for row in self.store.runs(states=states) if row.session != self._name]
        for row in self.store.runs(session=self._name, states=states):
            if row.run in self.drives:
                continue
            if self._session.get_workflow(row.workflow) is None:
                self.left_alone.append(row)
                continue
            runs.append(self._take_up(row))
        for row in self.left_alone:
            log.warning(
                "run %s of workflow '%s' in session '%s' was left alone", row.run, row.workflow, row.session
            )
        return runs

    def _take_up(self, row: RunRow) -> WorkflowRun:
        run = self.handle(row)
        if (
            row.parent is not None
            and row.parent not in self.drives
            and self.store.run(row.parent) is not None
        ):
            pass  # the parent asks for its child when it comes to it
        if row.state == WorkflowState.WAITING.value:
            self._wake_at(run, row.wake)
        elif row.state == WorkflowState.RUNNING.value:
            self.revive(run)
        return run

    # -- children ------------------------------------------------------------------------------

    async def run_child(self, parent: Drive, call: Call) -> Result:
        """The result of a child run, started at most once for this path."""
        workflow = call.node
        assert isinstance(workflow, Workflow)
        lineage = [*parent.start.get("lineage", []), parent.run.workflow_id]
        if workflow.name in lineage:
            return Result.failed(
                f"workflows call each other in a circle: {' -> '.join([*lineage, workflow.name])}", "Cycle"
            )
        if len(lineage) > parent.limits.depth:
            return Result.failed(
                f"workflows are nested more than {parent.limits.depth} deep; raise it with Limits(depth=…)",
                "LimitReached",
            )
        child = await self._child(parent, workflow, call, lineage)
        parent.run._children[call.path] = child
        try:
            return await self._child_result(child)
        except asyncio.CancelledError:
            if not (parent.detached or self.shutting_down):
                await child.stop("the parent gave it up")
            raise
        finally:
            parent.run._children.pop(call.path, None)

    async def _child(self, parent: Drive, workflow: Workflow, call: Call, lineage: list[str]) -> WorkflowRun:
        run_id = self.child_id(parent.run.run_id, call.path)
        row = self.store.run(run_id)
        if row is not None:
            child = self.handle(row)
            if not child.is_complete and row.state == WorkflowState.RUNNING.value:
                self.revive(child)
            return child
        child = WorkflowRun(workflow, call.input, call.params, run_id=run_id)
        extra = {"parent": parent.run.run_id, "parent_path": call.path, "lineage": lineage}
        await self.start(child, extra=extra)
        return child

    async def _child_result(self, child: WorkflowRun) -> Result:
        waiting = asyncio.ensure_future(wait_quietly(child))
        try:
            result = await waiting
        finally:
            waiting.cancel()
        result.attributes["run_id"] = child.run_id
        usage = child.view.usage
        if usage.tokens or usage.cost:
            result.attributes["usage"] = {"tokens": usage.tokens, "cost": usage.cost}
        return result

    # -- what people do to runs ----------------------------------------------------------------

    async def stop(self, run: WorkflowRun, reason: str) -> list[str]:
        if run.is_complete or run._state is WorkflowState.PENDING:
            return []
        drive = self.drives.get(run.run_id)
        if drive is None:
            run._gates.clear()
            await self._append(
                run, "workflow_cancelled", ROOT, cancelled(run, reason, []), WorkflowState.CANCELLED
            )
            finish_cancelled(run, reason)
            return []
        if asyncio.current_task() in drive.delivery.tasks:
            raise RuntimeError("a run cannot stop itself; return or raise instead")
        drive.stopping = True
        run._state = WorkflowState.STOPPING
        killed = list(drive.running)
        for child in list(run._children.values()):
            killed += [f"{child.run_id}{path}" for path in await child.stop(reason)]
        await drive.cancel_tasks()
        if run.is_complete:
            return []
        run._gates.clear()
        drive._final = WorkflowState.CANCELLED
        drive.journal.row_changed()
        seq = drive.journal.note("workflow_cancelled", "", encode(cancelled(run, reason, killed)), ROOT)
        await drive.journal.written_upto(seq)
        run._error = reason or None
        drive.finish(WorkflowState.CANCELLED)
        return killed

    async def pause(self, run: WorkflowRun) -> None:
        if run._state in (WorkflowState.PAUSED, WorkflowState.PAUSING):
            return
        if run._state not in (WorkflowState.RUNNING, WorkflowState.WAITING):
            raise RuntimeError(f"Cannot pause run in state {run._state.value}")
        drive = self.drives.get(run.run_id)
        if drive is None:
            await self._append(run, "workflow_paused", None, {"run_id": run.run_id}, WorkflowState.PAUSED)
            run._state = WorkflowState.PAUSED
            return
        await drive.journal.written_upto(drive.pause())

    async def resume(self, run: WorkflowRun, limits: Mapping[str, Any], with_changes: bool) -> None:
        if run._state not in (WorkflowState.PAUSED, WorkflowState.PAUSING, WorkflowState.HELD):
            raise RuntimeError(f"Cannot resume run in state {run.state.value}")
        drive = self.drives.get(run.run_id)
        if drive is not None and not drive.detached:
            await drive.journal.written_upto(drive.resume(dict(limits)))
            return
        data = {"run_id": run.run_id} | ({"limits": dict(limits)} if limits else {})
        await self._append(run, "workflow_resumed", None, data, WorkflowState.RUNNING)
        run._held, run._state = None, WorkflowState.RUNNING
        self.revive(run, with_changes)

    async def answer(self, run: WorkflowRun, gate: GateInfo, answer: Any, by: str) -> None:
        drive = self.drives.get(run.run_id)
        if drive is not None and not drive.detached:
            await drive.journal.written_upto(drive.answer(gate, answer, by))
            return
        text = encode(answer)
        data = {"gate_id": gate.gate_id, "answer": decode(text), "response": decode(text), "by": by}
        await self._append(run, "gate_answered", gate.path, data, WorkflowState.RUNNING, gate.path)
        if run._state in (WorkflowState.RUNNING, WorkflowState.WAITING):
            self.revive(run)

    async def signal(self, run: WorkflowRun, label: str, value: Any, key: str | None) -> int:
        drive = self.drives.get(run.run_id) or (
            self.revive(run) if run._state is WorkflowState.WAITING else None
        )
        if drive is None:
            return 0
        matching = [
            path
            for path, opened in drive.waits.items()
            if getattr(opened.wait, "label", None) == label
            and getattr(opened.wait, "key", None) in (None, key)
        ]
        value = decode(encode(value))
        for path in matching:
            drive.settle_wait(path, "signal_received", {"label": label, "key": key, "value": value}, value)
        await drive.journal.written_upto(drive.journal.seq)
        return len(matching)

    async def decide(self, run: WorkflowRun, path: str, decision: str, value: Any) -> None:
        if run._state is not WorkflowState.HELD:
            raise RuntimeError(f"Cannot {decision} a path of a run in state {run.state.value}")
        path = path or (run._held or {}).get("path", "")
        if decision == "retry":
            if path:
                data = {"node_id": path, "attempt": 1, "again": True, "recovered": True, "delay": 0.0}
                await self._append(run, "node_retrying", None, data, WorkflowState.HELD, path)
        else:
            result = Result.ok(value) if decision == "skip" else Result.failed(str(value), "DeclaredFailed")
            data = {"node_id": path, "success": result.success, "result": result, "decided": decision}
            await self._append(run, "node_completed", path, data, WorkflowState.HELD, path)
        await self.resume(run, {}, False)

    async def _append(
        self,
        run: WorkflowRun,
        type: str,
        settles: str | None,
        data: Mapping[str, Any],
        state: WorkflowState,
        path: str = "",
    ) -> None:
        """Add an event to the journal of a run that nobody drives."""
        past = self.store.events(run.run_id)
        start = decode(past[0].data)
        failures: list[NerveError] = []
        journal = Journal(
            run.run_id,
            past[-1].seq,
            self.writer,
            lambda: self.row(run, state, None, start),
            lambda rows: self.show(run, rows),
            failures.append,
        )
        journal.row_changed()
        await journal.written_upto(journal.note(type, path, encode(dict(data)), settles))

    async def fork(
        self, source: str, at: str | None, input: Any, overrides: Mapping[str, Any] | None
    ) -> WorkflowRun:
        """A new run whose journal starts as a copy of another's, and goes its own way from `at` on."""
        row = self.store.run(source)
        if row is None:
            raise ValueError(f"Workflow run '{source}' not found")
        workflow = self._session.get_workflow(row.workflow)
        if workflow is None:
            raise ValueError(f"Workflow '{row.workflow}' not found")
        past = self.store.events(source)
        start = decode(past[0].data)
        changed: dict[str, Any] = {path: dict(fields) for path, fields in (overrides or {}).items()}
        given = start["input"]
        if input is not ...:
            if at is None:
                given = input
            else:
                changed.setdefault(at, {})["input"] = input
        rows = kept(past, at)
        run = WorkflowRun(workflow, given, start["params"])
        await self._start_fork(run, start, rows, {"run": source, "at": at, "copied": len(rows) + 1}, changed)
        return run

    async def _start_fork(
        self,
        run: WorkflowRun,
        start: dict[str, Any],
        rows: list[Any],
        origin: dict[str, Any],
        changed: dict[str, Any],
    ) -> None:
        new = {
            **start,
            "run_id": run.run_id,
            "input": run._input,
            "forked_from": origin,
            "overrides": {**start.get("overrides", {}), **changed},
        }
        new.pop("key", None)
        run._state, run._started_at = WorkflowState.RUNNING, datetime.now(UTC)
        self.known[run.run_id] = run
        journal = Journal(
            run.run_id,
            0,
            self.writer,
            lambda: self.row(run, WorkflowState.RUNNING, None, new),
            lambda written: self.show(run, written),
            lambda error: None,
        )
        journal.row_changed()
        journal.note("workflow_started", "", encode(new))
        for row in rows:
            journal.note(row.type, row.path, row.data, row.settles)
        await journal.written_upto(journal.seq)
        self.revive(run)

    # -- what is shown -------------------------------------------------------------------------

    def rows(self, run_id: str, after: int = 0) -> Iterable[Row]:
        return self.store.events(run_id, after)

    def open_gates(self, run_id: str) -> dict[str, GateInfo]:
        """The open gates of a run that nobody drives, read from its journal."""
        gates: dict[str, GateInfo] = {}
        for row in self.store.events(run_id):
            if row.type == "gate_waiting":
                gates[row.path] = gate_info(row.path, decode(row.data), row.at)
            elif row.settles and row.type not in ASKS:
                gates.pop(row.path, None)
        return gates

    def row(
        self, run: WorkflowRun, state: WorkflowState, wake: float | None, start: Mapping[str, Any]
    ) -> RunRow:
        final = state in FINAL
        return RunRow(
            run.run_id,
            self._name,
            run.workflow_id,
            state.value if state is not WorkflowState.PAUSING else WorkflowState.PAUSED.value,
            run._started_at.timestamp() if run._started_at else time.time(),
            time.time() if final else None,
            start.get("key"),
            start.get("parent"),
            wake,
            start.get("definition"),
        )

    def show(self, run: WorkflowRun, rows: Iterable[Row]) -> None:
        """Hand events to the run's sinks, in order; one that is slow only keeps itself waiting."""
        for sink in run._sinks:
            for row in rows:
                answer = deliver(sink, run._event(row))
                if answer is not None:
                    self._queue(run).put_nowait(answer)

    def _queue(self, run: WorkflowRun) -> asyncio.Queue[Any]:
        queue = self._shows.get(run)
        if queue is None:
            queue = self._shows[run] = asyncio.Queue()
            asyncio.create_task(drain(queue))  # noqa: RUF006
        return queue


async def drain(queue: asyncio.Queue[Any]) -> None:
    while True:
        answer = await queue.get()
        try:
            await answer
        except Exception:
            log.exception("event sink failed")


async def forever() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.get_running_loop().create_future()


async def wait_quietly(child: WorkflowRun) -> Result:
    """How a child run ended, as a result."""
    try:
        return Result.ok(await child.wait())
    except asyncio.CancelledError:
        if not child.is_complete:
            raise
        return Result.failed(
            f"child run was cancelled{': ' + child._error if child._error else ''}", "CancelledError"
        )
    except WorkflowFailed as error:
        return Result.failed(error.error, error.error_type or "WorkflowFailed")
    except Exception as error:
        return Result.raised(error)


def is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def cancelled(run: WorkflowRun, reason: str, killed: list[str]) -> dict[str, Any]:
    return {"run_id": run.run_id, "reason": reason, "killed": killed}


def finish_cancelled(run: WorkflowRun, reason: str) -> None:
    run._state, run._completed_at = WorkflowState.CANCELLED, datetime.now(UTC)
    run._error = reason or None
    run._notify()


def restore(run: WorkflowRun, row: RunRow, past: list[Any]) -> None:
    """Set a run's fields to what its journal says."""
    run._state = WorkflowState(row.state)
    run._started_at = datetime.fromtimestamp(row.started, UTC)
    run._completed_at = datetime.fromtimestamp(row.ended, UTC) if row.ended else None
    run._forget_gates()
    last = decode(past[-1].data)
    if row.state == WorkflowState.COMPLETED.value:
        run._result = last.get("result")
    elif row.state == WorkflowState.FAILED.value:
        run._error, run._error_type = last.get("error"), last.get("error_type", "")
    elif row.state == WorkflowState.CANCELLED.value:
        run._error = last.get("reason") or None
    elif row.state == WorkflowState.HELD.value:
        run._held = next((decode(r.data) for r in reversed(past) if r.type == "workflow_held"), None)

