"""Quiescence: a body is idle if and only if nothing of it is ready to run, on every kind of event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from engine.programs import copied
from nerve import FunctionNode, Session
from nerve.engine import result_dispatcher
from nerve.engine.quiescence import quiescence_monitor_of
from nerve.engine.task_tracking import TASK_OWNER, detached_context
from nerve.store.memory import MemoryStore

pytestmark = pytest.mark.local("looks at the event loop")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
LOOP_FACTORIES: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
if sys.platform != "win32":
    import uvloop

    LOOP_FACTORIES["uvloop"] = uvloop.new_event_loop


@pytest.fixture(params=LOOP_FACTORIES)
def execute(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine on a loop of its own."""

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=LOOP_FACTORIES[request.param]) as runner:
            return runner.run(asyncio.wait_for(coroutine, 60))

    return run


class Body:
    """A body that records the results of its idle checks."""

    def __init__(self) -> None:
        self.seen: list[bool] = []
        self.looked = asyncio.Event()
        self.monitor = quiescence_monitor_of(asyncio.get_running_loop())
        self.context = detached_context()
        self.context.run(TASK_OWNER.set, self)

    def track_task(self, task: asyncio.Future[Any]) -> None:
        pass

    def on_idle_check(self, is_idle: bool) -> None:
        self.seen.append(is_idle)
        self.looked.set()

    def set_off(self, callback: Any) -> asyncio.Handle:
        """Schedule a callback that belongs to this body."""
        return asyncio.get_running_loop().call_soon(callback, context=self.context)

    async def look(self) -> bool:
        self.looked.clear()
        self.monitor.check_next_turn(self)
        await self.looked.wait()
        return self.seen[-1]


def test_a_body_is_idle_when_only_other_callbacks_are_ready(execute: Any) -> None:
    async def scenario() -> None:
        one, other = Body(), Body()
        looking = asyncio.ensure_future(other.look())
        await asyncio.sleep(0)
        one.set_off(lambda: None)
        assert await looking is True

    execute(scenario())


def test_a_body_is_not_idle_while_one_of_its_callbacks_is_ready(execute: Any) -> None:
    async def scenario() -> None:
        body, order = Body(), list[str]()
        body.monitor.check_next_turn(body)
        body.set_off(lambda: body.set_off(lambda: order.append("ran")))
        await body.looked.wait()
        assert (body.seen, order) == ([False], [])
        while not await body.look():
            pass
        assert order == ["ran"]

    execute(scenario())


def test_a_cancelled_callback_does_not_count(execute: Any) -> None:
    async def scenario() -> None:
        body = Body()
        body.monitor.check_next_turn(body)
        body.set_off(lambda: None).cancel()
        await body.looked.wait()
        assert body.seen == [True]

    execute(scenario())


def test_a_callback_from_another_thread_counts_until_it_has_run(execute: Any) -> None:
    async def scenario() -> None:
        body, order = Body(), list[str]()
        loop = asyncio.get_running_loop()
        arguments = (order.append, "ran")
        body.monitor.check_next_turn(body)
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(*arguments, context=body.context))
        thread.start()
        thread.join()
        await body.looked.wait()
        assert body.seen == [False]
        while not await body.look():
            pass
        assert order == ["ran"]

    execute(scenario())


def test_a_loop_that_has_ended_is_not_kept(execute: Any) -> None:
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def look() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        body = Body()
        assert await body.look() is True
        body.set_off(lambda: None)

    execute(look())
    gc.collect()
    assert loops[0]() is None


def test_a_loop_that_hides_its_queue_and_cannot_be_tracked_is_rejected() -> None:
    class ClosedLoop:
        __slots__ = ("__weakref__",)

        def call_soon(self) -> None: ...
        def call_soon_threadsafe(self) -> None: ...

    loop: Any = ClosedLoop()
    with pytest.raises(
        RuntimeError, match=r"ClosedLoop does not show which callbacks are ready\. Use asyncio"
    ):
        quiescence_monitor_of(loop)


# -- bodies ----------------------------------------------------------------------------------------


def many_tasks(store: MemoryStore, orders: list[list[str]], number: int = 300) -> Session:
    """A body whose tasks race through steps, spins, queues and gathers; `orders` gets the order it sees."""
    session = Session("test", store)

    async def work(context: Any) -> Any:
        # The order of the ends differs from the order of the starts, and again on a rebuild.
        for _ in range((context.input * 7 + len(orders) * 3) % 11):
            await asyncio.sleep(0)
        return context.input

    FunctionNode("work", session, work)

    @session.workflow
    async def body(ctx: Any) -> list[str]:
        order: list[str] = []
        orders.append(order)
        queue: asyncio.Queue[int] = asyncio.Queue()

        async def one(place: int) -> None:
            await ctx.run("work", place)
            order.append(f"did {place}")
            for _ in range(place % 13):
                await asyncio.sleep(0)
            await asyncio.gather(*(asyncio.sleep(0) for _ in range(3)))
            await queue.put(place)

        async def collect() -> None:
            while len(order) < 2 * number:
                place = await queue.get()
                order.append(f"got {place}")

        await asyncio.gather(collect(), *(one(place) for place in range(number)))
        await ctx.gate("Continue?")
        return order

    return session


def test_hundreds_of_tasks_see_the_same_order_after_a_restart(execute: Any) -> None:
    async def scenario() -> None:
        store, orders = MemoryStore(), list[list[str]]()
        session = many_tasks(store, orders)
        run = await session.start("body")
        await run.next_gate()
        rebuilt = copied(store, run.run_id, len(store.events(run.run_id)))
        [again] = await many_tasks(rebuilt, orders).recover()
        await again.next_gate()
        await again.answer("yes")
        assert await again.wait() == orders[0]
        assert len(orders) == 2

    execute(scenario())


def polling(store: MemoryStore, polls: list[int], most: int | None) -> Session:
    """A body that polls for the result of a step, at most `most` times."""
    session = Session("test", store)

    async def work(context: Any) -> str:
        return "done"

    FunctionNode("work", session, work)

    @session.workflow
    async def body(ctx: Any) -> int:
        step, count = asyncio.ensure_future(ctx.run("work")), 0
        polls.append(0)
        while not step.done() and count != most:
            count = polls[-1] = count + 1
            await asyncio.sleep(0)
        await step
        await ctx.gate("Continue?")
        return count

    return session


def test_a_body_that_polls_receives_the_result_only_when_it_stops(execute: Any) -> None:
    async def scenario() -> None:
        store, polls = MemoryStore(), list[int]()
        run = await polling(store, polls, most=500).start("body")
        await run.next_gate()
        rebuilt = copied(store, run.run_id, len(store.events(run.run_id)))
        [again] = await polling(rebuilt, polls, most=500).recover()
        await again.next_gate()
        await again.answer("yes")
        assert await again.wait() == 500
        assert polls == [500, 500]

    execute(scenario())


def test_a_body_that_polls_forever_is_named_in_the_log_and_can_be_stopped(
    execute: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_dispatcher, "BUSY_TURNS_BEFORE_WARNING", 200)

    async def scenario() -> None:
        polls: list[int] = []
        run = await polling(MemoryStore(), polls, most=None).start("body")
        while not polls or polls[0] < 1000:  # noqa: ASYNC110 - the body polls
            await asyncio.sleep(0)
        assert [run.run_id in record.message for record in caplog.records] == [True]
        assert "Wait for a task or an asyncio.Event instead" in caplog.text
        assert "polls" in caplog.text
        await run.stop()
        assert run.state.value == "cancelled"

    with caplog.at_level(logging.WARNING, "nerve"):
        execute(scenario())
