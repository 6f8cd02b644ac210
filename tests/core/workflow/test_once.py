"""Steps with effect="once": when the outcome is unknown, a person decides."""

import asyncio
import threading

import pytest

from core.workflow.support import Latch, at_gate, copy_store, types, until, within
from nerve import FunctionNode, Graph, MockNode, Retry, Session
from nerve.core.nodes.control import MapNode
from nerve.core.workflow import WorkflowState
from nerve.engine import result_dispatcher
from nerve.errors import RunHeld


async def pay(ctx):
    paid = await ctx.run("payment", {"amount": 5}, effect="once")
    return [paid["success"], paid.get("output"), paid.get("error")]


def bank(file, latch):
    session = Session("test", file)
    FunctionNode("payment", session, latch.leaf)
    session.workflow(pay)
    return session


@pytest.fixture
async def in_doubt(file):
    """Return a run that was interrupted during its payment, and its session."""
    latch = Latch()
    async with bank(file, latch) as session:
        await session.start("pay")
        await latch.entered.wait()
    latch = Latch()
    latch.open.set()
    async with bank(file, latch) as session:
        (run,) = await session.recover()
        await until(lambda: run.state is WorkflowState.HELD)
        yield run, latch


async def test_a_run_with_an_unknown_once_outcome_is_held(in_doubt):
    run, latch = in_doubt
    with pytest.raises(RunHeld) as caught:
        await within(run.wait())
    assert caught.value.reason == "in doubt"
    for part in ("/payment", "skip", "retry", "fail"):
        assert part in str(caught.value)
    assert (latch.inputs, run.to_info().held["path"]) == ([], "/payment")


async def test_skip_settles_the_step_with_an_output(in_doubt):
    run, latch = in_doubt
    await run.skip("/payment", {"receipt": 7})
    assert await within(run.wait()) == [True, {"receipt": 7}, None]
    assert latch.inputs == []


async def test_retry_executes_the_step_again(in_doubt):
    run, latch = in_doubt
    await run.retry("/payment")
    assert await within(run.wait()) == [True, {"amount": 5}, None]
    assert latch.inputs == [{"amount": 5}]


async def test_a_retry_without_a_path_applies_to_the_held_step(in_doubt):
    run, latch = in_doubt
    await run.retry()
    assert (await within(run.wait()))[0] is True
    assert len(latch.inputs) == 1


async def test_fail_settles_the_step_as_failed(in_doubt):
    run, latch = in_doubt
    await run.fail("/payment", "the bank says no")
    assert await within(run.wait()) == [False, None, "the bank says no"]
    assert latch.inputs == []


async def decide(run, how):
    match how:
        case "skip":
            await run.skip("/payment", {"receipt": 7})
        case "skip otherwise":
            await run.skip("/payment", {"receipt": 8})
        case "fail":
            await run.fail("/payment", "the bank says no")
        case "retry":
            await run.retry("/payment")


@pytest.mark.parametrize(
    ("first", "others", "result"),
    [
        ("skip", ["fail", "skip otherwise", "retry"], [True, {"receipt": 7}, None]),
        ("fail", ["skip", "retry"], [False, None, "the bank says no"]),
    ],
)
async def test_after_a_crash_only_the_recorded_decision_can_be_repeated(
    in_doubt, tmp_path, first, others, result
):
    run, _ = in_doubt
    copies = []

    def crash(_, rows):
        if any(row.type == "node_completed" for row in rows):
            copies.append(copy_store(run.workflow.session.engine.store.file, tmp_path / "crashed"))

    run.workflow.session.engine.watchers.append(crash)
    await decide(run, first)
    latch = Latch()
    async with bank(copies[0], latch) as session:
        await session.recover()
        again = session.get_workflow_run(run.run_id)
        assert again.state is WorkflowState.HELD
        for other in others:
            with pytest.raises(RuntimeError, match=f"{first} is already recorded"):
                await decide(again, other)
        await decide(again, first)
        assert await within(again.wait()) == result
        assert types(again).count("node_completed") == 1
        assert latch.inputs == []


async def test_only_the_path_that_the_run_is_held_at_can_be_decided(in_doubt):
    run, _ = in_doubt
    with pytest.raises((ValueError, RuntimeError), match="/paymant"):
        await run.skip("/paymant")
    assert run.state is WorkflowState.HELD


async def test_a_run_in_doubt_can_be_stopped(in_doubt):
    run, latch = in_doubt
    await run.stop("enough")
    assert (run.state, latch.inputs) == (WorkflowState.CANCELLED, [])


async def test_only_a_held_run_can_be_decided(session):
    @session.workflow
    async def ask(ctx):
        return await ctx.gate("Continue?")

    run = await session.start("ask")
    with pytest.raises(RuntimeError, match="Cannot skip"):
        await run.skip("/gate")
    await run.stop()


async def test_the_start_of_a_once_step_is_on_disk_before_it_executes(file, tmp_path):
    latch = Latch()
    async with bank(file, latch) as session:
        run = await session.start("pay")
        await latch.entered.wait()
        copy = copy_store(file, tmp_path / "crashed")
    async with bank(copy, Latch()) as session:
        assert types(session.get_workflow_run(run.run_id)) == ["workflow_started", "node_started"]


async def test_a_settled_once_step_is_not_in_doubt(file):
    async def pay_and_ask(ctx):
        await ctx.run("payment", 5, effect="once")
        return await ctx.gate("Continue?")

    latch = Latch()
    latch.open.set()
    for part in ("start", "recover"):
        async with bank(file, latch) as session:
            session.workflow(pay_and_ask)
            if part == "start":
                run = await session.start("pay_and_ask")
                await at_gate(run)
            else:
                (run,) = await session.recover()
                await run.answer("yes")
                assert await within(run.wait()) == "yes"
    assert latch.inputs == [5]


async def test_resuming_without_a_decision_keeps_the_run_in_doubt(in_doubt):
    run, latch = in_doubt
    with pytest.raises(RuntimeError, match="Cannot resume: /"):
        await run.resume()
    with pytest.raises(RunHeld, match="in doubt"):
        await within(run.wait())
    assert latch.inputs == []


async def test_a_retry_decision_applies_to_one_attempt_only(in_doubt, file, tmp_path):
    run, latch = in_doubt
    latch.open.clear()
    await run.retry("/payment")
    await latch.entered.wait()
    copy = copy_store(file, tmp_path / "crashed")
    third = Latch()
    async with bank(copy, third) as session:
        await session.recover()
        again = session.get_workflow_run(run.run_id)
        with pytest.raises(RunHeld, match="in doubt"):
            await within(again.wait())
        assert third.inputs == []
        third.open.set()
        await again.retry("/payment")
        assert (await within(again.wait()))[0] is True
        assert third.inputs == [{"amount": 5}]
    latch.open.set()


# -- changed code ------------------------------------------------------------------------------


async def pay_later(ctx):
    await ctx.run("new")
    return await pay(ctx)


async def pay_more(ctx):
    paid = await ctx.run("payment", {"amount": 6}, effect="once")
    return [paid["success"], paid["output"], paid.get("error")]


async def gives_up(ctx):
    task = asyncio.create_task(ctx.run("payment", {"amount": 5}, effect="once"))
    await ctx.run("new")
    task.cancel()
    await asyncio.wait([task])
    return await ctx.gate("Continue?")


async def gives_up_no_more(ctx):
    await ctx.run("new")
    return await pay(ctx)


@pytest.fixture(params=[pay_later, pay_more, gives_up_no_more])
async def changed(request, file, monkeypatch):
    """Return a run in doubt that was resumed with changed code, and the new input of the payment."""
    monkeypatch.setattr(result_dispatcher, "REPLAY_TIMEOUT_S", 0.3)
    body = gives_up if request.param is gives_up_no_more else pay
    latch = Latch()
    async with bank(file, latch) as session:
        FunctionNode("new", session, latch.leaf if body is pay else lambda context: None)
        session.workflow(body, id="changing")
        run = await session.start("changing")
        await (latch.entered.wait() if body is pay else at_gate(run))
    latch = Latch()
    latch.open.set()
    async with bank(file, latch) as session:
        FunctionNode("new", session, lambda context: None)
        session.workflow(request.param, id="changing")
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        if body is gives_up:
            await run.answer("yes")
        with pytest.raises(RunHeld, match="mismatch"):
            await within(run.wait())
        await run.resume(with_changes=True)
        yield run, latch, {"amount": 6 if request.param is pay_more else 5}


async def test_changed_code_does_not_rerun_an_unknown_once_step_without_a_decision(changed):
    run, latch, _ = changed
    with pytest.raises(RunHeld, match="in doubt"):
        await within(run.wait())
    assert (latch.inputs, run.held["path"]) == ([], "/payment")


async def test_with_changed_code_skip_settles_the_step(changed):
    run, latch, _ = changed
    await until(lambda: run.held)
    await run.skip("/payment", {"receipt": 7})
    assert await within(run.wait()) == [True, {"receipt": 7}, None]
    assert latch.inputs == []


async def test_with_changed_code_retry_executes_the_step_again(changed):
    run, latch, asked = changed
    await until(lambda: run.held)
    await run.retry("/payment")
    assert await within(run.wait()) == [True, asked, None]
    assert latch.inputs == [asked]


# -- interrupted while the process runs --------------------------------------------------------


class Till:
    """A sync payment that exceeds its timeout, unless `quick` is set."""

    def __init__(self):
        self.begun, self.let_through, self.quick = [], threading.Event(), False

    def pay(self, context):
        self.begun.append(context.input)
        if not self.quick:
            self.let_through.wait(10)
        return "receipt"


@pytest.fixture
async def cut_off(session):
    """Return a run whose payment timed out while its thread and a concurrent step still run."""
    till, beside = Till(), Latch()
    FunctionNode("payment", session, till.pay)
    FunctionNode("beside", session, beside.leaf)

    @session.workflow
    async def both(ctx):
        retry = Retry(attempts=3, delay=0.001)
        paying = ctx.run("payment", 5, effect="once", timeout=0.05, retry=retry)
        results = await asyncio.gather(paying, ctx.run("beside", 1))
        return [results[0]["success"], results[0].get("output"), results[1].get("output")]

    run = await session.start("both")
    await until(lambda: run.held)
    yield run, till, beside
    till.let_through.set()


async def test_a_once_step_that_timed_out_is_held_and_not_retried(cut_off):
    run, till, _ = cut_off
    with pytest.raises(RunHeld, match="in doubt"):
        await within(run.wait())
    assert (till.begun, run.held["path"], run.state) == ([5], "/payment", WorkflowState.HELD)
    with pytest.raises(RuntimeError, match="Cannot resume: /payment"):
        await run.resume()


async def test_concurrent_steps_finish_and_are_recorded(cut_off):
    run, _, beside = cut_off
    beside.open.set()
    await until(lambda: "node_completed" in types(run))
    assert run.state is WorkflowState.HELD


@pytest.mark.parametrize(
    ("how", "told", "times"),
    [("skip", [True, 7], 1), ("fail", [False, None], 1), ("retry", [True, "receipt"], 2)],
)
async def test_a_person_decides_about_a_timed_out_once_step(cut_off, how, told, times):
    run, till, beside = cut_off
    beside.open.set()
    till.quick = True
    match how:
        case "skip":
            await run.skip("/payment", 7)
        case "fail":
            await run.fail("/payment", "no")
        case "retry":
            await run.retry("/payment")
    assert await within(run.wait()) == [*told, 1]
    assert (len(till.begun), beside.inputs) == (times, [1])


@pytest.mark.parametrize(("how", "told"), [("skip", [True, 7]), ("fail", [False, None])])
async def test_a_decision_about_a_timed_out_step_is_on_disk_when_it_returns(file, tmp_path, how, told):
    def project(file):
        session, till = Session("test", file), Till()
        FunctionNode("payment", session, till.pay, effect="once", timeout=0.05)

        @session.workflow
        async def order(ctx):
            result = await ctx.run("payment", 5)
            await ctx.gate("Ship it?")
            return [result["success"], result.get("output")]

        return session, till

    session, till = project(file)
    async with session:
        run = await session.start("order")
        await until(lambda: run.held)
        await (run.skip("/payment", 7) if how == "skip" else run.fail("/payment"))
        photo = copy_store(file, tmp_path / "photo")
        till.let_through.set()
    session, till = project(photo)
    async with session:
        (run,) = await session.recover()
        await at_gate(run)
        await run.answer("yes")
        assert await within(run.wait()) == told
        assert till.begun == []


async def test_the_step_is_held_again_when_the_next_attempt_times_out_too(cut_off):
    run, till, beside = cut_off
    beside.open.set()
    await run.retry("/payment")
    await until(lambda: len(till.begun) == 2 and run.held)
    await run.skip("/payment", 7)
    assert await within(run.wait()) == [True, 7, 1]


async def test_a_timed_out_once_step_stays_in_doubt_over_a_restart(file):
    async def hasty(ctx):
        paid = await ctx.run("payment", 5, effect="once", timeout=0.01)
        return [paid["success"], paid["output"]]

    latch = Latch()
    async with bank(file, latch) as session:
        session.workflow(hasty)
        run = await session.start("hasty")
        await until(lambda: run.held)
    latch = Latch()
    async with bank(file, latch) as session:
        session.workflow(hasty)
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        assert run.held["reason"] == "in doubt"
        await run.skip("/payment", 7)
        assert await within(run.wait()) == [True, 7]
        assert latch.inputs == []


async def test_a_once_step_interrupted_by_an_enclosing_timeout_is_not_retried_after_a_restart(file):
    def project(latch):
        session = Session("test", file)
        pay = FunctionNode("payment", session, latch.leaf, effect="once")
        Graph("graph", session, timeout=0.05, retry=Retry(attempts=3, delay=0)).add_step(pay, "pay")

        @session.workflow
        async def order(ctx):
            with pytest.raises(TimeoutError) as caught:
                await ctx.run("graph", 5)
            return [str(caught.value), await ctx.gate("Continue?")]

        return session

    latch = Latch()
    async with project(latch) as session:
        await at_gate(await session.start("order"))
    again = Latch()
    async with project(again) as session:
        (run,) = await session.recover()
        await run.answer("yes")
        told, answer = await within(run.wait())
    assert told.startswith("node 'graph' timed out after 0.05 s; /graph/pay has effect='once'")
    assert (answer, latch.inputs, again.inputs) == ("yes", [5], [])


async def test_a_run_held_for_a_timed_out_once_step_can_be_stopped(cut_off):
    run, _, _ = cut_off
    assert sorted(await within(run.stop("enough"))) == ["/beside", "/payment"]
    assert run.state is WorkflowState.CANCELLED


@pytest.mark.parametrize(
    "give",
    [
        lambda session, node: Graph("x", session, effect="once"),
        lambda session, node: MapNode("x", session, node, effect="once"),
        lambda session, node: Graph("x", session).add_step(MapNode("m", session, node), effect="once"),
    ],
)
def test_a_control_node_cannot_have_effect_once(session, give):
    with pytest.raises(
        ValueError, match=r"'[xm]' is a control node and cannot have effect='once'; set it on the steps in it"
    ):
        give(session, MockNode("n", session))


async def test_a_workflow_function_cannot_run_a_graph_with_effect_once(session):
    Graph("g", session).add_step(MockNode("n", session))

    @session.workflow
    async def w(ctx):
        return await ctx.run("g", effect="once")

    with pytest.raises(ValueError, match="'g' is a control node"):
        await within((await session.start("w")).wait())


def test_a_leaf_and_a_workflow_can_have_effect_once(session):
    child = session.register_workflow(Graph("g", session).add_step(MockNode("n", session, effect="once")))
    Graph("h", session).add_step(child, effect="once").add_step(MockNode("m", session), effect="once")


@pytest.mark.parametrize("bound", ["timeout", "idle_timeout"])
async def test_a_once_step_that_raises_during_its_timeout_is_held(session, bound):
    tries = []

    async def clumsy(context):
        tries.append(context.path)
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the connection is lost")

    FunctionNode("payment", session, clumsy, effect="once", retry=Retry(attempts=3, delay=0), **{bound: 0.01})

    @session.workflow
    async def order(ctx):
        return (await ctx.run("payment"))["output"]

    run = await session.start("order")
    with pytest.raises(RunHeld, match="in doubt"):
        await within(run.wait())
    await run.skip("/payment", "it was paid")
    assert (await within(run.wait()), len(tries)) == ("it was paid", 1)
