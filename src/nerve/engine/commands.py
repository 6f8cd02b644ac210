"""Commands: what people do to runs, whether somebody drives them or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

from nerve.core.result import Result
from nerve.core.values import decode, encode
from nerve.core.workflow.replay import ROOT
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import GateInfo, WorkflowState
from nerve.engine.drive import Drive
from nerve.engine.journal import Journal
from nerve.engine.records import resumed
from nerve.engine.waits import answered, open_in
from nerve.errors import NerveError

if TYPE_CHECKING:
    from nerve.engine.local import LocalEngine

RUNS = (WorkflowState.RUNNING, WorkflowState.WAITING)
STANDS = (WorkflowState.PAUSED, WorkflowState.PAUSING, WorkflowState.HELD)


class Commands:
    """Each returns when what it did is on disk."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self._one_at_a_time = asyncio.Lock()

    async def stop(self, run: WorkflowRun, reason: str) -> list[str]:
        """End a run and its children; says what was running."""
        if run.is_complete or run._state is WorkflowState.PENDING:
            return []
        drive = self._driving(run)
        if drive is not None:
            return await self._stop_driven(drive, reason)
        for row in self._engine.open_children(run.run_id):
            await self.stop(self._engine.handle(row), reason)
        await self._append(
            run, "workflow_cancelled", cancelled(run, reason, []), WorkflowState.CANCELLED, ROOT
        )
        run._gates.clear()
        run._error = reason or None
        self._engine.ended(run, WorkflowState.CANCELLED)
        return []

    async def _stop_driven(self, drive: Drive, reason: str) -> list[str]:
        run = drive.run
        if asyncio.current_task() in drive.delivery.tasks:
            raise RuntimeError("a run cannot stop itself; return or raise instead")
        if drive.stopping:
            await run._ended()
            return []
        drive.stopping = True
        run._state = WorkflowState.STOPPING
        killed = list(drive.calls.running)
        for path, child in list(run._children.items()):
            killed += [path + inner for inner in await child.stop(reason)]
        await drive.cancel_tasks()
        data = encode(cancelled(run, reason, killed))
        if await drive.write_end("workflow_cancelled", data, WorkflowState.CANCELLED):
            run._error = reason or None
            drive.finish(WorkflowState.CANCELLED)
        return killed

    async def pause(self, run: WorkflowRun) -> None:
        if run._state in (WorkflowState.PAUSED, WorkflowState.PAUSING):
            return
        if run._state not in RUNS:
            raise RuntimeError(f"Cannot pause run in state {run._state.value}")
        drive = self._driving(run)
        if drive is not None:
            await drive.journal.written_upto(drive.pause())
            return
        await self._append(run, "workflow_paused", {"run_id": run.run_id}, WorkflowState.PAUSED)
        run._state = WorkflowState.PAUSED

    async def resume(self, run: WorkflowRun, limits: Mapping[str, Any], with_changes: bool = False) -> None:
        if run._state not in STANDS:
            raise RuntimeError(f"Cannot resume run in state {run.state.value}")
        drive = self._driving(run)
        if drive is not None:
            await drive.journal.written_upto(drive.resume(limits))
            return
        await self._append(
            run, "workflow_resumed", resumed(run.run_id, limits, with_changes), WorkflowState.RUNNING
        )
        run._held, run._state = None, WorkflowState.RUNNING
        self._engine.revive(run)

    def answer(self, run: WorkflowRun, gate: GateInfo, answer: Any, by: str) -> Awaitable[None]:
        """Settle a gate that was claimed for this answer; a run that is not in memory is rebuilt for it."""
        drive = self._driving(run)
        if drive is None and run._state in RUNS:
            drive = self._engine.revive(run)
        if drive is not None:
            return drive.journal.written_upto(drive.waits.answer(gate, answer, by))
        data, _ = answered(gate, answer, by)
        return self._append(run, "gate_answered", data, run._state, gate.path, gate.path)

    async def signal(self, run: WorkflowRun, label: str, value: Any, key: str | None) -> int:
        """Settle the open waits for a signal; says how many there were."""
        if run._state not in RUNS:
            return 0
        drive = self._driving(run)
        paths = drive.waits.signals(label, key) if drive else self._recorded_signals(run, label, key)
        if paths:
            drive = drive or self._engine.revive(run)
            data = {"label": label, "key": key, "value": decode(encode(value))}
            seqs = [drive.waits.settle(path, "signal_received", data, data["value"]) for path in paths]
            await drive.journal.written_upto(seqs[-1])
        return len(paths)

    def _recorded_signals(self, run: WorkflowRun, label: str, key: str | None) -> list[str]:
        waits = {
            path: decode(row.data)
            for path, row in open_in(self._engine.store.events(run.run_id)).items()
            if row.type == "signal_waiting"
        }
        return [path for path, data in waits.items() if data["label"] == label and data["key"] in (None, key)]

    async def decide(self, run: WorkflowRun, path: str, decision: str, value: Any) -> None:
        """Say what became of the path a run is held at, and go on."""
        if run._state is not WorkflowState.HELD:
            raise RuntimeError(f"Cannot {decision} a path of a run in state {run.state.value}")
        held_at = (run._held or {}).get("path", "")
        if path and path != held_at:
            raise ValueError(f"run '{run.run_id}' is held at '{held_at or '/'}', not at '{path}'")
        path = held_at
        if decision == "retry" and path:
            data = {"node_id": path, "attempt": 1, "again": True, "recovered": True, "delay": 0.0}
            await self._append(run, "node_retrying", data, WorkflowState.HELD, None, path)
        elif decision != "retry":
            result = Result.ok(value) if decision == "skip" else Result.failed(str(value), "DeclaredFailed")
            data = {"node_id": path, "success": result.success, "result": result, "decided": decision}
            await self._append(run, "node_completed", data, WorkflowState.HELD, path, path)
        await self.resume(run, {})

    def _driving(self, run: WorkflowRun) -> Drive | None:
        if self._engine.closed:
            raise RuntimeError("the session is closed")
        drive = self._engine.drives.get(run.run_id)
        return None if drive is None or drive.detached else drive

    async def _append(
        self,
        run: WorkflowRun,
        type: str,
        data: Mapping[str, Any],
        state: WorkflowState,
        settles: str | None = None,
        path: str = "",
    ) -> None:
        """Add an event to the journal of a run that nobody drives."""
        engine = self._engine
        async with self._one_at_a_time:
            if (leaving := engine.leaving.get(run.run_id)) is not None:
                await asyncio.wait([leaving])
            past = engine.store.events(run.run_id)
            start = decode(past[0].data)
            journal = Journal(
                run.run_id,
                past[-1].seq,
                engine.writer,
                lambda: engine.row(run, state, None, start),
                lambda rows: engine.show(run, rows),
                ignore,
            )
            journal.row_changed()
            await journal.written_upto(journal.note(type, path, encode(data), settles))


def cancelled(run: WorkflowRun, reason: str, killed: list[str]) -> dict[str, Any]:
    return {"run_id": run.run_id, "reason": reason, "killed": killed}


def ignore(error: NerveError) -> None:
    """Whoever waits for the write is told; there is nobody else."""
