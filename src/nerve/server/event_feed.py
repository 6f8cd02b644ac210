"""Following runs: what every kind of stream tells, whatever it is carried by."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from nerve.api import Api, ApiError
from nerve.api.event_hub import EventHub
from nerve.api.models import ApiResponse
from nerve.core.events import RUN_END_EVENTS

SNAPSHOT_RUNS = 100
"""Runs in a snapshot."""
MAX_RESULT_CHARS = 4096
"""Characters of a result in it; larger ones are asked for with their runs."""
MAX_SNAPSHOT_BYTES = 4 * 1024 * 1024
"""Bytes of a snapshot, about."""


@dataclass(frozen=True, slots=True)
class FeedMessage:
    """An event, or `snapshot`, `gap` or `lagged`; one can come back with its mark."""

    kind: str
    data: dict[str, Any]
    cursor: str | None = None
    is_event: bool = False


@dataclass(frozen=True, slots=True)
class RunFeed:
    """One who follows a run, and how much he has seen of it."""

    api: Api
    run_id: str
    after: int
    oldest: int | None
    """The first event there is, if the one that was seen last is not there."""
    is_over: bool
    """Whether nothing more can come."""

    @classmethod
    async def open(cls, api: Api, name: str, cursor: str) -> RunFeed:
        """Follow a run from a mark on; ApiError if there is no such run, or that is no mark."""
        if cursor and not (cursor.isdecimal() and len(cursor) < 16):
            raise ApiError("bad_request", "one comes back to a run with the number of an event")
        after = int(cursor or 0)
        page: Any = await api.perform("events", {"run": name, "after": max(after - 1, 0), "limit": 1})
        event = page.events[0] if page.events else None
        if event is not None and (after == 0 or event.seq == after):
            return cls(api, event.run_id, after, None, after > 0 and event.event_type in RUN_END_EVENTS)
        detail: Any = await api.perform("run", {"run": name})
        return cls(api, detail.run_id, after, event.seq if event is not None else 1, is_over=False)

    async def messages(self) -> AsyncGenerator[FeedMessage, None]:
        after = self.after
        if self.oldest is not None:
            detail: Any = await self.api.perform("run", {"run": self.run_id})
            yield FeedMessage("gap", {"after": after, "oldest": self.oldest})
            after = detail.last_seq
            yield FeedMessage("snapshot", detail.model_dump(mode="json"), str(after))
            if detail.ended_at is not None:
                return
        events = self.api.hub.watch(self.run_id, after)
        try:
            async for event in events:
                after = after if event.is_of_child else event.seq
                yield FeedMessage(event.event_type, event.model_dump(mode="json"), str(after), True)
        except ApiError as error:
            yield lagged_message(error, str(after))
        finally:
            await events.aclose()


async def all_runs_feed(api: Api, cursor: str) -> AsyncGenerator[FeedMessage, None]:
    """What happens in all runs, behind a snapshot of them or from a mark on."""
    is_reconnect = bool(cursor)
    events = api.hub.watch_all(cursor)
    try:
        async for cursor, event in events:
            if event is not None:
                yield FeedMessage(event.event_type, event.model_dump(mode="json"), cursor, True)
                continue
            if is_reconnect:
                yield FeedMessage("gap", {"oldest": cursor})
            yield FeedMessage("snapshot", await shared_snapshot(api), cursor)
    except ApiError as error:
        yield lagged_message(error, cursor)
    finally:
        await events.aclose()


async def shared_snapshot(api: Api) -> dict[str, Any]:
    """The newest runs and all gates; one for all who ask at the same time, begun after they asked."""
    if (task := _pending_snapshots.get(api.hub)) is None:
        task = _pending_snapshots[api.hub] = asyncio.create_task(build_snapshot(api))
    return await asyncio.shield(task)


async def build_snapshot(api: Api) -> dict[str, Any]:
    async with _snapshot_locks.setdefault(api.hub, asyncio.Lock()):
        del _pending_snapshots[api.hub]
        runs: Any = await api.perform("runs", {"limit": SNAPSHOT_RUNS, "largest": MAX_RESULT_CHARS})
        gates: Any = await api.perform("gates", {})
        budget = SizeBudget(MAX_SNAPSHOT_BYTES)
        sections = {"gates": budget.take_fitting(gates.gates), "runs": budget.take_fitting(runs.runs)}
        more = runs.more or len(sections["runs"]) < len(runs.runs)
        return {**sections, "more": more, "more_gates": len(sections["gates"]) < len(gates.gates)}


class SizeBudget:
    """How much there is left of a bound."""

    def __init__(self, bytes: int) -> None:
        self.remaining_bytes = bytes

    def take_fitting(self, items: Iterable[ApiResponse]) -> list[dict[str, Any]]:
        """Those that there is room for, from the first on."""
        fitting = []
        for item in items:
            fields = item.model_dump(mode="json")
            self.remaining_bytes -= len(json.dumps(fields))
            if self.remaining_bytes < 0:
                break
            fitting.append(fields)
        return fitting


_snapshot_locks: WeakKeyDictionary[EventHub, asyncio.Lock] = WeakKeyDictionary()
_pending_snapshots: WeakKeyDictionary[EventHub, asyncio.Task[dict[str, Any]]] = WeakKeyDictionary()
"""The snapshots that are not begun yet."""


def lagged_message(error: ApiError, last: str) -> FeedMessage:
    return FeedMessage("lagged", {**error.to_dict(), "last": last}, last)
