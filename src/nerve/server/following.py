"""Following runs: what every kind of stream tells, whatever it is carried by."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from nerve.api import Api, ApiError
from nerve.api.hub import Hub
from nerve.api.models import Told
from nerve.core.event import ENDS

SHOWN = 100
"""Runs in a snapshot."""
RESULT = 4096
"""Characters of a result in it; larger ones are asked for with their runs."""
LARGEST = 4 * 1024 * 1024
"""Bytes of a snapshot, about."""


@dataclass(frozen=True, slots=True)
class Said:
    """An event, or `snapshot`, `gap` or `lagged`; one can come back with its mark."""

    kind: str
    data: dict[str, Any]
    mark: str | None = None
    is_event: bool = False


@dataclass(frozen=True, slots=True)
class Follow:
    """One who follows a run, and how much he has seen of it."""

    api: Api
    run: str
    after: int
    oldest: int | None
    """The first event there is, if the one that was seen last is not there."""
    over: bool
    """Whether nothing more can come."""

    @classmethod
    async def of(cls, api: Api, name: str, mark: str) -> Follow:
        """Follow a run from a mark on; ApiError if there is no such run, or that is no mark."""
        if mark and not (mark.isdecimal() and len(mark) < 16):
            raise ApiError("bad_request", "one comes back to a run with the number of an event")
        after = int(mark or 0)
        told: Any = await api.perform("events", {"run": name, "after": max(after - 1, 0), "limit": 1})
        seen = told.events[0] if told.events else None
        if seen is not None and (after == 0 or seen.seq == after):
            return cls(api, seen.run_id, after, None, after > 0 and seen.event_type in ENDS)
        detail: Any = await api.perform("run", {"run": name})
        return cls(api, detail.run_id, after, seen.seq if seen is not None else 1, over=False)

    async def all(self) -> AsyncGenerator[Said, None]:
        after = self.after
        if self.oldest is not None:
            detail: Any = await self.api.perform("run", {"run": self.run})
            yield Said("gap", {"after": after, "oldest": self.oldest})
            after = detail.last_seq
            yield Said("snapshot", detail.model_dump(mode="json"), str(after))
            if detail.ended_at is not None:
                return
        events = self.api.hub.watch(self.run, after)
        try:
            async for event in events:
                after = after if event.is_of_child else event.seq
                yield Said(event.event_type, event.model_dump(mode="json"), str(after), True)
        except ApiError as error:
            yield cut_off(error, str(after))
        finally:
            await events.aclose()


async def follow_all(api: Api, mark: str) -> AsyncGenerator[Said, None]:
    """What happens in all runs, behind a snapshot of them or from a mark on."""
    came_back = bool(mark)
    events = api.hub.watch_all(mark)
    try:
        async for mark, event in events:
            if event is not None:
                yield Said(event.event_type, event.model_dump(mode="json"), mark, True)
                continue
            if came_back:
                yield Said("gap", {"oldest": mark})
            yield Said("snapshot", await snapshot(api), mark)
    except ApiError as error:
        yield cut_off(error, mark)
    finally:
        await events.aclose()


async def snapshot(api: Api) -> dict[str, Any]:
    """The newest runs and all gates; one for all who ask at the same time, begun after they asked."""
    if (task := _next.get(api.hub)) is None:
        task = _next[api.hub] = asyncio.create_task(made(api))
    return await asyncio.shield(task)


async def made(api: Api) -> dict[str, Any]:
    async with _making.setdefault(api.hub, asyncio.Lock()):
        del _next[api.hub]
        runs: Any = await api.perform("runs", {"limit": SHOWN, "largest": RESULT})
        gates: Any = await api.perform("gates", {})
        room = Room(LARGEST)
        shown = {"gates": room.taken(gates.gates), "runs": room.taken(runs.runs)}
        more = runs.more or len(shown["runs"]) < len(runs.runs)
        return {**shown, "more": more, "more_gates": len(shown["gates"]) < len(gates.gates)}


class Room:
    """How much there is left of a bound."""

    def __init__(self, bytes: int) -> None:
        self.left = bytes

    def taken(self, many: Iterable[Told]) -> list[dict[str, Any]]:
        """Those that there is room for, from the first on."""
        taken = []
        for each in many:
            told = each.model_dump(mode="json")
            self.left -= len(json.dumps(told))
            if self.left < 0:
                break
            taken.append(told)
        return taken


_making: WeakKeyDictionary[Hub, asyncio.Lock] = WeakKeyDictionary()
_next: WeakKeyDictionary[Hub, asyncio.Task[dict[str, Any]]] = WeakKeyDictionary()
"""The snapshots that are not begun yet."""


def cut_off(error: ApiError, last: str) -> Said:
    return Said("lagged", {**error.to_dict(), "last": last}, last)
