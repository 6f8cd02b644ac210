"""The budgets of runs in memory agree with the journals, whatever happens to a family of runs."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import until
from nerve import FunctionNode, Result, Session
from nerve.core.limits import BUDGET_FIELDS, RunUsage
from nerve.engine.run_budget import SessionBudgets

pytestmark = pytest.mark.local("looks at executors")

FAMILY = [1, [2, [3], [4]], [5, [6], [7]]]
"""What each run pays twice, and its child runs."""


async def pay_twice(ctx: Any, child_workflow: str) -> None:
    paid, *children = ctx.input
    await ctx.run("pay", paid)
    calls = [asyncio.ensure_future(ctx.run_workflow(child_workflow, child)) for child in children]
    await ctx.gate("Go on?")
    await ctx.run("pay", paid)
    await asyncio.gather(*calls, return_exceptions=True)


async def resume_nothing() -> None:
    """Take the place of the engine, which resumes the held runs."""


def opened(file: Path) -> Session:
    session = Session("test", file, budget={"tokens": 1000})
    FunctionNode("pay", session, lambda context: Result.ok("", {"usage": {"tokens": context.input}}))
    for name, child_workflow in (("parent", "child"), ("child", "grandchild"), ("grandchild", "")):
        session.workflow(partial(pay_twice, child_workflow=child_workflow), id=name)
    return session


def figures(usage: RunUsage) -> tuple[float, ...]:
    return tuple(getattr(usage, name) for name in BUDGET_FIELDS)


def are_figures_recorded(session: Session) -> bool:
    """Whether the budgets in memory have the figures that the journals give."""
    engine = session.engine
    recorded = SessionBudgets(engine.store, session.name, None, resume_nothing)
    today = engine.usage_today()
    return figures(engine.budgets.update_day().usage) == figures(today) and all(
        figures(engine.budgets.budget_of_run(run_id).usage) == figures(recorded.budget_of_run(run_id).usage)
        for run_id in engine.executors
    )


@pytest.mark.parametrize("seed", range(6))
async def test_budgets_in_memory_have_the_figures_of_the_journals(file: Path, seed: int) -> None:
    choose = random.Random(seed)
    session = opened(file)
    run = await session.start("parent", FAMILY)
    await until(lambda: len(run.pending_gates) == 7)
    while not run.is_complete:
        await until(partial(are_figures_recorded, session))
        action = choose.choice(["answer", "answer", "answer", "stop", "evict", "restart"])
        if action == "answer":
            await run.answer("yes", choose.choice(run.pending_gates).gate_id)
        elif action == "stop" and (children := list(run.run_state.children.values())):
            await choose.choice(children).stop("enough")
        elif action == "evict":
            idle = [each for each in session.engine.executors.values() if each.open_waits.is_single_wait]
            for executor in idle:
                session.engine.idle_runs.evict(executor)
        elif action == "restart":
            await session.close()
            session = opened(file)
            await session.recover()
            run = session.get_workflow_run(run.run_id)
        await until(lambda run=run: run.is_complete or run.pending_gates)
    await until(lambda: are_figures_recorded(session))
    assert run.view.usage.tokens == session.engine.budgets.update_day().usage.tokens
    await session.close()
