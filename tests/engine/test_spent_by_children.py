"""The usage of stopped or replaced child runs counts for their parents."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import Latch, at_gate, copy_store, until, within
from nerve import FunctionNode, Graph, MockNode, Retry, Session, WorkflowRun
from nerve.core.workflow import Workflow
from nerve.errors import RunHeld, WorkflowFailed
from nerve.journal.index import JournalIndex

PAID = {"output": "done", "attributes": {"usage": {"tokens": 600, "model": "m"}}}


async def child(ctx: Any) -> Any:
    for _ in range(3):
        await ctx.run("agent", ctx.input)
        await ctx.gate("Go on?")


async def asks_with_one(ctx: Any) -> Any:
    return await ctx.run_workflow("child", 1)


async def asks_with_two(ctx: Any) -> Any:
    return await ctx.run_workflow("child", 2)


async def asks_no_more(ctx: Any) -> Any:
    return (await ctx.run("other"))["output"]


async def grandparent(ctx: Any) -> Any:
    calling = asyncio.create_task(ctx.run_workflow("parent"))
    await asyncio.wait([calling])
    await ctx.gate("And now?")


def project(file: Path | None, parent: Any, **limits: Any) -> Session:
    session = Session("test", file)
    MockNode("agent", session, [PAID])
    MockNode("other", session, ["other"])
    session.workflow(child)
    session.workflow(parent, id="parent", limits=limits or None)
    session.workflow(grandparent)
    return session


def current_usage(run: WorkflowRun) -> int:
    """Return the usage of a run, including everything in progress."""
    return int(run.workflow.session.engine.budgets.budget_of_run(run.run_id).usage.tokens)


def recorded_usage(run: WorkflowRun) -> tuple[int, int]:
    """Return the usage of a run by its journal, for recovery and for readers."""
    return int(JournalIndex(run.workflow.session.engine.store.events(run.run_id)).usage.tokens), int(
        run.view.usage.tokens
    )


async def left_at_its_gate(file: Path, **limits: Any) -> None:
    async with project(file, asks_with_one, **limits) as session:
        await at_gate(await session.start("parent"))


async def changed(session: Session) -> WorkflowRun:
    """The run of the parent, which may continue with its current code."""
    await session.recover()
    run = next(run for run in session.list_workflow_runs() if run.workflow_id == "parent")
    run = session.get_workflow_run(run.run_id)
    with pytest.raises(RunHeld, match="mismatch"):
        await within(run.wait())
    await run.resume(with_changes=True)
    return run


@pytest.mark.local("restarts with other code; Temporal needs another build for that")
async def test_the_usage_of_a_child_counts_when_changed_code_requests_another(file: Path) -> None:
    await left_at_its_gate(file)
    async with project(file, asks_with_two) as session:
        run = await changed(session)
        await at_gate(run)
        assert (current_usage(run), recorded_usage(run)) == (1200, (600, 600))
        assert run.view.ledger.by_step() == {"/child": {"tokens": 600}}
    async with project(file, asks_with_two) as session:
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        await at_gate(run)
        assert (current_usage(run), recorded_usage(run)) == (1200, (600, 600))
        for _ in range(3):
            await at_gate(run)
            await run.answer("yes")
        await within(run.wait())
        assert recorded_usage(run) == (2400, 2400)


@pytest.mark.local("restarts with other code; Temporal needs another build for that")
async def test_a_replaced_child_spends_from_the_budget_too(file: Path) -> None:
    await left_at_its_gate(file, tokens=1000)
    async with project(file, asks_with_two, tokens=1000) as session:
        run = await changed(session)
        await at_gate(run)
        await run.answer("yes")
        await until(lambda: run.held)
        assert "1200 of 1000 tokens" in run.held["message"]


@pytest.mark.local("copies the file of the store")
async def test_a_crash_after_the_child_was_stopped_changes_nothing(file: Path, tmp_path: Path) -> None:
    await left_at_its_gate(file)
    copies: list[Path] = []

    def crash(_: WorkflowRun, rows: list[Any]) -> None:
        if any(row.type == "workflow_cancelled" for row in rows):
            copies.append(copy_store(file, tmp_path / "crashed"))

    async with project(file, asks_with_two) as session:
        session.engine.watchers.append(crash)
        await at_gate(await changed(session))
    async with project(copies[0], asks_with_two) as session:
        await session.recover()
        run = next(run for run in session.list_workflow_runs() if run.workflow_id == "parent")
        run = session.get_workflow_run(run.run_id)
        await at_gate(run)
        assert (current_usage(run), recorded_usage(run)) == (1200, (600, 600))


@pytest.mark.local("restarts with other code; Temporal needs another build for that")
async def test_the_usage_of_a_child_counts_that_the_code_no_longer_requests(file: Path) -> None:
    await left_at_its_gate(file)
    async with project(file, asks_no_more) as session:
        run = await changed(session)
        assert await within(run.wait()) == "other"
        assert recorded_usage(run) == (600, 600)


@pytest.mark.parametrize("driven", [True, False])
async def test_the_usage_of_a_child_counts_when_it_is_stopped_with_its_parent(
    file: Path, driven: bool
) -> None:
    session = project(file, asks_with_one)
    async with session:
        run = await session.start("grandparent")
        await at_gate(run)
        if driven:
            await run.stop("enough")
            assert recorded_usage(run) == (600, 600)
    if not driven:
        async with project(file, asks_with_one) as session:
            run = session.get_workflow_run(run.run_id)
            await run.stop("enough")
            assert recorded_usage(run) == (600, 600)


async def test_the_usage_of_a_grandchild_counts_when_its_parent_was_stopped(file: Path) -> None:
    async with project(file, asks_with_one) as session:
        run = await session.start("grandparent")
        await at_gate(run)
        parent = next(run for run in session.list_workflow_runs() if run.workflow_id == "parent")
        await session.get_workflow_run(parent.run_id).stop("enough")
        await until(lambda: run.pending_gate and run.pending_gate.prompt == "And now?")
        assert (current_usage(run), recorded_usage(run)) == (600, (600, 600))
        await run.stop()
        assert recorded_usage(run) == (600, 600)


@pytest.mark.parametrize("attempts", [1, 2])
async def test_the_usage_of_a_child_counts_when_it_timed_out(file: Path, attempts: int) -> None:
    async with project(file, asks_no_more) as session:
        working = Latch()
        FunctionNode("long", session, working.leaf)

        async def spends(ctx: Any) -> Any:
            await ctx.run("agent")
            await ctx.run("long")

        again = {"timeout": 0.1, "retry": Retry(attempts=attempts, delay=0)}
        graph = Graph("graph", session).add_step(Workflow("spender", session, spends), **again)
        session.register_workflow(graph)
        run = await session.start("graph")
        with pytest.raises(WorkflowFailed, match="timed out"):
            await within(run.wait())
        spent = 600 * attempts
        assert recorded_usage(run) == (spent, spent)
        assert run.view.ledger.by_model()["m"]["tokens"] == spent
