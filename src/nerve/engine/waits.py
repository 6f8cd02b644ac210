"""Waits: the gates, timers and signals of a body, each settled once from outside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nerve.core.gates import gate_id, waiting
from nerve.core.limits import message
from nerve.core.runtime import Gate, Signal, Timer, Wait
from nerve.core.values import decode, digest, encode
from nerve.core.workflow.replay import (
    ASKS,
    CONTROL,
    ROOT,
    STOPPED,
    Found,
    Outdated,
    acts,
    below,
    compared,
    within,
)
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import GateInfo, WorkflowState
from nerve.engine.guards import Guard, goes_on, is_around
from nerve.engine.records import late, ran_for
from nerve.errors import LimitReached, Suspended
from nerve.store.port import Row

if TYPE_CHECKING:
    from nerve.engine.drive import Drive

OPENS = {"gate": "gate_waiting", "timer": "timer_started", "signal": "signal_waiting"}


@dataclass(slots=True)
class OpenWait:
    """A wait whose outcome is not known yet."""

    wait: Wait
    future: asyncio.Future[Any]
    deadline: float | None
    handle: asyncio.TimerHandle | None = None
    guard: Guard | None = None
    """Its clock, if it is a bound that can stand still."""


class Waits:
    """The open waits of one run, and the clock that bounds it."""

    def __init__(self, drive: Drive, past: Iterable[Row]) -> None:
        self._drive = drive
        self._open: dict[str, OpenWait] = {}
        self._early: dict[str, tuple[int, Any]] = {}
        self._asked = AskedRows()
        self._clock: asyncio.TimerHandle | None = None
        self._ran = 0.0 if drive.limits.wall_time is None else ran_for(past)
        self._since: float | None = None

    async def wait(self, wait: Wait) -> Any:
        drive = self._drive
        drive.check_in()
        asked = encode(content(wait), canonical=True, deep=None)
        found = drive.look_up(wait.path, digest(asked), asked)
        opened: OpenWait | None = None
        try:
            if found is not None and found.settle is not None:
                try:
                    return await drive.told(found)
                except Outdated:
                    found = None
            await drive.turn_live()
            if found is None and not isinstance(wait, Timer):
                drive.outdate()
            opened = self._opened(wait, digest(asked), found)
            return await drive.delivery.awaited(opened.future)
        except asyncio.CancelledError:
            settled = self._is_settled(wait.path, found, opened)
            if not drive.detached:
                self._close(wait.path)
            if opened is not None or found is not None:
                drive.abandon(wait.path, f"{kind_of(wait)}_cancelled", found, settled)
            raise

    def _is_settled(self, path: str, found: Found | None, opened: OpenWait | None) -> bool:
        """Whether a wait that the body gives up was settled before, and the body was only not told yet."""
        if opened is not None:
            return path not in self._open
        early = self._early.pop(path, None) is not None
        return early or (found is not None and found.settle is not None)

    async def beside(self, gate: Gate) -> Any:
        """A gate that a leaf opens in the middle of what it does; the body knows nothing of it."""
        drive = self._drive
        gate.path = drive.free_path(gate.path)
        self.tell_stopped()
        opened = self._opened(gate, "", None)
        try:
            return await opened.future
        except asyncio.CancelledError:
            if gate.path in self._open and not drive.detached:
                self._close(gate.path)
                drive.note("gate_cancelled", gate.path, {}, drive.settle_key(gate.path))
            raise

    def withdraw(self, path: str) -> None:
        """The gates that a leaf had opened are over: it begins again and asks for itself."""
        drive = self._drive
        for place, row in asked_in(drive.rows()).items():
            if place.startswith(f"{path}/") and row.type == "gate_waiting":
                drive.note("gate_cancelled", place, {}, drive.settle_key(place))
                drive.run._gates.pop(place, None)

    def forget(self, place: str) -> None:
        """What is recorded at a place does not count any more, nor what was answered there just now."""
        for path in [path for path in self._early if within(path, place)]:
            del self._early[path]
        for path in [path for path in self._drive.run._gates if within(path, place)]:
            del self._drive.run._gates[path]

    def recorded(self, path: str, type: str) -> dict[str, Any] | None:
        """The data of the last event of a type at a path, since what is there was started."""
        last = None
        for row in self._drive.host.store.events(self._drive.run.run_id):
            if row.path == path and row.type in (*ASKS, type):
                last = row if row.type == type else None
        return None if last is None else decode(last.data)

    def words(self, path: str) -> list[str]:
        """What people said to a step since it was started."""
        said: list[str] = []
        for row in self._drive.host.store.events(self._drive.run.run_id):
            if row.path == path and row.type in ASKS:
                said.clear()
            elif row.path == path and row.type == "steered":
                said.append(decode(row.data)["text"])
        return said

    def _opened(self, wait: Wait, hashed: str, found: Found | None) -> OpenWait:
        drive, run = self._drive, self._drive.run
        if found is None:
            identity = self._free_id(wait.path) if isinstance(wait, Gate) else ""
            data = opening(wait, identity, deadline_of(wait))
            drive.note(OPENS[kind_of(wait)], wait.path, data | {"hash": hashed}, urgent=True)
        else:
            data = found.data
        opened = self._open[wait.path] = OpenWait(wait, drive.delivery.future(), data.get("deadline"))
        if wait.path in self._early:
            self._arrived_early(wait.path, opened)
            return opened
        if isinstance(wait, Gate):
            at = found.ask.row.at if found is not None else time.time()
            run._gates[wait.path] = gate_info(wait.path, data, at)
            run._gates[wait.path].future = opened.future
        self.restate()
        if not isinstance(wait, Timer):
            run._notify()
        drive.journal.row_changed()
        if isinstance(wait, Signal) and self._looked(wait):
            return opened
        if isinstance(wait, Gate) and wait.auto is not None:
            self.answer(run._gates[wait.path], wait.auto, "auto")
        elif opened.deadline is not None:
            self._arm(opened, again=found is not None)
        return opened

    def _free_id(self, path: str) -> str:
        """What a new gate is called: as short as no open one is called already."""
        run = self._drive.run
        taken = {gate.gate_id for gate in run._gates.values()}
        lengths = (length for length in range(8, 65, 4) if gate_id(run.run_id, path, length) not in taken)
        return gate_id(run.run_id, path, next(lengths, 64))

    def _arm(self, opened: OpenWait, again: bool) -> None:
        wait = opened.wait
        clock = Guard(self._drive, opened, self._time_is_up)
        if isinstance(wait, Timer) and wait.around is not None:
            opened.guard = clock
            if again:
                opened.deadline = goes_on(self.recorded(wait.path, "timer_moved"), opened.deadline)
        clock.arm()

    def guards(self, place: str) -> list[Guard]:
        """The clocks of the bounds that are around a place."""
        opened = [each for each in self._open.values() if is_around(each.wait, place)]
        return [each.guard for each in opened if each.guard is not None]

    def tell_stopped(self) -> None:
        """Write which clocks stand before it is written why: then no crash comes between the two."""
        for each in self._open.values():
            if each.guard is not None:
                each.guard.tell()

    def is_open(self, opened: OpenWait) -> bool:
        return self._open.get(opened.wait.path) is opened

    def _looked(self, wait: Signal) -> bool:
        """Whether a fact that is there already settles the wait."""
        asked = content(wait)
        seen = self._drive.host.facts.look(self._drive.run.run_id, wait.path, asked)
        if seen is not None:
            self.came(wait.path, asked, seen)
        return seen is not None

    def came(self, path: str, asked: Mapping[str, Any], seen: Mapping[str, Any]) -> int | None:
        """A fact settles a wait, if it is still open; the number of the event that says so."""
        if path not in self._open:
            return None
        data, outcome = received(asked, seen)
        return self.settle(path, "signal_received", data, outcome)

    def asked(self, path: str) -> dict[str, Any] | None:
        opened = self._open.get(path)
        return content(opened.wait) if opened is not None else None

    def _arrived_early(self, path: str, opened: OpenWait) -> None:
        seq, outcome = self._early.pop(path)
        del self._open[path]
        self._drive.delivery.push(seq, opened.future, outcome)
        self._drive.delivery.pump()

    def answer(self, gate: GateInfo, answer: Any, by: str) -> int:
        """Settle a gate; the number of the event that says so. RuntimeError if it is over."""
        seq = self.settle(gate.path, "gate_answered", *answered(gate, answer, by))
        if seq is None:
            raise no_gate(self._drive.run, gate)
        self._drive.journal.keep(gate.reply)
        return seq

    def settle(self, path: str, type: str, data: dict[str, Any], outcome: Any) -> int | None:
        """Settle a wait that is open, or that the replay has yet to come to; None if it is over already."""
        drive = self._drive
        if path not in self._open and not self._is_open_in_journal(path):
            return None
        opened = self._close(path)
        drive.journal.row_changed()
        seq = drive.note(type, path, data, drive.settle_key(path), urgent=True)
        if opened is None:
            self._early[path] = (seq, outcome)
        elif below(path, drive.calls.running):
            drive.delivery.push_aside(seq, opened.future, outcome)
        else:
            drive.delivery.push(seq, opened.future, outcome)
        return seq

    def _is_open_in_journal(self, path: str) -> bool:
        """Whether a wait is open that the replay has yet to come to.

        Only what was noted since the last time is read: many answers may come before the replay is over.
        """
        self._asked.take(self._drive.rows(self._asked.seq))
        row = self._asked.rows.get(path)
        return row is not None and row.type in OPENS.values() and not below(path, self._asked)

    def _time_is_up(self, wait: Wait) -> None:
        if wait.path not in self._open:
            return
        if isinstance(wait, Timer):
            self.settle(wait.path, "timer_fired", {}, None)
            return
        gate = self._drive.run._gates.get(wait.path)
        data = {**(named(gate) if gate else {}), "timeout": wait.timeout}
        kind = kind_of(wait)
        self.settle(wait.path, f"{kind}_timeout", data, late(kind, wait.timeout))

    def _close(self, path: str) -> OpenWait | None:
        opened = self._open.pop(path, None)
        self._drive.run._gates.pop(path, None)
        if opened is not None and opened.handle is not None:
            opened.handle.cancel()
        if opened is not None and isinstance(opened.wait, Signal):
            self._drive.host.facts.forget(self._drive.run.run_id, path)
        self.restate()
        return opened

    def restate(self) -> None:
        """Waiting or running, by what is open."""
        run = self._drive.run
        if run._state not in (WorkflowState.RUNNING, WorkflowState.WAITING):
            self.tick()
            return
        state = (
            WorkflowState.WAITING if any(map(keeps_waiting, self._open.values())) else WorkflowState.RUNNING
        )
        if state is not run._state:
            run._state = state
            self._drive.journal.row_changed()
        self.tick()
        run._notify()

    @property
    def for_others(self) -> bool:
        """Whether the run waits for a person or a fact, and not only for a time."""
        return any(not isinstance(opened.wait, Timer) for opened in self._open.values())

    @property
    def next_deadline(self) -> float | None:
        if not self._open:
            return None
        return min((wait.deadline for wait in self._open.values() if wait.deadline is not None), default=None)

    @property
    def wake(self) -> float | None:
        """When somebody must look after the run, if it is not in memory: at once, unless it only waits."""
        delivery = self._drive.delivery
        quiet = len(self._open) == len(delivery.tasks) == delivery.blocked
        return self.next_deadline if quiet else time.time()

    @property
    def only_one(self) -> bool:
        """Whether all there is of the body is one task, which waits for the outside."""
        if len(self._open) != 1:
            return False
        delivery = self._drive.delivery
        return (
            len(delivery.tasks) == delivery.blocked == 1
            and keeps_waiting(next(iter(self._open.values())))
            and delivery.replay is None
            and self._drive.barrier is None
            and not self._drive.stopping
            and not self._drive.calls.running
            and self._drive.journal.committed == self._drive.journal.seq
        )

    def disarm(self) -> None:
        for handle in [self._clock, *(opened.handle for opened in self._open.values())]:
            if handle is not None:
                handle.cancel()

    def suspend(self) -> None:
        for opened in self._open.values():
            if not opened.future.done():
                opened.future.set_exception(Suspended())

    # -- how long the run may take, not counting the time it waits -----------------------------

    def tick(self) -> None:
        """Count the time while the run is running, and does not only wait for children that wait."""
        drive = self._drive
        if (bound := drive.limits.wall_time) is None:
            return
        running = not drive.detached and drive.run.state is WorkflowState.RUNNING
        if running == (self._since is not None):
            return
        now = drive.loop.time()
        if self._since is not None:
            self._ran += now - self._since
        self._since = now if running else None
        if self._clock is not None:
            self._clock.cancel()
        if running:
            self._clock = drive.loop.call_later(max(0.0, bound - self._ran), self._out_of_time)

    def _out_of_time(self) -> None:
        drive = self._drive
        ran = self._ran + (drive.loop.time() - self._since if self._since is not None else 0.0)
        told = message("wall_time", drive.limits, "", ran, drive.run.workflow.kind)
        drive.give_up(LimitReached("wall_time", told))


def kind_of(wait: Wait) -> str:
    return "gate" if isinstance(wait, Gate) else "timer" if isinstance(wait, Timer) else "signal"


def keeps_waiting(opened: OpenWait) -> bool:
    """Whether the run is waiting because of it."""
    return not (isinstance(opened.wait, Timer) and opened.wait.guard)


def content(wait: Wait) -> dict[str, Any]:
    """What of a wait must be the same on replay."""
    return compared(opening(wait, "", None))


def received(asked: Mapping[str, Any], seen: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The data of `signal_received`, and what the body is told: of a signal, its value."""
    if "patterns" in asked:
        return {"value": dict(seen)}, dict(seen)
    value = seen["captures"].get("value")
    named = seen["fact"][-1]
    key = named.get("key") if isinstance(named, dict) else None
    return {"label": asked["label"], "key": key, "value": value}, value


def deadline_of(wait: Wait) -> float | None:
    seconds = wait.seconds if isinstance(wait, Timer) else wait.timeout
    return None if seconds is None else time.time() + seconds


def opening(wait: Wait, identity: str, deadline: float | None) -> dict[str, Any]:
    """The data of the event that says the wait is open."""
    if isinstance(wait, Gate):
        return waiting(wait, identity, deadline)
    if isinstance(wait, Timer):
        guard = {"guard": True} if wait.guard else {}
        return {"seconds": wait.seconds, "deadline": deadline} | guard
    if wait.patterns is not None:
        patterns = {which: list(pattern) for which, pattern in wait.patterns.items()}
        return {"patterns": patterns, "deadline": deadline}
    return {"label": wait.label, "key": wait.key, "deadline": deadline}


def answered(gate: GateInfo, answer: Any, by: str) -> tuple[dict[str, Any], Any]:
    """The data of `gate_answered`, and the answer as it will be read back."""
    value = decode(encode(answer))
    key = {"key": gate.key} if gate.key is not None else {}
    return {**named(gate), "answer": value, "response": value, "by": by, **gate.about, **key}, value


def no_gate(run: WorkflowRun, gate: GateInfo) -> RuntimeError:
    """Why an answer comes too late."""
    told = run.state.value if run.is_complete else f"not asking at {gate.path} any more"
    return RuntimeError(f"run '{run.run_id}' has no open gate '{gate.gate_id}': it is {told}")


def named(gate: GateInfo) -> dict[str, Any]:
    return {"gate_id": gate.gate_id} | ({"node_id": gate.node_id} if gate.node_id else {})


def gate_info(path: str, data: dict[str, Any], at: float) -> GateInfo:
    """An open gate as its event tells it."""
    return GateInfo(
        data["gate_id"],
        data["prompt"],
        data.get("choices"),
        created_at=datetime.fromtimestamp(at, UTC),
        path=path,
        node_id=data.get("node_id"),
        options=data.get("options"),
        note=data.get("note"),
        input_preview=data.get("input_preview"),
        deadline=data.get("deadline"),
        action=data.get("action"),
        form=data.get("form"),
    )


def open_in(rows: Iterable[Row]) -> dict[str, Row]:
    """The events of the waits that are open after these rows, by their paths.

    What a leaf asks for itself is over when nobody executes it: it begins again, and asks anew.
    """
    asked = AskedRows()
    asked.take(rows)
    return {
        path: row for path, row in asked.rows.items() if row.type in OPENS.values() and not below(path, asked)
    }


def ends_by_stop(rows: Iterable[Row]) -> list[tuple[str, str, dict[str, Any]]]:
    """Type, path and data of the events that end what is open when a run is stopped, the innermost first."""
    ends = []
    for path, row in asked_in(rows).items():
        kind = row.type.partition("_")[0]
        asked = decode(row.data)
        data = {name: asked[name] for name in ("gate_id", "node_id", "step_id") if name in asked}
        ends.append((f"{'node' if kind == 'step' else kind}_cancelled", path, data | {STOPPED: True}))
    return ends[::-1]


def at_work(rows: Iterable[Row]) -> bool:
    """Whether a leaf had begun and not ended after these rows: somebody must take it up again."""
    return any(
        row.type in ("node_started", "step_started") and not row.data.startswith(CONTROL)
        for row in asked_in(rows).values()
    )


def asked_in(rows: Iterable[Row]) -> dict[str, Row]:
    """The events of the calls and waits that are not over after these rows, by their paths."""
    asked = AskedRows()
    asked.take(rows)
    return asked.rows


class AskedRows:
    """The events of the calls and waits that are not over, by their paths, after the rows taken so far.

    As a container it holds the paths of the leaves at work.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.seq = 0
        """The last row that was taken."""

    def take(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.seq = row.seq
            if row.type in ASKS:
                self.rows[row.path] = row
            elif row.settles == ROOT:
                self.rows.clear()
            elif row.type == "path_reset":
                self.rows = {path: kept for path, kept in self.rows.items() if not within(path, row.path)}
            elif row.settles:
                self.rows.pop(row.path, None)

    def __contains__(self, path: object) -> bool:
        row = self.rows.get(path) if isinstance(path, str) else None
        return row is not None and acts(row) and not row.data.startswith(CONTROL)
