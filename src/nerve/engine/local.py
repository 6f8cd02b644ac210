"""The local engine: drives runs in this process and keeps their journals in a store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from nerve.core.event import OF_GATES, Sink
from nerve.core.nodes.base import Names
from nerve.core.result import Result
from nerve.core.runtime import Call
from nerve.core.values import AROUND, decode, encode, is_plain
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.standing import Absent
from nerve.core.workflow.state import FINAL, GateInfo, WorkflowState
from nerve.core.workflow.workflow import Workflow
from nerve.engine import children, fork, logs
from nerve.engine.budgets import Budgets
from nerve.engine.commands import Commands
from nerve.engine.definitions import Definitions
from nerve.engine.drive import Drive
from nerve.engine.records import ABOUT, limits_of, start_of
from nerve.engine.recovery import OPEN, LeftAlone, Recovery
from nerve.engine.show import Show
from nerve.engine.spending import Today, limits_of_providers
from nerve.engine.tasks import apart, count_tasks, sentinel
from nerve.engine.waits import at_work, gate_info, open_in
from nerve.engine.writer import Writer
from nerve.errors import JournalBroken, NerveError, WorkflowAbsent
from nerve.store.port import ReplyRow, Row, RunRow, Store

if TYPE_CHECKING:
    from nerve.engine.facts import Facts

log = logging.getLogger("nerve")

KEEP_PARKED = 256
"""How many runs that only wait stay in memory; older ones leave it and are rebuilt when needed."""

LOOKED_AT = 50
"""Runs that are over, beside those that are open, in which limits of providers are looked for."""

ALONE = (WorkflowState.PENDING, WorkflowState.WAITING)
"""States in which a run that nobody drives waits for no child."""

UNREADABLE = "unreadable"
"""Why a run is held whose journal is damaged."""


class LocalEngine:
    """One per session. Everything that happens to a run happens in here, on one event loop."""

    def __init__(self, store: Store, session: Names, session_name: str) -> None:
        self.store, self._session, self._name = store, session, session_name
        self.drives: dict[str, Drive] = {}
        self.known: WeakValueDictionary[str, WorkflowRun] = WeakValueDictionary()
        definitions = Definitions(store, session)
        self.workflow, self.has_workflow = definitions.workflow, definitions.has
        self.definition, self._shown_workflow = definitions.of, definitions.shown
        self.modules_of = definitions.modules_of
        self.commands = Commands(self)
        self.budgets = Budgets(self)
        self._recovery = Recovery(self)
        self._show = Show()
        self.shown = self._show.shown
        self.leaving: dict[str, asyncio.Future[None]] = {}
        """Runs that are not driven any more, but whose last tasks and writes are not over."""
        self._parked: dict[str, Drive] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._waking: set[asyncio.Task[None]] = set()
        self._keys: dict[str, asyncio.Task[WorkflowRun]] = {}
        self._sentinel: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer: Writer | None = None
        self.watchers: list[Callable[[WorkflowRun, list[Row]], None]] = []
        """Whoever sees the events of all runs."""
        self.sinks: list[Sink] = []
        """Sinks of every run that starts, or is taken up, from now on."""
        self._facts: Facts | None = None
        self._today: Today | None = None
        self.unreadable: dict[str, str] = {}
        """The runs whose journals were found damaged, each with what is wrong."""
        self.closed = False

    # -- what belongs to the loop --------------------------------------------------------------

    @property
    def writer(self) -> Writer:
        self.attend()
        assert self._writer is not None
        return self._writer

    def attend(self) -> None:
        """Belong to the event loop that is running, if nothing is left to do on another."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        if self._loop is not None:
            self._leave_loop(self._loop)
        count_tasks(loop)
        self._loop, self._sentinel, self._writer = loop, sentinel(loop), Writer(self.store)

    def _leave_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop.is_running():
            raise RuntimeError(
                "the session is used on another event loop, which still runs; make a session for each"
            )
        if self.drives:
            raise RuntimeError(
                f"the session has open runs on an event loop that has ended: {', '.join(self.drives)}."
                " Wait for them before their loop ends, or close the session: `async with Session(…)` in"
                " each asyncio.run"
            )
        assert self._writer is not None
        self._writer.close()
        for waiting in (self.leaving, self._parked, self._timers, self._keys):
            waiting.clear()

    @property
    def today(self) -> Today:
        """What agents took today, by model; read when somebody first asks."""
        if self._today is None:
            self._today = Today(self.store, self._name)
        return self._today

    def limited(self) -> dict[str, float]:
        """The providers that are at a limit, and until when, as far as the journals know."""
        return limits_of_providers(self.recent(LOOKED_AT), self.store, time.time())

    @property
    def facts(self) -> Facts:
        """The dataspace of the session, read when somebody first needs it."""
        if self._facts is None:
            from nerve.engine.facts import Facts  # it takes milliseconds to import, and few need it

            self._facts = Facts(self, self._name)
        return self._facts

    @property
    def shutting_down(self) -> bool:
        """Whether the loop is cancelling everything; what bodies do then says nothing about their runs."""
        return self.closed or (self._sentinel is not None and self._sentinel.cancelling() > 0)

    async def close(self) -> None:
        """Park every run where it is, and let go of the store; `recover()` goes on from there."""
        await self.commands.stops()
        self.closed = True
        drives = list(self.drives.values())
        for drive in drives:
            drive.detached = True
        here = self._loop is asyncio.get_running_loop()  # what an ended loop had to do is over
        if here:
            await asyncio.gather(*(drive.cancel_tasks() for drive in drives))
        for drive in drives:
            drive.let_go()
        await self._recovery.close()
        for run in list(self.known.values()):
            run._notify()
        for timer in self._timers.values():
            timer.cancel()
        if here:
            await self._show.drained()
        self._show.close()
        self.budgets.close()
        if self._facts is not None:
            self._facts.space.close()
        if self._writer is not None:
            if here:
                await self._writer.drained()
            self._writer.close()
        self.store.close()

    # -- starting ------------------------------------------------------------------------------

    def new_id(self) -> str:
        """A UUID that sorts by time (version 7)."""
        time_, chance = f"{int(time.time() * 1000):012x}", os.urandom(10).hex()
        variant = "89ab"[int(chance[0], 16) % 4]
        return f"{time_[:8]}-{time_[8:]}-7{chance[1:4]}-{variant}{chance[4:7]}-{chance[7:19]}"

    async def start(self, run: WorkflowRun, key: str | None = None, **lineage: Any) -> None:
        """Write that the run has started; its body begins when that is on disk."""
        if self.closed:
            raise RuntimeError("the session is closed")
        self.writer  # noqa: B018 - from here on the loop is known
        start = {
            "run_id": run.run_id,
            "workflow_id": run.workflow_id,
            "steps": run.workflow.steps,
            "input": run._input,
            "params": run._params,
            "session": self._name,
            "definition": run.workflow.definition()[0],
            "seed": os.urandom(16).hex(),
            "limits": run._limits.to_dict(),
        }
        start |= run._about | lineage
        if key is not None:
            start["key"] = key
        data = encode(start, deep=AROUND)
        if run._params or not is_plain(run._input):
            start = decode(data)
            run._input, run._params = start["input"], start["params"]
        run._state, run._started_at = WorkflowState.RUNNING, datetime.now(UTC)
        self.listened(run)
        drive = Drive(self, run, start, run._limits)
        drive.journal.pin(self.definition(run.workflow))
        drive.journal.row_changed()
        self._own(drive)
        await drive.journal.written_upto(drive.journal.note("workflow_started", "", data))

    def listened(self, run: WorkflowRun, past: Iterable[Row] = ()) -> None:
        """Let a run tell the sinks of all runs, and its log."""
        run._sinks += [sink for sink in self.sinks if sink not in run._sinks]
        logs.attach(run, past)

    async def start_keyed(self, run: WorkflowRun, key: str) -> WorkflowRun:
        """Start a run under a key; if there is one with that key already, that is the run."""

        async def begin() -> WorkflowRun:
            await self.start(run, key)
            return run

        return same_workflow(key, await self._keyed(key, begin), run)

    async def _keyed(self, key: str, begin: Callable[[], Coroutine[Any, Any, WorkflowRun]]) -> WorkflowRun:
        """The run of a key, which begins if there is none, and nobody else is about to begin one."""
        if key not in self._keys:
            if (row := self.store.run_by_key(self._name, key)) is not None:
                return self.take_up(row)
            beginning = self._keys[key] = apart(begin())
            beginning.add_done_callback(lambda done: self._begun(key, done))
        return await asyncio.shield(self._keys[key])

    def _begun(self, key: str, done: asyncio.Task[WorkflowRun]) -> None:
        del self._keys[key]
        if not done.cancelled():
            done.exception()  # whoever still waits for the start is told; there may be nobody

    def _own(self, drive: Drive) -> None:
        run_id = drive.run.run_id
        self.drives[run_id] = drive
        self.known[run_id] = drive.run
        if timer := self._timers.pop(run_id, None):
            timer.cancel()
        if (parent := self.drives.get(drive.start.get("parent", ""))) is not None:
            parent.purses.began(run_id, drive.start["parent_path"], drive.purses.own)

    def dropped(self, drive: Drive) -> None:
        """A run is not driven any more; what it still has to write is on its way."""
        run_id, journal = drive.run.run_id, drive.journal
        if self.drives.get(run_id) is drive:
            del self.drives[run_id]
            if journal.committed < journal.seq or drive.delivery.tasks - {drive.main}:
                leaving = self.leaving[run_id] = apart(leave(drive))
                leaving.add_done_callback(lambda _: self.leaving.pop(run_id, None))
        self._parked.pop(run_id, None)
        if drive.run.is_complete and self._facts is not None:
            self._facts.forget(run_id)

    def ended(self, run: WorkflowRun, state: WorkflowState) -> None:
        """A run that nobody drives has come to its end."""
        run._end(state)
        if self._facts is not None:
            self._facts.forget(run.run_id)
        if timer := self._timers.pop(run.run_id, None):
            timer.cancel()
        run._notify()

    # -- parking and recovery ------------------------------------------------------------------

    def parked(self, drive: Drive) -> None:
        """A run only waits now; the one that has waited longest of too many leaves memory."""
        if not self.store.durable:
            return
        self._parked.pop(drive.run.run_id, None)
        self._parked[drive.run.run_id] = drive
        while len(self._parked) > KEEP_PARKED:
            oldest = self._parked.pop(next(iter(self._parked)))
            if oldest.waits.only_one:
                self.evict(oldest)

    def evict(self, drive: Drive) -> None:
        """Take a run out of memory that waits for the outside and does nothing else."""
        wake = drive.waits.next_deadline
        drive.suspend()
        drive.run._forget_gates()
        self._wake_at(drive.run.run_id, wake)

    def _wake_at(self, run_id: str, deadline: float | None) -> None:
        if timer := self._timers.pop(run_id, None):
            timer.cancel()
        if deadline is not None and run_id not in self.drives:
            delay = max(0.0, deadline - time.time())
            self._timers[run_id] = asyncio.get_running_loop().call_later(delay, self._wake, run_id)

    def _wake(self, run_id: str) -> None:
        self._timers.pop(run_id, None)
        row = self.store.run(run_id)
        if row is not None and row.state == WorkflowState.WAITING.value and not self.shutting_down:
            self._go_on_soon(row)

    def _go_on_soon(self, row: RunRow) -> None:
        """Go on with a run as soon as nobody else is at it."""
        waking = apart(self._go_on(row))
        self._waking.add(waking)
        waking.add_done_callback(self._waking.discard)

    async def _go_on(self, row: RunRow) -> None:
        try:
            await self.commands.wake(self.handle(row))
        except (ValueError, RuntimeError) as error:
            if not self.closed:
                log.warning("run %s is left alone: %s", row.run, error)

    def revive(self, run: WorkflowRun, past: list[Row] | None = None) -> Drive:
        """Rebuild a run from its journal and go on."""
        if (drive := self.drives.get(run.run_id)) is not None:
            return drive
        self.ready(run)
        past = past or self.store.events(run.run_id)
        drive = Drive(self, run, start_of(past), limits_of(past), past)
        self._own(drive)
        # Its code asks for them again, unless it has changed; until then they are there all the same.
        run._children = {} if drive.changed else children.open_in(self, run.run_id, past)
        definition = self.definition(run.workflow)
        if definition.hash != drive.start.get("definition"):
            drive.start["definition"] = definition.hash
            drive.note("workflow_changed", "", {"definition": definition.hash})
            drive.journal.pin(definition)
            drive.journal.row_changed()
        drive.begin()
        run._notify()
        return drive

    def ready(self, run: WorkflowRun) -> None:
        """Raise ValueError for a run that would go on and find that what its workflow calls is not there."""
        if run.run_id in self.drives:
            return
        if isinstance(run.workflow, Absent):
            raise WorkflowAbsent(run.workflow_id, run.run_id, run._about.get("modules", ()))
        self._session.check_names(run.workflow)

    def renew(self, run: WorkflowRun, drive: Drive | None) -> Drive | None:
        """Let a run that stands still go on with the workflow as it is today; one in memory is rebuilt."""
        current: Workflow | None = self._session.get_workflow(run.workflow_id)
        if current is None or current.definition()[0] == run.workflow.definition()[0]:
            return drive
        if drive is not None and drive.calls.running:
            raise RuntimeError(f"Cannot change run '{run.run_id}' while steps of it run; wait for them")
        run._workflow = current
        if drive is not None:
            drive.suspend()
            drive.cancel_all()
            run._forget_gates()
        return None

    def handle(self, row: RunRow, past: list[Row] | None = None) -> WorkflowRun:
        """The run of a row, as its users hold it; the same object as long as anybody holds it.

        A run whose journal is damaged is held as `unreadable`: it can be listed, and every command that
        reads or continues its journal raises `JournalBroken`.
        """
        run = self.known.get(row.run)
        if run is None:
            try:
                past = past or self.store.events(row.run)
            except JournalBroken as error:
                return self._unreadable_run(row, error)
            start = decode(past[0].data)
            about = {name: start[name] for name in ABOUT if name in start}
            run = WorkflowRun(
                self._shown_workflow(row), start["input"], start["params"], run_id=row.run, about=about
            )
            restore(run, row, past)
            self.listened(run, past)
            self.known[row.run] = run
        elif isinstance(run.workflow, Absent):
            run._workflow = self._shown_workflow(row)
        return run

    def _unreadable_run(self, row: RunRow, error: JournalBroken) -> WorkflowRun:
        # It is not remembered in `known`: what goes over those runs expects a journal that can be read.
        about = {"label": row.label} if row.label else {}
        run = WorkflowRun(self._shown_workflow(row), run_id=row.run, about=about)
        run._state, run._held, run._error = WorkflowState.HELD, self.note_unreadable(error), str(error)
        run._started_at = datetime.fromtimestamp(row.started, UTC)
        run._completed_at = datetime.fromtimestamp(row.ended, UTC) if row.ended else None
        return run

    def note_unreadable(self, error: JournalBroken) -> dict[str, Any]:
        """Remember that the journal of a run is damaged; gives why the run is held."""
        if error.run not in self.unreadable:
            log.error("unreadable: %s", error)
        self.unreadable[error.run] = str(error)
        return {"reason": UNREADABLE, "message": str(error), "path": ""}

    async def recover(self) -> list[WorkflowRun]:
        """Take up every open run of this session; one that has nothing but open waits goes on waiting."""
        self.attend()
        logs.end_all(self, self._name)
        runs = await self._recovery.recover()
        await self.budgets.go_on()
        return runs

    @property
    def left_alone(self) -> list[LeftAlone]:
        """Open runs that the last `recover()` found and could not take up."""
        return self._recovery.left_alone

    def owns(self, row: RunRow) -> bool:
        return row.session == self._name

    def take_up(self, row: RunRow) -> WorkflowRun:
        """Go on with a run that nobody drives; one that waits is woken when its time comes."""
        if not self.owns(row):
            raise ValueError(f"it belongs to session '{row.session}'")
        self.workflow(row)
        past = self.store.events(row.run)
        run = self.handle(row, past)
        if row.state in (WorkflowState.WAITING.value, WorkflowState.RUNNING.value):
            self.ready(run)
        waits = row.state == WorkflowState.WAITING.value and not at_work(past)
        late = row.wake is not None and row.wake <= time.time()
        if waits and not late and not self.watch(row.run, past):
            self._wake_at(row.run, row.wake)
        elif row.state in (WorkflowState.WAITING.value, WorkflowState.RUNNING.value):
            if row.run not in self.drives:
                self._recovery.begin([row.run])
            if self.commands.busy(run):
                self._go_on_soon(row)
            else:
                self.revive(run, past)
        elif row.state in (WorkflowState.PAUSED.value, WorkflowState.HELD.value):
            self.watch(row.run, past)
        return run

    def watch(self, run_id: str, past: list[Row]) -> bool:
        """Let a run that nobody drives hear of the facts it waits for; whether one is there already."""
        waits = [row for row in open_in(past).values() if row.type == "signal_waiting"]
        seen = [self.facts.look(run_id, row.path, decode(row.data)) for row in waits]
        return any(found is not None for found in seen)

    def show(self, run: WorkflowRun, rows: list[Row]) -> None:
        """Events are on disk: whoever watches may see them."""
        if self._recovery.unproven:
            self._recovery.shown(run.run_id, rows)
        if self._today is not None:
            self._today.take(run.run_id, rows)
        if run._sinks:
            self._show.show(run, map(run._event, rows))
        if gates := [row for row in rows if row.type in OF_GATES]:
            self._show_around(run, gates)
        if self._facts is not None:
            shown_to(self._facts.shown, run, rows)
        for watch in self.watchers:
            shown_to(watch, run, rows)

    def _show_around(self, run: WorkflowRun, rows: list[Row]) -> None:
        """Show events of a run to the sinks of those around it."""
        for run_id, path in self.around(run.run_id):
            parent = self.known.get(run_id)
            if parent is not None and parent._sinks:
                events = (run._event(row).shown_in(run_id, path) for row in rows)
                self._show.show(parent, events, but=run._sinks)

    def around(self, run_id: str) -> list[tuple[str, str]]:
        """The ids of the runs around one, the nearest first, and the paths at which they called it."""
        found: list[tuple[str, str]] = []
        path = ""
        while True:
            drive = self.drives.get(run_id)
            past = self.store.events(run_id, 0, 1) if drive is None else ()
            start = drive.start if drive is not None else decode(past[0].data) if past else {}
            if start.get("parent") is None:
                return found
            run_id, path = start["parent"], start["parent_path"] + path
            found.append((run_id, path))

    def defined(self, workflow: Workflow) -> None:
        """There is a new workflow: whoever watches may see it."""
        if self._facts is not None:
            self._facts.defined(workflow)

    def undefined(self, name: str) -> None:
        """A workflow is not there any more; its runs keep what they were started from."""
        if self._facts is not None:
            self._facts.undefined(name)

    def workflows(self) -> list[Workflow]:
        return [
            found for name in list(self._session.workflows) if (found := self._session.get_workflow(name))
        ]

    def recent(self, ended: int = 1000) -> list[RunRow]:
        """The open runs of the session, and some that have ended."""
        rows = [row for row in self.store.runs(session=self._name) if self.has_workflow(row)]
        over = [row for row in rows if WorkflowState(row.state) in FINAL]
        return [*over[-ended:], *(row for row in rows if WorkflowState(row.state) not in FINAL)]

    # -- the rest of what runs and drives ask for ----------------------------------------------

    def child_ended(self, run_id: str) -> bool:
        row = self.store.run(run_id)
        return row is not None and WorkflowState(row.state) in FINAL

    def attempts(self, run_id: str, key: str) -> list[str]:
        return [row.run for row in children.attempts(self.store, run_id, key)]

    def taken_by(self, run_id: str) -> dict[str, Any]:
        return children.taken_by(self, run_id)

    async def run_child(self, parent: Drive, call: Call, attempt: int, late: bool) -> Result:
        return await children.run_child(self, parent, call, attempt, late)

    def accounted(self, parent: Drive, call: Call, result: Result) -> Result:
        return children.accounted(self, parent, call, result)

    def child_asked(self, run_id: str) -> bool:
        return children.asked(self.store, run_id)

    def children_of(self, run: WorkflowRun) -> Mapping[str, WorkflowRun]:
        """The children that a run waits for, by the paths of their calls, also if nobody drives it."""
        driven = run.run_id in self.drives
        if run._children or driven or run._state in (*FINAL, *ALONE) or run.run_id in self.unreadable:
            return run._children
        return children.open_in(self, run.run_id, self.store.events(run.run_id))

    async def stop_begun(self, drive: Drive, reason: str) -> None:
        await self.commands.stop_begun(drive, reason)

    async def stop_children(self, run_id: str, reason: str, path: str | None = None) -> None:
        """Stop the open children of a run, or those that were called at a path."""
        for row in self.open_children(run_id):
            if path is None or decode(self.store.events(row.run, 0, 1)[0].data).get("parent_path") == path:
                await self.commands.stop(self.handle(row), reason)

    def open_children(self, run_id: str) -> list[RunRow]:
        return [row for row in children.unheard(self.store, run_id) if row.state in OPEN]

    async def fork(
        self,
        source: str,
        at: str | None,
        input: Any,
        overrides: Mapping[str, Mapping[str, Any]],
        key: str | None = None,
        limits: Mapping[str, Any] | None = None,
        reply: ReplyRow | None = None,
    ) -> WorkflowRun:
        def begin() -> Coroutine[Any, Any, WorkflowRun]:
            return fork.fork(self, source, at, input, overrides, key, limits or {}, reply)

        return await self._forked(source, key, begin)

    async def retry(self, source: str, key: str | None = None, reply: ReplyRow | None = None) -> WorkflowRun:
        return await self._forked(source, key, lambda: fork.retry(self, source, key, reply))

    async def _forked(
        self, source: str, key: str | None, begin: Callable[[], Coroutine[Any, Any, WorkflowRun]]
    ) -> WorkflowRun:
        if key is None:
            return await begin()
        if (row := self.store.run_by_key(self._name, key)) is not None:
            fork.check_source(self, key, row.run, source)
        found = await self._keyed(key, begin)
        fork.check_source(self, key, found.run_id, source)
        return found

    def rows(self, run_id: str, after: int = 0, limit: int | None = None) -> Iterable[Row]:
        return self.store.events(run_id, after, limit)

    def open_gates(self, run_id: str) -> dict[str, GateInfo]:
        """The open gates of a run that nobody drives, read from its journal."""
        opened = open_in(self.store.events(run_id))
        return {
            path: gate_info(path, decode(row.data), row.at)
            for path, row in opened.items()
            if row.type == "gate_waiting"
        }

    # What lists tell of a run: from what is in memory, or from as little of its journal as will do.

    def outcome(self, row: RunRow) -> Outcome:
        """What came of a run that is over."""
        last = self.store.last(row.run)
        return Outcome() if last is None else outcome_in(WorkflowState(row.state), decode(last.data))

    def held(self, row: RunRow) -> dict[str, Any] | None:
        """Why a run is held."""
        if (run := self.known.get(row.run)) is not None:
            return run.held
        try:
            last = self.store.last(row.run, "workflow_held")
        except JournalBroken as error:
            return {"run_id": row.run, **self.note_unreadable(error)}
        return None if last is None else {"run_id": row.run, **decode(last.data)}

    def gates(self, row: RunRow) -> dict[str, GateInfo]:
        """The open gates of a run, without those of its children; an unreadable run has none."""
        run = self.known.get(row.run)
        try:
            return self.open_gates(row.run) if run is None else run._gates
        except JournalBroken as error:
            self.note_unreadable(error)
            return {}

    async def written(self, run: WorkflowRun) -> None:
        """Return when everything that has happened to a run until now is on disk."""
        if (drive := self.drives.get(run.run_id)) is not None:
            await drive.journal.written_upto(drive.journal.seq)

    def waits_for_others(self, run: WorkflowRun) -> bool:
        """Whether a run, or a child of it, waits for a person or a fact, and not only for a time."""
        if (drive := self.drives.get(run.run_id)) is not None:
            return drive.waits.for_others or any(map(self.waits_for_others, run._children.values()))
        opened = open_in(self.store.events(run.run_id)).values()
        return any(row.type != "timer_started" for row in opened)

    def row(
        self, run: WorkflowRun, state: WorkflowState, wake: float | None, start: Mapping[str, Any], at: float
    ) -> RunRow:
        """The projection of a run after an event at a time; `pausing` is `paused` after a restart."""
        shown = WorkflowState.PAUSED if state is WorkflowState.PAUSING else state
        ended = at if state in FINAL else None
        run._ends = ended
        return RunRow(
            run.run_id,
            self._name,
            run.workflow_id,
            shown.value,
            run._started_at.timestamp() if run._started_at else time.time(),
            ended,
            start.get("key"),
            start.get("parent"),
            wake,
            start.get("definition"),
            start.get("conversation"),
            start.get("label"),
        )


async def leave(drive: Drive) -> None:
    """Return when a drive that was let go has come to its end."""
    await drive.cancel_tasks()
    with contextlib.suppress(NerveError):
        await drive.journal.written_upto(drive.journal.seq)


def shown_to(watch: Callable[[WorkflowRun, list[Row]], None], run: WorkflowRun, rows: list[Row]) -> None:
    """What is on disk goes on, whoever of those who watch cannot take it in."""
    try:
        watch(run, rows)
    except Exception:
        log.exception("what run %s has written could not be shown", run.run_id)


def same_workflow(key: str, found: WorkflowRun, asked: WorkflowRun) -> WorkflowRun:
    if found.workflow_id != asked.workflow_id:
        raise ValueError(f"key '{key}' is that of run '{found.run_id}' of workflow '{found.workflow_id}'")
    return found


def restore(run: WorkflowRun, row: RunRow, past: list[Row]) -> None:
    """Set a run's fields to what its journal says."""
    run._state = WorkflowState(row.state)
    run._started_at = datetime.fromtimestamp(row.started, UTC)
    run._completed_at = datetime.fromtimestamp(row.ended, UTC) if row.ended else None
    run._forget_gates()
    run._result, run._error, run._error_type = outcome_in(run._state, decode(past[-1].data))
    if run._state is WorkflowState.HELD:
        run._held = next((decode(r.data) for r in reversed(past) if r.type == "workflow_held"), None)


class Outcome(NamedTuple):
    """What came of a run that is over."""

    result: Any = None
    error: str | None = None
    error_type: str = ""


def outcome_in(state: WorkflowState, last: Mapping[str, Any]) -> Outcome:
    """What came of a run, by its last event."""
    match state:
        case WorkflowState.COMPLETED:
            return Outcome(last["result"])
        case WorkflowState.FAILED:
            return Outcome(None, last["error"], last["error_type"])
        case WorkflowState.CANCELLED:
            return Outcome(None, last["reason"] or None, last.get("error_type", ""))
    return Outcome()
