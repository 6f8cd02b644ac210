"""Budgets under concurrency: turns in progress count, for steps, child runs and the day."""

import asyncio

import pytest

from agents.test_conversation import Agent, saying
from core.workflow.support import until, within
from nerve import Graph, Limits, Retry, Session
from nerve.agents import AgentNode, AssistantText, ThreadStarted, TurnFinished, TurnUsage
from nerve.errors import RunHeld

SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


class Slow(Agent):
    """Every turn starts before the first one ends, and costs a dollar."""

    def __init__(self, most=99):
        super().__init__(self.answers)
        self.most, self.go, self.working = most, asyncio.Event(), 0

    async def answers(self, prompt, resume, options):
        self.working += 1
        if self.working >= self.most:
            self.go.set()
        await self.go.wait()
        yield AssistantText("x")
        yield TurnFinished(options.thread, TurnUsage(100, 100, cost=1.0))


async def quiet(agent, turns=40):
    """Wait until no query has started for a while."""
    call_count, calm = -1, 0
    while calm < turns:
        calm = calm + 1 if len(agent.calls) == call_count else 0
        call_count = len(agent.calls)
        await asyncio.sleep(0)


def at_once(session, agent, steps=10, **settings):
    AgentNode("dev", session, agent, thread="fresh", workspace="shared", **settings)

    @session.workflow
    async def body(ctx):
        return len(await asyncio.gather(*(ctx.run("dev", str(number)) for number in range(steps))))


@pytest.mark.parametrize("budget", [{"turns": 2}, {"agents": 2}])
@pytest.mark.parametrize("slots", [1, 9])
async def test_concurrent_steps_do_not_exceed_the_turn_budget(budget, slots):
    session, agent = Session(slots={"agent": slots}), Slow(most=min(slots, 2))
    at_once(session, agent)
    run = await session.start("body", limits=budget)
    with pytest.raises(RunHeld, match=f"2 of 2 {next(iter(budget))}"):
        await within(run.wait())
    assert len(agent.calls) == 2
    await run.resume(limits={next(iter(budget)): 10})
    assert await within(run.wait()) == 10
    assert len(agent.calls) == 10


@pytest.mark.parametrize(("budget", "asked"), [({"cost": 2.0}, 2), ({"tokens": 300}, 2)])
async def test_no_turn_starts_once_the_known_usage_exceeds_the_budget(budget, asked):
    session, agent = Session(slots={"agent": 1}), Slow(most=1)
    at_once(session, agent)
    run = await session.start("body", limits=budget)
    with pytest.raises(RunHeld, match="Run budget exhausted"):
        await within(run.wait())
    assert len(agent.calls) == asked
    await run.stop()


async def test_a_run_is_not_held_while_its_last_turns_are_in_progress():
    session, agent = Session(), Slow()
    at_once(session, agent, steps=3)
    run = await session.start("body", limits={"turns": 2})
    await until(lambda: len(agent.calls) == 2)
    await quiet(agent)
    assert (len(agent.calls), run.held) == (2, None)
    agent.go.set()
    await until(lambda: run.held is not None)
    await run.stop()


async def test_a_refused_turn_releases_its_reservation():
    refused = asyncio.Event()

    async def refuses(prompt, resume, options):
        yield ThreadStarted(options.thread)
        await refused.wait()
        yield TurnFinished(options.thread, outcome="limited")

    session, agent = Session(), Agent(refuses)
    other = Agent(saying(AssistantText("fine"), TurnFinished("t", TurnUsage(1, 1))))
    other.name = "other"
    AgentNode("first", session, agent, workspace="shared")
    AgentNode("second", session, other, workspace="shared")

    @session.workflow
    async def body(ctx):
        first = asyncio.ensure_future(ctx.run("first", "x"))
        second = asyncio.ensure_future(ctx.run("second", "y"))
        answer = (await second)["output"]
        first.cancel()
        return answer

    run = await session.start("body", limits={"turns": 1})
    await until(lambda: len(agent.calls) == 1)
    await quiet(other)
    assert other.calls == []
    refused.set()
    assert await within(run.wait()) == "fine"


@pytest.mark.parametrize("slots", [1, 9])
async def test_the_daily_budget_applies_to_all_concurrent_runs(slots):
    session, agent = Session(slots={"agent": slots}, budget={"turns": 3}), Slow(most=min(slots, 3))
    at_once(session, agent, steps=2)
    runs = [await session.start("body") for _ in range(4)]
    await until(lambda: sum(run.is_complete or run.held is not None for run in runs) == 4)
    assert len(agent.calls) == 3
    for run in runs:
        await run.stop()


def children(session, agent, **settings):
    AgentNode("dev", session, agent, thread="fresh", workspace="shared")

    @session.workflow(**settings)
    async def child(ctx):
        for number in range(3):
            await ctx.run("dev", str(number))
        return "done"

    @session.workflow
    async def parent(ctx):
        return await asyncio.gather(*(ctx.run_workflow("child") for _ in range(4)))


@pytest.mark.parametrize("budget", [{"turns": 3}, {"agents": 3}])
async def test_concurrent_children_share_their_parents_budget(budget):
    session, agent = Session(), Slow(most=3)
    children(session, agent)
    run = await session.start("parent", limits=budget)
    with pytest.raises(RunHeld, match=f"3 of 3 {next(iter(budget))}"):
        await within(run.wait())
    await quiet(agent)
    assert len(agent.calls) == 3
    await run.stop()


async def test_usage_of_a_child_counts_while_it_runs_and_once_afterwards():
    session = Session()
    AgentNode("dev", session, Slow(most=1), thread="fresh", workspace="shared")

    @session.workflow
    async def child(ctx):
        await ctx.run("dev", "x")
        await ctx.gate("Go on?")

    @session.workflow
    async def parent(ctx):
        waiting = asyncio.ensure_future(ctx.run_workflow("child"))
        await ctx.gate("First?")
        await ctx.run("dev", "y")
        await waiting
        await ctx.run("dev", "z")
        return "done"

    run = await session.start("parent", limits={"turns": 2})
    await until(lambda: len(run.pending_gates) == 2)
    for prompt in ("First?", "Go on?"):
        await run.answer("yes", next(gate.gate_id for gate in run.pending_gates if gate.prompt == prompt))
    with pytest.raises(RunHeld, match="2 of 2 turns"):
        await within(run.wait())
    await run.resume(limits={"turns": 3})
    assert await within(run.wait()) == "done"


async def test_interrupted_turns_still_count_after_a_restart(tmp_path):
    first, second = Slow(), Slow(most=1)
    async with Session(store=tmp_path / "n.db") as session:
        at_once(session, first, steps=3)
        await session.start("body", limits={"turns": 3})
        await until(lambda: len(first.calls) == 3)
    async with Session(store=tmp_path / "n.db") as session:
        at_once(session, second, steps=3)
        [run] = await session.recover()
        with pytest.raises(RunHeld, match="3 of 3 turns"):
            await within(run.wait())
        assert second.calls == []


async def test_children_still_share_their_parents_budget_after_a_restart(tmp_path):
    agent = Slow(most=3)
    async with Session(store=tmp_path / "n.db") as session:
        children(session, agent)
        run = await session.start("parent", limits=Limits(turns=3))
        with pytest.raises(RunHeld):
            await within(run.wait())
    agent = Slow(most=1)
    async with Session(store=tmp_path / "n.db") as session:
        children(session, agent)
        runs = await session.recover()
        await quiet(agent)
        parent = next(run for run in runs if run.workflow_id == "parent")
        await until(lambda: parent.held is not None)
        assert agent.calls == []


async def test_usage_of_an_abandoned_or_retried_child_counts_for_its_parent(tmp_path):
    session = Session(store=tmp_path / "n.db", budget={"turns": 99})
    AgentNode("dev", session, Slow(most=1), thread="fresh", workspace="shared")

    @session.workflow
    async def fails(ctx):
        await ctx.run("dev", "x")
        raise ValueError("no")

    @session.workflow
    async def waits(ctx):
        await ctx.run("dev", "x")
        await ctx.gate("Go on?")

    Graph("tries", session).add_step(session.workflows["fails"], "fails", retry=Retry(attempts=3, delay=0))

    @session.workflow
    async def parent(ctx):
        child = asyncio.ensure_future(ctx.run_workflow("waits"))
        await ctx.gate("Give up?")
        child.cancel()
        await asyncio.wait([child])
        await ctx.run("tries")
        await ctx.run("dev", "y")

    async with session:
        run = await session.start("parent", limits={"turns": 4})
        await until(lambda: len(run.pending_gates) == 2)
        gate = next(gate for gate in run.pending_gates if gate.prompt == "Give up?")
        await run.answer("yes", gate.gate_id)
        with pytest.raises(RunHeld, match="4 of 4 turns"):
            await within(run.wait())
        assert run.view.usage.turns == session.engine.budgets.update_day().usage.turns == 4
        await run.resume(limits={"turns": 5})
        await within(run.wait())
        assert run.view.usage.turns == used_today(session) == 5


def used_today(session):
    return session.engine.usage_today().turns
