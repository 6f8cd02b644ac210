"""The triggers of a session: their definitions from files, Python and the API, and what starts their runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from nerve.core.suggest import did_you_mean_hint
from nerve.core.triggers import DELIVERY_PREFIX, Trigger, check_trigger_name, is_delivery_key, make_trigger
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import OPEN_STATE_VALUES
from nerve.errors import NerveError, StoreError
from nerve.lazy_dataclass import dataclass
from nerve.project.trigger_files import discover_triggers
from nerve.store.port import RunRow
from nerve.text.source import Problem
from nerve.triggers.schedule_decisions import (
    begin_schedule,
    find_due_times,
    format_occurrence,
    jitter_of,
)
from nerve.triggers.start_arguments import TAG, NotStarted, NotWanted, StartArguments, make_start
from nerve.triggers.states import TriggerState, TriggerStates

if TYPE_CHECKING:
    from nerve.session.session import Session

log = logging.getLogger("nerve")

MAX_BACKFILL = 1000
"""The number of times that one backfill starts."""
MAX_QUEUED = 100
"""The number of times that wait for the previous run; further ones are skipped."""
MAX_REFUSALS = 20
START_MARGIN_S = 120.0
"""Seconds in which the row of a run that is started is certainly on disk; longer than a commit may wait."""
SHOWN_TIMES = 10
SHOWN_RUNS = 10


@dataclass(frozen=True, slots=True)
class TriggerInfo:
    """A trigger as users see it."""

    trigger: Trigger
    state: TriggerState
    next_times: list[float]
    """When a schedule starts the next runs, with jitter."""
    last_runs: list[RunRow]
    """The runs that it has started, newest first."""


def triggers_of(session: Session) -> TriggerService:
    """Return the triggers of a session."""
    service = session.trigger_service
    if not isinstance(service, TriggerService) or service.engine is not session.engine:
        session.trigger_service = service = TriggerService(session)
    return service


class TriggerService:
    """The triggers of one session; `nerve.triggers.run_triggers` lets them start runs."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.engine = session.engine
        self.states = TriggerStates(self.engine.store, session.name, lambda: self.engine.committer)
        self.is_running = False
        """Whether this process starts runs for triggers."""
        self.on_run_ended: Callable[[str], None] = ignore_run
        """Tells the triggers that run of a run that has ended; the engine of this process does, too."""
        self.changed = asyncio.Event()
        """Set when definitions or states have changed."""
        self.problems: list[Problem] = []
        """The problems of the trigger files."""
        self._from_files: dict[str, Trigger] = {}
        self._from_api: dict[str, tuple[Mapping[str, Any], Trigger]] = {}
        self.refusals: dict[str, deque[tuple[float, str]]] = {}
        """When and why requests of a trigger were refused, by name; they are not stored."""
        self._locks: dict[str, asyncio.Lock] = {}
        self.reload()

    # -- definitions ---------------------------------------------------------------------------

    def reload(self) -> None:
        """Read the trigger files of the project again."""
        found = discover_triggers(self.session.project)
        self._from_files, self.problems = found.triggers, found.problems
        self.changed.set()

    def refresh(self) -> None:
        """Read what another process may have written."""
        if not self.is_running:
            self.states.load()
            self.reload()

    def all(self) -> dict[str, Trigger]:
        """Return the triggers by name; a file takes precedence over Python, and Python over the API."""
        stored = {}
        for name, definition in self.states.definitions.items():
            known = self._from_api.get(name)
            if known is None or known[0] is not definition:
                try:
                    known = definition, make_trigger(name, definition, "api")
                except ValueError as error:  # an earlier version may have accepted it
                    log.warning("%s", error)
                    continue
                self._from_api[name] = known
            stored[name] = known[1]
        return dict(sorted({**stored, **self.session.triggers, **self._from_files}.items()))

    def find(self, name: str) -> Trigger:
        """Return a trigger by its name; ValueError for an unknown one."""
        known = self.all()
        if (trigger := known.get(name)) is None:
            listed = f". Known triggers: {', '.join(known)}" if known else ". The session has no triggers"
            raise UnknownTrigger(f"Trigger '{name}' not found{did_you_mean_hint(name, known) or listed}")
        return trigger

    def is_paused(self, trigger: Trigger) -> bool:
        return not trigger.enabled or self.states.get(trigger.name).is_paused

    def describe(self, name: str) -> TriggerInfo:
        """Return a trigger with its state, its next times and its last runs."""
        trigger = self.find(name)
        state = self.states.get(name)
        times: list[float] = []
        if trigger.schedule is not None and not self.is_paused(trigger):
            at: float | None = self._next_base(trigger, state)
            while len(times) < SHOWN_TIMES and at is not None:
                if (at := trigger.schedule.times.next_after(at)) is not None:
                    times.append(at + jitter_of(trigger, at))
        rows = self.engine.store.runs(session=self.session.name, tags={TAG: name}, newest=SHOWN_RUNS)
        return TriggerInfo(trigger, state, times, rows[::-1])

    def _next_base(self, trigger: Trigger, state: TriggerState) -> float:
        """Return the time after which the next occurrence is looked for."""
        now = self.engine.clock.time()
        if state.considered is None or state.hash != trigger.hash or trigger.schedule is None:
            return now
        # An occurrence that its jitter delays is still to come.
        return max(state.considered, now - trigger.schedule.jitter)

    async def define(self, name: str, definition: Mapping[str, Any]) -> Trigger:
        """Create or replace a trigger in the store; return when that is durable."""
        check_trigger_name(name)
        trigger = make_trigger(name, definition, "api")
        if trigger.name != name:
            raise ValueError(f"The definition has the name '{trigger.name}', got '{name}'. Use one of them")
        other = self._from_files.get(name) or self.session.triggers.get(name)
        if other is not None:
            raise ValueError(
                f"Trigger '{name}' is defined in {other.source}, which takes precedence. Change it there, or"
                " use another name"
            )
        state = self.states.get(name)
        state.definition = dict(trigger.data)
        self.begin(trigger)
        await self._save(name)
        return trigger

    def begin(self, trigger: Trigger) -> bool:
        """Let a new or changed trigger count from now on; return whether its state has to be written."""
        state, now = self.states.get(trigger.name), self.engine.clock.time()
        if trigger.schedule is not None:
            return begin_schedule(trigger, state, now)
        if trigger.kind == "fact" and (state.hash != trigger.hash or state.version is None):
            state.hash, state.version = trigger.hash, self.engine.store.fact_version(self.session.name)
            return True
        if trigger.kind == "run" and (state.hash != trigger.hash or state.open_since is None):
            state.hash, state.floor, state.open_since = trigger.hash, now, self.find_open_since(trigger, now)
            return True
        return False

    def find_open_since(self, trigger: Trigger, now: float) -> float:
        """Return a time before which no run was started that may still end, for the runs of a trigger."""
        assert trigger.run is not None
        rows = self.engine.store.runs(
            session=self.session.name, workflow=trigger.run.workflow, states=OPEN_STATE_VALUES
        )
        # The row of a run is on disk some time after its start, and its end is reported after that.
        return min((row.started for row in rows), default=now) - START_MARGIN_S

    async def remove(self, name: str) -> None:
        """Remove a trigger that the API created."""
        trigger = self.find(name)
        if trigger.source != "api":
            raise ValueError(
                f"Trigger '{name}' is defined in {trigger.source}. Remove it there, or pause it:"
                f" nerve triggers pause {name}"
            )
        async with self.locked_state(name):
            await self.states.remove(name)
        self.changed.set()

    async def pause(self, name: str, by: str = "") -> None:
        """Start nothing more for a trigger, across restarts, until it is resumed."""
        trigger = self.find(name)
        state = self.states.get(name)
        self.begin(trigger)
        state.is_paused, state.paused_by = True, by
        await self._save(name)

    async def resume(self, name: str) -> None:
        """Continue a paused trigger. What happened while it was paused starts nothing."""
        trigger = self.find(name)
        if not trigger.enabled:
            raise ValueError(f"Trigger '{name}' is disabled in {trigger.source}. Write there: enabled: true")
        state = self.states.get(name)
        if not state.is_paused:
            return
        async with self.locked_state(name):
            state.is_paused, state.paused_by = False, ""
            state.considered, state.hash = None, ""  # as a new one
            self.begin(trigger)
            await self._save(name)

    async def _save(self, name: str, files: Mapping[str, str | None] | None = None) -> None:
        self.changed.set()
        await self.states.write(name, self.engine.clock.time(), files)

    # -- starts --------------------------------------------------------------------------------

    def find_started(self, trigger: Trigger, occurrence: str) -> RunRow | None:
        """Return the run that was started for an occurrence."""
        return self.engine.store.run_by_key(self.session.name, trigger.start_key(occurrence))

    async def start(
        self,
        trigger: Trigger,
        occurrence: str,
        event: Mapping[str, Any],
        *,
        at: float | None = None,
        via: str | None = None,
        depth: int = 0,
    ) -> WorkflowRun:
        """Start the run of an occurrence, once; NotStarted if it starts none."""
        arguments = make_start(trigger, occurrence, self._format_time(trigger, at), event, depth)
        return await self.start_run(trigger, arguments, via)

    def is_wanted(self, trigger: Trigger, event: Mapping[str, Any]) -> bool:
        """Whether `when` lets an event start a run; an error in it is reported by the start."""
        try:
            make_start(trigger, "", self._format_time(trigger, None), event)
        except NotWanted:
            return False
        except NotStarted:
            pass
        return True

    async def start_run(
        self, trigger: Trigger, arguments: StartArguments, via: str | None = None
    ) -> WorkflowRun:
        if is_delivery_key(arguments.key) and self._was_deleted(arguments.key):
            raise NotWanted("the run of this delivery was deleted")
        workflow = self.session.find_startable(trigger.workflow)
        if workflow is None:
            hint = did_you_mean_hint(trigger.workflow, self.session.workflows)
            raise NotStarted(f"workflow '{trigger.workflow}' not found{hint}")
        if reason := self.session.disabled_reason(workflow):
            raise NotStarted(reason)
        try:
            return await self.session.start(
                arguments.workflow,
                arguments.input,
                arguments.params,
                arguments.key,
                label=arguments.label,
                tags=arguments.tags,
                queue=arguments.queue,
                caller={"by": f"trigger:{trigger.name}", "via": via or "trigger"},
            )
        except (StoreError, NotStarted):
            raise
        except (ValueError, TypeError, NerveError) as error:
            raise NotStarted(f"the start was refused: {error}") from error

    def _was_deleted(self, key: str) -> bool:
        """Whether the run of a delivery was deleted, whose key is kept among the replies."""
        store, name = self.engine.store, self.session.name
        return store.run_by_key(name, key) is None and store.stored_reply(name, key) is not None

    def _format_time(self, trigger: Trigger, at: float | None) -> str:
        zone = trigger.schedule.times.zone if trigger.schedule is not None else UTC
        moment = self.engine.clock.time() if at is None else at
        return datetime.fromtimestamp(moment, zone).isoformat(timespec="seconds")

    async def fire(
        self,
        name: str,
        event: Mapping[str, Any] | None = None,
        key: str | None = None,
        delivery: str | None = None,
        *,
        via: str = "fire",
    ) -> WorkflowRun:
        """Start a run of a trigger now, also if it is paused; the same `key` returns the same run.

        `delivery` is the id that the sender of the event gives it.
        """
        # A key of a caller must not be that of an occurrence.
        occurrence = f"fire:{key or uuid4().hex}" if delivery is None else f"{DELIVERY_PREFIX}{delivery}"
        return await self.start(self.find(name), occurrence, event or {}, via=via)

    def refuse(self, name: str, reason: str) -> None:
        """Remember for this process why a request started nothing."""
        refused = self.refusals.setdefault(name, deque(maxlen=MAX_REFUSALS))
        refused.append((self.engine.clock.time(), reason))

    async def backfill(self, name: str, since: float, until: float) -> list[WorkflowRun]:
        """Start the runs of a schedule for the times in a range that have none yet; return all of them."""
        trigger = self.find(name)
        if trigger.schedule is None:
            raise ValueError(f"Only a schedule can be backfilled; '{name}' is a {trigger.kind} trigger")
        if until > self.engine.clock.time():
            raise ValueError("The end of a backfill must not be in the future")
        times = []
        for at in trigger.schedule.times.times_between(since - 0.001, until):
            times.append(at)
            if len(times) > MAX_BACKFILL:
                raise ValueError(
                    f"The range has more than {MAX_BACKFILL} times. Backfill it in several smaller ranges"
                )
        runs = [self.start(trigger, format_occurrence(at), {}, at=at, via="backfill") for at in times]
        return list(await asyncio.gather(*runs))

    def open_runs(self, trigger: Trigger) -> list[RunRow]:
        """Return the runs of a trigger that have not ended."""
        return self.engine.store.runs(
            session=self.session.name, tags={TAG: trigger.name}, states=OPEN_STATE_VALUES
        )

    # -- schedules -----------------------------------------------------------------------------

    async def run_schedule(self, trigger: Trigger) -> float | None:
        """Start what is due of a schedule; return when to look again.

        The state is written after the starts: after a crash between them, the key of each start finds its
        run again.
        """
        state, now = self.states.get(trigger.name), self.engine.clock.time()
        is_changed = begin_schedule(trigger, state, now)
        is_changed |= await self._start_queued(trigger, state)
        due = find_due_times(trigger, state, now)
        if due.missed is not None:
            assert trigger.schedule is not None
            window = trigger.schedule.catch_up
            reason = f"missed: nothing could start it within {window:g} s (catch_up)"
            state.add_skip(format_occurrence(due.missed), now, reason, is_final=False)
            state.considered, state.seen, is_changed = due.considered, now, True
            log.warning("trigger '%s' %s", trigger.name, reason)
        for at in due.times:
            await self._start_scheduled(trigger, state, at, now)
            state.considered, state.seen, is_changed = at, now, True
        if is_changed:
            await self.states.write(trigger.name, now)
        return due.wake

    async def _start_scheduled(self, trigger: Trigger, state: TriggerState, at: float, now: float) -> None:
        """Start the run of a scheduled time, or decide that there is none."""
        occurrence = format_occurrence(at)
        if (
            at in state.queued
            or state.is_skipped(occurrence)
            or self.find_started(trigger, occurrence) is not None
        ):
            return
        assert trigger.schedule is not None
        overlap = trigger.schedule.overlap
        open_runs = [] if overlap == "allow" else self.open_runs(trigger)
        if overlap == "skip" and open_runs:
            state.add_skip(occurrence, now, f"run {open_runs[0].run} is still open (overlap: skip)")
            return
        if overlap == "queue" and (open_runs or state.queued):
            if len(state.queued) < MAX_QUEUED:
                state.queued.append(at)
            else:
                state.add_skip(occurrence, now, f"{MAX_QUEUED} times are queued already (overlap: queue)")
            return
        for row in open_runs:  # overlap: cancel
            await self.engine.run_handle(row).stop(f"Trigger '{trigger.name}' starts the next run")
        await self._start_or_skip(trigger, state, at, now)

    async def _start_or_skip(self, trigger: Trigger, state: TriggerState, at: float, now: float) -> None:
        try:
            await self.start(trigger, format_occurrence(at), {}, at=at, via="schedule")
        except NotStarted as error:
            state.add_skip(format_occurrence(at), now, str(error))
            log.warning("trigger '%s' starts nothing for %s: %s", trigger.name, format_occurrence(at), error)

    async def _start_queued(self, trigger: Trigger, state: TriggerState) -> bool:
        """Start the first of the times that wait for the previous run, if it has ended."""
        is_changed = False
        while state.queued:
            at = state.queued[0]
            if self.find_started(trigger, format_occurrence(at)) is None:
                if self.open_runs(trigger):
                    return is_changed
                await self._start_or_skip(trigger, state, at, self.engine.clock.time())
            state.queued.pop(0)
            is_changed = True
        return is_changed

    @contextlib.asynccontextmanager
    async def locked_state(self, name: str) -> AsyncIterator[None]:
        """Keep commands from changing the state of a trigger in a block that decides."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            yield


def ignore_run(run_id: str) -> None:
    """Do nothing about a run that has ended."""


class UnknownTrigger(NerveError, ValueError):
    """No trigger has that name."""
