"""Show: events handed to the sinks of runs, in order, once they are on disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from nerve.core.event import deliver
from nerve.core.workflow.replay import Row
from nerve.core.workflow.run import WorkflowRun

log = logging.getLogger("nerve")

PATIENCE = 1.0
"""Seconds that the end of a run waits for its sinks."""


class Show:
    """A sync sink is called at once; what an async one returns is awaited in turn, beside the run."""

    def __init__(self) -> None:
        self._queues: WeakKeyDictionary[WorkflowRun, asyncio.Queue[Awaitable[Any]]] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    def show(self, run: WorkflowRun, rows: Iterable[Row]) -> None:
        for row in rows:
            event = run._event(row)
            for sink in run._sinks:
                if (answer := deliver(sink, event)) is not None:
                    self._queue(run).put_nowait(answer)

    async def shown(self, run: WorkflowRun) -> None:
        """Return when the sinks have seen everything, or have had their time."""
        if (queue := self._queues.get(run)) is not None:
            done = asyncio.ensure_future(queue.join())
            await asyncio.wait([done], timeout=PATIENCE)
            done.cancel()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _queue(self, run: WorkflowRun) -> asyncio.Queue[Awaitable[Any]]:
        queue = self._queues.get(run)
        if queue is None:
            queue = self._queues[run] = asyncio.Queue()
            task = asyncio.create_task(drain(queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return queue


async def drain(queue: asyncio.Queue[Awaitable[Any]]) -> None:
    while True:
        answer = await queue.get()
        try:
            await answer
        except Exception:
            log.exception("event sink failed")
        finally:
            queue.task_done()
