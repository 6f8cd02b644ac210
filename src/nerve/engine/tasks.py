"""Whose task is it: the tasks that a body starts are counted, so that its rest can be told."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol, TypeVar, cast

T = TypeVar("T")


class Owner(Protocol):
    def adopt(self, task: asyncio.Future[Any]) -> None: ...


_sentinels: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}

OWNER: ContextVar[Owner | None] = ContextVar("nerve_owner", default=None)
"""The run whose body is executing; unset inside leaves."""


def count_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Have every task that is created in a body's context reported to its owner."""
    inner = loop.get_task_factory()
    if getattr(inner, "counts_for_nerve", False):
        return

    def factory(
        loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Future[Any]:
        task = inner(loop, coro, **options) if inner else asyncio.Task(coro, loop=loop, **options)
        owner = OWNER.get()
        if owner is not None:
            owner.adopt(task)
        return task

    factory.counts_for_nerve = True  # type: ignore[attr-defined]
    loop.set_task_factory(cast("Any", factory))


def outside() -> Context:
    """The present context, for what does not belong to the body that happens to be executing."""
    context = copy_context()
    context.run(OWNER.set, None)
    return context


def apart(coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that belongs to no body, whoever's context it is created in."""
    return outside().run(asyncio.create_task, coro)


def sentinel(loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
    """A task nobody but the loop itself cancels: once that happens, the loop is shutting down."""
    task = _sentinels.get(loop)
    if task is None:
        task = _sentinels[loop] = apart(forever())
        task.add_done_callback(lambda _: _sentinels.pop(loop, None))
    return task


async def forever() -> None:
    await asyncio.get_running_loop().create_future()
