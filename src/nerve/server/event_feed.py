"""Event feeds of one run or all runs, independent of the transport."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from nerve.api import Api, ApiError
from nerve.api.event_hub import EventFrame, EventHub
from nerve.api.models import ApiResponse
from nerve.core.events import RUN_END_EVENTS, SHOWN_IN_KEY, continued_as
from nerve.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from nerve.api.shared_session import SharedEventHub

SNAPSHOT_RUNS = 100
"""Maximum number of runs in a snapshot."""
SNAPSHOT_GATES = 1000
"""Maximum number of open gates in a snapshot, oldest first."""
MAX_RESULT_CHARS = 4096
"""Maximum characters of a result in a snapshot. Clients fetch larger ones with the run."""
MAX_SNAPSHOT_BYTES = 4 * 1024 * 1024
"""Approximate maximum size of a snapshot."""


@dataclass(frozen=True, slots=True)
class FeedMessage:
    """An event, or `snapshot`, `gap` or `lagged` with its data. A client reconnects with the cursor."""

    kind: str
    data: dict[str, Any] | EventFrame
    cursor: str | None = None


Feed = AsyncGenerator[list[FeedMessage], None]
"""Messages in batches of those that are available."""


class RunCursor(NamedTuple):
    """The run whose event number is the cursor of a client."""

    run_id: str
    is_later: bool = False
    """Whether it is a later run of the chain than the one that the client asked for."""

    def move_to(self, run_id: str) -> RunCursor:
        return self if run_id == self.run_id else RunCursor(run_id, True)

    def format(self, number: int) -> str:
        return f"{self.run_id}:{number}" if self.is_later else str(number)


@dataclass(frozen=True, slots=True)
class RunFeed:
    """A subscription to one run, from a cursor on."""

    api: Api
    run_id: str
    after: int
    oldest: int | None
    """Number of the first available event, if the event of the cursor does not exist."""
    is_over: bool
    """Whether the cursor is at the last event of a finished run."""
    later_run: str = ""
    """The run that the cursor named, if it is a later one of the chain."""

    @classmethod
    async def open(cls, api: Api, name: str, cursor: str) -> RunFeed:
        """Subscribe to a run after a cursor. Raises ApiError for an unknown run or an invalid cursor."""
        # In a later run of the chain, the cursor names that run.
        later_run, _, number = cursor.rpartition(":")
        name = later_run or name
        if number and not (number.isdecimal() and len(number) < 16):
            raise ApiError("bad_request", "The cursor of a run must be an event number")
        after = int(number or 0)
        page: Any = await api.perform("events", {"run": name, "after": max(after - 1, 0), "limit": 1})
        event = page.events[0] if page.events else None
        if event is not None and (after == 0 or event.seq == after):
            is_over = after > 0 and event.event_type in RUN_END_EVENTS and continued_as(event) is None
            return cls(api, event.run_id, after, None, is_over, later_run)
        detail: Any = await api.perform("run", {"run": name})
        oldest = event.seq if event is not None else 1
        return cls(api, detail.run_id, after, oldest, False, later_run)

    async def messages(self) -> Feed:
        after, cursor = self.after, RunCursor(self.run_id, bool(self.later_run))
        if self.oldest is not None:
            detail: Any = await self.api.perform("run", {"run": self.run_id})
            gap = FeedMessage("gap", {"after": after, "oldest": self.oldest})
            after = detail.last_seq
            yield [gap, FeedMessage("snapshot", detail.model_dump(mode="json"), cursor.format(after))]
            if detail.ended_at is not None and detail.continued_as is None:
                return
        batches = self.api.hub.watch_run(self.run_id, after)
        try:
            async for frames in batches:
                messages = []
                for frame in frames:
                    if SHOWN_IN_KEY not in frame.event.data:
                        cursor, after = cursor.move_to(frame.event.run_id), frame.event.seq
                    messages.append(FeedMessage(frame.event.event_type, frame, cursor.format(after)))
                yield messages
        except ApiError as error:
            yield [lagged_message(error, cursor.format(after))]
        finally:
            await batches.aclose()


async def all_runs_feed(api: Api, cursor: str) -> Feed:
    """Yield the events of all runs, after a snapshot or from a cursor on."""
    is_reconnect = bool(cursor)
    batches = api.hub.watch_all_runs(cursor)
    try:
        async for cursor, frames in batches:
            if frames is not None:
                yield [
                    FeedMessage(frame.event.event_type, frame, api.hub.cursor(frame.number))
                    for frame in frames
                ]
                continue
            gap = [FeedMessage("gap", {"oldest": cursor})] if is_reconnect else []
            yield [*gap, FeedMessage("snapshot", await shared_snapshot(api), cursor)]
    except ApiError as error:
        yield [lagged_message(error, cursor)]
    finally:
        await batches.aclose()


async def shared_snapshot(api: Api) -> dict[str, Any]:
    """Return a snapshot of the newest runs and the oldest open gates.

    Concurrent callers share one that starts later.
    """
    if (task := _pending_snapshots.get(api.hub)) is None:
        task = _pending_snapshots[api.hub] = asyncio.create_task(build_snapshot(api))
    return await asyncio.shield(task)


async def build_snapshot(api: Api) -> dict[str, Any]:
    async with _snapshot_locks.setdefault(api.hub, asyncio.Lock()):
        del _pending_snapshots[api.hub]
        runs: Any = await api.perform("runs", {"limit": SNAPSHOT_RUNS, "largest": MAX_RESULT_CHARS})
        gates: Any = await api.perform("gates", {"limit": SNAPSHOT_GATES})
        budget = SizeBudget(MAX_SNAPSHOT_BYTES)
        sections = {"gates": budget.take_fitting(gates.gates), "runs": budget.take_fitting(runs.runs)}
        more = runs.more or len(sections["runs"]) < len(runs.runs)
        more_gates = gates.more or len(sections["gates"]) < len(gates.gates)
        return {**sections, "more": more, "more_gates": more_gates}


class SizeBudget:
    """Remaining bytes of a size limit."""

    def __init__(self, bytes: int) -> None:
        self.remaining_bytes = bytes

    def take_fitting(self, items: Iterable[ApiResponse]) -> list[dict[str, Any]]:
        """Return the leading items that fit, and charge their size."""
        fitting = []
        for item in items:
            fields = item.model_dump(mode="json")
            self.remaining_bytes -= len(json.dumps(fields))
            if self.remaining_bytes < 0:
                break
            fitting.append(fields)
        return fitting


_snapshot_locks: WeakKeyDictionary[EventHub | SharedEventHub, asyncio.Lock] = WeakKeyDictionary()
_pending_snapshots: WeakKeyDictionary[EventHub | SharedEventHub, asyncio.Task[dict[str, Any]]] = (
    WeakKeyDictionary()
)
"""Snapshots that have not started reading, so new callers can still join them."""


def lagged_message(error: ApiError, last: str) -> FeedMessage:
    return FeedMessage("lagged", {**error.to_dict(), "last": last}, last)
