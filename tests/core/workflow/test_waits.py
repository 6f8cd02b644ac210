"""Timers, signals and timeouts: recorded, and the same after a restart."""

import asyncio

import pytest

from core.workflow.support import Latch, at_gate, data_of, types, until, within
from nerve import FunctionNode, Graph, Session
from nerve.core.nodes.control import GateNode
from nerve.core.workflow import WorkflowState
from nerve.errors import WorkflowFailed
from nerve.testing import VirtualClock


async def nap(ctx):
    await ctx.sleep(0.3)
    return "awake"


async def listen(ctx):
    return await ctx.wait_signal("deployed", key=ctx.input)


async def waiting(session, fn, input=None):
    session.workflow(fn)
    run = await session.start(fn.__name__, input)
    await until(lambda: run.state is WorkflowState.WAITING and run.view.state == "waiting")
    return run


async def test_a_run_is_waiting_during_a_sleep(session):
    run = await waiting(session, nap)
    assert await within(run.wait()) == "awake"
    assert types(run)[1:-1] == ["timer_started", "timer_fired"]


async def test_sleeping_zero_seconds_returns_at_once(session):
    @session.workflow
    async def blink(ctx):
        await ctx.sleep(0)
        return "awake"

    assert await within((await session.start("blink")).wait()) == "awake"


async def test_a_timer_that_passed_while_the_process_was_down_fires_once_on_recovery(file):
    clock = VirtualClock(skip=False)
    async with Session("test", file, clock=clock) as session:
        await waiting(session, nap)
    clock.jump(1)
    async with Session("test", file, clock=clock) as session:
        session.workflow(nap)
        (run,) = await session.recover()
        assert await within(run.wait()) == "awake"
        assert types(run).count("timer_fired") == 1


async def test_a_timer_keeps_its_deadline_over_a_restart(file):
    async def doze(ctx):
        await ctx.sleep(60)

    async with Session("test", file) as session:
        run = await waiting(session, doze)
        deadline = data_of(run, "timer_started")[0]["deadline"]
    async with Session("test", file) as session:
        session.workflow(doze)
        (run,) = await session.recover()
        assert data_of(run, "timer_started") == [data_of(run, "timer_started")[0]]
        assert session.engine.store.run(run.run_id).wake == deadline
        assert run.state is WorkflowState.WAITING


async def test_a_wait_returns_the_value_of_the_signal(session):
    run = await waiting(session, listen)
    assert await run.signal("other", 1) == 0
    assert await run.signal("deployed", {"version": 3}) == 1
    assert await run.wait() == {"version": 3}
    assert data_of(run, "signal_received")[0]["value"] == {"version": 3}


async def test_a_wait_with_a_key_matches_only_signals_with_that_key(session):
    run = await waiting(session, listen, "prod")
    assert await run.signal("deployed", 1, key="test") == 0
    assert await run.signal("deployed", 2, key="prod") == 1
    assert await run.wait() == 2


async def test_a_wait_without_a_key_matches_any_key(session):
    run = await waiting(session, listen)
    assert await run.signal("deployed", 2, key="prod") == 1
    assert await run.wait() == 2


async def test_one_signal_settles_every_wait_for_it(session):
    async def both(ctx):
        return await asyncio.gather(ctx.wait_signal("go"), ctx.wait_signal("go"))

    session.workflow(both)
    run = await session.start("both")
    await until(lambda: types(run).count("signal_waiting") == 2)
    assert await run.signal("go", "now") == 2
    assert await run.wait() == ["now", "now"]


@pytest.mark.requirement("D0-4")
async def test_a_wait_for_a_signal_with_a_timeout_of_zero_returns_at_once(session):
    @session.workflow
    async def look(ctx):
        try:
            await ctx.wait_signal("go", timeout=0)
        except TimeoutError:
            return "nothing there"

    run = await session.start("look")
    assert await within(run.wait()) == "nothing there"
    assert "signal_timeout" in types(run)


async def test_a_signal_reaches_a_run_that_waited_before_the_restart(file):
    async with Session("test", file) as session:
        await waiting(session, listen)
    async with Session("test", file) as session:
        session.workflow(listen)
        (run,) = await session.recover()
        assert await run.signal("deployed", 5) == 1
        assert await within(run.wait()) == 5


async def test_a_signal_is_on_disk_when_signal_returns(file):
    async with Session("test", file) as session:
        run = await waiting(session, listen)
        await run.signal("deployed", 5)
        assert "signal_received" in [row.type for row in session.engine.store.events(run.run_id)]


async def test_a_wait_for_a_signal_needs_a_run(session):
    from nerve import WorkflowContext

    with pytest.raises(RuntimeError, match="not attached"):
        await WorkflowContext(session, None).wait_signal("go")


async def test_a_timeout_block_in_the_body_times_out(session):
    latch = Latch()
    FunctionNode("work", session, latch.leaf)

    @session.workflow
    async def bounded(ctx):
        try:
            async with ctx.timeout(0.2):
                await ctx.run("work", None)
        except TimeoutError as error:
            return str(error)

    run = await session.start("bounded")
    assert await within(run.wait()) == "timed out after 0.2 s"
    assert "node_cancelled" in types(run)


async def test_an_unexpired_timeout_block_leaves_no_timer(session):
    @session.workflow
    async def bounded(ctx):
        async with ctx.timeout(60):
            ctx.emit("inside")
        return "done"

    run = await session.start("bounded")
    assert await within(run.wait()) == "done"
    assert session.engine.executors == {}


async def test_an_expired_timeout_block_replays_at_once_without_executing_steps(file):
    latch = Latch()

    async def bounded(ctx):
        try:
            async with ctx.timeout(0.2):
                await ctx.run("work", None)
        except TimeoutError:
            return await ctx.gate("Late. Continue?")

    async with Session("test", file) as session:
        FunctionNode("work", session, latch.leaf)
        session.workflow(bounded)
        run = await session.start("bounded")
        await at_gate(run)
    async with Session("test", file) as session:
        FunctionNode("work", session, latch.leaf)
        session.workflow(bounded)
        (run,) = await session.recover()
        await run.answer("yes")
        assert await within(run.wait()) == "yes"
    assert latch.inputs == [None]


async def test_a_call_that_the_body_cancelled_stays_cancelled_after_a_restart(file):
    latch = Latch()

    async def impatient(ctx):
        try:
            await asyncio.wait_for(ctx.run("work", None), 0.2)
        except TimeoutError:
            return await ctx.gate("Late. Continue?")

    for part in ("start", "answer"):
        async with Session("test", file) as session:
            FunctionNode("work", session, latch.leaf)
            session.workflow(impatient)
            if part == "start":
                run = await session.start("impatient")
                await at_gate(run)
            else:
                (run,) = await session.recover()
                await run.answer("yes")
                assert await within(run.wait()) == "yes"
    assert latch.inputs == [None]


async def test_the_first_of_two_calls_to_finish_is_the_first_again_after_a_restart(file):
    latches = {"a": Latch(), "b": Latch()}

    async def race(ctx):
        tasks = {asyncio.ensure_future(ctx.run(name, name)): name for name in "ab"}
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = [tasks[task] for task in done]
        rest = await asyncio.gather(*tasks)
        return [first, [r["output"] for r in rest], await ctx.gate("Continue?")]

    async with Session("test", file) as session:
        for name, latch in latches.items():
            FunctionNode(name, session, latch.leaf)
        session.workflow(race)
        run = await session.start("race")
        latches["b"].open.set()
        await until(lambda: "node_completed" in types(run))
        latches["a"].open.set()
        await at_gate(run)
    async with Session("test", file) as session:
        for name, latch in latches.items():
            FunctionNode(name, session, latch.leaf)
        session.workflow(race)
        (run,) = await session.recover()
        await run.answer("yes")
        assert await within(run.wait()) == [["b"], ["a", "b"], "yes"]


async def test_the_timeout_of_a_graph_is_not_paused_by_a_gate_in_it(session):
    GateNode("ask", session, "Well?")
    session.register_workflow(Graph("bounded", session, timeout=0.05).add_step_ref("ask", "ask"))
    run = await session.start("bounded")
    with pytest.raises(WorkflowFailed, match=r"timed out after 0\.05 s"):
        await within(run.wait())
    assert [event.path for event in run.events if event.event_type == "gate_cancelled"] == ["/ask/answer"]
    assert run.pending_gates == []
