"""Interrupted turns: their usage is unknown, never zero."""

import asyncio
import time

import pytest

from agents.test_conversation import Agent, saying
from core.workflow.support import within
from nerve import Retry, Session
from nerve.agents import AgentNode, AssistantText, Capabilities, ThreadStarted, TurnFinished, TurnUsage
from nerve.errors import WorkflowFailed

TOLD = TurnUsage(20, 7, cost=0.5, model="m")
PARTLY = {
    "input_tokens": 20,
    "output_tokens": 7,
    "cost": 0.5,
    "model": "m",
    "cost_source": "partly unknown",
    "agents": 1,
}


def hanging(begun):
    async def turn(prompt, resume, options):
        yield ThreadStarted(resume or options.thread or "t")
        yield AssistantText("an answer that was paid for")
        begun.set()
        await asyncio.Event().wait()

    return turn


async def ends(prompt, resume, options):
    yield AssistantText("fine")
    yield TurnFinished(resume or options.thread or "t", TOLD)


async def crashes(prompt, resume, options):
    yield ThreadStarted(resume or options.thread or "t")
    raise ConnectionError("the program was killed")


def register(session, agent, thread="shared", **policy):
    AgentNode("dev", session, agent, thread=thread, **policy)

    @session.workflow
    async def body(ctx):
        return (await ctx.run("dev", "x"))["attributes"]


def unknown(told):
    """Return the number of turns whose usage the ledger counts as unknown."""
    return sum(entry.get("turns_without_tokens", 0) for entry in told.values())


async def cut_off(folder, agent):
    """Let an engine end during a turn of a new or recovered run."""
    started = asyncio.Event()
    agent.turns = [hanging(started)]
    async with Session(store=folder / "n.db") as session:
        register(session, agent)
        if not await session.recover():
            await session.start("body")
        await within(started.wait())


@pytest.mark.parametrize(
    "capabilities",
    [
        Capabilities(resume=True, names_threads=True),
        Capabilities(resume=True),
        Capabilities(),
    ],
)
async def test_usage_of_a_turn_that_ended_with_its_engine_is_unknown(tmp_path, capabilities):
    agent = Agent()
    agent.capabilities = capabilities
    await cut_off(tmp_path, agent)
    await cut_off(tmp_path, agent)
    agent.turns = [ends]
    async with Session(store=tmp_path / "n.db") as session:
        register(session, agent)
        [run] = await session.recover()
        result = await within(run.wait())
        assert result["usage"] == {**PARTLY, "turns": 3}
        assert unknown(run.view.ledger.by_step()) == unknown(session.engine.models_used_today()) == 2
        assert run.view.usage.turns == 3


async def test_usage_of_a_turn_whose_agent_was_killed_is_unknown():
    session = Session()
    register(session, Agent(crashes, crashes, ends), retry=Retry(attempts=3, delay=0))
    run = await session.start("body")
    assert (await within(run.wait()))["usage"] == {**PARTLY, "turns": 3}
    assert unknown(run.view.ledger.by_step()) == 2


async def test_usage_of_a_turn_that_timed_out_is_unknown_and_counts_for_the_budget():
    session = Session(budget={"turns": 9})
    agent = Agent(hanging(asyncio.Event()))
    AgentNode("dev", session, agent, timeout=0.05, retry=Retry(attempts=2, delay=0))

    @session.workflow
    async def body(ctx):
        [result] = await ctx.run_parallel([("dev", "x")])
        return result["attributes"]

    run = await session.start("body")
    assert (await within(run.wait()))["usage"] == {"cost_source": "unknown", "turns": 2, "agents": 1}
    assert unknown(run.view.ledger.by_step()) == unknown(session.engine.models_used_today()) == 2
    assert run.view.usage.turns == session.engine.budgets.update_day().usage.turns == 2


async def test_usage_of_an_abandoned_step_is_reported_and_counts_for_the_budget(tmp_path):
    schema = {"type": "object"}
    agent = Agent(saying(AssistantText("no json"), TurnFinished("t", TOLD)), hanging(asyncio.Event()))

    async with Session(store=tmp_path / "n.db", budget={"turns": 9}) as session:
        AgentNode("dev", session, agent, output_schema=schema)

        @session.workflow
        async def body(ctx):
            try:
                async with ctx.timeout(0.1):
                    await ctx.run("dev", "x")
            except TimeoutError:
                return "given up"

        run = await session.start("body")
        assert await within(run.wait()) == "given up"
        reported = run.view.ledger.by_step()["/dev"]
        assert (reported["turns"], reported["turns_without_tokens"], reported["reported_cost"]) == (2, 1, 0.5)
        assert run.view.usage.to_dict() == {"tokens": 27, "cost": 0.5, "turns": 2, "agents": 1}
        assert session.engine.budgets.update_day().usage.to_dict() == run.view.usage.to_dict()
    async with Session(store=tmp_path / "n.db", budget={"turns": 9}) as session:
        spent = session.engine.budgets.update_day().usage.to_dict()
        assert spent == {"tokens": 27, "cost": 0.5, "turns": 2, "agents": 1}


async def test_usage_of_a_turn_in_a_stopped_run_is_unknown():
    started, session = asyncio.Event(), Session()
    register(session, Agent(hanging(started)))
    run = await session.start("body")
    await within(started.wait())
    await run.stop()
    assert unknown(run.view.ledger.by_step()) == 1


async def test_usage_of_a_turn_in_a_stopped_child_is_unknown_in_its_parent():
    started, session = asyncio.Event(), Session()
    register(session, Agent(hanging(started)))

    @session.workflow
    async def parent(ctx):
        try:
            await ctx.run_workflow("body")
        except WorkflowFailed:
            return "stopped"

    run = await session.start("parent")
    await within(started.wait())
    [child] = run.run_state.children.values()
    await child.stop()
    assert await within(run.wait()) == "stopped"
    assert unknown(run.view.ledger.by_step()) == 1


async def test_usage_of_a_turn_that_reports_none_is_unknown():
    session = Session()
    agent = Agent(saying(TurnFinished("t", outcome="failed", error="busy")), ends)
    register(session, agent, retry=Retry(attempts=2, delay=0))
    run = await session.start("body")
    assert (await within(run.wait()))["usage"] == {**PARTLY, "turns": 2}
    assert unknown(run.view.ledger.by_step()) == 1


@pytest.mark.parametrize(("said", "turns"), [([], 1), ([AssistantText("an answer")], 2)])
async def test_only_a_rate_limit_before_any_output_used_nothing(said, turns):
    session = Session()
    limited = TurnFinished("t", outcome="limited", resets_at=time.time() + 0.05)
    register(session, Agent(saying(*said, limited), ends))
    run = await session.start("body")
    usage = (await within(run.wait()))["usage"]
    assert (usage["turns"], usage["cost_source"]) == (turns, "reported" if turns == 1 else "partly unknown")
    assert unknown(run.view.ledger.by_step()) == turns - 1


async def test_conversation_totals_survive_a_crash_after_a_failure(tmp_path):
    """A failed turn is counted and the next one is interrupted: the third one must know the totals."""
    started = asyncio.Event()
    fails = saying(TurnFinished("t", TOLD, outcome="failed", error="busy", totals={"cost": 1}))
    async with Session(store=tmp_path / "n.db") as session:
        register(session, Agent(fails, hanging(started)), retry=Retry(attempts=3, delay=0))
        await session.start("body")
        await within(started.wait())
    agent = Agent(ends)
    async with Session(store=tmp_path / "n.db") as session:
        register(session, agent, retry=Retry(attempts=3, delay=0))
        [run] = await session.recover()
        usage = (await within(run.wait()))["usage"]
    assert agent.calls[0][2].totals == {"cost": 1}
    assert (usage["input_tokens"], usage["turns"], usage["cost_source"]) == (40, 3, "partly unknown")


async def test_a_fork_whose_agent_was_killed_resumes_the_fork():
    async def copied(prompt, resume, options):
        yield ThreadStarted("the-copy")
        raise ConnectionError("the program was killed")

    session = Session()
    agent = Agent(ends, copied, ends)
    AgentNode("dev", session, agent, thread="fork", retry=Retry(attempts=2, delay=0))

    @session.workflow
    async def body(ctx):
        await ctx.run("dev", "one")
        await ctx.run("dev", "two")

    await within((await session.start("body")).wait())
    assert [options.fork for _, _, options in agent.calls] == [False, True, False]
    assert agent.calls[2][1] == "the-copy"
