"""Dispatch committed events to the sinks of runs, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from nerve.core.events import Sink, WorkflowEvent, deliver_event, log
from nerve.core.nodes.attempt import is_task_cancelled, must_propagate
from nerve.core.workflow.run import WorkflowRun
from nerve.engine.task_tracking import detached_context, spawn_detached

SINK_CLOSE_TIMEOUT_S = 1.0
"""Seconds that closing a session waits for sinks."""

SINK_CATCH_UP_S = 0.02
"""Seconds that waiting for the end of a run gives its sinks to see that end, too."""


class SinkQueue:
    """The queue of one sink. Sync sinks are called at once; events queue up for a busy async sink."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self._pending_events: deque[WorkflowEvent] = deque()
        self.task: asyncio.Task[None] | None = None

    def send(self, event: WorkflowEvent) -> None:
        # The sink is still busy with earlier events: delivering this one now would reorder them.
        if self.task is not None:
            self._pending_events.append(event)
        elif (delivery := self._deliver(event)) is not None:
            self.task = spawn_detached(self._send_pending(delivery))

    def _deliver(self, event: WorkflowEvent) -> Awaitable[Any] | None:
        """Deliver an event; tasks that a sink starts do not belong to the body that caused the event."""
        delivery: Awaitable[Any] | None = detached_context().run(deliver_event, self.sink, event)
        return delivery

    async def _send_pending(self, delivery: Awaitable[Any] | None) -> None:
        try:
            while True:
                if delivery is not None:
                    await await_logging_errors(delivery)
                if not self._pending_events:
                    return
                delivery = self._deliver(self._pending_events.popleft())
        finally:
            self.task = None


class SinkDispatcher:
    """The sinks of all runs."""

    def __init__(self) -> None:
        self._queues_by_run: WeakKeyDictionary[WorkflowRun, list[SinkQueue]] = WeakKeyDictionary()

    def dispatch(
        self, run: WorkflowRun, events: Iterable[WorkflowEvent], excluded: Sequence[Sink] = ()
    ) -> None:
        """Send events to the sinks of a run, except those that receive them already."""
        queues = self._queues_by_run.get(run)
        if queues is None:
            queues = self._queues_by_run[run] = [SinkQueue(sink) for sink in run.sinks]
        queues = [queue for queue in queues if queue.sink not in excluded]
        for event in events if queues else ():
            for queue in queues:
                queue.send(event)

    async def wait_flushed(self, run: WorkflowRun) -> None:
        """Return when the sinks of a run have seen everything, or after a short timeout."""
        if busy_tasks := busy_sink_tasks(self._queues_by_run.get(run, ())):
            await asyncio.wait(busy_tasks, timeout=SINK_CATCH_UP_S)

    async def wait_all_flushed(self) -> None:
        """Return when all sinks have seen everything, or after a timeout."""
        if busy_tasks := [
            task for queues in self._queues_by_run.values() for task in busy_sink_tasks(queues)
        ]:
            await asyncio.wait(busy_tasks, timeout=SINK_CLOSE_TIMEOUT_S)

    def close(self) -> None:
        for queues in self._queues_by_run.values():
            for task in busy_sink_tasks(queues):
                task.cancel()


def busy_sink_tasks(queues: Iterable[SinkQueue]) -> list[asyncio.Task[None]]:
    """Return the tasks of the busy sinks."""
    return [queue.task for queue in queues if queue.task is not None]


async def await_logging_errors(delivery: Awaitable[Any]) -> None:
    """Await a delivery; log the error of a sink instead of raising it."""
    try:
        await delivery
    except BaseException as error:
        if must_propagate(error) or (isinstance(error, asyncio.CancelledError) and is_task_cancelled()):
            raise
        log.exception("event sink failed")
