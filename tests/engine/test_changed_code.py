"""Changed code and an existing journal: the run is held when they differ, and continues with changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import Latch, at_gate, counted, types, until, within
from nerve import FunctionNode, Graph, Session
from nerve.core.runtime import SignalWait
from nerve.engine import result_dispatcher
from nerve.errors import RunHeld

pytestmark = pytest.mark.local("restarts with other code; Temporal needs another build for that")


async def three_steps(ctx):
    for name in ("a", "b"):
        await ctx.run(name, 1)
    return await ctx.gate("Continue?")


async def one_step(ctx):
    return (await ctx.run("a", 1))["output"]


def opened(file: Path | None, body: Any) -> tuple[Session, dict[str, list[Any]]]:
    session = Session("test", file)
    session.workflow(body, id="body")
    return session, {name: counted(session, name) for name in "ab"}


async def test_code_that_now_ends_earlier_holds_the_run_and_completes_with_changes(file: Path) -> None:
    session, _ = opened(file, three_steps)
    async with session:
        await at_gate(await session.start("body"))
    session, again = opened(file, one_step)
    async with session:
        (run,) = await session.recover()
        await run.answer("yes")
        with pytest.raises(RunHeld, match="mismatch"):
            await within(run.wait())
        await run.resume(with_changes=True)
        assert await within(run.wait()) == 1
        assert again == {"a": [], "b": []}


async def test_a_fork_completes_with_code_that_now_ends_earlier() -> None:
    session, seen = opened(None, three_steps)
    run = await session.start("body")
    await at_gate(run)
    await run.answer("yes")
    await within(run.wait())
    session.delete_workflow("body")
    session.workflow(one_step, id="body")
    fork = await session.fork(run.run_id)
    assert await within(fork.wait()) == 1
    assert seen == {"a": [1], "b": [1]}


# -- an abandoned call -------------------------------------------------------------------------


async def cancels(ctx):
    task = asyncio.create_task(ctx.run("slow", 1))
    await ctx.run("a", 1)
    task.cancel()
    await asyncio.wait([task])
    return await ctx.gate("Continue?")


async def cancels_no_more(ctx):
    task = asyncio.create_task(ctx.run("slow", 1))
    await ctx.run("a", 1)
    return [(await task)["output"], await ctx.gate("Continue?")]


async def waits_for_it(ctx):
    await ctx.run("a", 1)
    try:
        await asyncio.wait_for(ctx.run("slow", 1), 0.05)
    except TimeoutError:
        pass
    return await ctx.gate("Continue?")


async def bounds_it(ctx):
    await ctx.run("a", 1)
    try:
        async with asyncio.timeout(0.05):
            await ctx.run("slow", 1)
    except TimeoutError:
        pass
    return await ctx.gate("Continue?")


async def bounds_it_no_more(ctx):
    await ctx.run("a", 1)
    return [(await ctx.run("slow", 1))["output"], await ctx.gate("Continue?")]


async def left_at_the_gate(file: Path, body: Any, latch: Latch) -> None:
    session, _ = opened(file, body)
    async with session:
        FunctionNode("slow", session, latch.leaf)
        await at_gate(await session.start("body"))


@pytest.mark.parametrize(
    ("before", "now"),
    [(cancels, cancels_no_more), (waits_for_it, bounds_it_no_more), (bounds_it, bounds_it_no_more)],
)
async def test_a_call_that_the_code_no_longer_abandons_holds_the_run_or_runs_again(
    file: Path, monkeypatch: pytest.MonkeyPatch, before: Any, now: Any
) -> None:
    monkeypatch.setattr(result_dispatcher, "REPLAY_TIMEOUT_S", 0.3)
    latch = Latch()
    await left_at_the_gate(file, before, latch)
    session, again = opened(file, now)
    async with session:
        FunctionNode("slow", session, latch.leaf)
        (run,) = await session.recover()
        await run.answer("yes")
        with pytest.raises(RunHeld, match="mismatch"):
            await within(run.wait(), 5)
        assert len(latch.inputs) <= 1
        latch.inputs.clear()
        latch.open.set()
        await run.resume(with_changes=True)
        await at_gate(run)
        await run.answer("yes to that")
        assert await within(run.wait()) == [1, "yes to that"]
        assert (latch.inputs, again["a"]) == ([1], [])


@pytest.mark.parametrize("body", [cancels, waits_for_it, bounds_it])
async def test_a_call_that_the_code_still_abandons_is_abandoned_again(file: Path, body: Any) -> None:
    latch = Latch()
    await left_at_the_gate(file, body, latch)
    session, again = opened(file, body)
    async with session:
        FunctionNode("slow", session, latch.leaf)
        (run,) = await session.recover()
        await run.answer("yes")
        assert await within(run.wait()) == "yes"
        assert (len(latch.inputs) <= 1, again["a"]) == (True, [])


# -- a graph that is reset ---------------------------------------------------------------------


async def two_parts(ctx):
    await ctx.run("a", ctx.input)
    return (await ctx.run("graph", ctx.input))["output"]


def with_graph(file: Path, latch: Latch) -> tuple[Session, list[Any]]:
    """A graph whose first step always has the same input, and whose second step has the graph's."""
    session, seen = opened(file, two_parts)
    graph = Graph("graph", session)
    graph.add_step(session.nodes["b"], "first", input_fn=lambda up: "same")
    last = FunctionNode("last", session, latch.leaf)
    graph.add_step(last, depends_on=["first"], input_fn=lambda up: up["input"])
    return session, seen["b"]


async def test_a_graph_with_another_input_in_a_fork_runs_again_completely(file: Path) -> None:
    latch = Latch()
    session, first = with_graph(file, latch)
    async with session:
        run = await session.start("body", 1)
        await until(lambda: latch.inputs == [1])
        fork = await session.fork(run.run_id, input=2)
        await until(lambda: latch.inputs == [1, 2])
        assert first == ["same", "same"]
        assert types(fork).count("step_completed") == 2
    latch.open.set()
    session, first = with_graph(file, latch)
    async with session:
        runs = {run.run_id: run for run in await session.recover()}
        assert await within(runs[fork.run_id].wait()) == 2
        assert await within(runs[run.run_id].wait()) == 1
        assert first == []


# -- a changed wait ----------------------------------------------------------------------------


def asks_with(form: Any) -> Any:
    async def body(ctx):
        return await ctx.gate("Which?", form=form)

    return body


def waits_for(*pattern: Any) -> Any:
    async def body(ctx):
        await ctx.gate("Begin?")
        return await ctx.execution.wait(SignalWait("/seen", "", patterns={"seen": pattern}))

    return body


async def held_with(file: Path, body: Any) -> str:
    """Return the message of a run that is recovered with another body, and answered."""
    session, _ = opened(file, body)
    async with session:
        await session.recover()
        (info,) = session.list_workflow_runs()
        run = session.get_workflow_run(info.run_id)
        await run.resume()
        with pytest.raises(RunHeld, match="mismatch") as caught:
            await within(run.wait())
        return caught.value.message


async def test_a_gate_with_another_form_holds_the_run_and_the_message_has_both_forms(file: Path) -> None:
    session, _ = opened(file, asks_with({"type": "string"}))
    async with session:
        run = await session.start("body")
        await at_gate(run)
        await run.pause()
    told = await held_with(file, asks_with({"type": "object"}))
    assert '"form":{"type":"string"}' in told.partition("the code now requests")[0]
    assert '"form":{"type":"object"}' in told.partition("the code now requests")[2]


async def test_a_wait_for_another_fact_holds_the_run_and_the_message_has_both_patterns(file: Path) -> None:
    session, _ = opened(file, waits_for("price", "?x"))
    async with session:
        run = await session.start("body")
        await at_gate(run)
        await run.answer("yes")
        await until(lambda: "signal_waiting" in types(run))
        await run.pause()
    told = await held_with(file, waits_for("cost", "?x"))
    assert '"price"' in told.partition("the code now requests")[0]
    assert '"cost"' in told.partition("the code now requests")[2]


async def listens_beside(ctx):
    hearing = asyncio.create_task(ctx.wait_signal("go"))
    await ctx.run("a", 1)
    return [await ctx.gate("Continue?"), await hearing]


async def listens_no_more(ctx):
    await ctx.run("a", 2)
    return [await ctx.gate("First?"), await ctx.gate("Second?")]


async def listens_later(ctx):
    await ctx.run("a", 2)
    return [await ctx.gate("First?"), await ctx.wait_signal("go"), await ctx.gate("Second?")]


@pytest.mark.parametrize(
    ("now", "result"), [(listens_no_more, ["one", "two"]), (listens_later, ["one", "v", "two"])]
)
async def test_a_signal_for_a_wait_that_changed_code_has_not_reached_does_not_block_a_restart(
    file: Path, now: Any, result: list[str]
) -> None:
    session, _ = opened(file, listens_beside)
    async with session:
        run = await session.start("body")
        await at_gate(run)
        await run.pause()
    session, _ = opened(file, now)
    async with session:
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        await run.resume(with_changes=True)
        await until(lambda: run.pending_gate and run.pending_gate.prompt == "First?")
        assert await run.signal("go", "v") == 1
        await run.answer("one")
        await until(lambda: run.pending_gate and run.pending_gate.prompt == "Second?")
        await run.pause()
    for _ in range(2):
        session, again = opened(file, now)
        async with session:
            await session.recover()
            run = session.get_workflow_run(run.run_id)
            await run.resume()
            await until(lambda run=run: run.state.value == "waiting")
            assert again["a"] == []
            await run.pause()
    session, _ = opened(file, now)
    async with session:
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        await run.resume()
        await run.answer("two")
        assert await within(run.wait()) == result
