"""Observers: notified once of each change that matches their pattern."""

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
from nerve.dataspace.facts import Change, KeyIndex
from nerve.dataspace.pattern import Pattern

log = logging.getLogger(__name__)


class Observer:
    """A pattern, and the callback for matching changes."""

    def __init__(
        self,
        pattern: Pattern,
        since: int,
        callback: Callable[[Change], Any],
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.pattern, self.since, self._callback, self.on_close = pattern, since, callback, on_close
        self.is_ended = False

    def notify(self, change: Change) -> None:
        """Call the callback; log its exceptions, so that the change and other observers are not affected."""
        try:
            self._callback(change)
        except Exception:
            log.exception("observer of %s failed", self.pattern.canonical)

    def matching_change(self, change: Change) -> Change | None:
        """Return the change as the observer sees it, or None; a fact that stops matching is retracted."""
        if self.is_ended or change.version <= self.since:
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
    """All observers of a dataspace, indexed by the records they can match."""

    def __init__(self) -> None:
        self._index: KeyIndex[Observer] = KeyIndex()
        self._observers: dict[str, Observer] = {}
        self._ids = itertools.count()

    def add(self, observer: Observer) -> Callable[[], None]:
        """Add an observer; return a function that removes it."""
        name, key = str(next(self._ids)), observer.pattern.index_keys()[0]
        self._observers[name] = observer
        self._index.put([key], name, observer)

        def end() -> None:
            if not observer.is_ended:
                observer.is_ended = True
                del self._observers[name]
                self._index.drop([key], name)

        return end

    def notify_all(self, change: Change, since: int = 0) -> None:
        """Notify matching observers of a change; only those that started at version `since` or later."""
        records = [change.fact.record, *([change.replaced.record] if change.replaced else [])]
        index_keys = dict.fromkeys(key for record in records for key in record.index_keys)
        for observer in [
            observer for index_key in index_keys for observer in self._index.values_under(index_key)
        ]:
            if observer.since >= since and (matching := observer.matching_change(change)) is not None:
                observer.notify(matching)

    def close(self) -> None:
        for observer in list(self._observers.values()):
            observer.on_close()


class Observation:
    """An async iterator of changes; it starts on creation and ends with `close`."""

    def __init__(
        self, observers: Observers, pattern: Pattern, since: int, present: Iterable[Change], buffer: int
    ) -> None:
        if buffer < 1:
            raise ValueError(f"buffer must be at least 1, got {buffer}")
        self.pattern, self._buffer = pattern, buffer
        self._present = deque(present)
        self._changes: deque[Change] = deque()
        self._is_lagging = self._is_closed = False
        self._wakeup = asyncio.Event()
        # The dataspace holds a weak reference, so an observation ends when its last reference is gone.
        push, end = weakref.WeakMethod(self._push), weakref.WeakMethod(self.close)
        observer = Observer(
            pattern, since, lambda change: _call_if_alive(push, change), lambda: _call_if_alive(end)
        )
        self._end = weakref.finalize(self, observers.add(observer))
        self._end.atexit = False

    def _push(self, change: Change) -> None:
        if len(self._changes) >= self._buffer:
            self._is_lagging = True
            self._end()
        else:
            self._changes.append(change)
        self._wakeup.set()

    def __aiter__(self) -> Observation:
        return self

    async def __anext__(self) -> Change:
        while not (self._is_closed or self._is_lagging or self._present or self._changes):
            self._wakeup.clear()
            await self._wakeup.wait()
        if self._is_closed:
            raise StopAsyncIteration
        if self._present:
            return self._present.popleft()
        if self._changes:
            return self._changes.popleft()
        self.close()
        raise Lagged(self.pattern.canonical, self._buffer)

    def close(self) -> None:
        """End the observation; unread changes are dropped."""
        self._is_closed = True
        self._end()
        self._present.clear()
        self._changes.clear()
        self._wakeup.set()

    async def __aenter__(self) -> Observation:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def _call_if_alive(method: weakref.WeakMethod[Callable[..., None]], *arguments: Any) -> None:
    if (alive := method()) is not None:
        alive(*arguments)
