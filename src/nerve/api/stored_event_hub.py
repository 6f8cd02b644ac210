"""The event hub of a store that several processes use: it reads the events from the store, as all of them do.

So a cursor of one of them is valid at all others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from nerve.api.event_hub import MAX_REPLAYABLE_EVENTS, EventFrame, EventHub, row_size
from nerve.background_tasks import cancel_tasks, wait_for_event
from nerve.core.workflow.run import WorkflowRun
from nerve.errors import StoreError
from nerve.journal.events import make_event
from nerve.store.port import EventRow, EventStream, StreamedEvent

if TYPE_CHECKING:
    from nerve.session import Session
    from nerve.telemetry.metrics import SessionMetrics

log = logging.getLogger("nerve")

EventCounter = Callable[["RunName", list[EventRow]], None]

POLL_INTERVAL_S = 1.0
"""Seconds after which the store is read again without any news of a change."""
MAX_READ_EVENTS = 1000
"""Number of events that are read at once."""


class RunName(NamedTuple):
    """The run of an event that another process has written."""

    run_id: str
    workflow_id: str


class StoredEventHub(EventHub):
    """The subscribers of one session in a server, with the numbers of the events in the store."""

    def __init__(self, session: Session, stream: EventStream) -> None:
        super().__init__(session)
        self._stream, self._hub_id = stream, stream.stream_id
        self._counters: list[EventCounter] = []
        self._has_changed = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Read the store now, because events were written."""
        self._has_changed.set()

    def count_events(self, metrics: SessionMetrics) -> None:
        """Let metrics count the events of all processes from now on; can be repeated."""
        if metrics.count_events not in self._counters:
            self._counters.append(metrics.count_events)
            self._attach()

    def _attach(self) -> None:
        """Read the events from now on, for the first subscriber and all others."""
        if self._reading is None:
            self._last_number = self._stream.last_streamed(self._session.name)
            self._reading = asyncio.ensure_future(self._read_until_closed())

    async def _read_until_closed(self) -> None:
        is_failing = False
        while True:
            self._has_changed.clear()
            error = await self._read_available()
            if error is not None and not is_failing:
                log.warning("events are late: %s", error)
            is_failing = error is not None
            await wait_for_event(self._has_changed, POLL_INTERVAL_S)

    async def _read_available(self) -> StoreError | None:
        """Read all new events; return why they cannot be read."""
        try:
            has_more = True
            while has_more:
                has_more = self._read_new_events() == MAX_READ_EVENTS
                await asyncio.sleep(0)
        except StoreError as error:
            return error
        return None

    def _read_new_events(self) -> int:
        """Give new events to their subscribers; return how many there were."""
        new = self._stream.streamed_events(self._session.name, self._last_number, MAX_READ_EVENTS)
        for (run_id, workflow), events in groupby(new, lambda event: (event.run, event.workflow)):
            numbered_rows = [(event.number, event.row) for event in events]
            self._push(run_id, partial(make_event, run_id, workflow), numbered_rows)
            for count in self._counters:
                count(RunName(run_id, workflow), [row for _, row in numbered_rows])
            self._last_number = numbered_rows[-1][0]
        return len(new)

    def _is_complete(self, run: WorkflowRun) -> bool:
        row = self._session.engine.store.run(run.run_id)
        return row is None or row.ended is not None

    async def _frames_since(self, cursor: str) -> list[EventFrame] | None:
        number, session = self._number_of(cursor), self._session.name
        if number is None or number > self._stream.last_streamed(session):
            return None
        missed = self._stream.streamed_events(session, number, MAX_REPLAYABLE_EVENTS + 1)
        return list(make_frames(missed)) if len(missed) <= MAX_REPLAYABLE_EVENTS else None

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            await cancel_tasks(self._reading)


def make_frames(events: Iterable[StreamedEvent]) -> Iterable[EventFrame]:
    for number, run_id, workflow, row in events:
        yield EventFrame(make_event(run_id, workflow, row), number, row_size(row))
