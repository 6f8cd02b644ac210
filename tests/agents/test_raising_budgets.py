"""Raising budgets: resuming a held run with a higher limit lets it continue."""

import asyncio
import os
import time

import pytest

from agents.test_conversation import Agent, saying
from agents.test_shared_budgets import Slow, at_once
from core.workflow.support import until, within
from nerve import Limits, Session
from nerve.agents import AgentNode, AssistantText, TurnFinished, TurnUsage
from nerve.api import commands, models
from nerve.engine.budget import day_bounds
from nerve.errors import RunHeld
from nerve.testing import VirtualClock


def spends(session, times=3, **limits):
    AgentNode(
        "dev",
        session,
        Agent(saying(AssistantText("x"), TurnFinished("t", TurnUsage(10, 5, cost=0.5)))),
        thread="fresh",
        workspace="shared",
    )

    @session.workflow(limits=Limits(**limits))
    async def body(ctx):
        for _ in range(times):
            await ctx.run("dev", "x")
        return "done"

    @session.workflow
    async def around(ctx):
        return await ctx.run_workflow("body")

    @session.workflow
    async def outside(ctx):
        return await ctx.run_workflow("around")


async def held(run):
    with pytest.raises(RunHeld):
        await within(run.wait())
    return run


@pytest.mark.parametrize("name", ["around", "outside"])
async def test_a_parent_raises_its_own_budget_for_a_child_that_is_held_for_it(name):
    session = Session()
    spends(session)
    run = await held(await session.start(name, limits={"turns": 2}))
    assert run.held["message"] == (
        "Run budget exhausted: 2 of 2 turns. Raise it with resume(limits={'turns': …})."
    )
    await run.resume(limits={"turns": 3})
    assert await within(run.wait()) == "done"


@pytest.mark.parametrize("name", ["around", "outside"])
async def test_a_parent_raises_the_budget_of_a_child_that_is_held_for_its_own(name):
    session = Session()
    spends(session, turns=2)
    run = await held(await session.start(name))
    assert "Child run budget exhausted: 2 of 2 turns" in run.held["message"]
    await run.resume(limits={"turns": 3})
    assert await within(run.wait()) == "done"


async def test_a_child_raises_the_budget_it_is_held_for_even_if_it_is_its_parents():
    session = Session()
    spends(session)
    run = await held(await session.start("outside", limits={"turns": 2}))
    child = session.get_workflow_run(run.held["run_id"])
    await child.resume(limits={"turns": 3})
    assert await within(run.wait()) == "done"


async def test_a_budget_of_a_parent_that_is_not_raised_enough_holds_again():
    session = Session()
    spends(session)
    run = await held(await session.start("around", limits={"turns": 1}))
    for bound in (2, 3):
        await run.resume(limits={"turns": bound})
        if bound < 3:
            await until(lambda: run.held is not None)
    assert await within(run.wait()) == "done"


async def test_raising_the_budget_of_a_parent_resumes_all_its_children():
    session, agent = Session(), Slow(most=2)
    AgentNode("dev", session, agent, thread="fresh", workspace="shared")

    @session.workflow
    async def child(ctx):
        for _ in range(3):
            await ctx.run("dev", "x")
        return "done"

    @session.workflow
    async def parent(ctx):
        return await asyncio.gather(ctx.run_workflow("child"), ctx.run_workflow("child"))

    run = await held(await session.start("parent", limits={"turns": 2}))
    await until(lambda: all(each.held for each in run.run_state.children.values()))
    await commands.resume(session, models.ResumeRequest(run=run.run_id, limits={"turns": 6}))
    assert await within(run.wait()) == ["done", "done"]


async def test_a_raised_budget_of_a_parent_stays_raised_after_a_restart(tmp_path):
    async with Session(store=tmp_path / "n.db") as session:
        spends(session)
        run = await held(await session.start("around", limits={"turns": 1}))
        await run.resume(limits={"turns": 2})
        await until(lambda: run.held is not None and "2 of 2" in run.held["message"])
    async with Session(store=tmp_path / "n.db") as session:
        spends(session)
        run = next(run for run in await session.recover() if run.workflow_id == "around")
        await until(lambda: run.held is not None)
        assert "2 of 2 turns" in run.held["message"]
        await run.resume(limits={"turns": 3})
        assert await within(run.wait()) == "done"


async def test_an_active_run_cannot_be_resumed():
    session, agent = Session(), Slow()
    at_once(session, agent, steps=1)
    run = await session.start("body")
    await until(lambda: agent.calls)
    with pytest.raises(RuntimeError, match="Cannot resume run in state running"):
        await run.resume(limits={"turns": 5})
    await run.stop()


async def test_a_higher_daily_budget_resumes_all_runs_held_for_it():
    session = Session(budget={"turns": 1})
    spends(session)
    runs = [await held(await session.start(name)) for name in ("body", "around")]
    session.budget = {"turns": 2}
    await until(lambda: any("2 of 2" in run.held["message"] for run in runs if run.held))
    session.budget = None
    for run in runs:
        assert await within(run.wait()) == "done"


async def test_a_higher_budget_in_the_configuration_resumes_runs_after_a_restart(tmp_path):
    (tmp_path / ".nerve").mkdir()
    config = tmp_path / ".nerve" / "config.json"

    def opened():
        session = Session(store=tmp_path / "n.db", project=tmp_path)
        spends(session)
        return session

    config.write_text('{"budget": {"turns": 1}}')
    async with opened() as session:
        await held(await session.start("around"))
    async with opened() as session:
        runs = await session.recover()
        run = next(run for run in runs if run.workflow_id == "around")
        await until(lambda: run.held is not None)
    config.write_text('{"budget": {"turns": 3}}')
    async with opened() as session:
        runs = await session.recover()
        run = next(run for run in runs if run.workflow_id == "around")
        assert await within(run.wait()) == "done"


async def test_runs_held_for_the_daily_budget_resume_at_midnight():
    clock = VirtualClock(skip=False)
    session = Session(budget={"turns": 2}, clock=clock)
    spends(session)
    run = await held(await session.start("body"))
    midnight = day_bounds(clock.time())[1]
    with clock.observe(session.engine.is_at_rest):
        await clock.advance(midnight - clock.time() - 1)
        assert run.held is not None
        await clock.advance(61)
        assert await within(run.wait()) == "done"


@pytest.fixture
def berlin():
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-11-15", 24)], ids=str
)
def test_a_day_lasts_from_midnight_to_midnight_across_clock_changes(berlin, day, hours):
    for clock in ("00:30", "04:00", "23:30"):
        begins, ends = day_bounds(time.mktime(time.strptime(f"{day} {clock}", "%Y-%m-%d %H:%M")))
        assert time.strftime("%Y-%m-%d %H:%M", time.localtime(begins)) == f"{day} 00:00"
        assert time.strftime("%H:%M", time.localtime(ends)) == "00:00"
        assert (ends - begins) / 3600 == hours
