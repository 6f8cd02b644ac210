"""Track the tasks that a body starts, so that the engine knows when the body is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol, TypeVar, cast

T = TypeVar("T")


class TaskOwner(Protocol):
    """A body that is notified of the tasks it starts."""

    def track_task(self, task: asyncio.Future[Any]) -> None: ...


_sentinels_by_loop: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}

TASK_OWNER: ContextVar[TaskOwner | None] = ContextVar("nerve_owner", default=None)
"""The dispatcher of the body that is executing; unset inside leaves."""


def install_task_factory(loop: asyncio.AbstractEventLoop) -> None:
    """Report every task created in a body's context to its owner."""
    try:
        # An existing factory (uvloop, eager tasks, a debugger) stays in effect underneath.
        inner_factory = loop.get_task_factory()
        loop.set_task_factory(inner_factory)
    except NotImplementedError:
        wrap_task_creation(loop)
        return
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


def wrap_task_creation(loop: asyncio.AbstractEventLoop) -> None:
    """Report tasks to their owners on a loop that takes no factory, such as that of a Temporal workflow."""
    create_task = loop.create_task
    if getattr(create_task, "counts_for_nerve", False):
        return

    def create_tracked(coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        task = create_task(coro, **options)
        owner = TASK_OWNER.get()
        if owner is not None:
            owner.track_task(task)
        return task

    create_tracked.counts_for_nerve = True  # type: ignore[attr-defined]
    loop.create_task = create_tracked  # type: ignore[method-assign,assignment]


def detached_context() -> Context:
    """Return a copy of the current context that belongs to no body."""
    context = copy_context()
    context.run(TASK_OWNER.set, None)
    return context


def spawn_detached(coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task that belongs to no body, whatever context it is created in."""
    return detached_context().run(asyncio.create_task, coro)


def shutdown_sentinel(loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
    """Return a task that only the loop cancels: then the loop is shutting down."""
    # asyncio.run() cancels all tasks without announcing it. Without this signal the bodies' CancelledErrors
    # would be recorded as failures.
    task = _sentinels_by_loop.get(loop)
    if task is None:
        task = _sentinels_by_loop[loop] = spawn_detached(sleep_forever())
        task.add_done_callback(lambda _: _sentinels_by_loop.pop(loop, None))
    return task


async def sleep_forever() -> None:
    await asyncio.get_running_loop().create_future()
