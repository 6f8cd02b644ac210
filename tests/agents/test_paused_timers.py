"""Timers of enclosing steps pause with the step: while it is held, limited, or waits for a person."""

import asyncio
import time

import pytest

from agents.test_budgets import SCHEMA, answers
from agents.test_conversation import Agent, asking, saying, says
from core.workflow.support import until, within
from nerve import Graph, Session
from nerve.agents import AgentNode, AssistantText, TurnFinished
from nerve.errors import WorkflowFailed
from spec.support import loaded

BOUND = 0.8
LONGER = BOUND + 0.1
"""Seconds that everything around the step may take."""


def in_a_graph(session, agent, **settings):
    """Register a step in a graph that has the timeout."""
    node = AgentNode("dev", session, agent, **settings)
    Graph("around", session).add_step(node, limits={"turns": 1})

    @session.workflow
    async def flow(ctx):
        return (await ctx.run("around", "Decide.", timeout=BOUND))["output"]


def expected(session, agent, **settings):
    """Register a file step wrapped by its expectations; the wrapper has the timeout."""
    AgentNode("dev", session, agent, limits={"turns": 1}, **settings)
    check = {"condition": "output !== 'bad'"}
    loaded(session, {"kind": "call", "target": "dev", "id": "step", "timeout": BOUND, "expect": [check]})


AROUND = pytest.mark.parametrize("register", [in_a_graph, expected])


async def passed(seconds):
    began = time.monotonic()
    await until(lambda: time.monotonic() - began > seconds)


@AROUND
async def test_timers_pause_while_a_budget_is_exhausted(register):
    session = Session()
    register(session, answers("no json", '{"ok": true}'), output_schema=SCHEMA)
    run = await session.start("flow", "Decide.")
    await until(lambda: run.held is not None)
    await passed(LONGER)
    await run.resume(limits={run.held["path"]: {"turns": 2}})
    assert await within(run.wait()) == {"ok": True}


async def test_timers_pause_before_a_step_if_the_run_budget_is_exhausted():
    session = Session()
    dev, coach = (AgentNode(name, session, answers("fine")) for name in ("dev", "coach"))
    Graph("around", session).chain(dev, coach)

    @session.workflow
    async def flow(ctx):
        return (await ctx.run("around", "Decide.", timeout=BOUND))["output"]

    run = await session.start("flow", limits={"turns": 1})
    await until(lambda: run.held is not None)
    assert run.held["path"] == "/around/coach"
    await passed(LONGER)
    await run.resume(limits={"turns": 2})
    assert await within(run.wait()) == "fine"


@AROUND
async def test_timers_pause_while_a_provider_is_limited(register):
    session = Session()
    register(
        session, Agent(saying(TurnFinished("t", outcome="limited", resets_at=time.time() + LONGER)), says)
    )
    assert await within((await session.start("flow", "Decide.")).wait()) == "fine"


@AROUND
async def test_timers_pause_while_a_person_is_asked(register):
    session = Session()
    register(session, Agent(asking))
    run = await session.start("flow", "Decide.")
    await within(run.next_gate())
    await passed(LONGER)
    await run.answer("allow")
    assert await within(run.wait()) == "True"


@AROUND
async def test_timers_stay_paused_through_a_restart(register, tmp_path):
    async with Session(store=tmp_path / "n.db") as session:
        register(session, answers("no json"), output_schema=SCHEMA)
        run = await session.start("flow", "Decide.")
        await until(lambda: run.held is not None)
        path = run.held["path"]
    await passed(LONGER)
    async with Session(store=tmp_path / "n.db") as session:
        register(session, answers('{"ok": true}'), output_schema=SCHEMA)
        [run] = await session.recover()
        await until(lambda: run.held is not None)
        await run.resume(limits={path: {"turns": 3}})
        assert await within(run.wait()) == {"ok": True}


@AROUND
async def test_timers_continue_afterwards(register):
    async def hangs(prompt, resume, options):
        yield AssistantText("wait")
        await asyncio.Event().wait()

    session = Session()
    register(session, Agent(saying(TurnFinished("t", outcome="limited", resets_at=time.time() + 0.1)), hangs))
    run = await session.start("flow", "Decide.")
    with pytest.raises((TimeoutError, WorkflowFailed), match=r"timed out after 0.8 s"):
        await within(run.wait())


@AROUND
async def test_a_step_that_does_not_wait_records_no_paused_timer(register):
    session = Session()
    register(session, answers("fine"))
    run = await session.start("flow", "Decide.")
    assert await within(run.wait()) == "fine"
    assert [event.event_type for event in run.events if event.event_type == "timer_moved"] == []
