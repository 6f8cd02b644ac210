"""Child runs: started once, with their own journal, shown under their parent."""

import asyncio

import pytest

from core.workflow.support import (
    Latch,
    SlowCleanup,
    at_gate,
    copy_store,
    counted,
    data_of,
    types,
    until,
    within,
)
from nerve import FunctionNode, Graph, Limits, MockNode, Retry, Session
from nerve.core.nodes.control import GateNode
from nerve.core.workflow import Workflow, WorkflowState
from nerve.errors import RunHeld, WorkflowFailed
from nerve.testing import VirtualClock


async def ask(ctx):
    return await ctx.gate("Child asks?")


async def parent(ctx):
    return await ctx.run_workflow("ask", ctx.input)


def family(file=None):
    session = Session("test", file)
    session.workflow(ask), session.workflow(parent)
    return session


def child_of(session, run):
    (row,) = [row for row in session.engine.store.runs() if row.parent == run.run_id]
    return session.get_workflow_run(row.run)


@pytest.mark.requirement("S0-74")
@pytest.mark.requirement("S1-47")
@pytest.mark.requirement("C-17")
async def test_run_workflow_returns_the_value_of_a_child_run_with_its_own_journal(session):
    @session.workflow
    async def double(ctx):
        return ctx.input * ctx.params["times"]

    @session.workflow
    async def around(ctx):
        return await ctx.run_workflow("double", 21, {"times": 2})

    run = await session.start("around")
    assert await run.wait() == 42
    child = child_of(session, run)
    assert (child.workflow_id, child.to_info().result) == ("double", 42)
    assert data_of(child, "workflow_started")[0]["parent"] == run.run_id


async def test_an_unknown_child_workflow_is_a_value_error(session):
    @session.workflow
    async def around(ctx):
        await ctx.run_workflow("nowhere")

    with pytest.raises(ValueError, match="Workflow 'nowhere' not found"):
        await (await session.start("around")).wait()


async def test_a_failed_child_raises_workflow_failed_in_its_parent(session):
    @session.workflow
    async def broken(ctx):
        raise KeyError("gone")

    @session.workflow
    async def around(ctx):
        try:
            await ctx.run_workflow("broken")
        except WorkflowFailed as error:
            return [error.error_type, error.error, error.run_id]

    run = await session.start("around")
    kind, error, run_id = await run.wait()
    assert (kind, "gone" in error, run_id) == ("KeyError", True, child_of(session, run).run_id)


async def test_a_parent_that_does_not_catch_the_failure_of_its_child_fails(session):
    @session.workflow
    async def broken(ctx):
        raise KeyError("gone")

    @session.workflow
    async def around(ctx):
        await ctx.run_workflow("broken")

    run = await session.start("around")
    with pytest.raises(WorkflowFailed, match="gone"):
        await run.wait()
    assert run.state is WorkflowState.FAILED


async def test_a_stopped_child_raises_workflow_failed_in_its_parent(session):
    session.workflow(ask)

    @session.workflow
    async def around(ctx):
        try:
            await ctx.run_workflow("ask")
        except WorkflowFailed as error:
            return error.error_type

    run = await session.start("around")
    await at_gate(run)
    await child_of(session, run).stop("no more")
    assert await within(run.wait()) == "CancelledError"


@pytest.mark.requirement("C-17")
async def test_workflows_that_call_each_other_in_a_cycle_fail_and_name_it(session):
    @session.workflow
    async def ping(ctx):
        return await ctx.run_workflow("pong")

    @session.workflow
    async def pong(ctx):
        return await ctx.run_workflow("ping")

    with pytest.raises(WorkflowFailed, match="ping -> pong -> ping"):
        await within((await session.start("ping")).wait())
    assert len(session.list_workflow_runs()) == 2


@pytest.mark.requirement("C-17")
async def test_a_workflow_that_calls_itself_fails(session):
    @session.workflow
    async def again(ctx):
        return await ctx.run_workflow("again")

    with pytest.raises(WorkflowFailed, match="again -> again"):
        await within((await session.start("again")).wait())


@pytest.mark.requirement("C-17")
async def test_workflows_nested_deeper_than_the_limit_fail_and_name_the_limit(session):
    def level(number):
        async def body(ctx):
            return number if number == 4 else await ctx.run_workflow(f"level-{number + 1}")

        return body

    for number in range(5):
        Workflow(f"level-{number}", session, level(number))
    run = await session.start("level-0", limits=Limits(depth=3))
    with pytest.raises(WorkflowFailed, match=r"exceeds depth=3.*Limits\(depth="):
        await within(run.wait())
    assert await within((await session.start("level-0", limits=Limits(depth=4))).wait()) == 4


@pytest.mark.requirement("C-17")
async def test_the_depth_limit_of_the_first_run_applies_to_all_child_runs(session):
    def level(number):
        async def body(ctx):
            return number if number == 3 else await ctx.run_workflow(f"level-{number + 1}")

        return body

    for number in range(4):
        Workflow(f"level-{number}", session, level(number), limits=Limits(depth=1 if number == 0 else 16))
    with pytest.raises(WorkflowFailed, match="Workflow nesting exceeds depth=1"):
        await within((await session.start("level-0")).wait())


async def test_a_parent_is_waiting_while_its_child_is(session):
    session.workflow(ask), session.workflow(parent)
    run = await session.start("parent")
    await at_gate(run)
    assert run.state is WorkflowState.WAITING
    assert run.to_info().state is WorkflowState.WAITING
    assert session.list_workflow_runs("parent", WorkflowState.WAITING)[0].run_id == run.run_id
    await run.answer("yes")
    assert await within(run.wait()) == "yes"


@pytest.mark.requirement("D0-3")
async def test_a_childs_gate_is_listed_under_its_path_and_answered_through_the_parent(session):
    session.workflow(ask), session.workflow(parent)
    run = await session.start("parent")
    await at_gate(run)
    gate = run.pending_gate
    assert (gate.path, gate.prompt) == ("/ask/gate", "Child asks?")
    run.answer_gate("yes", "/ask/gate")
    assert await within(run.wait()) == "yes"
    assert "gate_answered" in types(child_of(session, run))


async def test_a_grandchilds_gate_is_answered_through_the_first_run(session):
    session.workflow(ask), session.workflow(parent)

    @session.workflow
    async def grand(ctx):
        return await ctx.run_workflow("parent")

    run = await session.start("grand")
    await at_gate(run)
    assert run.pending_gate.path == "/parent/ask/gate"
    assert run.state is WorkflowState.WAITING
    run.answer_gate("yes", run.pending_gate.gate_id)
    assert await within(run.wait()) == "yes"


async def test_gates_of_two_children_have_distinct_paths(session):
    session.workflow(ask)

    @session.workflow
    async def both(ctx):
        return await asyncio.gather(ctx.run_workflow("ask", 1), ctx.run_workflow("ask", 2))

    run = await session.start("both")
    await until(lambda: len(run.pending_gates) == 2)
    assert [gate.path for gate in run.pending_gates] == ["/ask/gate", "/ask[2]/gate"]
    with pytest.raises(RuntimeError, match="Several gates are open"):
        run.answer_gate("which")
    run.answer_gate("two", "/ask[2]/gate")
    run.answer_gate("one", "/ask/gate")
    assert await within(run.wait()) == ["one", "two"]


async def test_the_usage_of_a_child_counts_for_its_parent(session):
    FunctionNode(
        "agent", session, lambda context: {"output": 1, "attributes": {"usage": {"tokens": 30, "cost": 0.5}}}
    )

    @session.workflow
    async def work(ctx):
        await ctx.run("agent", None)
        await ctx.run("agent", None)

    @session.workflow
    async def around(ctx):
        await ctx.run("agent", None)
        await ctx.run_workflow("work")

    run = await session.start("around")
    await run.wait()
    assert (run.view.usage.tokens, run.view.usage.cost) == (90, 1.5)


@pytest.mark.parametrize("moment", ["waiting", "answered"])
async def test_a_child_and_its_parent_resume_after_a_restart_without_a_second_child(file, moment):
    async with family(file) as session:
        run = await session.start("parent")
        await at_gate(run)
        child = child_of(session, run)
    async with family(file) as session:
        recovered = {r.run_id: r for r in await session.recover()}
        assert set(recovered) == {run.run_id, child.run_id}
        run = recovered[run.run_id]
        await until(lambda: run.pending_gates)
        assert run.state is WorkflowState.WAITING
        if moment == "waiting":
            await run.answer("yes", "/ask/gate")
        else:
            await recovered[child.run_id].answer("yes")
        assert await within(run.wait()) == "yes"
        assert len(session.engine.store.runs()) == 2


async def test_a_crash_while_the_child_runs_does_not_start_a_second_one(file, tmp_path):
    latch = Latch()

    async def child(ctx):
        await ctx.run("quick", 1)
        return (await ctx.run("work", 2))["output"]

    async def around(ctx):
        return await ctx.run_workflow("child")

    def opened(place):
        session = Session("test", place)
        session.workflow(child), session.workflow(around)
        FunctionNode("work", session, latch.leaf)
        return session, counted(session, "quick")

    session, first = opened(file)
    async with session:
        run = await session.start("around")
        await latch.entered.wait()
        copy = copy_store(file, tmp_path / "crashed")
    latch.open.set()
    session, again = opened(copy)
    async with session:
        await session.recover()
        assert await within(session.get_workflow_run(run.run_id).wait()) == 2
        assert len(session.engine.store.runs()) == 2
    assert (first, again) == ([1], [])


async def test_a_finished_child_is_not_started_again_after_a_restart(file):
    async def child(ctx):
        return (await ctx.run("work", 1))["output"]

    async def around(ctx):
        return [await ctx.run_workflow("child"), await ctx.gate("Continue?")]

    seen = []
    for part in ("start", "recover"):
        async with Session("test", file) as session:
            session.workflow(child), session.workflow(around)
            seen.append(counted(session, "work"))
            if part == "start":
                run = await session.start("around")
                await at_gate(run)
            else:
                (run,) = await session.recover()
                await run.answer("yes")
                assert await within(run.wait()) == [1, "yes"]
    assert seen == [[1], []]


async def test_a_workflow_as_a_step_of_a_graph_is_a_child_run(session):
    session.workflow(ask)
    graph = Graph("pipeline", session).add_step_ref("ask", "approval")
    graph.add_step(
        FunctionNode("shout", session, lambda context: context.input.upper()), depends_on=["approval"]
    )
    session.register_workflow(graph)
    run = await session.start("pipeline")
    await at_gate(run)
    assert run.pending_gate.path == "/approval/gate"
    await run.answer("yes")
    assert await within(run.wait()) == "YES"


async def test_stopping_the_parent_stops_its_children(file):
    async with family(file) as session:
        run = await session.start("parent")
        await at_gate(run)
        child = child_of(session, run)
        await run.stop("enough")
        assert (run.state, child.state) == (WorkflowState.CANCELLED, WorkflowState.CANCELLED)
        assert run.pending_gates == []
        assert child.to_info().error == "enough"


async def test_a_child_that_its_parent_cancels_is_stopped(session):
    session.workflow(ask)
    latch = Latch()
    FunctionNode("work", session, latch.leaf)

    @session.workflow
    async def impatient(ctx):
        child = asyncio.ensure_future(ctx.run_workflow("ask"))
        await ctx.run("work", None)
        child.cancel()
        return "given up"

    run = await session.start("impatient")
    await at_gate(run)
    latch.open.set()
    assert await within(run.wait()) == "given up"
    child = child_of(session, run)
    await until(lambda: child.is_complete)
    assert child.state is WorkflowState.CANCELLED


async def test_an_unawaited_child_ends_with_its_parent(session):
    session.workflow(ask)
    latch = Latch()
    FunctionNode("work", session, latch.leaf)

    @session.workflow
    async def forgetful(ctx):
        ctx.state["child"] = asyncio.ensure_future(ctx.run_workflow("ask"))
        await ctx.run("work", None)
        return "done"

    run = await session.start("forgetful")
    await at_gate(run)
    latch.open.set()
    assert await within(run.wait()) == "done"
    child = child_of(session, run)
    await until(lambda: child.is_complete)
    assert (child.state, run.pending_gates) == (WorkflowState.CANCELLED, [])


async def test_a_parent_is_held_while_its_child_is_held_and_resumes_with_it(session):
    FunctionNode("spend", session, lambda context: {"output": 1, "attributes": {"usage": {"tokens": 10}}})

    @session.workflow(limits=Limits(tokens=5))
    async def child(ctx):
        return [(await ctx.run("spend"))["output"] for _ in range(2)]

    @session.workflow
    async def parent(ctx):
        return await ctx.run_workflow("child")

    run = await session.start("parent")
    with pytest.raises(RunHeld, match="10 of 5 tokens") as held:
        await within(run.wait())
    assert run.state is WorkflowState.HELD
    held_child = session.get_workflow_run(held.value.run_id)
    assert held_child.workflow_id == "child"
    await held_child.resume(limits={"tokens": 50})
    assert await within(run.wait()) == [1, 1]


async def test_pausing_and_resuming_a_parent_applies_to_its_child(session):
    calls = counted(session, "work")

    @session.workflow
    async def child(ctx):
        for number in range(50):
            await ctx.run("work", number)
            await ctx.sleep(0.001)
        return "done"

    @session.workflow
    async def parent(ctx):
        return await ctx.run_workflow("child")

    run = await session.start("parent")
    await until(lambda: len(calls) > 2)
    await run.pause()
    child_run = child_of(session, run)
    await until(lambda: child_run.state is WorkflowState.PAUSED)
    assert run.state is WorkflowState.PAUSED
    assert run.view.state == "paused"
    seen = len(calls)
    await run.resume()
    assert await within(run.wait()) == "done"
    assert seen < 50


async def test_a_paused_child_resumes_when_its_parent_is_resumed(session):
    @session.workflow
    async def grandparent(ctx):
        return await ctx.run_workflow("parent")

    session.workflow(ask), session.workflow(parent)
    run = await session.start("grandparent")
    await at_gate(run)
    (child,) = run.run_state.children.values()
    await child_of(session, child).pause()
    await run.answer("yes")
    await run.resume()
    assert await within(run.wait()) == "yes"
    with pytest.raises(RuntimeError, match="Cannot resume run in state completed"):
        await run.resume()


async def test_resuming_the_parent_of_a_held_child_names_the_child(session):
    latch = Latch()
    FunctionNode("pay", session, latch.leaf, effect="once", timeout=0.01)

    @session.workflow
    async def pays(ctx):
        await ctx.run("pay")

    @session.workflow
    async def around(ctx):
        await ctx.run_workflow("pays")

    run = await session.start("around")
    with pytest.raises(RunHeld):
        await within(run.wait())
    child = child_of(session, run)
    with pytest.raises(
        RuntimeError, match=f"its child run '{child.run_id}' is held .in doubt.: /pay has effect"
    ):
        await run.resume()


async def test_next_gate_of_a_parent_returns_the_gate_of_its_child(session):
    session.workflow(ask), session.workflow(parent)
    run = await session.start("parent")
    gate = await within(run.next_gate())
    assert gate.path == "/ask/gate"
    await run.answer("yes")
    assert await within(run.next_gate()) is None
    assert await within(run.wait()) == "yes"


@pytest.mark.parametrize("policy", [{"timeout": 30}, {"retry": Retry(attempts=3, delay=0)}])
async def test_a_child_with_timeout_or_retry_resumes_after_a_restart(file, policy):
    failed = []

    def opened():
        session = Session("test", file)

        async def stumbles(ctx):
            if not (failed or "timeout" in policy):
                failed.append(ctx.run_id)
                raise ValueError("not yet")
            return await ctx.gate("Child asks?")

        child = Workflow("child", session, stumbles)
        session.register_workflow(Graph("graph", session).add_step(child, "child", **policy))
        return session

    async with opened() as session:
        run = await session.start("graph")
        assert await within(run.next_gate())
    async with opened() as session:
        runs = {run.run_id: run for run in await session.recover()}
        run = runs[run.run_id]
        assert await within(run.next_gate())
        await run.answer("yes")
        assert await within(run.wait()) == "yes"


async def test_a_child_that_the_body_cancelled_is_stopped_after_a_crash(file, tmp_path):
    def project(file, leaf):
        session = Session("test", file)
        FunctionNode("leaf", session, leaf)

        @session.workflow
        async def child(ctx):
            await ctx.run("leaf", 5)

        @session.workflow
        async def parent(ctx):
            calling = asyncio.create_task(ctx.run_workflow("child"))
            await ctx.wait_signal("enough")
            calling.cancel()
            await asyncio.wait([calling])
            return await ctx.gate("Anything else?")

        return session

    tidying = SlowCleanup()

    async with project(file, tidying.leaf) as session:
        run = await session.start("parent")
        await within(tidying.entered.wait())
        await until(lambda: "signal_waiting" in types(run))
        await run.signal("enough")
        await until(lambda: child_of(session, run).state is WorkflowState.STOPPING)
        photo = copy_store(file, tmp_path / "photo")
        tidying.tidied.set()
    async with project(photo, Latch().leaf) as session:
        runs = {each.run_id: each for each in await session.recover()}
        run = runs[run.run_id]
        await until(lambda: child_of(session, run).is_complete and run.pending_gate)
        assert [gate.path for gate in run.pending_gates] == ["/gate"]
        await run.answer("no")
        assert await within(run.wait()) == "no"


# -- a child that timed out --------------------------------------------------------------------


def tried_again(file, leaf, **policy):
    """Return a graph whose only step is a child run with a short timeout and retries."""
    session = Session("test", file)
    FunctionNode("work", session, leaf, **policy)

    async def working(ctx):
        return (await ctx.run("work", ctx.input))["output"]

    child = Workflow("child", session, working)
    again = {"timeout": 0.1, "retry": Retry(attempts=2, delay=0.05, on=["TimeoutError"])}
    session.register_workflow(Graph("graph", session).add_step(child, "child", **again))
    return session


async def photo_at(moment, session, run, file, tmp_path):
    """Return a copy of the store, taken when the parent has an event of a type at a path."""
    await until(lambda: moment in [(event.event_type, event.path) for event in run.events])
    return copy_store(file, tmp_path / "photo")


@pytest.mark.parametrize(
    "moment", [("timer_started", "/child/~retry"), ("timer_started", "/child/~timeout[2]")]
)
async def test_a_child_that_timed_out_is_retried_after_a_crash(file, tmp_path, moment):
    async with tried_again(file, Latch().leaf) as session:
        run = await session.start("graph", 5)
        photo = await photo_at(moment, session, run, file, tmp_path)
    again = Latch()
    again.open.set()
    async with tried_again(photo, again.leaf) as session:
        runs = {each.run_id: each for each in await session.recover()}
        assert await within(runs[run.run_id].wait()) == 5
        assert again.inputs == [5]


async def test_a_crash_while_a_timed_out_child_ends_does_not_leave_two_children_running(file, tmp_path):
    slow = asyncio.Event()

    async def stubborn(context):
        try:
            await asyncio.sleep(30)
        finally:
            await slow.wait()

    async with tried_again(file, stubborn) as session:
        run = await session.start("graph", 5)
        photo = await photo_at(("timer_fired", "/child/~timeout"), session, run, file, tmp_path)
        slow.set()
    again = Latch()
    again.open.set()
    async with tried_again(photo, again.leaf) as session:
        runs = {each.run_id: each for each in await session.recover()}
        assert await within(runs[run.run_id].wait()) == 5
        states = {row.state for row in session.engine.store.runs() if row.parent}
        assert (again.inputs, states) == ([5], {"cancelled", "completed"})


@pytest.mark.parametrize("restarts", [False, True])
async def test_the_timeout_of_a_child_is_paused_while_it_is_held(file, restarts):
    clock = VirtualClock(skip=False)

    def project():
        session = Session("test", file, clock=clock)
        MockNode("agent", session, [{"output": 5, "attributes": {"usage": {"tokens": 100}}}])

        async def spends(ctx):
            await ctx.run("agent")
            return (await ctx.run("agent"))["output"]

        graph = Graph("graph", session).add_step(Workflow("child", session, spends), timeout=1)
        session.register_workflow(Graph("around", session, timeout=1).add_step(graph))
        return session

    async with project() as session:
        run = await session.start("around", limits=Limits(tokens=50))
        with pytest.raises(RunHeld):
            await within(run.wait())
        with clock.observe(session.engine.is_at_rest):
            await clock.advance(10)
        assert run.state is WorkflowState.HELD
        if not restarts:
            await run.resume(limits={"tokens": 500})
            assert await within(run.wait()) == 5
    if restarts:
        async with project() as session:
            await session.recover()
            run = session.get_workflow_run(run.run_id)
            await until(lambda: run.state is WorkflowState.HELD)
            with clock.observe(session.engine.is_at_rest):
                await clock.advance(10)
            await run.resume(limits={"tokens": 500})
            assert await within(run.wait()) == 5


async def test_the_timeout_of_a_held_child_continues_when_it_resumes(file, tmp_path):
    clock = VirtualClock(skip=False)

    def project(file, latch):
        session = Session("test", file, clock=clock)
        FunctionNode("pay", session, latch.leaf, effect="once")
        FunctionNode("work", session, latch.leaf)

        async def pays(ctx):
            await ctx.run("pay")
            await ctx.run("work")

        child = Workflow("child", session, pays)
        session.register_workflow(Graph("graph", session).add_step(child, timeout=1.5))
        return session

    latch = Latch()
    async with project(file, latch) as session:
        run = await session.start("graph")
        await within(latch.entered.wait())
        photo = copy_store(file, tmp_path / "photo")
    latch = Latch()
    async with project(photo, latch) as session:
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        await until(lambda: run.held)
        with clock.observe(session.engine.is_at_rest):
            await clock.advance(10)
        await child_of(session, run).skip("/pay")
        await within(latch.entered.wait())
        clock.jump(1)
        await session.engine.wait_durable(run)
        assert not run.is_complete
        clock.jump(0.5)
        with pytest.raises(WorkflowFailed, match=r"timed out after 1.5 s$"):
            await within(run.wait())


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_child_with_an_interrupted_once_step_is_not_retried(file, restarts):
    def project(latch):
        session = Session("test", file)
        FunctionNode("pay", session, latch.leaf, effect="once")

        @session.workflow
        async def inner(ctx):
            await ctx.run("pay", 5)

        async def outer(ctx):
            await ctx.run_workflow("inner")

        child = Workflow("outer", session, outer)
        again = {"timeout": 0.1, "retry": Retry(attempts=3, delay=0)}
        Graph("graph", session).add_step(child, "child", **again)

        @session.workflow
        async def order(ctx):
            result = await ctx.run_graph("graph")
            return [result.error, await ctx.gate("Go on?")]

        return session

    latch, after = Latch(), Latch()
    async with project(latch) as session:
        run = await session.start("order")
        await at_gate(run)
        if not restarts:
            await run.answer("yes")
            error, _ = await within(run.wait())
    if restarts:
        async with project(after) as session:
            (run,) = await session.recover()
            await run.answer("yes")
            error, _ = await within(run.wait())
    assert "timed out after 0.1 s; /graph/child/inner/pay has effect='once' and was interrupted" in error
    assert (latch.inputs, after.inputs) == ([5], [])


async def test_a_workflow_with_effect_once_is_not_retried_after_a_timeout(session):
    latch = Latch()
    FunctionNode("work", session, latch.leaf)

    async def working(ctx):
        await ctx.run("work", 5)

    again = {"timeout": 0.05, "retry": Retry(attempts=3, delay=0), "effect": "once"}
    session.register_workflow(Graph("graph", session).add_step(Workflow("child", session, working), **again))
    with pytest.raises(WorkflowFailed, match="/child has effect='once'"):
        await within((await session.start("graph")).wait())
    assert latch.inputs == [5]


# -- a child that is called differently --------------------------------------------------------


def asking(file, version, waits):
    """A parent that passes the version to its child, as a function and as a graph."""
    session = Session("test", file)
    seen = counted(session, "work")

    @session.workflow
    async def child(ctx):
        done = (await ctx.run("work", ctx.input))["output"]
        if waits:
            await ctx.gate("In the child?")
        return done

    @session.workflow
    async def function(ctx):
        done = await ctx.run_workflow("child", version)
        await ctx.gate("In the parent?")
        return done

    graph = Graph("graph", session)
    graph.add_step(session.workflows["child"], "child", input_fn=lambda up: version)
    graph.add_step(GateNode("ask", session, "In the parent?"), depends_on=["child"], input_fn=lambda up: 0)
    graph.add_step_ref("work", depends_on=["child", "ask"], input_fn=lambda up: up["child"]["output"])
    session.register_workflow(graph)
    return session, seen


async def answered(run, prompt):
    await until(lambda: [gate.prompt for gate in run.pending_gates] == [prompt])
    await run.answer("yes")


@pytest.mark.parametrize("name", ["function", "graph"])
@pytest.mark.parametrize("waits", [False, True])
async def test_changed_code_that_calls_a_child_with_another_input_starts_another_run(file, name, waits):
    session, _ = asking(file, 1, waits)
    async with session:
        run = await session.start(name)
        await until(lambda: run.pending_gates)
        await at_gate(run)
    session, seen = asking(file, 2, waits)
    async with session:
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        if not waits:
            await run.answer("yes")
        await until(lambda: run.held)
        await run.resume(with_changes=True)
        if waits:
            await answered(run, "In the child?")
        await answered(run, "In the parent?")
        assert await within(run.wait()) == 2
        assert seen == ([2] if name == "function" else [2, 2])
        states = sorted(row.state for row in session.engine.store.runs() if row.parent == run.run_id)
        assert states == (["cancelled", "completed"] if waits else ["completed", "completed"])


async def test_a_fork_that_calls_an_open_child_with_another_input_starts_another_run(session):
    seen = counted(session, "work")

    @session.workflow
    async def child(ctx):
        await ctx.gate("In the child?")
        return (await ctx.run("work", ctx.input))["output"]

    @session.workflow
    async def parent(ctx):
        return await ctx.run_workflow("child", ctx.input)

    run = await session.start("parent", 1)
    await at_gate(run)
    fork = await session.fork(run.run_id, input=2)
    await at_gate(fork)
    await fork.answer("yes")
    assert await within(fork.wait()) == 2
    assert (seen, run.state) == ([2], WorkflowState.WAITING)
    assert [row.state for row in session.engine.store.runs() if row.parent == fork.run_id] != ["waiting"]
    await run.answer("yes")
    assert await within(run.wait()) == 1


async def test_children_that_changed_code_no_longer_calls_end_with_their_parent(file):
    async def fewer(ctx):
        return "none"

    async with family(file) as session:
        run = await session.start("parent")
        await at_gate(run)
    session = Session("test", file)
    session.workflow(ask), session.workflow(fewer, id="parent")
    async with session:
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        await until(lambda: run.held)
        await run.resume(with_changes=True)
        assert await within(run.wait()) == "none"
        assert child_of(session, run).state is WorkflowState.CANCELLED


async def test_the_gate_of_a_child_is_listed_before_the_replay_of_its_parent_reaches_it(file):
    latch = Latch()

    def opened():
        session = family(file)
        FunctionNode("work", session, latch.leaf)

        @session.workflow
        async def busy(ctx):
            answer, _ = await asyncio.gather(ctx.run_workflow("ask"), ctx.run("work"))
            return answer

        return session

    async with opened() as session:
        run = await session.start("busy")
        await at_gate(run)
        await latch.entered.wait()
    latch.open.set()
    async with opened() as session:
        runs = await session.recover()
        (run,) = (run for run in runs if run.workflow_id == "busy")
        assert [gate.path for gate in run.pending_gates] == ["/ask/gate"]
        await run.answer("yes")
        assert await within(run.wait()) == "yes"


async def test_next_gate_waits_for_a_gate_by_its_name(session):
    async def ask_twice(ctx):
        await asyncio.gather(ctx.gate("First?"), ctx.run_workflow("inner"))
        return await ctx.gate("Third?")

    async def inner(ctx):
        return await ctx.gate("Second?")

    session.workflow(inner)
    session.workflow(ask_twice)
    run = await session.start("ask_twice")
    assert (await within(run.next_gate("/inner/gate"))).prompt == "Second?"
    first = await within(run.next_gate("/gate"))
    assert (await within(run.next_gate(first.gate_id))).prompt == "First?"
    later = asyncio.ensure_future(run.next_gate("/gate[2]"))
    for gate in run.pending_gates:
        await run.answer("yes", gate.gate_id)
    assert (await within(later)).prompt == "Third?"
    missing = asyncio.ensure_future(run.next_gate("/other"))
    await run.answer("yes")
    assert await within(missing) is None


async def test_the_next_change_of_an_ended_run_is_not_waited_for(session):
    async def done(ctx):
        return 1

    session.workflow(done)
    run = await session.start("done")
    await run.wait()
    await within(run.wait_for_change())
