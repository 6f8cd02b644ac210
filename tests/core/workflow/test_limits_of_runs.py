"""Limits and budgets of runs."""

import asyncio
import time

import pytest

from core.workflow.support import Latch, at_gate, counted, data_of, until, within
from nerve import FunctionNode, Limits, Session
from nerve.core.nodes.control import LoopNode, WhileNode
from nerve.core.workflow import Workflow, WorkflowState
from nerve.errors import LimitReached, RunHeld
from nerve.journal.index import JournalIndex
from nerve.store.port import EventRow
from nerve.testing import VirtualClock


def priced(session, tokens=10, cost=0.25):
    usage = {"input_tokens": tokens - 4, "output_tokens": 4, "cost": cost}
    seen = []

    async def agent(context):
        seen.append(context.input)
        return {"output": context.input, "attributes": {"usage": usage}}

    FunctionNode("agent", session, agent)
    return seen


async def spend(ctx):
    for number in range(4):
        await ctx.run("agent", number)
    return "done"


def says(error, name, value):
    text = str(error)
    assert f"{name}={value}" in text
    assert f"Limits({name}=" in text
    assert "session.start(limits=" in text


async def test_a_run_that_exceeds_its_steps_fails_and_names_the_limit(session):
    seen = counted(session, "work")

    @session.workflow
    async def body(ctx):
        for number in range(10):
            await ctx.run("work", number)

    run = await session.start("body", limits=Limits(steps=3))
    with pytest.raises(LimitReached) as caught:
        await within(run.wait())
    says(caught.value, "steps", 3)
    assert "/work[4]" in str(caught.value)
    assert (caught.value.limit, seen) == ("steps", [0, 1, 2])
    assert data_of(run, "workflow_failed")[0]["error_type"] == "LimitReached"


async def test_exactly_as_many_steps_as_allowed_succeed(session):
    counted(session, "work")

    @session.workflow
    async def body(ctx):
        for number in range(3):
            await ctx.run("work", number)
        return "done"

    assert await within((await session.start("body", limits=Limits(steps=3))).wait()) == "done"


async def test_a_body_cannot_bypass_a_limit_by_catching_exceptions(session):
    seen = counted(session, "work")

    @session.workflow
    async def body(ctx):
        for number in range(10):
            try:
                await ctx.run("work", number)
            except Exception:
                ctx.state["caught"] = True
        return "escaped"

    with pytest.raises(LimitReached):
        await within((await session.start("body", limits=Limits(steps=2))).wait())
    assert seen == [0, 1]


async def test_a_loop_that_exceeds_the_iterations_fails_the_run(session):
    counted(session, "work")
    loop = WhileNode("loop", session, lambda state: True, session.nodes["work"], max_iterations=50)
    session.register_workflow(loop)
    with pytest.raises(LimitReached) as caught:
        await within((await session.start("loop", 0, limits=Limits(iterations=5))).wait())
    says(caught.value, "iterations", 5)


async def test_iterations_of_several_loops_are_counted_together(session):
    counted(session, "work")
    LoopNode("three", session, session.nodes["work"], times=3)

    @session.workflow
    async def body(ctx):
        await ctx.run("three", 0)
        await ctx.run("three", 0)

    with pytest.raises(LimitReached, match="iterations=5"):
        await within((await session.start("body", limits=Limits(iterations=5))).wait())


async def test_a_run_with_more_failed_steps_than_allowed_fails(session):
    FunctionNode("bad", session, lambda context: 1 / 0)

    @session.workflow
    async def body(ctx):
        for _ in range(10):
            await ctx.run("bad", None)

    run = await session.start("body", limits=Limits(errors=2))
    with pytest.raises(LimitReached) as caught:
        await within(run.wait())
    says(caught.value, "errors", 2)


async def test_a_run_that_exceeds_its_wall_time_fails_and_its_leaf_is_cancelled(session):
    ended = []

    async def slow(context):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    FunctionNode("slow", session, slow)

    @session.workflow
    async def body(ctx):
        await ctx.run("slow", None)

    run = await session.start("body", limits=Limits(wall_time=0.05))
    with pytest.raises(LimitReached) as caught:
        await within(run.wait())
    says(caught.value, "wall_time", 0.05)
    assert (run.state, ended) == (WorkflowState.FAILED, [True])


@pytest.mark.requirement("C-15")
async def test_time_spent_waiting_for_a_person_does_not_count():
    clock = VirtualClock(skip=False)
    session = Session(clock=clock)

    @session.workflow
    async def body(ctx):
        return await ctx.gate("Continue?")

    run = await session.start("body", limits=Limits(wall_time=3600))
    await at_gate(run)
    clock.jump(hours=2)
    await asyncio.sleep(0)
    assert run.state is WorkflowState.WAITING
    await run.answer("yes")
    assert await within(run.wait()) == "yes"


@pytest.mark.parametrize("how", ["evicted", "restarted"])
async def test_execution_time_before_a_rebuild_still_counts(file, how):
    clock = VirtualClock(skip=False)

    async def work(context):
        clock.jump(minutes=40)
        await asyncio.sleep(0)

    def opened():
        session = Session("test", file, clock=clock)
        FunctionNode("work", session, work)

        @session.workflow
        async def body(ctx):
            await ctx.run("work")
            await ctx.gate("Continue?")
            await ctx.run("work")

        return session

    async with opened() as session:
        run = await session.start("body", limits=Limits(wall_time=3600))
        await at_gate(run)
        if how == "evicted":
            session.engine.idle_runs.evict(session.engine.executors[run.run_id])
            await run.answer("yes")
            with pytest.raises(LimitReached, match="wall_time"):
                await within(run.wait())
            return
    async with opened() as session:
        (run,) = await session.recover()
        await run.answer("yes")
        with pytest.raises(LimitReached, match="wall_time"):
            await within(run.wait())


def test_waits_child_runs_and_downtime_do_not_count_as_wall_time():
    told = [
        (1, "workflow_started", "", None, "{}"),
        (2, "node_started", "/a", None, "{}"),
        (5, "node_retrying", "/a", None, '{"recovered":true}'),
        (6, "node_completed", "/a", "/a", '{"output":"\\"recovered\\":true"}'),
        (7, "timer_started", "/~timeout", None, '{"guard":true}'),
        (8, "gate_waiting", "/gate", None, "{}"),
        (20, "gate_answered", "/gate", "/gate", "{}"),
        (21, "workflow_paused", "", None, "{}"),
        (40, "workflow_resumed", "", None, "{}"),
        (41, "node_started", "/child", None, '{"child":"1","hash":""}'),
        (60, "node_completed", "/child", "/child", "{}"),
        (61, "signal_waiting", "/b", None, "{}"),
        (70, "path_reset", "/b", None, "{}"),
        (71, "node_started", "/c", None, "{}"),
    ]
    rows = [EventRow(seq, at, *rest) for seq, (at, *rest) in enumerate(told, 1)]
    assert [JournalIndex(rows[:upto]).clock.seconds for upto in (0, 1, 2, 4, 6, 8, 9, 11, 14)] == [
        0,
        0,
        1,
        2,
        4,
        5,
        5,
        6,
        8,
    ]


@pytest.mark.requirement("C-15")
async def test_by_default_only_the_depth_is_limited():
    assert Limits().to_dict() == {"depth": 16}


async def test_the_limits_of_a_workflow_apply_to_its_runs_and_start_can_raise_them(session):
    counted(session, "work")

    async def body(ctx):
        await ctx.run("work", 1)
        await ctx.run("work", 2)
        return "done"

    Workflow("body", session, body, limits=Limits(steps=1))
    with pytest.raises(LimitReached, match="steps=1"):
        await within((await session.start("body")).wait())
    assert await within((await session.start("body", limits=Limits(steps=2))).wait()) == "done"


@pytest.mark.parametrize(("budget", "name"), [(Limits(tokens=20), "tokens"), (Limits(cost=0.5), "cost")])
async def test_an_exhausted_budget_holds_the_run_until_it_is_raised(session, budget, name):
    seen = priced(session)
    session.workflow(spend)
    run = await session.start("spend", limits=budget)
    with pytest.raises(RunHeld) as caught:
        await within(run.wait())
    assert caught.value.reason == "budget"
    assert name in str(caught.value)
    assert "resume(limits=" in str(caught.value)
    assert (run.state, run.view.state, seen) == (WorkflowState.HELD, "held", [0, 1])
    await run.resume(limits={name: 1000})
    assert await within(run.wait()) == "done"
    assert seen == [0, 1, 2, 3]


async def test_a_budget_raised_by_too_little_holds_the_run_again(session):
    seen = priced(session)
    session.workflow(spend)
    run = await session.start("spend", limits=Limits(tokens=20))
    for tokens, calls in ((30, 3), (35, 4)):
        with pytest.raises(RunHeld):
            await within(run.wait())
        await run.resume(limits=Limits(tokens=tokens))
        await until(lambda calls=calls: len(seen) == calls)
    assert await within(run.wait()) == "done"


async def test_resuming_without_a_higher_budget_holds_the_run_again(session):
    seen = priced(session)
    session.workflow(spend)
    run = await session.start("spend", limits=Limits(tokens=20))
    with pytest.raises(RunHeld):
        await within(run.wait())
    await run.resume()
    with pytest.raises(RunHeld):
        await within(run.wait())
    assert seen == [0, 1]


async def test_a_run_held_for_its_budget_stays_held_over_a_restart(file):
    async with Session("test", file) as session:
        priced(session)
        session.workflow(spend)
        run = await session.start("spend", limits=Limits(tokens=20))
        with pytest.raises(RunHeld):
            await within(run.wait())
    async with Session("test", file) as session:
        again = priced(session)
        session.workflow(spend)
        (run,) = await session.recover()
        assert (run.state, run.to_info().held["reason"]) == (WorkflowState.HELD, "budget")
        with pytest.raises(RunHeld):
            await within(run.wait())
        await run.resume(limits={"tokens": 100})
        assert await within(run.wait()) == "done"
        assert again == [2, 3]


async def test_a_raised_budget_persists_over_a_restart(file):
    latch = Latch()

    async def slow_spend(ctx):
        await ctx.run("agent", 1)
        await ctx.run("slow", 2)
        await ctx.run("agent", 3)
        return "done"

    async with Session("test", file) as session:
        priced(session)
        FunctionNode("slow", session, latch.leaf)
        session.workflow(slow_spend)
        run = await session.start("slow_spend", limits=Limits(tokens=10))
        with pytest.raises(RunHeld):
            await within(run.wait())
        await run.resume(limits={"tokens": 100})
        await latch.entered.wait()
    latch.open.set()
    async with Session("test", file) as session:
        priced(session)
        FunctionNode("slow", session, latch.leaf)
        session.workflow(slow_spend)
        (run,) = await session.recover()
        assert await within(run.wait()) == "done"


async def test_usage_before_a_restart_counts_after_it(file):
    async def body(ctx):
        await ctx.run("agent", 1)
        await ctx.gate("Continue?")
        await ctx.run("agent", 2)
        await ctx.run("agent", 3)

    for part in ("start", "recover"):
        async with Session("test", file) as session:
            priced(session)
            session.workflow(body)
            if part == "start":
                run = await session.start("body", limits=Limits(steps=2))
                await at_gate(run)
            else:
                (run,) = await session.recover()
                await run.answer("yes")
                with pytest.raises(LimitReached, match="steps=2"):
                    await within(run.wait())


async def test_a_budget_exhausted_by_a_child_holds_its_parent(session):
    priced(session, tokens=30)

    @session.workflow
    async def child(ctx):
        await ctx.run("agent", 1)

    @session.workflow
    async def parent(ctx):
        await ctx.run_workflow("child")
        await ctx.run("agent", 2)
        return "done"

    run = await session.start("parent", limits=Limits(tokens=20))
    with pytest.raises(RunHeld, match="30 of 20 tokens"):
        await within(run.wait())
    await run.resume(limits={"tokens": 100})
    assert await within(run.wait()) == "done"


async def test_parallel_calls_beyond_the_budget_wait_until_it_is_raised(session):
    seen = priced(session, tokens=10)

    @session.workflow
    async def body(ctx):
        await ctx.run("agent", 0)
        return len(await ctx.run_parallel([("agent", number) for number in range(1, 4)]))

    run = await session.start("body", limits=Limits(tokens=10))
    with pytest.raises(RunHeld):
        await within(run.wait())
    assert seen == [0]
    await run.resume(limits={"tokens": 1000})
    assert await within(run.wait()) == 3


async def test_the_gate_time_of_a_child_does_not_count_for_its_parents(session):
    latch = Latch()
    FunctionNode("slow", session, latch.leaf)

    @session.workflow
    async def child(ctx):
        await ctx.gate("Continue?")
        await ctx.run("slow")

    @session.workflow
    async def between(ctx):
        return await ctx.run_workflow("child")

    @session.workflow(limits=Limits(wall_time=0.3))
    async def parent(ctx):
        return await ctx.run_workflow("between")

    run = await session.start("parent")
    await until(lambda: run.pending_gates)
    began = time.monotonic()
    await until(lambda: time.monotonic() > began + 0.5)
    assert run.state is WorkflowState.WAITING
    await run.answer("yes")
    with pytest.raises(LimitReached, match="wall_time"):
        await within(run.wait())
