"""Quiescence: a body is idle if and only if nothing of it is ready to run."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from nerve.engine.quiescence import quiescence_monitor_of
from nerve.engine.task_tracking import TASK_OWNER, detached_context


class Body:
    """A body that records the results of its idle checks."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Future[Any]] = set()
        self.seen: list[bool | None] = []
        self.looked = asyncio.Event()

    def track_task(self, task: asyncio.Future[Any]) -> None:
        self.tasks.add(task)

    def on_idle_check(self, at_rest: bool | None) -> None:
        self.seen.append(at_rest)
        self.looked.set()

    def set_off(self, callback: Any) -> None:
        """Schedule a callback that belongs to this body."""
        context = detached_context()
        context.run(TASK_OWNER.set, self)
        asyncio.get_running_loop().call_soon(callback, context=context)

    async def look(self) -> bool | None:
        self.looked.clear()
        quiescence_monitor_of(asyncio.get_running_loop()).check_next_turn(self)
        await self.looked.wait()
        return self.seen[-1]


async def test_a_body_is_idle_when_only_other_callbacks_are_ready() -> None:
    one, other = Body(), Body()
    looking = asyncio.ensure_future(other.look())
    await asyncio.sleep(0)
    one.set_off(lambda: None)
    assert await looking is True


async def test_a_body_is_not_idle_while_one_of_its_callbacks_is_ready() -> None:
    body, order = Body(), list[str]()
    quiescence_monitor_of(asyncio.get_running_loop()).check_next_turn(body)
    body.set_off(lambda: body.set_off(lambda: order.append("ran")))
    await body.looked.wait()
    assert (body.seen, order) == ([False], [])
    while not await body.look():
        pass
    assert order == ["ran"]


def test_a_loop_that_has_ended_is_not_kept() -> None:
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def look() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        assert await Body().look() is True

    asyncio.run(look())
    gc.collect()
    assert loops[0]() is None
