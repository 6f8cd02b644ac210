"""The event hub: sends the events of all runs to subscribers, and drops slow ones instead of waiting."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from nerve.api.errors import ApiError
from nerve.api.lookup import find_run
from nerve.api.models import EventResponse
from nerve.api.responses import limit_depth
from nerve.core.events import (
    GATE_EVENTS,
    LONG_TEXT_EVENTS,
    MAX_SHOWN_CHARS,
    RUN_END_EVENTS,
    JournalRow,
    WorkflowEvent,
    WorkflowEventType,
    continued_as,
)
from nerve.core.json_codec import is_too_deep
from nerve.core.workflow.run import WorkflowRun
from nerve.journal.events import data_length

if TYPE_CHECKING:
    from nerve.session import Session
    from nerve.telemetry.metrics import Metric

T = TypeVar("T")
MAX_QUEUED_EVENTS = 1000
"""Maximum number of events in the queue of a subscriber."""
MAX_QUEUED_BYTES = 1024 * 1024
"""Maximum size of that queue in bytes, unless it holds a single event."""
MAX_BATCH_BYTES = 64 * 1024
"""Approximate size of the events that are sent together to a subscriber that lags."""
HISTORY_PAGE_SIZE = 200
"""Events to read from the history at a time."""
MAX_REPLAYABLE_EVENTS = 10_000
"""How many recent events of all runs a reconnecting subscriber can get."""


class EventFrame:
    """One event as its watchers get it: it is converted and encoded for the first of them only."""

    __slots__ = ("_encoded", "_merged", "_response", "event", "number", "size")

    def __init__(self, event: WorkflowEvent, number: int = 0, size: int = 0) -> None:
        self.event, self.number, self.size = event, number, size
        self._response: EventResponse | None = None
        self._encoded: dict[tuple[Any, str], Any] = {}
        self._merged: EventFrame | None = None

    @property
    def response(self) -> EventResponse:
        if self._response is None:
            self._response = to_event_response(self.event)
        return self._response

    def encode(self, encode: Callable[[EventFrame, str], T], cursor: str = "") -> T:
        """Return the event as a transport encodes it with a cursor."""
        key = encode, cursor
        if key not in self._encoded:
            self._encoded[key] = encode(self, cursor)
        encoded: T = self._encoded[key]
        return encoded

    def merge(self, later: Sequence[EventFrame]) -> EventFrame:
        """Return one frame for this output chunk and the chunks after it."""
        if not later:
            return self
        last = later[-1]
        if self._merged is None or self._merged.number != last.number:
            text = "".join(frame.event.data["text"] for frame in (self, *later))
            self._merged = EventFrame(
                replace(last.event, data={**self.event.data, "text": text}), last.number
            )
        return self._merged


def merge_output_chunks(frames: Sequence[EventFrame]) -> list[EventFrame]:
    """Merge successive chunks of the same output stream of a step; the last one gives the event number.

    A watcher that keeps up gets each chunk, because it never has two of them in its queue.
    """
    merged: list[EventFrame] = []
    index = 0
    while index < len(frames):
        first, end = frames[index], index + 1
        if (stream := chunk_stream(first.event)) is not None:
            chars = len(first.event.data["text"])
            while end < len(frames) and chunk_stream(frames[end].event) == stream:
                chars += len(frames[end].event.data["text"])
                if chars > MAX_SHOWN_CHARS:
                    break
                end += 1
        merged.append(first.merge(frames[index + 1 : end]))
        index = end
    return merged


def chunk_stream(event: WorkflowEvent) -> tuple[str, str, str] | None:
    """Return the run, the step and the stream of a mergeable output chunk; None for any other event."""
    if event.event_type != WorkflowEventType.OUTPUT_CHUNK:
        return None
    match event.data:
        case {"stream": ("partial" | "stdout" | "stderr") as stream, "text": str(), **rest} if not rest:
            return event.run_id, event.path, stream
    return None  # a chunk of another stream is a message of its own


class EventSubscription:
    """A subscriber to one run or to all runs."""

    def __init__(self, run_id: str | None) -> None:
        self.run_id = run_id
        self.queue: deque[EventFrame] = deque()
        self.queued_bytes = 0
        self.has_lagged = False
        self._wakeup = asyncio.Event()

    def push(self, frame: EventFrame) -> None:
        if self.has_lagged:
            return
        if self.queue and (
            len(self.queue) >= MAX_QUEUED_EVENTS or self.queued_bytes + frame.size > MAX_QUEUED_BYTES
        ):
            self.has_lagged, self.queued_bytes = True, 0
            self.queue.clear()
        else:
            self.queue.append(frame)
            self.queued_bytes += frame.size
        self._wakeup.set()

    async def next_frames(self) -> list[EventFrame]:
        """Wait for events; return those in the queue, up to a number of bytes."""
        while not self.queue:
            if self.has_lagged:
                raise ApiError(
                    "conflict", "lagged: too many events at once", "Watch again from the last number."
                )
            self._wakeup.clear()
            await self._wakeup.wait()
        frames: list[EventFrame] = []
        size = 0
        while self.queue and (not frames or size + self.queue[0].size <= MAX_BATCH_BYTES):
            frames.append(self.queue.popleft())
            size += frames[-1].size
        self.queued_bytes -= size
        return frames


class EventHub:
    """The subscribers of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._subscriptions: set[EventSubscription] = set()
        self._by_run: dict[str | None, set[EventSubscription]] = {}
        self._hub_id = secrets.token_hex(4)
        self._last_number = 0
        self._recent: deque[tuple[int, str, int]] = deque(maxlen=MAX_REPLAYABLE_EVENTS)
        """Recent events: the number in this hub, the run, and the number in the run."""

    def collect(self) -> list[Metric]:
        """Return the metrics of the streams."""
        from nerve.telemetry.metrics import make_value

        help = "Streams of events that clients have open."
        return [make_value("nerve.streams", "{stream}", help, len(self._subscriptions))]

    def _attach(self) -> None:
        engine = self._session.engine
        if self._publish not in engine.watchers:
            engine.watchers.append(self._publish)

    def _add(self, subscription: EventSubscription) -> None:
        self._subscriptions.add(subscription)
        self._by_run.setdefault(subscription.run_id, set()).add(subscription)

    def _remove(self, subscription: EventSubscription) -> None:
        self._subscriptions.discard(subscription)
        if (same_run := self._by_run.get(subscription.run_id)) is not None:
            same_run.discard(subscription)
            if not same_run:
                del self._by_run[subscription.run_id]

    def _publish(self, run: WorkflowRun, rows: Sequence[JournalRow]) -> None:
        numbered_rows = []
        for row in rows:
            self._last_number += 1
            self._recent.append((self._last_number, run.run_id, row.seq))
            numbered_rows.append((self._last_number, row))
        self._push(run.run_id, run.event_from_row, numbered_rows)

    def _push(
        self,
        run_id: str,
        event_from_row: Callable[[JournalRow], WorkflowEvent],
        numbered_rows: Sequence[tuple[int, JournalRow]],
    ) -> None:
        """Give events of a run to their subscribers."""
        watchers = [
            watcher
            for watched_id in (None, run_id)
            for watcher in self._by_run.get(watched_id, ())
            if not watcher.has_lagged
        ]
        enclosing = self._enclosing_subscriptions(run_id, numbered_rows)
        for number, row in numbered_rows:
            if watchers:
                frame = EventFrame(event_from_row(row), number, row_size(row))
                for watcher in watchers:
                    watcher.push(frame)
            for watcher, path in enclosing if row.type in GATE_EVENTS else ():
                event = event_from_row(row).with_shown_in(watcher.run_id or "", path)
                watcher.push(EventFrame(event, number, row_size(row)))

    def _enclosing_subscriptions(
        self, run_id: str, numbered_rows: Sequence[tuple[int, JournalRow]]
    ) -> list[tuple[EventSubscription, str]]:
        """Return subscribers to runs that enclose one with new gate events, with the path of the call."""
        if self._by_run.keys() <= {None} or not any(row.type in GATE_EVENTS for _, row in numbered_rows):
            return []
        return [
            (watcher, path)
            for enclosing_id, path in self._session.engine.enclosing_runs(run_id)
            for watcher in self._by_run.get(enclosing_id, ())
        ]

    async def watch(self, run_id: str | None = None, after: int = 0) -> AsyncGenerator[EventResponse, None]:
        """Yield the events of a run after a number, then new ones; without a run, new events of all runs.

        Gate events of child runs are included, with their own ids, paths and numbers: first those of gates
        that are already open, then new ones as they occur. After a run that continued as new follow the
        events of the next run of its chain.
        """
        if run_id is None:
            async with contextlib.aclosing(self.watch_all()) as everything:
                async for _, response in everything:
                    if response is not None:
                        yield response
            return
        async with contextlib.aclosing(self.watch_run(run_id, after)) as batches:
            async for frames in batches:
                for frame in frames:
                    yield frame.response

    async def watch_run(self, run_id: str, after: int = 0) -> AsyncGenerator[list[EventFrame], None]:
        """Yield the events of a run as watch() does, in batches of those that are available."""
        self._attach()
        run: WorkflowRun | None = find_run(self._session, run_id)
        while run is not None:
            last_event: WorkflowEvent | None = None
            async with contextlib.aclosing(self._watch_until_end(run, after)) as batches:
                async for frames in batches:
                    last_event = frames[-1].event
                    yield frames
            run, after = self._find_next_run(run, last_event), 0

    def _find_next_run(self, run: WorkflowRun, last_event: WorkflowEvent | None) -> WorkflowRun | None:
        """Return the next run of a chain; None if the run did not continue as new."""
        # The event is published before the handle of the run has its final state.
        next_id = continued_as(last_event) if last_event is not None else run.continued_as
        row = self._session.engine.store.run(next_id) if next_id is not None else None
        if row is not None:
            return self._session.engine.run_handle(row)
        return None if run.current is run else run.current

    async def _watch_until_end(self, run: WorkflowRun, after: int) -> AsyncGenerator[list[EventFrame], None]:
        """Yield the events of one run in batches."""
        subscription = EventSubscription(run.run_id)
        try:
            last, caught_up = after, False
            while not caught_up:
                # Subscribe only with the last page of the history, so that the queue stays short.
                was_complete = self._is_complete(run)
                history_page = await run.history(last, HISTORY_PAGE_SIZE)
                caught_up = len(history_page) < HISTORY_PAGE_SIZE
                if caught_up:
                    self._add(subscription)
                if history_page:
                    last = history_page[-1].seq
                    yield [EventFrame(event) for event in history_page]
            if was_complete or any(event.event_type in RUN_END_EVENTS for event in history_page[-1:]):
                return
            open_gates = list(iter_child_gate_events(run, run.run_id))
            seen_gate_events = {(event.run_id, event.seq) for event in open_gates}
            if open_gates:
                yield [EventFrame(event) for event in open_gates]
            while True:
                new_frames = [
                    frame
                    for frame in await subscription.next_frames()
                    if not (frame.event.run_id == run.run_id and frame.event.seq <= last)
                    and (frame.event.run_id, frame.event.seq) not in seen_gate_events
                ]
                if not new_frames:
                    continue
                ends = [frame.event.event_type in RUN_END_EVENTS for frame in new_frames]
                if any(ends):
                    yield merge_output_chunks(new_frames[: ends.index(True) + 1])
                    return
                yield merge_output_chunks(new_frames)
        finally:
            self._remove(subscription)

    def _is_complete(self, run: WorkflowRun) -> bool:
        return run.is_complete

    async def watch_all(self, after: str = "") -> AsyncGenerator[tuple[str, EventResponse | None], None]:
        """Yield the events of all runs as they occur, each with a cursor to continue from.

        The first item is a cursor with None, unless all events after the cursor `after` are still known.
        """
        async with contextlib.aclosing(self.watch_all_runs(after)) as batches:
            async for cursor, frames in batches:
                if frames is None:
                    yield cursor, None
                for frame in frames or ():
                    yield self.cursor(frame.number), frame.response

    async def watch_all_runs(
        self, after: str = ""
    ) -> AsyncGenerator[tuple[str, list[EventFrame] | None], None]:
        """Yield the events of all runs as watch_all() does, in batches with the cursor of the last event."""
        self._attach()
        subscription = EventSubscription(None)
        self._add(subscription)
        try:
            last = self._last_number
            frames = await self._frames_since(after)
            if frames is None:
                yield self.cursor(last), None
            elif frames:
                yield self.cursor(frames[-1].number), frames
                last = max(last, frames[-1].number)
            else:
                last = max(last, self._number_of(after) or 0)
            while True:
                new = [frame for frame in await subscription.next_frames() if frame.number > last]
                if new := merge_output_chunks(new):
                    yield self.cursor(new[-1].number), new
        finally:
            self._remove(subscription)

    def cursor(self, number: int) -> str:
        """Return the position after the event with that number, for a watcher that connects again."""
        return f"{self._hub_id}-{number}"

    async def _frames_since(self, cursor: str) -> list[EventFrame] | None:
        """Return the events after a cursor; None if some of them are not known any more."""
        number = self._number_of(cursor)
        oldest = self._recent[0][0] if self._recent else 1
        if number is None or not oldest - 1 <= number <= self._last_number:
            return None
        return await self._replay_missed([entry for entry in self._recent if entry[0] > number])

    def _number_of(self, cursor: str) -> int | None:
        """Return the number in a cursor of this hub; None for any other text."""
        name, _, text = cursor.partition("-")
        return int(text) if name == self._hub_id and text.isdecimal() and len(text) < 20 else None

    async def _replay_missed(self, missed: list[tuple[int, str, int]]) -> list[EventFrame]:
        first: dict[str, int] = {}
        for _, run_id, seq in missed:
            first.setdefault(run_id, seq)
        existing = {run_id: seq for run_id, seq in first.items() if self._session.engine.store.run(run_id)}
        known = {
            (run_id, event.seq): event
            for run_id, seq in existing.items()
            for event in await find_run(self._session, run_id).history(after=seq - 1)
        }
        return [
            EventFrame(known[run_id, seq], number) for number, run_id, seq in missed if (run_id, seq) in known
        ]


def iter_child_gate_events(run: WorkflowRun, root_run_id: str, path: str = "") -> Iterator[WorkflowEvent]:
    """Yield the opening events of gates that are open in the child runs of a run."""
    for child_path, child in list(run.open_children.items()):
        for event in child.events if child.run_state.gates else ():
            if event.event_type == WorkflowEventType.GATE_WAITING and event.path in child.run_state.gates:
                yield event.with_shown_in(root_run_id, path + child_path)
        yield from iter_child_gate_events(child, root_run_id, path + child_path)


def row_size(row: JournalRow) -> int:
    """Return the approximate size of an event in bytes, as watchers get it."""
    size = data_length(row) + len(row.path) + len(row.type)
    return min(size, 2 * MAX_SHOWN_CHARS) if row.type in LONG_TEXT_EVENTS else size


def to_event_response(event: WorkflowEvent) -> EventResponse:
    fields = event.to_dict()
    if is_too_deep(event.data):
        fields["data"] = {name: limit_depth(value) for name, value in event.data.items()}
    return EventResponse.model_validate(fields)
