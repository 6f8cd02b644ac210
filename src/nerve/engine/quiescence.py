"""Detect when the event loop has nothing left to run for a body.

A callback keeps the context it was registered in, and a body's context names its owner. So a body is idle
exactly when no callback that the loop has yet to run has its owner: neither a step of one of its tasks nor a
callback that `gather`, `wait`, `shield` or a queue registered for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from nerve.engine.task_tracking import TASK_OWNER, TaskOwner, detached_context


class IdleObserver(TaskOwner, Protocol):
    """A body that wants to know whether it is idle."""

    def on_idle_check(self, is_idle: bool) -> None: ...


class QuiescenceMonitor:
    """Inspects the scheduled callbacks of a loop once per turn, for all bodies that ask."""

    def __init__(self) -> None:
        self._context = detached_context()
        self._observers: dict[IdleObserver, None] = {}

    def check_next_turn(self, observer: IdleObserver) -> None:
        """Report in the next turn of the loop whether the body is idle."""
        if not self._observers:
            # In the next turn, not now: callbacks that the current one is about to schedule are not in the
            # queue yet.
            asyncio.get_running_loop().call_soon(self._notify_observers, context=self._context)
        self._observers[observer] = None

    def _notify_observers(self) -> None:
        observers, self._observers = self._observers, {}
        active = active_owners(asyncio.get_running_loop())
        for observer in observers:
            observer.on_idle_check(observer not in active)


_monitors_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, QuiescenceMonitor] = WeakKeyDictionary()


def quiescence_monitor_of(loop: asyncio.AbstractEventLoop) -> QuiescenceMonitor:
    """Return the monitor of a loop; the bodies that it observes must start afterwards."""
    monitor = _monitors_by_loop.get(loop)
    if monitor is None:
        if ready_queue(loop) is None:
            track_callbacks(loop)
        monitor = _monitors_by_loop[loop] = QuiescenceMonitor()
    return monitor


def ready_queue(loop: asyncio.AbstractEventLoop) -> Any:
    """Return the queue of asyncio's own loops; None for a loop that hides it, such as uvloop's."""
    return getattr(loop, "_ready", None)


def active_owners(loop: asyncio.AbstractEventLoop) -> set[TaskOwner | None]:
    """Return the owners of the callbacks that a loop has yet to run."""
    ready = ready_queue(loop)
    if ready is None:
        return track_callbacks(loop).active_owners()
    # list() copies under the interpreter lock; other threads may append to the queue during iteration.
    return {handle._context.get(TASK_OWNER) for handle in list(ready) if not handle._cancelled}


def has_ready_callbacks(loop: asyncio.AbstractEventLoop, ignored: TaskOwner) -> bool:
    """Return whether a loop has callbacks to run, except those of one owner; only for asyncio's own loops."""
    return not active_owners(loop) <= {ignored}


def track_callbacks(loop: asyncio.AbstractEventLoop) -> CallbackTracker:
    """Return the tracker that a loop without a visible queue schedules its callbacks through."""
    tracker = getattr(loop.call_soon, "__self__", None)
    return tracker if isinstance(tracker, CallbackTracker) else CallbackTracker(loop)


class CallbackTracker:
    """Replaces `call_soon` of a loop and keeps the callbacks of bodies until they run.

    asyncio's own loops need none: their queue shows the same at no cost for each callback.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._pending: set[ScheduledCallback] = set()
        self._call_soon, self._call_soon_threadsafe = loop.call_soon, loop.call_soon_threadsafe
        try:
            for method in (self.call_soon, self.call_soon_threadsafe):
                setattr(loop, method.__name__, method)
        except AttributeError:
            name = f"{type(loop).__module__}.{type(loop).__qualname__}"
            raise RuntimeError(
                f"Event loop {name} does not show which callbacks are ready. Use asyncio's loop or uvloop."
            ) from None

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self._schedule(self._call_soon, callback, args, context)

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self._schedule(self._call_soon_threadsafe, callback, args, context)

    def _schedule(
        self,
        schedule: Callable[..., asyncio.Handle],
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> asyncio.Handle:
        owner = TASK_OWNER.get() if context is None else context.get(TASK_OWNER)
        if owner is None:
            return schedule(callback, *args, context=context)
        scheduled = ScheduledCallback(owner, callback, self._pending)
        self._pending.add(scheduled)  # before: the loop may run it at once if this is another thread
        scheduled.handle = schedule(scheduled, *args, context=context)
        return scheduled.handle

    def active_owners(self) -> set[TaskOwner | None]:
        """Return the owners of the callbacks that have yet to run."""
        pending = list(self._pending)
        cancelled = {each for each in pending if each.handle is not None and each.handle.cancelled()}
        self._pending -= cancelled
        return {each.owner for each in pending if each not in cancelled}


class ScheduledCallback:
    """A callback of a body that removes itself from the pending ones when it runs."""

    __slots__ = ("_callback", "_pending", "handle", "owner")

    def __init__(
        self, owner: TaskOwner, callback: Callable[..., Any], pending: set[ScheduledCallback]
    ) -> None:
        self.owner, self._callback, self._pending = owner, callback, pending
        self.handle: asyncio.Handle | None = None

    def __call__(self, *args: Any) -> None:
        self._pending.discard(self)
        self._callback(*args)
