"""Detect when the event loop has nothing left to run for a body.

A callback keeps the context it was registered in, and a body's context names its owner. So a body is idle
exactly when no callback in the loop's ready queue has its owner: neither a step of one of its tasks nor a
callback that `gather`, `wait`, `shield` or a queue registered for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from nerve.engine.task_tracking import TASK_OWNER, TaskOwner, detached_context


class IdleObserver(TaskOwner, Protocol):
    """A body that wants to know whether it is idle."""

    @property
    def tasks(self) -> Collection[asyncio.Future[Any]]: ...
    def on_idle_check(self, is_idle: bool | None) -> None: ...


class QuiescenceMonitor:
    """Inspects the ready queue of a loop once per turn, for all bodies that ask."""

    def __init__(self) -> None:
        self._context = detached_context()
        self._observers: dict[IdleObserver, None] = {}

    def check_next_turn(self, observer: IdleObserver) -> None:
        """Report in the next turn of the loop whether the body is idle; None if the loop does not show it."""
        if not self._observers:
            # In the next turn, not now: callbacks that the current one is about to schedule are not in the
            # queue yet.
            asyncio.get_running_loop().call_soon(self._notify_observers, context=self._context)
        self._observers[observer] = None

    def _notify_observers(self) -> None:
        observers, self._observers = self._observers, {}
        active = active_owners(asyncio.get_running_loop())
        for observer in observers:
            observer.on_idle_check(observer not in active if active is not None else None)


_monitors_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, QuiescenceMonitor] = WeakKeyDictionary()


def quiescence_monitor_of(loop: asyncio.AbstractEventLoop) -> QuiescenceMonitor:
    """Return the monitor of a loop."""
    monitor = _monitors_by_loop.get(loop)
    if monitor is None:
        monitor = _monitors_by_loop[loop] = QuiescenceMonitor()
    return monitor


def active_owners(loop: asyncio.AbstractEventLoop) -> set[TaskOwner | None] | None:
    """Return the owners of scheduled callbacks; None for a loop without a visible queue, such as uvloop."""
    ready = getattr(loop, "_ready", None)
    if ready is None:
        return None
    # list() copies under the interpreter lock; other threads may append to the queue during iteration.
    return {handle._context.get(TASK_OWNER) for handle in list(ready) if not handle._cancelled}


def is_task_scheduled(task: asyncio.Future[Any]) -> bool:
    """Whether a task is about to run; asyncio has no public API for that."""
    awaited: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
    return awaited is None or awaited.done()
