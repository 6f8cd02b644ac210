"""Rate limits of providers: shown in every view, and remembered across a restart."""

import asyncio
import time

from agents.test_conversation import Agent, saying, says
from core.workflow.support import until, within
from nerve import Session
from nerve.agents import AgentNode, AssistantText, TurnFinished
from nerve.api import models, queries
from nerve.testing import ScriptedProvider
from nerve.ui.progress_tree import ProgressTree


def limited(until):
    return Agent(saying(TurnFinished("t", outcome="limited", resets_at=until)), says)


def register(session, agent, **policy):
    AgentNode("dev", session, agent, **policy)

    @session.workflow
    async def body(ctx):
        return (await ctx.run("dev", "x"))["output"]


async def test_a_rate_limited_step_is_shown_in_every_view_until_it_continues():
    session, soon = Session(), time.time() + 1
    register(session, limited(soon))
    run = await session.start("body")
    await until(lambda: run.view.limited_steps)
    message = f"held: agent limit until {time.strftime('%H:%M', time.localtime(soon))}"
    assert run.view.limited_steps == {"/dev": message}
    assert run.view.state == "running"
    detail = await queries.run(session, models.ShowRunRequest(run=run.run_id))
    assert detail.tree[0].held == message
    tree = ProgressTree()
    for event in run.events:
        tree.apply_event("", event)
    assert tree.root.notes["/dev"] == message
    assert await within(run.wait()) == "fine"
    assert run.view.limited_steps == {}
    for event in run.events:
        tree.apply_event("", event)
    assert tree.root.notes["/dev"] == "fine"
    types = [event.event_type for event in run.events if event.event_type.startswith("provider")]
    assert types == ["provider_limited", "provider_open"]


async def test_a_rate_limit_survives_a_restart_and_blocks_queries_until_it_ends(tmp_path):
    soon = time.time() + 1.5
    async with Session(store=tmp_path / "n.db") as session:
        register(session, limited(soon))
        run = await session.start("body")
        await until(lambda: run.view.limited_steps)
    requests = []

    async def notes(prompt, resume, options):
        requests.append(time.time())
        yield TurnFinished(resume or options.thread)

    async with Session(store=tmp_path / "n.db") as session:
        register(session, Agent(notes))
        [old] = await session.recover()
        new = await session.start("body")
        await until(lambda: old.view.limited_steps and new.view.limited_steps)
        assert (await queries.health(session, models.EmptyRequest())).limited == {"agent": soon}
        await within(old.wait())
        await within(new.wait())
        assert session.provider_slots.rate_limits.limited == {}
    assert len(requests) == 2
    assert min(requests) >= soon


async def test_a_rate_limit_is_recorded_although_the_fallback_is_used(tmp_path):
    async with Session(store=tmp_path / "n.db") as session:
        other = ScriptedProvider(["from the other"])
        register(session, limited(time.time() + 60), fallback=other)
        run = await session.start("body")
        assert await within(run.wait()) == "from the other"
        assert run.view.limited_steps == {}
    async with Session(store=tmp_path / "n.db") as session:
        register(session, Agent(says))
        run = await session.start("body")
        await until(lambda: run.view.limited_steps)
        await run.stop()
        assert run.view.limited_steps == {}


async def test_the_fallback_is_used_immediately_if_the_limit_is_already_known():
    session, first = Session(), limited(time.time() + 60)
    register(session, first, fallback=ScriptedProvider(["one", "two"]))
    assert await within((await session.start("body")).wait()) == "one"
    assert await within((await session.start("body")).wait()) == "two"
    assert len(first.calls) == 1


async def test_the_fallback_does_not_get_the_model_of_the_first_provider():
    other = ScriptedProvider(["fine"])
    session = Session()
    register(session, limited(time.time() + 60), fallback=other, model="opus")
    assert await within((await session.start("body")).wait()) == "fine"
    assert "model" not in other.calls[0].options


async def test_a_refused_turn_is_not_charged():
    session = Session()
    register(session, limited(time.time() + 0.2), limits={"turns": 1})
    run = await session.start("body")
    assert await within(run.wait()) == "fine"
    assert run.view.usage.turns == 1


async def test_a_rate_limit_does_not_count_against_the_step_timeout():
    session = Session()
    register(session, limited(time.time() + 0.5), timeout=0.3)
    assert await within((await session.start("body")).wait()) == "fine"


async def test_a_rate_limit_ends_for_all_steps_when_the_provider_answers(tmp_path):
    go = asyncio.Event()

    async def long(prompt, resume, options):
        await go.wait()
        yield AssistantText("fine")
        yield TurnFinished("t")

    def opened(agent):
        session = Session(store=tmp_path / "n.db")
        register(session, agent, thread="fresh")
        return session

    agent = Agent(long, saying(TurnFinished("u", outcome="limited", resets_at=time.time() + 3600)), says)
    async with opened(agent) as session:
        first = await session.start("body")
        await until(lambda: len(agent.calls) == 1)
        second = await session.start("body")
        await until(lambda: second.view.limited_steps)
        assert session.engine.provider_limits().keys() == {"agent"}
        go.set()
        for run in (first, second):
            assert await within(run.wait()) == "fine"
        assert session.provider_slots.rate_limits.limited == session.engine.provider_limits() == {}
    async with opened(Agent(says)) as session:
        assert session.provider_slots.rate_limits.limited == {}
        assert await within((await session.start("body")).wait()) == "fine"
