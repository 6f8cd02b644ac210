"""The mailbox of a run: messages are received in order, each once, whatever happens to the run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.conftest import until
from nerve import Session, WorkflowContext, WorkflowState
from nerve.engine import idle_runs
from nerve.errors import InvalidValue


@dataclass
class Order:
    item: str
    count: int = 1


def register(session: Session) -> None:
    @session.workflow
    async def collect(ctx: WorkflowContext) -> list[Any]:
        """Receive messages until "end"."""
        received: list[Any] = []
        async for message in ctx.receive("orders"):
            if message == "end":
                return received
            received.append(message)
        return received

    @session.workflow
    async def gate_first(ctx: WorkflowContext) -> list[Any]:
        await ctx.gate("Open?")
        return [await ctx.receive("orders") for _ in range(3)]


def types(run: Any) -> list[str]:
    return [event.event_type for event in run.events]


async def is_waiting(run: Any) -> None:
    await until(lambda: run.state is WorkflowState.WAITING)


async def test_messages_are_received_in_the_order_in_which_they_were_sent(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("collect")
        for number in range(20):
            await run.send("orders", number)
        await run.send("orders", "end")
        assert await run.wait() == list(range(20))


async def test_messages_sent_before_the_body_receives_are_kept(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("gate_first")
        for number in range(3):
            await run.send("orders", number)
        await is_waiting(run)
        await run.answer("yes")
        assert await run.wait() == [0, 1, 2]


async def test_messages_survive_a_restart_before_and_after_they_are_received(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("collect")
        await run.send("orders", 1)
        await is_waiting(run)
    async with Session(store=file) as session:
        register(session)
        [run] = await session.recover()
        await run.send("orders", 2)
    async with Session(store=file) as session:
        register(session)
        [run] = await session.recover()
        await run.send("orders", "end")
        assert await run.wait() == [1, 2]


@pytest.mark.local("looks at executors")
async def test_a_parked_run_is_loaded_for_its_message(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_runs, "MAX_IDLE_RUNS", 1)
    async with Session(store=file) as session:
        register(session)
        runs = [await session.start("collect") for _ in range(3)]
        await until(lambda: len(session.engine.executors) == 1)
        for run in runs:
            await run.send("orders", run.run_id)
            await run.send("orders", "end")
        assert [await run.wait() for run in runs] == [[run.run_id] for run in runs]


async def test_a_message_for_a_paused_run_waits_until_it_is_resumed(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("collect")
        await is_waiting(run)
        await run.pause()
        await run.send("orders", 1)
        await run.send("orders", "end")
        assert run.state is WorkflowState.PAUSED
    async with Session(store=file) as session:
        register(session)
        [run] = await session.recover()
        await run.send("orders", "late")
        await run.resume()
        assert await run.wait() == [1]


async def test_a_second_message_with_the_same_key_is_not_sent(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("collect")
        await run.send("orders", {"a": 1}, key="k")
        await run.send("orders", {"a": 1}, key="k")
        with pytest.raises(ValueError, match="Key 'k' belongs to another message of channel 'orders'"):
            await run.send("orders", {"a": 2}, key="k")
        await run.send("orders", "end")
        assert await run.wait() == [{"a": 1}]


async def test_two_receivers_of_one_channel_get_different_messages(file: Path) -> None:
    async with Session(store=file) as session:

        @session.workflow
        async def pair(ctx: WorkflowContext) -> list[Any]:
            return list(await asyncio.gather(ctx.receive("orders"), ctx.receive("orders")))

        run = await session.start(pair)
        await run.send("orders", "first")
        await run.send("orders", "second")
        assert await run.wait() == ["first", "second"]


async def test_a_receiver_can_be_a_task_and_a_cancelled_one_takes_no_message(file: Path) -> None:
    async with Session(store=file) as session:

        @session.workflow
        async def impatient(ctx: WorkflowContext) -> Any:
            task = asyncio.create_task(ctx.receive("orders"))
            await ctx.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            return await ctx.receive("orders")

        run = await session.start(impatient)
        await until(lambda: types(run).count("message_waiting") == 2)
        await run.send("orders", "kept")
        assert await run.wait() == "kept"


async def test_a_message_that_a_cancelled_receiver_did_not_get_goes_to_the_next(file: Path) -> None:
    """The message has settled the wait, but the body cancels the wait before its turn."""

    def register_racing(session: Session) -> None:
        @session.workflow
        async def racing(ctx: WorkflowContext) -> Any:
            first = asyncio.create_task(ctx.receive("orders"))
            await ctx.receive("start")
            first.cancel()
            await asyncio.wait([first])
            order = await ctx.receive("orders")
            return [first.cancelled(), order, await ctx.gate("Ship?")]

    async with Session(store=file) as session:
        register_racing(session)
        run = await session.start("racing")
        await is_waiting(run)
        await run.pause()
        await run.send("start")
        await run.send("orders", "kept")
        await run.resume()
        await until(lambda: run.pending_gate)
        types = [event.event_type for event in run.events]
        assert types.count("message_received") == 3
    async with Session(store=file) as session:
        register_racing(session)
        [run] = await session.recover()
        await run.answer("yes")
        assert await run.wait() == [True, "kept", "yes"]


async def test_a_receive_times_out(file: Path) -> None:
    async with Session(store=file) as session:

        @session.workflow
        async def waiting(ctx: WorkflowContext) -> Any:
            try:
                return await ctx.receive("orders", timeout=0.01)
            except TimeoutError as error:
                return str(error)

        run = await session.start(waiting)
        assert await run.wait() == "message 'orders' timed out after 0.01 s"


@pytest.mark.local("looks at executors")
async def test_typed_messages_are_decoded(file: Path) -> None:
    async with Session(store=file) as session:

        @session.workflow(channels={"orders": Order, "notes": str})
        async def typed(ctx: WorkflowContext) -> str:
            order = await ctx.receive("orders", Order)
            return f"{type(order).__name__} {order.item} {order.count}"

        run = await session.start(typed)
        with pytest.raises(
            ValueError, match=r"Unknown channel 'order' of workflow 'typed'. Did you mean 'orders'"
        ):
            await run.send("order", Order("tea"))
        with pytest.raises(
            InvalidValue, match=r"The message.count of channel 'orders' must be a valid integer"
        ):
            await run.send("orders", {"item": "tea", "count": "two"})
        await run.send("orders", {"item": "tea", "count": 2})
        assert await run.wait() == "Order tea 2"


async def test_a_dataclass_is_sent_to_an_undeclared_channel(file: Path) -> None:
    async with Session(store=file) as session:

        @session.workflow
        async def untyped(ctx: WorkflowContext) -> Any:
            return await ctx.receive("orders")

        run = await session.start(untyped)
        await run.send("orders", Order("tea", 2))
        assert await run.wait() == {"item": "tea", "count": 2}


async def test_a_message_to_a_run_that_has_ended_is_an_error(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("collect")
        await run.send("orders", "end")
        await run.wait()
        with pytest.raises(RuntimeError, match="is completed and cannot take a message to channel 'orders'"):
            await run.send("orders", 1)


@pytest.mark.parametrize("name", ["", "~update/x", 3])
async def test_a_wrong_channel_name_is_an_error(file: Path, name: Any) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("collect")
        with pytest.raises((ValueError, TypeError), match="channel"):
            await run.send(name, 1)


async def test_the_state_of_a_receiving_run_is_waiting_and_says_for_what(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("collect")
        await is_waiting(run)
        [wait] = session.engine.store.waits_of_run(run.run_id)
        assert (wait.kind, wait.path) == ("message", "/orders")


async def test_a_fork_has_the_messages_that_its_source_had_there(file: Path) -> None:
    async with Session(store=file) as session:

        @session.node
        async def work(context: Any) -> Any:
            return context.input

        @session.workflow
        async def two(ctx: WorkflowContext) -> list[Any]:
            await ctx.gate("Open?")
            first = await ctx.receive("orders")
            await ctx.run("work", first)
            return [first, await ctx.receive("orders")]

        run = await session.start("two")
        await run.send("orders", 1)
        await run.send("orders", 2)
        await is_waiting(run)
        await run.answer("yes")
        assert await run.wait() == [1, 2]
        fork = await session.fork(run.run_id, at="/work")
        assert await fork.wait() == [1, 2]


async def test_a_second_message_with_the_same_key_is_not_sent_to_a_run_that_has_ended(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("collect")
        await run.send("orders", "end", key="k")
        await run.wait()
        events = len(run.events)
        await run.send("orders", "end", key="k")
        with pytest.raises(ValueError, match="Key 'k' belongs to another message of channel 'orders'"):
            await run.send("orders", "other", key="k")
        with pytest.raises(RuntimeError, match="is completed and cannot take a message to channel 'orders'"):
            await run.send("orders", "end", key="new")
        assert len(run.events) == events
