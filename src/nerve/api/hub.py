"""The hub: what happens in all runs, handed to whoever watches, who is cut off rather than waited for."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import TYPE_CHECKING

from nerve.api.errors import ApiError
from nerve.api.models import EventTold
from nerve.api.telling import found, tellable
from nerve.core.event import ENDS, OF_GATES, WorkflowEvent
from nerve.core.values import encode, too_deep
from nerve.core.workflow.replay import Row
from nerve.core.workflow.run import WorkflowRun

if TYPE_CHECKING:
    from nerve.core.session import Session

BUFFER = 1000
"""How many events a watcher may be behind."""
BYTES = 1024 * 1024
"""How many bytes these may have, unless it is one event alone."""
PAGE = 200
"""Events of the past that are read at a time."""
REMEMBERED = 10_000
"""How many events of all runs can be told again to a watcher who comes back."""


class Watcher:
    """One who watches: a run, or all of them."""

    def __init__(self, run_id: str | None) -> None:
        self.run_id = run_id
        self.waiting: deque[tuple[int, WorkflowEvent, int]] = deque()
        self.bytes = 0
        self.lagged = False
        self._woken = asyncio.Event()

    def tell(self, number: int, event: WorkflowEvent, size: int = 0) -> None:
        if self.lagged:
            return
        if self.waiting and (len(self.waiting) >= BUFFER or self.bytes + size > BYTES):
            self.lagged, self.bytes = True, 0
            self.waiting.clear()
        else:
            self.waiting.append((number, event, size))
            self.bytes += size
        self._woken.set()

    async def next(self) -> tuple[int, WorkflowEvent]:
        while not self.waiting:
            if self.lagged:
                raise ApiError(
                    "conflict", "lagged: too many events at once", "Watch again from the last number."
                )
            self._woken.clear()
            await self._woken.wait()
        number, event, size = self.waiting.popleft()
        self.bytes -= size
        return number, event


class Hub:
    """The watchers of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._watchers: set[Watcher] = set()
        self._name = secrets.token_hex(4)
        self._told = 0
        self._past: deque[tuple[int, str, int]] = deque(maxlen=REMEMBERED)
        """What was told last: its number here, its run, and its number there."""

    def _attach(self) -> None:
        engine = self._session.engine
        if self._tell not in engine.watchers:
            engine.watchers.append(self._tell)

    def _tell(self, run: WorkflowRun, rows: Sequence[Row]) -> None:
        watching = [each for each in self._watchers if each.run_id in (None, run.run_id)]
        around = self._watchers_around(run, rows)
        for row in rows:
            self._told += 1
            self._past.append((self._told, run.run_id, row.seq))
            if watching := [each for each in watching if not each.lagged]:
                event = run._event(row)
                size = size_of(event)
                for watcher in watching:
                    watcher.tell(self._told, event, size)
            for watcher, path in around if row.type in OF_GATES else ():
                event = run._event(row).shown_in(watcher.run_id or "", path)
                watcher.tell(self._told, event, size_of(event))

    def _watchers_around(self, run: WorkflowRun, rows: Sequence[Row]) -> list[tuple[Watcher, str]]:
        """Those who watch a run around one that tells of its gates, and the path at which that called it."""
        if all(each.run_id is None for each in self._watchers) or not any(r.type in OF_GATES for r in rows):
            return []
        paths = dict(self._session.engine.around(run.run_id))
        return [(each, paths[each.run_id]) for each in self._watchers if each.run_id in paths]

    async def watch(self, run_id: str | None = None, after: int = 0) -> AsyncGenerator[EventTold, None]:
        """The events of a run behind a number, and then as they come; without a run, of all from now on.

        Those of gates in child runs are among them, with the ids, paths and numbers that they have there:
        of those that were open before, and as they come.
        """
        if run_id is None:
            async with contextlib.aclosing(self.watch_all()) as everything:
                async for _, told in everything:
                    if told is not None:
                        yield told
            return
        self._attach()
        run = found(self._session, run_id)
        watcher = Watcher(run.run_id)
        try:
            last, caught_up = after, False
            while not caught_up:
                # What is long past is read as it is told. Only then is kept what comes meanwhile.
                over, past = run.is_complete, await run.history(last, PAGE)
                caught_up = len(past) < PAGE
                if caught_up:
                    self._watchers.add(watcher)
                for event in past:
                    last = event.seq
                    yield event_told(event)
            if over or any(event.event_type in ENDS for event in past[-1:]):
                return
            seen: set[tuple[str, int]] = set()
            for event in gates_below(run, run.run_id):
                seen.add((event.run_id, event.seq))
                yield event_told(event)
            while True:
                _, event = await watcher.next()
                if (event.run_id == run.run_id and event.seq <= last) or (event.run_id, event.seq) in seen:
                    continue
                yield event_told(event)
                if event.event_type in ENDS:
                    return
        finally:
            self._watchers.discard(watcher)

    async def watch_all(self, after: str = "") -> AsyncGenerator[tuple[str, EventTold | None], None]:
        """The events of all runs as they come, each with a mark behind which one can begin again.

        First comes a mark with None, unless everything behind `after` is still known.
        """
        self._attach()
        watcher = Watcher(None)
        self._watchers.add(watcher)
        try:
            missed = self._behind(after)
            if missed is None:
                yield self._mark(self._told), None
            for number, event in await self._again(missed or []):
                yield self._mark(number), event_told(event)
            while True:
                number, event = await watcher.next()
                yield self._mark(number), event_told(event)
        finally:
            self._watchers.discard(watcher)

    def _mark(self, number: int) -> str:
        return f"{self._name}-{number}"

    def _behind(self, mark: str) -> list[tuple[int, str, int]] | None:
        """What was told behind a mark; None if that cannot be said any more."""
        name, _, text = mark.partition("-")
        number = int(text) if text.isdecimal() and len(text) < 20 else -1
        oldest = self._past[0][0] if self._past else 1
        if name != self._name or not oldest - 1 <= number <= self._told:
            return None
        return [each for each in self._past if each[0] > number]

    async def _again(self, missed: list[tuple[int, str, int]]) -> list[tuple[int, WorkflowEvent]]:
        first: dict[str, int] = {}
        for _, run_id, seq in missed:
            first.setdefault(run_id, seq)
        there = {run_id: seq for run_id, seq in first.items() if self._session.engine.store.run(run_id)}
        known = {
            (run_id, event.seq): event
            for run_id, seq in there.items()
            for event in await found(self._session, run_id).history(after=seq - 1)
        }
        return [(number, known[run_id, seq]) for number, run_id, seq in missed if (run_id, seq) in known]


def gates_below(run: WorkflowRun, shown_in: str, path: str = "") -> Iterator[WorkflowEvent]:
    """The events with which the gates were opened that wait in the child runs of a run."""
    for place, child in run._engine.children_of(run).items():
        for event in child.events if child._gates else ():
            if event.event_type == "gate_waiting" and event.path in child._gates:
                yield event.shown_in(shown_in, path + place)
        yield from gates_below(child, shown_in, path + place)


def size_of(event: WorkflowEvent) -> int:
    """About how many bytes an event has."""
    return len(encode(event.data, deep=None)) + len(event.path) + len(event.event_type)


def event_told(event: WorkflowEvent) -> EventTold:
    told = event.to_dict()
    if too_deep(event.data):
        told["data"] = {name: tellable(value) for name, value in event.data.items()}
    return EventTold.model_validate(told)
