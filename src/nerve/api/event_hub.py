"""The event hub: sends the events of all runs to subscribers, and drops slow ones instead of waiting."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import TYPE_CHECKING

from nerve.api.errors import ApiError
from nerve.api.models import EventResponse
from nerve.api.responses import find_run, limit_depth
from nerve.core.events import GATE_EVENTS, RUN_END_EVENTS, JournalRow, WorkflowEvent
from nerve.core.json_codec import encode_json, is_too_deep
from nerve.core.workflow.run import WorkflowRun

if TYPE_CHECKING:
    from nerve.session import Session

MAX_QUEUED_EVENTS = 1000
"""Maximum number of events in the queue of a subscriber."""
MAX_QUEUED_BYTES = 1024 * 1024
"""Maximum size of that queue in bytes, unless it holds a single event."""
HISTORY_PAGE_SIZE = 200
"""Events to read from the history at a time."""
MAX_REPLAYABLE_EVENTS = 10_000
"""How many recent events of all runs a reconnecting subscriber can get."""


class EventSubscription:
    """A subscriber to one run or to all runs."""

    def __init__(self, run_id: str | None) -> None:
        self.run_id = run_id
        self.queue: deque[tuple[int, WorkflowEvent, int]] = deque()
        self.queued_bytes = 0
        self.has_lagged = False
        self._wakeup = asyncio.Event()

    def push(self, number: int, event: WorkflowEvent, size: int = 0) -> None:
        if self.has_lagged:
            return
        if self.queue and (
            len(self.queue) >= MAX_QUEUED_EVENTS or self.queued_bytes + size > MAX_QUEUED_BYTES
        ):
            self.has_lagged, self.queued_bytes = True, 0
            self.queue.clear()
        else:
            self.queue.append((number, event, size))
            self.queued_bytes += size
        self._wakeup.set()

    async def next_event(self) -> tuple[int, WorkflowEvent]:
        while not self.queue:
            if self.has_lagged:
                raise ApiError(
                    "conflict", "lagged: too many events at once", "Watch again from the last number."
                )
            self._wakeup.clear()
            await self._wakeup.wait()
        number, event, size = self.queue.popleft()
        self.queued_bytes -= size
        return number, event


class EventHub:
    """The subscribers of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._subscriptions: set[EventSubscription] = set()
        self._hub_id = secrets.token_hex(4)
        self._last_number = 0
        self._recent: deque[tuple[int, str, int]] = deque(maxlen=MAX_REPLAYABLE_EVENTS)
        """Recent events: the number in this hub, the run, and the number in the run."""

    def _attach(self) -> None:
        engine = self._session.engine
        if self._publish not in engine.watchers:
            engine.watchers.append(self._publish)

    def _publish(self, run: WorkflowRun, rows: Sequence[JournalRow]) -> None:
        live_subscriptions = [
            candidate for candidate in self._subscriptions if candidate.run_id in (None, run.run_id)
        ]
        enclosing = self._enclosing_subscriptions(run, rows)
        for row in rows:
            self._last_number += 1
            self._recent.append((self._last_number, run.run_id, row.seq))
            if live_subscriptions := [
                candidate for candidate in live_subscriptions if not candidate.has_lagged
            ]:
                event = run._event_from_row(row)
                size = event_size(event)
                for subscription in live_subscriptions:
                    subscription.push(self._last_number, event, size)
            for subscription, path in enclosing if row.type in GATE_EVENTS else ():
                event = run._event_from_row(row).with_shown_in(subscription.run_id or "", path)
                subscription.push(self._last_number, event, event_size(event))

    def _enclosing_subscriptions(
        self, run: WorkflowRun, rows: Sequence[JournalRow]
    ) -> list[tuple[EventSubscription, str]]:
        """Return subscribers to runs that enclose one with new gate events, with the path of the call."""
        if all(subscription.run_id is None for subscription in self._subscriptions) or not any(
            r.type in GATE_EVENTS for r in rows
        ):
            return []
        paths = dict(self._session.engine.enclosing_runs(run.run_id))
        return [
            (subscription, paths[subscription.run_id])
            for subscription in self._subscriptions
            if subscription.run_id in paths
        ]

    async def watch(self, run_id: str | None = None, after: int = 0) -> AsyncGenerator[EventResponse, None]:
        """Yield the events of a run after a number, then new ones; without a run, new events of all runs.

        Gate events of child runs are included, with their own ids, paths and numbers: first those of gates
        that are already open, then new ones as they occur.
        """
        if run_id is None:
            async with contextlib.aclosing(self.watch_all()) as everything:
                async for _, response in everything:
                    if response is not None:
                        yield response
            return
        self._attach()
        run = find_run(self._session, run_id)
        subscription = EventSubscription(run.run_id)
        try:
            last, caught_up = after, False
            while not caught_up:
                # Subscribe only with the last page of the history, so that the queue stays short.
                was_complete, history_page = run.is_complete, await run.history(last, HISTORY_PAGE_SIZE)
                caught_up = len(history_page) < HISTORY_PAGE_SIZE
                if caught_up:
                    self._subscriptions.add(subscription)
                for event in history_page:
                    last = event.seq
                    yield to_event_response(event)
            if was_complete or any(event.event_type in RUN_END_EVENTS for event in history_page[-1:]):
                return
            seen_gate_events: set[tuple[str, int]] = set()
            for event in iter_child_gate_events(run, run.run_id):
                seen_gate_events.add((event.run_id, event.seq))
                yield to_event_response(event)
            while True:
                _, event = await subscription.next_event()
                if (event.run_id == run.run_id and event.seq <= last) or (
                    event.run_id,
                    event.seq,
                ) in seen_gate_events:
                    continue
                yield to_event_response(event)
                if event.event_type in RUN_END_EVENTS:
                    return
        finally:
            self._subscriptions.discard(subscription)

    async def watch_all(self, after: str = "") -> AsyncGenerator[tuple[str, EventResponse | None], None]:
        """Yield the events of all runs as they occur, each with a cursor to continue from.

        The first item is a cursor with None, unless all events after the cursor `after` are still known.
        """
        self._attach()
        subscription = EventSubscription(None)
        self._subscriptions.add(subscription)
        try:
            missed = self._missed_since(after)
            if missed is None:
                yield self._cursor(self._last_number), None
            for number, event in await self._replay_missed(missed or []):
                yield self._cursor(number), to_event_response(event)
            while True:
                number, event = await subscription.next_event()
                yield self._cursor(number), to_event_response(event)
        finally:
            self._subscriptions.discard(subscription)

    def _cursor(self, number: int) -> str:
        return f"{self._hub_id}-{number}"

    def _missed_since(self, cursor: str) -> list[tuple[int, str, int]] | None:
        """Return the events after a cursor; None if the hub has dropped some of them."""
        name, _, text = cursor.partition("-")
        number = int(text) if text.isdecimal() and len(text) < 20 else -1
        oldest = self._recent[0][0] if self._recent else 1
        if name != self._hub_id or not oldest - 1 <= number <= self._last_number:
            return None
        return [entry for entry in self._recent if entry[0] > number]

    async def _replay_missed(self, missed: list[tuple[int, str, int]]) -> list[tuple[int, WorkflowEvent]]:
        first: dict[str, int] = {}
        for _, run_id, seq in missed:
            first.setdefault(run_id, seq)
        existing = {run_id: seq for run_id, seq in first.items() if self._session.engine.store.run(run_id)}
        known = {
            (run_id, event.seq): event
            for run_id, seq in existing.items()
            for event in await find_run(self._session, run_id).history(after=seq - 1)
        }
        return [(number, known[run_id, seq]) for number, run_id, seq in missed if (run_id, seq) in known]


def iter_child_gate_events(run: WorkflowRun, root_run_id: str, path: str = "") -> Iterator[WorkflowEvent]:
    """Yield the opening events of gates that are open in the child runs of a run."""
    for child_path, child in run._engine.children_of(run).items():
        for event in child.events if child._gates else ():
            if event.event_type == "gate_waiting" and event.path in child._gates:
                yield event.with_shown_in(root_run_id, path + child_path)
        yield from iter_child_gate_events(child, root_run_id, path + child_path)


def event_size(event: WorkflowEvent) -> int:
    """Return the approximate size of an event in bytes."""
    return len(encode_json(event.data, max_depth=None)) + len(event.path) + len(event.event_type)


def to_event_response(event: WorkflowEvent) -> EventResponse:
    fields = event.to_dict()
    if is_too_deep(event.data):
        fields["data"] = {name: limit_depth(value) for name, value in event.data.items()}
    return EventResponse.model_validate(fields)
