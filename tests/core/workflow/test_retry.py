"""Retry: a new run that copies the settled steps of another run and executes the failed ones again."""

import asyncio

import pytest

from core.workflow.support import Latch, at_gate, counted, within
from nerve import FunctionNode, Graph, Limits, Retry, Session
from nerve.core.nodes.control import GateNode, MapNode, ParallelNode
from nerve.core.result import Result
from nerve.core.workflow import Workflow
from nerve.errors import Rejected, RunHeld, WorkflowFailed


class Shop:
    """Payments with effect="once", and a delivery that fails until it is fixed."""

    def __init__(self, session):
        self.session, self.broken, self.stuck = session, True, Latch()
        self.paid, self.tried = [], []
        FunctionNode("pay", session, self.pay, effect="once")
        FunctionNode("deliver", session, self.deliver)
        FunctionNode("slow", session, self.slow)

    async def pay(self, context):
        self.paid.append(context.input)
        return Result.ok(f"paid {context.input}", {"usage": {"tokens": 100}})

    async def deliver(self, context):
        self.tried.append(context.input)
        if self.broken:
            raise OSError("no van")
        return f"delivered {context.input}"

    async def slow(self, context):
        return await self.stuck.leaf(context) if self.broken else "in time"

    async def failed(self, workflow, input=5, **options):
        run = await self.session.start(workflow, input, **options)
        with pytest.raises((WorkflowFailed, RuntimeError, TimeoutError)):
            await within(run.wait())
        self.broken = False
        return run

    async def retried(self, run):
        return await within((await self.session.retry(run.run_id)).wait())


def sell(session):
    """Register an order whose delivery fails, a workflow that calls it, and one that calls that."""

    @session.workflow
    async def order(ctx):
        await ctx.run("pay", ctx.input)
        if not (delivered := await ctx.run("deliver", ctx.input))["success"]:
            raise RuntimeError(delivered["error"])
        return delivered["output"]

    @session.workflow
    async def parent(ctx):
        return await ctx.run_workflow("order", ctx.input)

    @session.workflow
    async def grandparent(ctx):
        await ctx.run("pay", 1)
        return await ctx.run_workflow("parent", ctx.input)


@pytest.fixture
async def shop(session):
    shop = Shop(session)
    sell(session)
    yield shop
    shop.stuck.open.set()


@pytest.mark.parametrize(("workflow", "paid"), [("order", [5]), ("parent", [5]), ("grandparent", [1, 5])])
async def test_completed_steps_are_not_repeated_however_deep_the_failure_is(shop, workflow, paid):
    run = await shop.failed(workflow)
    assert await shop.retried(run) == "delivered 5"
    assert (shop.paid, shop.tried) == (paid, [5, 5])


async def test_a_retry_of_a_retry_does_not_repeat_completed_steps(shop):
    run = await shop.failed("grandparent")
    shop.broken = True
    again = await shop.session.retry(run.run_id)
    with pytest.raises(WorkflowFailed):
        await within(again.wait())
    shop.broken = False
    assert await shop.retried(again) == "delivered 5"
    assert (shop.paid, shop.tried) == ([1, 5], [5, 5, 5])


async def test_a_retry_of_a_failed_child_resumes_after_a_restart(file):
    async with Session("test", file) as session:
        shop = Shop(session)
        sell(session)
        run = await shop.failed("grandparent")
    async with Session("test", file) as session:
        again = Shop(session)
        sell(session)
        slow = Latch()
        session.nodes["deliver"] = FunctionNode("stuck", session, slow.leaf)
        retried = await session.retry(run.run_id)
        await slow.entered.wait()
    async with Session("test", file) as session:
        last = Shop(session)
        last.broken = False
        sell(session)
        await session.recover()
        assert await within(session.get_workflow_run(retried.run_id).wait()) == "delivered 5"
        assert (shop.paid, again.paid, last.paid, last.tried) == ([1, 5], [], [], [5])


async def test_copied_steps_of_a_retried_child_are_not_charged_again(shop):
    run = await shop.failed("grandparent", limits=Limits(tokens=250))
    again = await shop.session.retry(run.run_id)
    assert await within(again.wait()) == "delivered 5"
    assert (run.view.usage.tokens, again.view.usage.tokens) == (200, 0)


async def test_the_failed_run_and_its_child_are_unchanged(shop):
    run = await shop.failed("parent")
    child = shop.session.get_workflow_run(run.events[1].data["child"])
    before = [event.to_dict() for each in (run, child) for event in each.events]
    again = await shop.session.retry(run.run_id)
    await within(again.wait())
    assert [event.to_dict() for each in (run, child) for event in each.events] == before
    start = again.events[0].data
    assert (start["forked_from"]["run"], start["forked_from"]["at"]) == (run.run_id, "/order")
    other = shop.session.get_workflow_run(again.events[1].data["child"])
    assert other.run_id != child.run_id
    assert other.events[0].data["forked_from"]["run"] == child.run_id
    assert other.events[0].data["parent"] == again.run_id


async def test_a_child_that_timed_out_continues_where_it_was(shop):
    @shop.session.workflow
    async def lengthy(ctx):
        paid = (await ctx.run("pay", ctx.input))["output"]
        return [paid, (await ctx.run("slow"))["output"]]

    Graph("bounded", shop.session).add_step_ref("lengthy", "child", timeout=0.05)
    shop.session.register_workflow(shop.session.graphs["bounded"])

    @shop.session.workflow
    async def around(ctx):
        async with ctx.timeout(0.05):
            return await ctx.run_workflow("lengthy", ctx.input)

    for workflow in ("bounded", "around"):
        shop.paid.clear()
        shop.broken = True
        run = await shop.failed(workflow)
        assert await shop.retried(run) == ["paid 5", "in time"]
        assert shop.paid == [5], workflow


async def test_an_interrupted_once_step_of_a_timed_out_child_is_in_doubt(shop):
    FunctionNode("cut", shop.session, shop.slow, effect="once")

    @shop.session.workflow
    async def doubtful(ctx):
        return (await ctx.run("cut"))["output"]

    @shop.session.workflow
    async def around(ctx):
        async with ctx.timeout(0.05):
            return await ctx.run_workflow("doubtful")

    run = await shop.failed("around")
    again = await shop.session.retry(run.run_id)
    with pytest.raises(RunHeld, match="in doubt"):
        await within(again.wait())
    await shop.session.get_workflow_run(again.held["run_id"]).skip("/cut", "it was paid")
    assert await within(again.wait()) == "it was paid"


async def test_a_child_with_two_attempts_continues_from_the_last_with_all_attempts_again(shop):
    Workflow("eager", shop.session, shop.session.workflows["order"].fn, retry=Retry(attempts=2, delay=0))

    @shop.session.workflow
    async def twice(ctx):
        return await ctx.run_workflow("eager", ctx.input)

    run = await shop.failed("twice")
    assert (shop.paid, shop.tried) == ([5, 5], [5, 5])
    assert await shop.retried(run) == "delivered 5"
    assert (shop.paid, shop.tried) == ([5, 5], [5, 5, 5])


async def test_a_child_keeps_the_answers_of_its_gates(shop):
    @shop.session.workflow
    async def asking(ctx):
        answer = await ctx.gate("Deliver it?")
        if not (delivered := await ctx.run("deliver", answer))["success"]:
            raise RuntimeError(delivered["error"])
        return answer

    @shop.session.workflow
    async def around(ctx):
        return await ctx.run_workflow("asking")

    run = await shop.session.start("around")
    await at_gate(run)
    await run.answer("yes")
    with pytest.raises(WorkflowFailed):
        await within(run.wait())
    shop.broken = False
    assert await shop.retried(run) == "yes"


async def test_a_child_that_could_not_start_is_started(shop):
    @shop.session.workflow
    async def around(ctx):
        return await ctx.run_workflow("order", ctx.input)

    shop.broken = False
    run = await shop.session.start("around", 5, limits=Limits(depth=0))
    with pytest.raises(WorkflowFailed, match="Workflow nesting exceeds depth=0"):
        await within(run.wait())
    fork = await shop.session.fork(run.run_id, at="/order", limits={"depth": 3})
    assert await within(fork.wait()) == "delivered 5"
    again = await shop.session.retry(run.run_id)
    with pytest.raises(WorkflowFailed, match="Workflow nesting exceeds depth=0"):
        await within(again.wait())


async def test_a_failed_child_with_another_workflow_name_starts_from_the_beginning(shop):
    run = await shop.failed("parent")
    session = shop.session
    session.workflows["better"] = Workflow("renamed", session, session.workflows.pop("order").fn)
    del session.workflows["parent"]

    @session.workflow
    async def parent(ctx):
        return await ctx.run_workflow("better", ctx.input)

    assert await shop.retried(run) == "delivered 5"
    assert shop.paid == [5, 5]


async def test_a_rejection_is_not_retried(shop):
    async def refuse(context):
        return Result.failed("rejected: no", "Rejected")

    FunctionNode("refuse", shop.session, refuse)
    asked = counted(shop.session, "asked")

    @shop.session.workflow
    async def refused(ctx):
        await ctx.run("asked", 1)
        try:
            await ctx.run("refuse")
        except Rejected:
            raise RuntimeError("it was refused") from None

    run = await shop.failed("refused")
    again = await shop.session.retry(run.run_id)
    with pytest.raises(RuntimeError, match="refused"):
        await within(again.wait())
    assert (asked, again.events[0].data["forked_from"]["at"]) == ([1], None)


# -- inside of control nodes ---------------------------------------------------------------------


async def test_completed_steps_of_a_graph_are_not_repeated(shop):
    graph = Graph("graph", shop.session).add_step_ref("pay", "pay")
    graph.add_step_ref("deliver", "deliver", depends_on=["pay"])

    @shop.session.workflow
    async def nested(ctx):
        if not (told := await ctx.run_graph("graph", ctx.input))["success"]:
            raise RuntimeError(told["error"])
        return told["output"]

    run = await shop.failed("nested")
    assert await shop.retried(run) == "delivered paid 5"
    assert shop.paid == [5]


async def test_only_the_failed_items_of_a_map_are_executed_again(shop):
    tried = []

    async def item(context):
        tried.append(context.input)
        if shop.broken and context.input % 2:
            raise OSError("odd")
        return context.input

    body = FunctionNode("item", shop.session, item)
    Workflow("items", shop.session, body=MapNode("map", shop.session, body))
    run = await shop.failed("items", [1, 2, 3, 4])
    assert await shop.retried(run) == [1, 2, 3, 4]
    assert sorted(tried) == [1, 1, 2, 3, 3, 4]


async def test_concurrent_failures_are_all_executed_again(shop):
    @shop.session.workflow
    async def both(ctx):
        told = await ctx.run_parallel([("deliver", 1), ("pay", 2), ("deliver", 3)])
        if bad := [each["error"] for each in told if not each["success"]]:
            raise RuntimeError(str(bad))
        return [each["output"] for each in told]

    run = await shop.failed("both")
    assert await shop.retried(run) == ["delivered 1", "paid 2", "delivered 3"]
    assert (shop.paid, shop.tried) == ([2], [1, 3, 1, 3])


async def test_failures_inside_of_a_succeeded_node_are_kept(shop):
    one = FunctionNode("one", shop.session, shop.deliver)
    two = FunctionNode("two", shop.session, shop.pay)
    ParallelNode("either", shop.session, {"one": one, "two": two}, require=1)

    @shop.session.workflow
    async def enough(ctx):
        told = await ctx.run("either", ctx.input)
        if shop.broken:
            raise RuntimeError("a slip")
        return told["success"]

    run = await shop.failed("enough")
    assert await shop.retried(run) is True
    assert (shop.paid, shop.tried) == ([5], [5])


async def test_failures_handled_by_a_fallback_are_kept(shop):
    instead = FunctionNode("instead", shop.session, shop.pay)

    @shop.session.workflow
    async def fallen(ctx):
        told = (await ctx.run("deliver", 7, on_error=instead))["output"]
        if shop.broken:
            raise RuntimeError("a slip")
        return told

    run = await shop.failed("fallen")
    assert await shop.retried(run) == "paid 7"
    assert (shop.paid, shop.tried) == ([7], [7])


# -- timeouts ------------------------------------------------------------------------------------


async def test_a_gate_that_timed_out_opens_again(shop):
    @shop.session.workflow
    async def hasty(ctx):
        await ctx.run("pay", 5)
        return await ctx.gate("Well?", timeout=0.02 if shop.broken else None)

    GateNode("ask", shop.session, "Well?", timeout=0.02)
    shop.session.register_workflow(Graph("steps", shop.session).add_step_ref("ask", "ask"))
    for workflow in ("hasty", "steps"):
        shop.broken = True
        run = await shop.failed(workflow)
        again = await shop.session.retry(run.run_id)
        await at_gate(again)
        await again.answer("well")
        assert await within(again.wait()) == "well"
    assert shop.paid == [5]


async def test_a_graph_that_timed_out_keeps_its_completed_steps(shop):
    graph = Graph("graph", shop.session, timeout=0.05).add_step_ref("pay", "pay")
    graph.add_step_ref("slow", "slow", depends_on=["pay"])
    shop.session.register_workflow(graph)

    @shop.session.workflow
    async def nested(ctx):
        return (await ctx.run_graph("graph", ctx.input))["output"]

    @shop.session.workflow
    async def around(ctx):
        async with ctx.timeout(0.05):
            await ctx.run("pay", ctx.input)
            return (await ctx.run("slow"))["output"]

    for workflow in ("graph", "nested", "around"):
        shop.paid.clear()
        shop.broken = True
        run = await shop.failed(workflow)
        assert await shop.retried(run) == "in time"
        assert shop.paid == [5], workflow


async def test_a_sleep_concurrent_to_the_failure_is_not_repeated(shop):
    slept = asyncio.Event()

    @shop.session.workflow
    async def sleepy(ctx):
        async def rest():
            await ctx.sleep(0.01)
            slept.set()

        async def work():
            await slept.wait()
            return await ctx.run("deliver", 5)

        _, told = await asyncio.gather(rest(), work())
        if not told["success"]:
            raise RuntimeError(told["error"])
        return told["output"]

    run = await shop.failed("sleepy")
    again = await shop.session.retry(run.run_id)
    assert await within(again.wait()) == "delivered 5"
    assert [event.path for event in again.events if event.event_type == "timer_started"] == ["/sleep"]
    assert again.events[0].data["forked_from"]["copied"] == 3
