"""Budgets of single steps: what they limit, how they hold the run, and how they are raised."""

import asyncio
import time

import pytest

from agents.test_conversation import Agent, saying, spending
from core.workflow.support import until, within
from nerve import Graph, Limits, Retry, Session
from nerve.agents import AgentNode, AssistantText, TurnFinished, TurnUsage
from nerve.api import commands, models

SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


def answers(*texts):
    """Return an agent that gives the texts in order, each for 15 tokens and half a dollar."""
    return Agent(
        *(saying(AssistantText(text), TurnFinished("t", TurnUsage(10, 5, cost=0.5))) for text in texts)
    )


def workflow(session, agent, **policy):
    AgentNode("dev", session, agent, output_schema=SCHEMA)

    @session.workflow
    async def body(ctx):
        return (await ctx.run("dev", "Decide.", **policy))["output"]


@pytest.mark.parametrize(
    ("budget", "raised", "told"),
    [
        ({"turns": 1}, {"turns": 3}, "1 of 1 turns"),
        ({"tokens": 12}, {"tokens": 99}, "15 of 12 tokens"),
        ({"cost": 0.5}, {"cost": 2}, "0.5 of 0.5 USD"),
    ],
)
async def test_an_exhausted_step_budget_holds_the_run_names_the_step_and_raising_it_resumes(
    budget, raised, told
):
    session, agent = Session(), answers("no json", '{"ok": true}')
    workflow(session, agent, limits=budget)
    run = await session.start("body")
    await until(lambda: run.held is not None)
    name = next(iter(budget))
    way = f"Raise it with resume(limits={{'/dev': {{'{name}': …}}}})."
    assert run.held["message"] == f"Budget of step /dev exhausted: {told}. {way}"
    assert run.held["path"] == "/dev"
    assert len(agent.calls) == 1
    await run.resume(limits={"/dev": raised})
    assert await within(run.wait()) == {"ok": True}


async def test_a_budget_that_is_not_raised_enough_holds_again():
    session, agent = Session(), answers("no", "no", '{"ok": true}')
    workflow(session, agent, limits=Limits(turns=1))
    run = await session.start("body")
    for bound in (2, 3):
        await until(lambda: run.held is not None)
        await run.resume(limits={"/dev": {"turns": bound}})
    assert await within(run.wait()) == {"ok": True}


async def test_a_step_held_for_its_budget_resumes_after_a_restart_with_its_usage(tmp_path):
    async with Session(store=tmp_path / "n.db") as session:
        workflow(session, answers("no json"), limits={"turns": 1})
        run = await session.start("body")
        await until(lambda: run.held is not None)
    agent = answers("no", '{"ok": true}')
    async with Session(store=tmp_path / "n.db") as session:
        workflow(session, agent, limits={"turns": 1})
        [run] = await session.recover()
        assert run.held["reason"] == "budget"
        await run.resume(limits={"/dev": {"turns": 2}})
        await until(lambda: run.held is not None)
        assert "2 of 2 turns" in run.held["message"]
        await run.resume(limits={"/dev": {"turns": 3}})
        assert await within(run.wait()) == {"ok": True}
        assert run.view.usage.turns == 3


async def test_the_budget_of_a_step_counts_all_its_attempts():
    session = Session()
    failing = Agent(saying(TurnFinished("t", TurnUsage(10, 5), outcome="failed", error="busy")))
    AgentNode("dev", session, failing, retry=Retry(attempts=9, delay=0), limits={"turns": 2})

    @session.workflow
    async def body(ctx):
        await ctx.run("dev", "x")

    run = await session.start("body")
    await until(lambda: run.held is not None)
    assert "Budget of step /dev exhausted: 2 of 2 turns" in run.held["message"]
    await run.stop()


async def test_every_call_of_a_node_has_the_budget_of_its_own_step():
    session = Session()
    await spending(session, times=3)
    session.nodes["dev"].policy = AgentNode(provider=answers(), limits={"turns": 1}).policy
    assert await within((await session.start("body")).wait()) == "done"


async def test_the_run_budget_is_checked_between_the_turns_of_a_step():
    session, agent = Session(), answers("no json", '{"ok": true}')
    workflow(session, agent)
    run = await session.start("body", limits={"turns": 1})
    await until(lambda: run.held is not None)
    assert "Run budget exhausted: 1 of 1 turns" in run.held["message"]
    await run.resume(limits={"turns": 2})
    assert await within(run.wait()) == {"ok": True}


async def test_a_workflow_as_a_step_may_not_exceed_the_step_budget():
    session = Session()
    await spending(session, times=3)
    graph = Graph("both", session)
    graph.add_step(session.workflows["body"], "inner", limits={"turns": 2})
    session.register_workflow(graph)
    run = await session.start("both")
    await until(lambda: run.held is not None)
    assert "2 of 2 turns" in run.held["message"]
    await run.stop()


async def test_step_timers_pause_while_it_is_held():
    session, agent = Session(), answers("no json", '{"ok": true}')
    workflow(session, agent, limits={"turns": 1}, timeout=0.3, idle_timeout=0.3)
    run = await session.start("body")
    await until(lambda: run.held is not None)
    began = time.monotonic()
    await until(lambda: time.monotonic() - began > 0.5)
    await run.resume(limits={"/dev": {"turns": 2}})
    assert await within(run.wait()) == {"ok": True}


async def test_step_timers_continue_after_it_was_held():
    async def hangs(prompt, resume, options):
        await asyncio.Event().wait()
        yield

    session = Session()
    first = saying(AssistantText("no json"), TurnFinished("t", TurnUsage(10, 5)))
    workflow(session, Agent(first, hangs), limits={"turns": 1}, timeout=0.3)
    run = await session.start("body")
    await until(lambda: run.held is not None)
    await run.resume(limits={"/dev": {"turns": 2}})
    with pytest.raises(TimeoutError, match=r"timed out after 0.3 s"):
        await within(run.wait())


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"tokenz": 1}, "Unknown limit 'tokenz'"),
        ({"/dev": 5}, "The limits of step /dev must be an object such as"),
        ({"/dev": {"agents": 1}}, "A step cannot have the limit 'agents'. It can have: tokens, cost, turns"),
        ({"/dev": {"depth": 3}}, "A step cannot have the limit 'depth'. It can have: tokens, cost, turns"),
    ],
)
async def test_raising_an_unknown_limit_is_refused(tmp_path, limits, message):
    async with Session(store=tmp_path / "n.db") as session:
        workflow(session, answers("no json"), limits={"turns": 1})
        run = await session.start("body")
        await until(lambda: run.held is not None)
        with pytest.raises(ValueError, match=message):
            await run.resume(limits=limits)
        await run.stop()


async def test_the_api_raises_the_budget_of_a_step():
    session, agent = Session(), answers("no json", '{"ok": true}')
    workflow(session, agent, limits={"turns": 1})
    run = await session.start("body")
    await until(lambda: run.held is not None)
    await commands.resume(session, models.ResumeRequest(run=run.run_id, limits={"/dev": {"turns": 2}}))
    assert await within(run.wait()) == {"ok": True}


def test_limits_that_a_step_cannot_have_are_refused():
    with pytest.raises(
        ValueError, match=r"A step cannot have the limit 'wall_time'\. It can have: tokens, cost, turns"
    ):
        AgentNode("dev", provider=answers(), limits={"wall_time": 5})
    with pytest.raises(ValueError, match="'g' is a control node and cannot have limits"):
        Graph("g", Session(), limits={"turns": 1})
