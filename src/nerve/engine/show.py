"""Show: events handed to the sinks of runs, in order, once they are on disk."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from nerve.core.event import Sink, WorkflowEvent, deliver, log
from nerve.core.nodes.attempt import goes_through, is_cancelled
from nerve.core.workflow.run import WorkflowRun
from nerve.engine.tasks import apart, outside

PATIENCE = 1.0
"""Seconds that the end of a session waits for sinks."""

CATCH_UP = 0.02
"""Seconds that a call which waits for the end of a run gives its sinks to see that end, too."""


class Feed:
    """One sink. A sync one is called at once; while an async one is busy, events wait for it, not the run."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self._waiting: deque[WorkflowEvent] = deque()
        self.task: asyncio.Task[None] | None = None

    def tell(self, event: WorkflowEvent) -> None:
        if self.task is not None:
            self._waiting.append(event)
        elif (answer := self._deliver(event)) is not None:
            self.task = apart(self._go_on(answer))

    def _deliver(self, event: WorkflowEvent) -> Awaitable[Any] | None:
        """Tasks that a sink starts are its own, not those of the body that happened to cause the event."""
        answer: Awaitable[Any] | None = outside().run(deliver, self.sink, event)
        return answer

    async def _go_on(self, answer: Awaitable[Any] | None) -> None:
        try:
            while True:
                if answer is not None:
                    await quietly(answer)
                if not self._waiting:
                    return
                answer = self._deliver(self._waiting.popleft())
        finally:
            self.task = None


class Show:
    """The sinks of all runs that have any."""

    def __init__(self) -> None:
        self._feeds: WeakKeyDictionary[WorkflowRun, list[Feed]] = WeakKeyDictionary()

    def show(self, run: WorkflowRun, events: Iterable[WorkflowEvent], but: Sequence[Sink] = ()) -> None:
        """Tell the sinks of a run, `but` those that hear of the events already."""
        feeds = self._feeds.get(run)
        if feeds is None:
            feeds = self._feeds[run] = [Feed(sink) for sink in run._sinks]
        feeds = [feed for feed in feeds if feed.sink not in but]
        for event in events if feeds else ():
            for feed in feeds:
                feed.tell(event)

    async def shown(self, run: WorkflowRun) -> None:
        """Return when the sinks of a run have seen everything, or are slow."""
        if busy := tasks_of(self._feeds.get(run, ())):
            await asyncio.wait(busy, timeout=CATCH_UP)

    async def drained(self) -> None:
        """Return when all sinks have seen everything, or have had their time."""
        if busy := [task for feeds in self._feeds.values() for task in tasks_of(feeds)]:
            await asyncio.wait(busy, timeout=PATIENCE)

    def close(self) -> None:
        for feeds in self._feeds.values():
            for task in tasks_of(feeds):
                task.cancel()


def tasks_of(feeds: Iterable[Feed]) -> list[asyncio.Task[None]]:
    """The tasks of the sinks that are busy."""
    return [feed.task for feed in feeds if feed.task is not None]


async def quietly(answer: Awaitable[Any]) -> None:
    try:
        await answer
    except BaseException as error:
        if goes_through(error) or (isinstance(error, asyncio.CancelledError) and is_cancelled()):
            raise
        log.exception("event sink failed")
