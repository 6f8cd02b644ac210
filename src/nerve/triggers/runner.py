"""Let the triggers of a session start runs, in the process that executes the runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from nerve.background_tasks import cancel_tasks
from nerve.core.events import RUN_END_EVENTS
from nerve.core.triggers import Kind, Trigger
from nerve.core.workflow.run import WorkflowRun
from nerve.dataspace import Change, Lagged, Pattern
from nerve.dataspace.observers import Observation
from nerve.engine.run_summary import StoredSummary
from nerve.engine.task_tracking import spawn_detached
from nerve.errors import StoreError
from nerve.store.port import EventRow, RunRow
from nerve.triggers.file_versions import FileWatch
from nerve.triggers.service import TriggerService, ignore_run, triggers_of
from nerve.triggers.start_arguments import DEPTH_TAG, TAG, NotStarted

if TYPE_CHECKING:
    from nerve.session.session import Session

log = logging.getLogger("nerve")

MAX_WAIT_S = 30.0
"""Seconds after which a schedule looks at the clock again, which may have been changed, or have slept."""
RETRY_S = 5.0
"""Seconds before another attempt after an error of the store."""
MIN_ADVANCE_S = 5.0
"""Seconds by which the stored position of ended runs is at least moved."""
MAX_DEPTH = 10
"""The number of runs that triggers start one because of the other; the chain ends there."""


@contextlib.asynccontextmanager
async def run_triggers(session: Session) -> AsyncIterator[TriggerService]:
    """Start runs for the triggers of a session in this block; before it, recover the open runs."""
    service = triggers_of(session)
    if service.is_running:
        raise RuntimeError(f"The triggers of session '{session.name}' run already")
    service.refresh()
    runner = TriggerRunner(service)
    service.is_running, service.on_run_ended = True, runner.on_run_ended
    service.engine.watchers.append(runner.on_events)
    supervisor = spawn_detached(runner.supervise())
    try:
        yield service
    finally:
        await cancel_tasks(supervisor)
        service.engine.watchers.remove(runner.on_events)
        service.is_running, service.on_run_ended = False, ignore_run


class TriggerRunner:
    """One task for each trigger that is enabled and starts runs by itself."""

    def __init__(self, service: TriggerService) -> None:
        self._service = service
        self._active: dict[str, ActiveTrigger] = {}

    async def supervise(self) -> None:
        """Keep the tasks in accordance with the definitions, until cancelled."""
        changed = self._service.changed
        try:
            while True:
                changed.clear()
                await self._update()
                await changed.wait()
        finally:
            for name in list(self._active):
                await self._end(name)

    async def _update(self) -> None:
        wanted = {
            name: trigger
            for name, trigger in self._service.all().items()
            if trigger.kind in ACTIVE_KINDS and not self._service.is_paused(trigger)
        }
        for name, active in list(self._active.items()):
            if wanted.get(name) != active.trigger or active.has_ended:
                await self._end(name)
        for name, trigger in wanted.items():
            if name not in self._active:
                active = self._active[name] = ACTIVE_KINDS[trigger.kind](self._service, trigger)
                active.begin()

    async def _end(self, name: str) -> None:
        await self._active.pop(name).end()

    def on_events(self, run: WorkflowRun, rows: list[EventRow]) -> None:
        """Tell the triggers of a run that has ended."""
        if any(row.type in RUN_END_EVENTS for row in rows):
            self.on_run_ended(run.run_id)

    def on_run_ended(self, run_id: str) -> None:
        for active in self._active.values():
            active.on_run_ended(run_id)


class ActiveTrigger:
    """A trigger that starts runs by itself."""

    def __init__(self, service: TriggerService, trigger: Trigger) -> None:
        self.service, self.trigger = service, trigger
        self.state = service.states.get(trigger.name)
        self.news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = spawn_detached(self._run())

    @property
    def has_ended(self) -> bool:
        """Whether its task has failed."""
        return self._task is not None and self._task.done()

    async def end(self) -> None:
        """Stop starting runs; a start that has begun completes."""
        if self._task is not None:
            await cancel_tasks(self._task)

    def on_run_ended(self, run_id: str) -> None:
        """Take note of a run that has ended."""

    async def _run(self) -> None:
        while True:
            try:
                await self.work()
            except Exception as error:
                if not isinstance(error, StoreError):
                    log.exception("trigger '%s' failed", self.trigger.name)
                else:
                    log.warning("trigger '%s': %s", self.trigger.name, error)
                await asyncio.sleep(RETRY_S)

    async def work(self) -> None:
        """Start runs until cancelled."""
        raise NotImplementedError

    async def wait_for_news(self, seconds: float | None) -> None:
        """Return when there is news, or after seconds of the clock of runs."""
        clock = self.service.engine.clock
        timer = None if seconds is None else clock.call_later(seconds, self.news.set)
        try:
            await self.news.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self.news.clear()

    async def start_or_skip(self, occurrence: str, event: dict[str, Any], depth: int = 0) -> None:
        """Start the run of an occurrence, or record why it starts none."""
        now = self.service.engine.clock.time()
        try:
            if depth >= MAX_DEPTH:
                raise NotStarted(
                    f"{MAX_DEPTH} runs were started one because of the other. Use 'when' to end the chain"
                )
            await self.service.start(self.trigger, occurrence, event, via=self.trigger.kind, depth=depth)
        except NotStarted as error:
            self.state.add_skip(occurrence, now, str(error))
            log.warning("trigger '%s' starts nothing for %s: %s", self.trigger.name, occurrence, error)

    def find_depth(self, run_id: str) -> int:
        """Return how many runs triggers have started one because of the other, up to this run."""
        store = self.service.engine.store
        row = store.run(run_id)
        while row is not None and row.parent is not None:
            row = store.run(row.parent)
        summary = None if row is None else StoredSummary.of_row(row)
        if summary is None or TAG not in summary.tags:
            return 0
        return int(summary.tags.get(DEPTH_TAG, 0)) + 1


class ActiveSchedule(ActiveTrigger):
    """Starts runs at the times of a schedule."""

    async def work(self) -> None:
        clock = self.service.engine.clock
        while True:
            async with self.service.locked_state(self.trigger.name):
                wake = await self.service.run_schedule(self.trigger)
            delay = MAX_WAIT_S if wake is None else min(MAX_WAIT_S, max(0.0, wake - clock.time()))
            await self.wait_for_news(delay)

    def on_run_ended(self, run_id: str) -> None:
        if self.state.queued:
            self.news.set()


class ActiveRunTrigger(ActiveTrigger):
    """Starts a run when a run of a workflow has ended."""

    def __init__(self, service: TriggerService, trigger: Trigger) -> None:
        super().__init__(service, trigger)
        self._ended: deque[str] = deque()

    def on_run_ended(self, run_id: str) -> None:
        self._ended.append(run_id)
        self.news.set()

    async def work(self) -> None:
        options, store, name = self.trigger.run, self.service.engine.store, self.service.session.name
        assert options is not None
        if self.service.begin(self.trigger):
            await self.service.states.write(self.trigger.name, self.service.engine.clock.time())
        # Those that have ended while nothing ran, or just before a crash.
        for row in store.runs(
            session=name, workflow=options.workflow, states=options.states, since=self.state.open_since
        ):
            if (row.ended or 0.0) >= self.state.floor:
                await self._start_for(row)
        while True:
            while self._ended:
                ended = store.run(self._ended[0])
                if ended and ended.workflow == options.workflow and ended.state in options.states:
                    await self._start_for(ended)
                self._ended.popleft()
            now = self.service.engine.clock.time()
            open_since = self.service.find_open_since(self.trigger, now)
            if abs(open_since - (self.state.open_since or 0.0)) > MIN_ADVANCE_S:
                self.state.open_since = open_since
                await self.service.states.write(self.trigger.name, now)
            await self.wait_for_news(None)

    async def _start_for(self, row: RunRow) -> None:
        occurrence = f"run:{row.run}"
        if self.state.is_skipped(occurrence) or self.service.find_started(self.trigger, occurrence):
            return
        run = self.service.engine.run_handle(row)
        # Its end is on disk, but of a run that was just recovered it may not be reported here yet.
        while not run.is_complete:
            await run.wait_for_change()
        event = {
            "run": {
                "id": row.run,
                "workflow": row.workflow,
                "state": row.state,
                "label": row.label,
                "tags": dict(run.tags),
                "input": run.input,
                "result": run.result if row.state == "completed" else None,
                "error": run.error,
            }
        }
        if self.trigger.when is not None and not self.service.is_wanted(self.trigger, event):
            return
        await self.start_or_skip(occurrence, event, self.find_depth(row.run))


class ActiveFactTrigger(ActiveTrigger):
    """Starts a run when a fact that matches a pattern is asserted."""

    async def work(self) -> None:
        session = self.service.session
        if self.service.begin(self.trigger):
            await self.service.states.write(self.trigger.name, self.service.engine.clock.time())
        with contextlib.suppress(Lagged):
            async with session.dataspace.observe(Pattern.of(self.trigger.fact)) as observation:
                await self._follow(observation)

    async def _follow(self, observation: Observation) -> None:
        facts = self.service.engine.dataspace
        async for change in observation:
            # What follows from journals is not an event: its versions are not stored.
            is_new = change.kind == "asserted" and not facts.is_projected(change.fact)
            if is_new and change.fact.version > (self.state.version or 0):
                await self._start_for(change)
                self.state.version = change.fact.version
                await self.service.states.write(self.trigger.name, self.service.engine.clock.time())

    async def _start_for(self, change: Change) -> None:
        fact = change.fact
        event = {"fact": fact.record.to_json(), "captures": dict(change.captures)}
        if self.service.is_wanted(self.trigger, event):
            depth = self.find_depth(fact.asserted_by) if fact.asserted_by else 0
            await self.start_or_skip(f"fact:{fact.version}", event, depth)


class ActiveFileTrigger(ActiveTrigger):
    """Starts a run when a file of the project is created or changed."""

    async def work(self) -> None:
        options = self.trigger.files
        assert options is not None
        states, name, clock = self.service.states, self.trigger.name, self.service.engine.clock
        async with FileWatch(self.service.session.project, options) as watch:
            if self.state.hash != self.trigger.hash:
                # The files that are there already start nothing.
                present = await watch.scan()
                gone = dict.fromkeys(states.files(name).keys() - present.keys())
                self.state.hash = self.trigger.hash
                await states.write(name, clock.time(), {**gone, **present})
            while True:
                changes = await watch.next_changes(states.files(name))
                for path, version in changes.settled.items():
                    change = "changed" if path in states.files(name) else "created"
                    event = {"file": {"path": path, "name": path.rpartition("/")[2], "change": change}}
                    if change in options.events and self.service.is_wanted(self.trigger, event):
                        await self.start_or_skip(f"file:{path}@{version}", event)
                    await states.write(name, clock.time(), {path: version})
                if changes.removed:
                    await states.write(name, clock.time(), dict.fromkeys(changes.removed))


ACTIVE_KINDS: dict[Kind, type[ActiveTrigger]] = {
    "schedule": ActiveSchedule,
    "run": ActiveRunTrigger,
    "fact": ActiveFactTrigger,
    "files": ActiveFileTrigger,
}
"""The kinds that start runs by themselves; for the others, a request does."""
