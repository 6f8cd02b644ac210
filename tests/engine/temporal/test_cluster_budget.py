"""The runs of a cluster share the daily budget of their session; a parent run limits its child runs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any

import pytest

from engine.temporal.temporal_runs import TemporalRun, TemporalRuns, open_runs
from nerve import Session, WorkflowContext
from nerve.agents import AgentNode
from nerve.core.limits import Limits, RunUsage
from nerve.engine.run_summary import local_day
from nerve.engine.temporal.cluster_budget import ClusterBudget
from nerve.project.engine_url import parse_engine_url
from nerve.store.port import UsageRow
from nerve.store.postgres_projection import PostgresProjection
from nerve.store.projected_store import ProjectedStore
from nerve.testing import ScriptedProvider
from nerve.testing.store_contract import append, run_row

ENGINE = "temporal://127.0.0.1:7233/default"
NOTHING = RunUsage()


@asynccontextmanager
async def open_budgets(
    url: str, limits: dict[str, Any], count: int = 1, lease: float = 60.0
) -> AsyncIterator[list[ClusterBudget]]:
    """The budget as some workers use it."""
    async with AsyncExitStack() as stack:
        yield [
            ClusterBudget(
                stack.enter_context(closing(PostgresProjection(url, "default", ENGINE))),
                lambda: Limits.of(limits),
                lease=lease,
            )
            for _ in range(count)
        ]


async def test_of_forty_requests_at_once_as_many_get_a_reservation_as_there_is_room(
    postgresql_url: str,
) -> None:
    async with open_budgets(postgresql_url, {"cost": 1.0}, count=4) as budgets:
        refusals = await asyncio.gather(
            *(budgets[n % 4].begin_turn(f"r{n}", "/a", NOTHING, RunUsage(cost=0.1)) for n in range(40))
        )
        assert refusals.count(None) == 10
        # Reserved, but not spent: the others wait, and no run is held.
        assert {shortage.is_spent for shortage in refusals if shortage is not None} == {False}
        winner = refusals.index(None)
        await budgets[0].end_turn(f"r{winner}", "/a", RunUsage(cost=0.05))
        assert await budgets[1].begin_turn("late", "/a", NOTHING, RunUsage(cost=0.05)) is None
        assert await budgets[1].begin_turn("later", "/a", NOTHING, RunUsage(cost=0.05)) is not None


async def test_a_step_of_a_lost_worker_keeps_what_it_used_and_loses_what_it_reserved(
    postgresql_url: str,
) -> None:
    async with open_budgets(postgresql_url, {"turns": 3}, lease=-1.0) as [lost]:
        assert await lost.begin_turn("a", "/a", RunUsage(turns=2), RunUsage(turns=1)) is None
    async with open_budgets(postgresql_url, {"turns": 3}) as [budget]:
        assert await budget.begin_turn("b", "/b", NOTHING, RunUsage(turns=1)) is None
        spent = await budget.begin_turn("c", "/c", RunUsage(turns=1), RunUsage(turns=1))
        assert spent is not None
        assert spent.is_spent
        assert spent.message.startswith(
            "Daily session budget exhausted: 3 of 3 turns. Raise it with session.budget"
        )


async def test_what_a_step_used_counts_once_when_the_step_ends(postgresql_url: str) -> None:
    async with open_budgets(postgresql_url, {"turns": 3}) as [budget]:
        assert await budget.begin_turn("r", "/a", NOTHING, RunUsage(turns=1)) is None
        await budget.end_turn("r", "/a", RunUsage(turns=2))
        with closing(PostgresProjection(postgresql_url, "default", ENGINE)) as projection:
            started, ended = append("r", 0, 1, run_row("r")), append("r", 1, 1, run_row("r"))
            [row] = ended.rows
            used = UsageRow("default", local_day(time.time()), "", {"turns": 2})
            settled = ended._replace(rows=[row._replace(path="/a", settles="/a")], usage=[used])
            projection.append("r", [started])
            projection.append("r", [settled])
        assert await budget.begin_turn("s", "/a", NOTHING, RunUsage(turns=1)) is None
        assert await budget.begin_turn("t", "/a", NOTHING, RunUsage(turns=1)) is not None


def make_session() -> Session:
    usage = {"usage": {"output_tokens": 10}}
    session = Session(providers={"scripted": ScriptedProvider(lambda call: [{"text": "done"}, usage])})
    AgentNode("writer", session, "scripted", thread="fresh")

    @session.workflow
    async def write(ctx: WorkflowContext) -> Any:
        return [(await ctx.run("writer", "Go")).output for _ in range(ctx.input)]

    @session.workflow(limits={"turns": 3})
    async def parent(ctx: WorkflowContext) -> Any:
        return [await ctx.run_workflow("write", 2) for _ in range(2)]

    return session


@pytest.fixture
async def runs(temporal_url: str, postgresql_url: str) -> AsyncIterator[TemporalRuns]:
    engine = str(parse_engine_url(temporal_url))
    async with AsyncExitStack() as stack:
        projection = stack.enter_context(closing(PostgresProjection(postgresql_url, "default", engine)))
        store = stack.enter_context(closing(ProjectedStore(postgresql_url, projection)))
        database = (projection, store)
        yield await stack.enter_async_context(open_runs(temporal_url, make_session(), database=database))


def count_turns(runs: TemporalRuns) -> int:
    return sum(row.type == "usage" for run in runs.store.runs() for row in runs.store.events(run.run))


def find_hold(run: TemporalRun) -> Any:
    return [json.loads(row.data) for row in run.rows if row.type == "workflow_held"]


async def test_runs_that_know_nothing_of_each_other_share_the_budget_of_the_day(runs: TemporalRuns) -> None:
    runs.session.budget = Limits(turns=3)
    started = [await runs.start("write", 1) for _ in range(5)]
    await started[0].until(lambda: sum(bool(find_hold(run)) for run in started) == 2)
    held = [run for run in started if find_hold(run)]
    [data] = find_hold(held[0])
    assert (data["reason"], data["purse"]) == ("budget", "day")
    assert data["message"].startswith("Daily session budget exhausted: 3 of 3 turns.")
    assert [await run.wait() for run in started if run not in held] == [["done"]] * 3
    assert count_turns(runs) == 3
    # A person who resumes a run does not raise the budget.
    await held[0].command("resume")
    await held[0].until(lambda: len(find_hold(held[0])) == 2)
    runs.session.budget = Limits(turns=5)
    assert [await run.wait() for run in held] == [["done"]] * 2
    assert count_turns(runs) == 5


async def test_the_budget_of_a_parent_run_limits_its_child_runs(runs: TemporalRuns) -> None:
    run = await runs.start("parent")

    def find_held() -> Any:
        rows = [each for each in runs.store.runs() if each.state == "held"]
        return [run.family_of(row.run) for row in rows]

    held = (await run.until(find_held))[0]
    [data] = find_hold(held)
    assert (data["purse"], data["limit"]) == (run.run_id, "turns")
    assert count_turns(runs) == 3
    await run.command("resume", limits={"turns": 9})
    assert await run.wait() == [["done", "done"]] * 2
    assert count_turns(runs) == 4
