"""Whose task is it: the tasks that a body starts are counted, so that its rest can be told."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol, TypeVar, cast

T = TypeVar("T")


class TaskOwner(Protocol):
    def track_task(self, task: asyncio.Future[Any]) -> None: ...


_sentinels_by_loop: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}

TASK_OWNER: ContextVar[TaskOwner | None] = ContextVar("nerve_owner", default=None)
"""The run whose body is executing; unset inside leaves."""


def install_task_factory(loop: asyncio.AbstractEventLoop) -> None:
    """Have every task that is created in a body's context reported to its owner."""
    inner_factory = loop.get_task_factory()
    if getattr(inner_factory, "counts_for_nerve", False):
        return

    def factory(
        loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Future[Any]:
        task = (
            inner_factory(loop, coro, **options)
            if inner_factory
            else asyncio.Task(coro, loop=loop, **options)
        )
        owner = TASK_OWNER.get()
        if owner is not None:
            owner.track_task(task)
        return task

    factory.counts_for_nerve = True  # type: ignore[attr-defined]
    loop.set_task_factory(cast("Any", factory))


def detached_context() -> Context:
    """The present context, for what does not belong to the body that happens to be executing."""
    context = copy_context()
    context.run(TASK_OWNER.set, None)
    return context


def spawn_detached(coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that belongs to no body, whoever's context it is created in."""
    return detached_context().run(asyncio.create_task, coro)


def shutdown_sentinel(loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
    """A task nobody but the loop itself cancels: once that happens, the loop is shutting down."""
    task = _sentinels_by_loop.get(loop)
    if task is None:
        task = _sentinels_by_loop[loop] = spawn_detached(sleep_forever())
        task.add_done_callback(lambda _: _sentinels_by_loop.pop(loop, None))
    return task


async def sleep_forever() -> None:
    await asyncio.get_running_loop().create_future()
