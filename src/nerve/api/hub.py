"""The hub: what happens in all runs, handed to whoever watches, who is cut off rather than waited for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from nerve.api.errors import ApiError
from nerve.api.models import EventTold
from nerve.core.event import WorkflowEvent
from nerve.core.workflow.run import WorkflowRun

if TYPE_CHECKING:
    from nerve.core.session import Session

BUFFER = 1000
"""How many events a watcher may be behind."""


class Watcher:
    """One who watches: a run, or all of them."""

    def __init__(self, run_id: str | None) -> None:
        self.run_id = run_id
        self.waiting: deque[WorkflowEvent] = deque()
        self.lagged = False
        self._woken = asyncio.Event()

    def tell(self, event: WorkflowEvent) -> None:
        if self.lagged:
            return
        if len(self.waiting) >= BUFFER:
            self.lagged = True
            self.waiting.clear()
        else:
            self.waiting.append(event)
        self._woken.set()

    async def next(self) -> WorkflowEvent:
        while not self.waiting:
            if self.lagged:
                raise ApiError(
                    "conflict", "lagged: too many events at once", "Watch again from the last number."
                )
            self._woken.clear()
            await self._woken.wait()
        return self.waiting.popleft()


class Hub:
    """The watchers of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._watchers: set[Watcher] = set()

    def _attach(self) -> None:
        engine = self._session.engine
        if self._tell not in engine.watchers:
            engine.watchers.append(self._tell)

    def _tell(self, run: WorkflowRun, events: Iterable[WorkflowEvent]) -> None:
        for event in events:
            for watcher in self._watchers:
                if watcher.run_id in (None, run.run_id):
                    watcher.tell(event)

    async def watch(self, run_id: str | None = None, after: int = 0) -> AsyncIterator[EventTold]:
        """The events of a run behind a number, and then as they come; without a run, of all from now on."""
        self._attach()
        watcher = Watcher(run_id)
        self._watchers.add(watcher)
        try:
            last = after
            if run_id is not None:
                run = self._session.get_workflow_run(run_id)
                if run is None:
                    raise ApiError("not_found", f"there is no run '{run_id}'", "See: nerve runs")
                for event in await run.history(after=after):
                    last = event.seq
                    yield event_told(event)
                if run.is_complete:
                    return
            while True:
                event = await watcher.next()
                if run_id is not None and event.seq <= last:
                    continue
                yield event_told(event)
                if run_id is not None and event.event_type in ENDS:
                    return
        finally:
            self._watchers.discard(watcher)


ENDS = ("workflow_completed", "workflow_failed", "workflow_cancelled")


def event_told(event: WorkflowEvent) -> EventTold:
    return EventTold.model_validate(event.to_dict())
