"""Provider slots and rate limits with concurrent queries."""

import asyncio
import time

import pytest

from agents.test_conversation import Agent, asking, saying, says
from agents.test_shared_budgets import quiet
from core.workflow.support import until, within
from nerve import Session
from nerve.agents import AgentNode, AssistantText, PermissionRequest, ThreadStarted, TurnFinished
from nerve.agents.rate_limits import LIMIT_PAUSES_S, RateLimits
from nerve.testing import VirtualClock


def register(session, agent, steps=1, **settings):
    AgentNode("dev", session, agent, thread="fresh", workspace="shared", **settings)

    @session.workflow
    async def body(ctx):
        steps_at_once = (ctx.run("dev", ctx.input or str(number)) for number in range(steps))
        return [result["output"] for result in await asyncio.gather(*steps_at_once)]


async def test_a_rate_limit_also_blocks_steps_that_wait_for_a_slot():
    clock = VirtualClock()
    soon = clock.time() + 3600

    async def refuses(prompt, resume, options):
        yield ThreadStarted(options.thread)
        if clock.time() < soon:
            yield TurnFinished(options.thread, outcome="limited", resets_at=soon)
        yield AssistantText("fine")
        yield TurnFinished(options.thread)

    session, agent = Session(slots={"agent": 1}, clock=clock), Agent(refuses)
    register(session, agent, steps=5)
    with clock.observe(session.engine.is_at_rest):
        assert await within((await session.start("body")).wait()) == ["fine"] * 5
    assert len(agent.calls) == 6


@pytest.mark.parametrize("ago", [0, 3600])
async def test_a_rate_limit_that_has_already_ended_pauses_for_a_second(ago):
    session = Session()
    agent = Agent(saying(TurnFinished("t", outcome="limited", resets_at=time.time() - ago)))
    register(session, agent)
    run = await session.start("body")
    await until(lambda: session.provider_slots.rate_limits.limited)
    assert 0.5 < session.provider_slots.rate_limits.limited["agent"] - time.time() <= 1
    await quiet(agent)
    assert len(agent.calls) == 1
    await run.stop()


def test_concurrent_refusals_count_once_and_repeated_ones_lengthen_the_backoff():
    limits = RateLimits()
    for pause in LIMIT_PAUSES_S:
        before = limits.refusals("agent")
        for _ in range(4):
            assert limits.mark_limited("agent", None, before) - time.time() == pytest.approx(pause, abs=1)
        limits.limited.clear()  # as if the limit had ended
    limits.mark_available("agent")
    assert limits.mark_limited("agent", None, 4) - time.time() == pytest.approx(LIMIT_PAUSES_S[0], abs=1)


def test_a_late_rate_limit_with_a_reset_time_still_counts():
    limits, end = RateLimits(), time.time() + 7200
    limits.mark_limited("agent", None, 0)
    assert limits.mark_limited("agent", end, 0) == end
    assert limits.mark_limited("agent", None, 0) == end


async def test_concurrently_refused_agents_pause_for_a_minute():
    together = asyncio.Barrier(4)

    async def refuses(prompt, resume, options):
        yield ThreadStarted(options.thread)
        await together.wait()
        yield TurnFinished(options.thread, outcome="limited")

    session, agent = Session(), Agent(refuses)
    register(session, agent, steps=4)
    run = await session.start("body")
    await until(lambda: len(run.view.limited_steps) == 4)
    assert session.provider_slots.rate_limits.limited["agent"] - time.time() == pytest.approx(
        LIMIT_PAUSES_S[0], abs=5
    )
    await run.stop()


def busy(session):
    return session.provider_slots.snapshot()["agent"]["busy"]


async def test_an_agent_with_several_open_questions_releases_its_slot_once():
    most = 0
    go = asyncio.Event()

    async def works(prompt, resume, options):
        nonlocal most
        if prompt == "ask":
            wanted = [PermissionRequest("Bash", {"command": f"c{number}"}) for number in range(3)]
            await asyncio.gather(*map(options.ask, wanted))
        else:
            most = max(most, busy(session))
            await go.wait()
        yield AssistantText("fine")
        yield TurnFinished(options.thread)

    session, agent = Session(slots={"agent": 1}), Agent(works)
    register(session, agent)
    asks = await session.start("body", "ask")
    await until(lambda: len(asks.pending_gates) == 3)
    assert busy(session) == 0
    others = [await session.start("body", "work") for _ in range(3)]
    await until(lambda: len(agent.calls) == 2)
    await quiet(agent)
    assert len(agent.calls) == 2
    go.set()
    for run in others:
        await within(run.wait())
    for gate in list(asks.pending_gates):
        await asks.answer("allow", gate.gate_id)
    assert await within(asks.wait()) == ["fine"]
    assert (most, busy(session)) == (1, 0)


async def test_a_run_stopped_at_a_question_does_not_wait_for_a_slot():
    async def works(prompt, resume, options):
        if prompt == "ask":
            await options.ask(PermissionRequest("Bash", {"command": "rm x"}))
        await asyncio.Event().wait()
        yield TurnFinished(options.thread)

    session, agent = Session(slots={"agent": 1}), Agent(works)
    register(session, agent)
    asks = await session.start("body", "ask")
    await within(asks.next_gate())
    works = await session.start("body", "work")
    await until(lambda: len(agent.calls) == 2)
    await within(asks.stop())
    assert busy(session) == 1
    await works.stop()
    assert busy(session) == 0


@pytest.mark.parametrize("policy", [{"timeout": 0.4}, {"idle_timeout": 0.4}])
async def test_step_timers_pause_while_it_waits_for_a_slot(policy):
    async def works(prompt, resume, options):
        await asyncio.sleep(0.25)
        yield AssistantText("fine")
        yield TurnFinished(options.thread)

    session = Session(slots={"agent": 1})
    register(session, Agent(works), steps=3, **policy)
    assert await within((await session.start("body")).wait()) == ["fine"] * 3


async def test_step_timers_pause_while_it_waits_to_reacquire_its_slot():
    session = Session(slots={"agent": 1})
    go = asyncio.Event()

    async def works(prompt, resume, options):
        await go.wait()
        async for chunk in says(prompt, resume, options):
            yield chunk

    AgentNode("asks", session, Agent(asking), timeout=0.3)
    AgentNode("works", session, Agent(works))

    @session.workflow
    async def body(ctx):
        return (await ctx.run(ctx.input, "x"))["output"]

    asks = await session.start("body", "asks")
    await within(asks.next_gate())
    other = await session.start("body", "works")
    await until(lambda: busy(session) == 1)
    await asks.answer("allow")
    began = time.monotonic()
    await until(lambda: time.monotonic() - began > 0.5)
    go.set()
    assert await within(asks.wait()) == "True"
    assert await within(other.wait()) == "fine"


@pytest.mark.parametrize("number", [0, -1, True, 1.5])
def test_slots_must_be_a_positive_integer(number):
    session = Session(slots={"x": number})
    with pytest.raises(ValueError, match="slots of 'x' must be an integer of at least 1"):
        _ = session.provider_slots
