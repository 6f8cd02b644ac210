"""Queries read the state of a body, updates change it; both from outside, while the run is open."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.conftest import until
from nerve import Session, WorkflowContext, WorkflowState
from nerve.engine import idle_runs
from nerve.errors import InvalidValue, UpdateFailed, UpdateRejected


@dataclass
class Item:
    name: str
    count: int = 1


def register(session: Session) -> None:
    @session.node
    async def price(context: Any) -> int:
        return len(context.input)

    @session.workflow
    async def cart(ctx: WorkflowContext) -> list[str]:
        items: list[str] = []

        def check(item: Item) -> None:
            if item.count < 1:
                raise ValueError(f"count must be at least 1, got {item.count}")

        async def add(item: Item) -> int:
            if item.name == "broken":
                raise RuntimeError("the shelf is empty")
            cost = (await ctx.run("price", item.name))["output"]
            items.append(item.name)
            return cost + len(items)

        ctx.query("items", lambda: items)
        ctx.update("add_item", add, validate=check)
        await ctx.gate("Check out?")
        return items


async def start_cart(session: Session) -> Any:
    register(session)
    run = await session.start("cart")
    await until(lambda: run.pending_gate)
    return run


async def test_a_query_reads_the_state_of_the_body_and_records_nothing(file: Path) -> None:
    async with Session(store=file) as session:
        run = await start_cart(session)
        before = len(run.events)
        assert await run.query("items") == []
        assert len(run.events) == before


async def test_an_update_changes_the_state_and_replies(file: Path) -> None:
    async with Session(store=file) as session:
        run = await start_cart(session)
        assert await run.update("add_item", Item("tea")) == 4
        assert await run.update("add_item", {"name": "milk", "count": 2}) == 6
        assert await run.query("items") == ["tea", "milk"]
        await run.answer("yes")
        assert await run.wait() == ["tea", "milk"]


async def test_updates_are_handled_again_after_a_restart_without_repeating_their_steps(file: Path) -> None:
    async with Session(store=file) as session:
        run = await start_cart(session)
        await run.update("add_item", Item("tea"))
    async with Session(store=file) as session:
        register(session)
        [run] = await session.recover()
        assert await run.query("items") == ["tea"]
        await run.update("add_item", Item("milk"))
        await run.answer("yes")
        assert await run.wait() == ["tea", "milk"]
        types = [event.event_type for event in run.events]
        assert types.count("node_started") == 2
        assert types.count("update_completed") == 2


@pytest.mark.local("looks at executors")
async def test_a_parked_run_is_loaded_for_a_query_and_an_update(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_runs, "MAX_IDLE_RUNS", 1)
    async with Session(store=file) as session:
        register(session)
        runs = [await session.start("cart") for _ in range(3)]
        await until(lambda: len(session.engine.executors) == 1)
        assert runs[0].run_id not in session.engine.executors
        assert await runs[0].query("items") == []
        await until(lambda: len(session.engine.executors) == 1)
        assert await runs[1].update("add_item", Item("tea")) == 4
        assert runs[1].state is WorkflowState.WAITING


async def test_two_updates_at_once_are_handled_one_after_the_other(file: Path) -> None:
    async with Session(store=file) as session:
        run = await start_cart(session)
        names = [f"item {number}" for number in range(10)]
        replies = await asyncio.gather(*(run.update("add_item", Item(name)) for name in names))
        items = await run.query("items")
        assert sorted(items) == names
        assert replies == [len(name) + items.index(name) + 1 for name in names]


async def test_a_rejected_update_records_nothing(file: Path) -> None:
    async with Session(store=file) as session:
        run = await start_cart(session)
        before = len(run.events)
        with pytest.raises(
            UpdateRejected, match="Update 'add_item' was rejected: count must be at least 1, got 0"
        ):
            await run.update("add_item", Item("tea", 0))
        with pytest.raises(
            InvalidValue, match=r"Parameter 'item.count' of update 'add_item' must be a valid integer"
        ):
            await run.update("add_item", {"name": "tea", "count": "many"})
        assert len(run.events) == before


async def test_an_update_whose_handler_raises_fails_and_the_run_continues(file: Path) -> None:
    async with Session(store=file) as session:
        run = await start_cart(session)
        with pytest.raises(UpdateFailed, match="Update 'add_item' failed: RuntimeError: the shelf is empty"):
            await run.update("add_item", Item("broken"))
        assert await run.update("add_item", Item("tea")) == 4


async def test_a_repeated_update_with_the_same_key_gets_the_first_reply(file: Path) -> None:
    async with Session(store=file) as session:
        run = await start_cart(session)
        assert await run.update("add_item", Item("tea"), key="k") == 4
    async with Session(store=file) as session:
        register(session)
        [run] = await session.recover()
        assert await run.update("add_item", Item("tea"), key="k") == 4
        assert await run.query("items") == ["tea"]


async def test_an_unknown_name_gets_the_nearest_one(file: Path) -> None:
    async with Session(store=file) as session:
        run = await start_cart(session)
        with pytest.raises(ValueError, match=r"Unknown query 'item' of the run. Did you mean 'items'"):
            await run.query("item")
        with pytest.raises(
            ValueError, match=r"Unknown update 'add_items' of the run. Did you mean 'add_item'"
        ):
            await run.update("add_items", Item("tea"))


async def test_a_run_that_has_ended_takes_no_query_and_no_update(file: Path) -> None:
    async with Session(store=file) as session:
        run = await start_cart(session)
        await run.answer("yes")
        await run.wait()
        with pytest.raises(RuntimeError, match="is completed and cannot take a query"):
            await run.query("items")
        with pytest.raises(RuntimeError, match="is completed and cannot take an update"):
            await run.update("add_item", Item("tea"))


async def test_an_update_that_the_run_does_not_live_to_handle_is_an_error(file: Path) -> None:
    async with Session(store=file) as session:

        @session.workflow
        async def slow(ctx: WorkflowContext) -> str:
            async def wait(value: Any) -> None:
                await ctx.gate("Inner?")

            ctx.update("wait", wait)
            await ctx.gate("Outer?")
            return "done"

        run = await session.start(slow)
        await until(lambda: run.pending_gate)
        update = asyncio.ensure_future(run.update("wait"))
        await until(lambda: len(run.pending_gates) == 2)
        await run.answer("yes", run.pending_gates[0].gate_id)
        assert await run.wait() == "done"
        with pytest.raises(RuntimeError, match="ended before it handled the update 'wait'"):
            await update


async def test_a_query_that_uses_the_context_is_an_error_and_changes_nothing(file: Path) -> None:
    def register_wrong(session: Session) -> None:
        @session.workflow
        async def wrong(ctx: WorkflowContext) -> Any:
            ctx.query("now", lambda: str(ctx.now()))
            ctx.query("call", lambda: ctx.gate("No"))
            ctx.query("async", lambda: asyncio.sleep(0))
            return [await ctx.gate("Go?"), await ctx.gate("On?")]

    async with Session(store=file) as session:
        register_wrong(session)
        run = await session.start("wrong")
        await until(lambda: run.pending_gate)
        for name in ("now", "call"):
            with pytest.raises(RuntimeError, match=f"The query '{name}' called the workflow context"):
                await run.query(name)
        with pytest.raises(TypeError, match="The handler of query 'async' is async"):
            await run.query("async")
        await run.answer("a")
        await until(lambda: run.pending_gate)
    async with Session(store=file) as session:
        register_wrong(session)
        [run] = await session.recover()
        await run.answer("b")
        assert await run.wait() == ["a", "b"]


async def test_a_handler_with_wrong_parameters_is_an_error(file: Path) -> None:
    async with Session(store=file) as session:

        @session.workflow
        async def wrong(ctx: WorkflowContext) -> list[str]:
            found = []
            for register in (
                lambda: ctx.query("a", lambda value: value),
                lambda: ctx.update("b", lambda one, two: one),
                lambda: ctx.query("c", 3),  # type: ignore[arg-type]
            ):
                try:
                    register()
                except (TypeError, ValueError) as error:
                    found.append(str(error))
            return found

        run = await session.start(wrong)
        assert await run.wait() == [
            "The handler of query 'a' needs 'value'. A query has no arguments.",
            "The handler of update 'b' has 2 parameters. It gets one value; use a dataclass for several.",
            "handler of query 'c' must be a function, got 3 of type int",
        ]


async def test_an_update_that_is_handled_during_replay_is_answered(file: Path) -> None:
    def register_slow(session: Session) -> None:
        @session.workflow
        async def slow(ctx: WorkflowContext) -> str:
            async def ask(value: Any) -> str:
                answer: str = await ctx.gate("Inner?")
                return answer

            ctx.update("ask", ask)
            await ctx.wait_signal("end")
            return "done"

    async with Session(store=file) as session:
        register_slow(session)
        run = await session.start("slow")
        update = asyncio.ensure_future(run.update("ask", key="k"))
        await until(lambda: run.pending_gate)
        await run.pause()
        await run.answer("yes")
        update.cancel()
    async with Session(store=file) as session:
        register_slow(session)
        [run] = await session.recover()
        await run.resume()
        assert await asyncio.wait_for(run.update("ask", key="k"), 10) == "yes"


async def test_a_repeated_update_is_not_validated_again(file: Path) -> None:
    async with Session(store=file) as session:

        @session.workflow
        async def single(ctx: WorkflowContext) -> list[str]:
            items: list[str] = []

            def check(item: str) -> None:
                if items:
                    raise ValueError("there is an item already")

            ctx.update("add", items.append, validate=check)
            await ctx.gate("Check out?")
            return items

        run = await session.start(single)
        await run.update("add", "tea", key="k")
        await run.update("add", "tea", key="k")
        with pytest.raises(UpdateRejected, match="there is an item already"):
            await run.update("add", "tea", key="other")
        with pytest.raises(ValueError, match="Key 'k' belongs to another"):
            await run.update("add", "milk", key="k")


async def test_a_repeated_update_gets_the_first_reply_also_when_the_run_has_ended(file: Path) -> None:
    async with Session(store=file) as session:
        run = await start_cart(session)
        assert await run.update("add_item", Item("tea"), key="k") == 4
        with pytest.raises(UpdateFailed):
            await run.update("add_item", Item("broken"), key="broken")
        await run.answer("yes")
        await run.wait()
        assert await run.update("add_item", Item("tea"), key="k") == 4
    async with Session(store=file) as session:
        register(session)
        ended = session.get_workflow_run(run.run_id)
        assert ended is not None
        assert await ended.update("add_item", Item("tea"), key="k") == 4
        with pytest.raises(UpdateFailed, match="the shelf is empty"):
            await ended.update("add_item", Item("broken"), key="broken")
        with pytest.raises(RuntimeError, match="is completed and cannot take an update"):
            await ended.update("add_item", Item("tea"), key="new")


async def test_a_repeated_update_of_an_ended_run_must_have_the_same_value(file: Path) -> None:
    async def check(run: Any) -> None:
        for same in (Item("tea"), {"name": "tea"}, {"name": "tea", "count": 1}):
            assert await run.update("add_item", same, key="one") == 4
        for other in (Item("milk"), {"name": "tea", "count": 2}):
            with pytest.raises(ValueError, match="Key 'one' belongs to another message"):
                await run.update("add_item", other, key="one")
        with pytest.raises(RuntimeError, match="cannot take an update"):
            await run.update("add_item", Item("tea"), key="two")

    async with Session(store=file) as session:
        run = await start_cart(session)
        assert await run.update("add_item", Item("tea"), key="one") == 4
        await run.stop()
        await check(run)
    async with Session(store=file) as session:
        register(session)
        await check(session.get_workflow_run(run.run_id))


async def wait_in_parallel(ctx: WorkflowContext) -> None:
    await asyncio.gather(ask(ctx, "first"), ask(ctx, "second"))


async def ask(ctx: WorkflowContext, question: str) -> Any:
    return await ctx.gate(question)


@pytest.mark.local("looks into the store")
async def test_the_stack_shows_where_the_code_of_a_run_waits(file: Path) -> None:
    async with Session(store=file) as session:
        session.workflow(wait_in_parallel)
        run = await session.start("wait_in_parallel")
        await until(lambda: run.state is WorkflowState.WAITING)
        stack = await run.query("~stack")
        main, *asking = stack.split("\n\n")
        assert re.search(r"line \d+, in wait_in_parallel\n    await asyncio.gather\(ask", main)
        assert len(asking) == 2
        for part in asking:
            assert re.fullmatch(r'  File ".*", line \d+, in ask\n    return await ctx.gate\(question\)', part)
        last = run.run_id
    # A run that is parked on disk is loaded for it, and nothing is recorded.
    async with Session(store=file) as session:
        session.workflow(wait_in_parallel)
        before = session.engine.store.last_event(last)
        run = session.get_workflow_run(last)
        assert await run.query("~stack") == stack
        assert session.engine.store.last_event(last) == before
