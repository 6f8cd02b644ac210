"""Quiescence: when the event loop has nothing left to run of what a body has set off.

A callback keeps the context it was registered in, and a body's context names its owner. So a body is
at rest exactly when no callback in the loop's ready queue has its owner: neither a step of one of its
tasks nor what `gather`, `wait`, `shield` or a queue registered for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from nerve.engine.tasks import OWNER, Owner, outside


class Body(Owner, Protocol):
    """What is notified whether it has come to rest."""

    @property
    def tasks(self) -> Collection[asyncio.Future[Any]]: ...
    def observe_rest(self, at_rest: bool | None) -> None: ...


class Quiescence:
    """Looks at the ready queue of a loop once in a turn, for all bodies that ask for it."""

    def __init__(self) -> None:
        self._context = outside()
        self._asking: dict[Body, None] = {}

    def look_next_turn(self, body: Body) -> None:
        """Tell the body in the next turn of the loop whether it is at rest; None if that cannot be seen."""
        if not self._asking:
            asyncio.get_running_loop().call_soon(self._look, context=self._context)
        self._asking[body] = None

    def _look(self) -> None:
        asking, self._asking = self._asking, {}
        active = active_owners(asyncio.get_running_loop())
        for body in asking:
            body.observe_rest(body not in active if active is not None else None)


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Quiescence] = WeakKeyDictionary()


def quiescence_of(loop: asyncio.AbstractEventLoop) -> Quiescence:
    """The one that looks at a loop."""
    made = _of_loops.get(loop)
    if made is None:
        made = _of_loops[loop] = Quiescence()
    return made


def active_owners(loop: asyncio.AbstractEventLoop) -> set[Owner | None] | None:
    """The owners of what is ready to run; None of a loop that does not show it, as uvloop's does not."""
    ready = getattr(loop, "_ready", None)
    if ready is None:
        return None
    # A list is made without letting other threads run, which may add to the queue.
    return {handle._context.get(OWNER) for handle in list(ready) if not handle._cancelled}


def is_woken(task: asyncio.Future[Any]) -> bool:
    """Whether a task is about to run; asyncio has no public way to ask."""
    awaited: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
    return awaited is None or awaited.done()
