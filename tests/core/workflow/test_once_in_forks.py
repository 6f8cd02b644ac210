"""Forks of runs with effect="once": a fork inherits unknown outcomes."""

import asyncio

import pytest

from core.workflow.support import Latch, counted, until, within
from nerve import FunctionNode, Graph, Session
from nerve.errors import RunHeld


class Shop:
    """A workflow with a pending payment, and the payments of its forks."""

    def __init__(self, session, at_work):
        self.session, self.at_work, self.before = session, at_work, counted(session, "before")
        self.paid = []
        FunctionNode("payment", session, self.pay)
        FunctionNode("soon", session, self.soon)

    async def pay(self, context):
        if not self.at_work.entered.is_set():
            return await self.at_work.leaf(context)
        self.paid.append(context.input)
        return "receipt"

    async def soon(self, context):
        await self.at_work.entered.wait()

    async def started(self, workflow, input=5):
        run = await self.session.start(workflow, input)
        await self.at_work.entered.wait()
        return run


@pytest.fixture
async def shop(session):
    latch = Latch()
    shop = Shop(session, latch)
    graph = Graph("graph", session).add_step_ref("before", "first")
    graph.add_step_ref("payment", "pay", depends_on=["first"], effect="once")

    @session.workflow
    async def order(ctx):
        amount = (await ctx.run("before", ctx.input))["output"]
        return (await ctx.run("payment", amount, effect="once")).get("output")

    @session.workflow
    async def nested(ctx):
        return (await ctx.run_graph("graph", ctx.input))["output"]

    @session.workflow
    async def parent(ctx):
        return await ctx.run_workflow("order", ctx.input)

    @session.workflow
    async def racing(ctx):
        payment = asyncio.create_task(ctx.run("payment", 5, effect="once"))
        await ctx.run("soon")
        payment.cancel()
        await asyncio.wait([payment])
        return (await ctx.run("before", "given up"))["output"]

    yield shop
    latch.open.set()


async def held_in_doubt(run, path):
    with pytest.raises(RunHeld, match="in doubt"):
        await within(run.wait())
    assert run.held["path"] == path


async def test_a_fork_is_held_for_a_once_step_that_the_first_run_was_executing(shop):
    run = await shop.started("order")
    fork = await shop.session.fork(run.run_id)
    await held_in_doubt(fork, "/payment")
    assert (shop.paid, shop.before) == ([], [5])


@pytest.mark.parametrize(
    ("how", "told", "paid"), [("skip", {"receipt": 7}, []), ("retry", "receipt", [5]), ("fail", None, [])]
)
async def test_a_person_decides_about_the_once_step_in_a_fork(shop, how, told, paid):
    fork = await shop.session.fork((await shop.started("order")).run_id)
    await until(lambda: fork.held)
    match how:
        case "skip":
            await fork.skip("/payment", {"receipt": 7})
        case "fail":
            await fork.fail("/payment", "the bank says no")
        case "retry":
            await fork.retry("/payment")
    assert await within(fork.wait()) == told
    assert shop.paid == paid


async def test_a_fork_from_before_the_once_step_is_held_whatever_its_new_input(shop):
    run = await shop.started("order")
    for more in ({"at": "/before"}, {"at": "/before", "input": 6}, {"input": 6}):
        await held_in_doubt(await shop.session.fork(run.run_id, **more), "/payment")
    assert (shop.paid, shop.before) == ([], [5, 5, 6, 6])


async def test_forking_at_the_once_step_executes_it_again(shop):
    run = await shop.started("order")
    fork = await shop.session.fork(run.run_id, at="/payment")
    assert await within(fork.wait()) == "receipt"
    fork = await shop.session.fork(run.run_id, overrides={"/payment": {"input": 6}})
    assert await within(fork.wait()) == "receipt"
    assert shop.paid == [5, 6]


async def test_forking_at_an_enclosing_node_does_not_execute_the_once_step_again(shop):
    run = await shop.started("nested")
    for at in (None, "/graph", "/graph/first"):
        await held_in_doubt(await shop.session.fork(run.run_id, at), "/graph/pay")
    fork = await shop.session.fork(run.run_id, "/graph/pay")
    assert await within(fork.wait()) == "receipt"
    assert shop.paid == [5]


async def test_the_fork_of_a_child_run_is_held_too(shop):
    run = await shop.started("parent")
    fork = await shop.session.fork(run.run_id)
    await until(lambda: fork.held)
    child = shop.session.get_workflow_run(fork.held["run_id"])
    assert (child.held["path"], fork.run_state.children, shop.paid) == ("/payment", {"/order": child}, [])
    await child.skip("/payment", "it was paid")
    assert await within(fork.wait()) == "it was paid"


async def test_a_fork_is_held_for_a_once_step_that_the_first_run_cancelled(shop):
    run = await shop.started("racing")
    assert await within(run.wait()) == "given up"
    for how in ("skip", "retry"):
        fork = await shop.session.fork(run.run_id, at="/before")
        await held_in_doubt(fork, "/payment")
        assert shop.paid == []
        await (fork.skip("/payment", "it was paid") if how == "skip" else fork.retry("/payment"))
        assert await within(fork.wait()) == "given up"


async def test_a_fork_of_a_stopped_run_is_held_for_the_once_step(shop):
    run = await shop.started("order")
    await run.stop("enough")
    await held_in_doubt(await shop.session.fork(run.run_id), "/payment")


async def test_the_fork_of_a_fork_is_held_too_until_the_step_is_decided(shop):
    run = await shop.started("order")
    first = await shop.session.fork(run.run_id, at="/before", input=6)
    await held_in_doubt(first, "/payment")
    second = await shop.session.fork(first.run_id)
    await held_in_doubt(second, "/payment")
    await second.skip("/payment", "it was paid")
    assert await within(second.wait()) == "it was paid"
    third = await shop.session.fork(second.run_id)
    assert (await within(third.wait()), shop.paid) == ("it was paid", [])


async def test_the_fork_of_a_fork_that_has_not_reached_the_once_step_is_held_too(shop):
    run = await shop.started("order")
    slow = Latch()
    shop.session.nodes["before"] = FunctionNode("slow", shop.session, slow.leaf)
    first = await shop.session.fork(run.run_id, at="/before")
    await slow.entered.wait()
    second = await shop.session.fork(first.run_id)
    slow.open.set()
    for fork in (first, second):
        await held_in_doubt(fork, "/payment")
    assert shop.paid == []


async def test_a_fork_stays_in_doubt_over_a_restart(file):
    async def pay(ctx):
        return (await ctx.run("payment", 5, effect="once"))["output"]

    def bank(latch):
        session = Session("test", file)
        FunctionNode("payment", session, latch.leaf)
        session.workflow(pay)
        return session

    latch = Latch()
    async with bank(latch) as session:
        run = await session.start("pay")
        await latch.entered.wait()
        fork = await session.fork(run.run_id)
        await held_in_doubt(fork, "/payment")
    latch = Latch()
    async with bank(latch) as session:
        await session.recover()
        again = session.get_workflow_run(fork.run_id)
        await held_in_doubt(again, "/payment")
        await again.skip("/payment", 7)
        assert await within(again.wait()) == 7
        assert latch.inputs == []


async def test_changed_code_with_another_input_for_the_enclosing_node_is_held(file):
    def project(amount, latch):
        session = Session("test", file)
        FunctionNode("payment", session, latch.leaf)
        Graph("graph", session).add_step_ref("payment", "pay", effect="once")

        @session.workflow
        async def order(ctx):
            return (await ctx.run_graph("graph", amount))["output"]

        return session

    latch = Latch()
    async with project(5, latch) as session:
        run = await session.start("order")
        await latch.entered.wait()
    latch = Latch()
    latch.open.set()
    async with project(6, latch) as session:
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        with pytest.raises(RunHeld, match="mismatch"):
            await within(run.wait())
        await run.resume(with_changes=True)
        await held_in_doubt(run, "/graph/pay")
        await run.retry("/graph/pay")
        assert await within(run.wait()) == 6
        assert latch.inputs == [6]
