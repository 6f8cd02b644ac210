"""Observers: told once of each change that concerns their pattern."""

from __future__ import annotations

import asyncio
import itertools
import logging
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from nerve.dataspace.errors import Lagged
from nerve.dataspace.facts import Change
from nerve.dataspace.index import Index
from nerve.dataspace.pattern import Pattern

log = logging.getLogger(__name__)


class Watcher:
    """A pattern, and whom to call with what concerns it."""

    def __init__(
        self,
        pattern: Pattern,
        since: int,
        tell: Callable[[Change], Any],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.pattern, self.since, self._tell, self.end = pattern, since, tell, end
        self.ended = False

    def say(self, change: Change) -> None:
        """A watcher that fails harms neither the change nor the other watchers."""
        try:
            self._tell(change)
        except Exception:
            log.exception("observer of %s failed", self.pattern.canonical)

    def seen(self, change: Change) -> Change | None:
        """The change as it concerns the pattern: a fact that no longer fits is gone."""
        if self.ended or change.version <= self.since:
            return None
        captures = self.pattern.match(change.fact.record)
        if captures is not None:
            return replace(change, captures=captures)
        if change.replaced is None:
            return None
        captures = self.pattern.match(change.replaced.record)
        return (
            None
            if captures is None
            else Change("retracted", change.replaced, change.version, captures, by=change.by)
        )


class Observers:
    """All watchers of a space, found by what they can fit."""

    def __init__(self) -> None:
        self._index: Index[Watcher] = Index()
        self._all: dict[str, Watcher] = {}
        self._names = itertools.count()

    def add(self, watcher: Watcher) -> Callable[[], None]:
        """From now on the watcher is told; the answer ends it."""
        name, key = str(next(self._names)), watcher.pattern.key()
        self._all[name] = watcher
        self._index.put([key], name, watcher)

        def end() -> None:
            if not watcher.ended:
                watcher.ended = True
                del self._all[name]
                self._index.drop([key], name)

        return end

    def tell(self, change: Change, since: int = 0) -> None:
        """Tell of a change all who watch, or only those who began at a version or later."""
        records = [change.fact.record, *([change.replaced.record] if change.replaced else [])]
        places = dict.fromkeys(key for record in records for key in record.keys)
        for watcher in [watcher for place in places for watcher in self._index.under(place)]:
            if watcher.since >= since and (seen := watcher.seen(change)) is not None:
                watcher.say(seen)

    def close(self) -> None:
        for watcher in list(self._all.values()):
            watcher.end()


class Observation:
    """An async iterator of changes; it begins when it is made, and ends with `close`."""

    def __init__(
        self, observers: Observers, pattern: Pattern, since: int, present: Iterable[Change], buffer: int
    ) -> None:
        if buffer < 1:
            raise ValueError(f"the buffer of an observer must hold at least one change, not {buffer}")
        self.pattern, self._buffer = pattern, buffer
        self._present = deque(present)
        self._changes: deque[Change] = deque()
        self._lagged = self._closed = False
        self._news = asyncio.Event()
        # The space knows it weakly: an observation that nobody holds any more ends by itself.
        push, end = weakref.WeakMethod(self._push), weakref.WeakMethod(self.close)
        watcher = Watcher(pattern, since, lambda change: _call(push, change), lambda: _call(end))
        self._end = weakref.finalize(self, observers.add(watcher))
        self._end.atexit = False

    def _push(self, change: Change) -> None:
        if len(self._changes) >= self._buffer:
            self._lagged = True
            self._end()
        else:
            self._changes.append(change)
        self._news.set()

    def __aiter__(self) -> Observation:
        return self

    async def __anext__(self) -> Change:
        while not (self._closed or self._lagged or self._present or self._changes):
            self._news.clear()
            await self._news.wait()
        if self._closed:
            raise StopAsyncIteration
        if self._present:
            return self._present.popleft()
        if self._changes:
            return self._changes.popleft()
        self.close()
        raise Lagged(self.pattern.canonical, self._buffer)

    def close(self) -> None:
        """End it; what was not read yet is dropped."""
        self._closed = True
        self._end()
        self._present.clear()
        self._changes.clear()
        self._news.set()

    async def __aenter__(self) -> Observation:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def _call(method: weakref.WeakMethod[Callable[..., None]], *arguments: Any) -> None:
    if (alive := method()) is not None:
        alive(*arguments)
