"""Regression tests, each for one bug."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import Latch, at_gate, counted, data_of, types, until, within
from nerve import FunctionNode, Graph, Limits, Retry, Session, WorkflowState
from nerve.errors import RunHeld, WorkflowFailed


@pytest.fixture
def session() -> Session:
    return Session("test")


async def ask(ctx):
    return await ctx.gate("Continue?")


# -- budgets and limits ------------------------------------------------------------------------


async def spent(session: Session) -> tuple[Any, list[Any]]:
    """A run that is held for its budget, and the inputs it has paid for."""
    seen = counted(session, "agent", lambda given: {"output": 1, "attributes": {"usage": {"tokens": 10}}})

    @session.workflow
    async def spends(ctx):
        for number in range(2):
            await ctx.run("agent", number)
        return "done"

    run = await session.start("spends", limits=Limits(tokens=5))
    with pytest.raises(RunHeld, match="budget"):
        await within(run.wait())
    return run, seen


async def test_retrying_a_run_with_an_exhausted_budget_holds_it_again(session: Session) -> None:
    run, seen = await spent(session)
    await run.retry()
    with pytest.raises(RunHeld, match="10 of 5 tokens"):
        await within(run.wait())
    assert seen == [0]
    await run.resume(limits={"tokens": 100})
    assert await within(run.wait()) == "done"
    assert seen == [0, 1]


@pytest.mark.parametrize("decision", ["skip", "fail"])
async def test_an_exhausted_budget_cannot_be_skipped(session: Session, decision: str) -> None:
    run, seen = await spent(session)
    before = types(run)
    with pytest.raises(RuntimeError, match=r"budget|tokens"):
        await getattr(run, decision)(run.held["path"])
    assert (run.state, types(run), seen) == (WorkflowState.HELD, before, [0])


@pytest.mark.local("looks at the event loop")
async def test_an_output_that_looks_like_a_failure_does_not_count_as_an_error_after_a_restart(
    file: Path,
) -> None:
    async def reports(ctx):
        await ctx.run("report")
        await ctx.gate("Continue?")
        return (await ctx.run("report"))["output"]

    for part in ("start", "recover"):
        async with Session("test", file) as session:
            counted(session, "report", lambda given: {"tests": {"success": False}})
            session.workflow(reports, limits=Limits(errors=0))
            if part == "start":
                await at_gate(await session.start("reports"))
            else:
                (run,) = await session.recover()
                await run.answer("yes")
                assert await within(run.wait()) == {"tests": {"success": False}}


# -- timeouts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gate", "signal"])
async def test_a_wait_that_timed_out_raises_the_same_error_on_replay(file: Path, kind: str) -> None:
    reported = []

    async def impatient(ctx):
        try:
            await (ctx.gate("Now?", 0.01) if kind == "gate" else ctx.wait_signal("go", timeout=0.01))
        except TimeoutError as error:
            reported.append(str(error))
        return await ctx.gate("Later?")

    async with Session("test", file) as session:
        session.workflow(impatient)
        run = await session.start("impatient")
        await until(lambda: reported and run.view.gates)
    async with Session("test", file) as session:
        session.workflow(impatient)
        (run,) = await session.recover()
        await run.answer("yes")
        assert await within(run.wait()) == "yes"
    assert reported == [f"{kind} timed out after 0.01 s"] * 2


async def test_a_graph_that_timed_out_does_not_run_again_on_replay(file: Path) -> None:
    reported = []

    async def bounded(ctx):
        try:
            await ctx.run("graph", timeout=0.05)
        except TimeoutError as error:
            reported.append(str(error))
        return await ctx.gate("Continue?")

    latch = Latch()
    for part in ("start", "recover"):
        async with Session("test", file) as session:
            Graph("graph", session).chain(FunctionNode("hangs", session, latch.leaf))
            session.workflow(bounded)
            if part == "start":
                await at_gate(await session.start("bounded"))
            else:
                (run,) = await session.recover()
                await run.answer("yes")
                assert await within(run.wait()) == "yes"
    assert reported == ["node 'graph' timed out after 0.05 s"] * 2
    assert len(latch.inputs) == 1


async def test_a_child_that_timed_out_is_stopped_and_fails_the_same_way_on_replay(file: Path) -> None:
    reported = []

    async def parent(ctx):
        try:
            await ctx.run_workflow("ask")
        except WorkflowFailed as error:
            reported.append((error.error_type, error.error))
        return await ctx.gate("Continue?")

    for part in ("start", "recover"):
        async with Session("test", file) as session:
            session.workflow(ask, timeout=0.05), session.workflow(parent)
            if part == "start":
                run = await session.start("parent")
                await until(lambda: reported and run.view.gates)  # noqa: B023
            else:
                (run,) = await session.recover()
                await run.answer("yes")
                assert await within(run.wait()) == "yes"
                assert [row.state for row in session.engine.store.runs(workflow="ask")] == ["cancelled"]
    assert reported == [("TimeoutError", "timed out after 0.05 s")] * 2


@pytest.mark.local("depends on tenths of a second")
async def test_the_work_of_a_bounded_graph_counts_after_another_one_timed_out(file: Path) -> None:
    """The first graph is retried after 0.7 s; on replay the second must not wait for that."""
    again, go = asyncio.Event(), asyncio.Event()
    tries = []

    async def hangs(context):
        tries.append(context.path)
        if len(tries) > 1:
            again.set()
            await go.wait()
        else:
            await asyncio.Event().wait()
        return "second try"

    async def after_the_first(context):
        await again.wait()
        return "kept"

    async def last(context):
        await go.wait()
        return context.input

    async def both(ctx):
        async def late():
            await ctx.sleep(0.5)
            return (await ctx.run("other", timeout=0.6))["output"]

        first = ctx.run("retried", timeout=0.7, retry=Retry(attempts=2, delay=0))
        results = await asyncio.gather(first, late())
        return [results[0]["output"], results[1]]

    def opened() -> Session:
        session = Session("test", file)
        Graph("retried", session).chain(FunctionNode("hangs", session, hangs))
        kept = FunctionNode("kept", session, after_the_first)
        Graph("other", session).chain(kept, FunctionNode("last", session, last))
        session.workflow(both)
        return session

    async with opened() as session:
        run = await session.start("both")
        await until(lambda: "/other/kept" in [event.path for event in run.events if "result" in event.data])
    go.set()
    async with opened() as session:
        (run,) = await session.recover()
        assert await within(run.wait()) == ["second try", "kept"]


# -- children ----------------------------------------------------------------------------------


def failing(session: Session, **policy: Any) -> list[str]:
    """A workflow that fails; the list has its runs."""
    runs = []

    @session.workflow(**policy)
    async def child(ctx):
        runs.append(ctx.run_id)
        raise ValueError(f"try {len(runs)}")

    return runs


async def test_retrying_a_workflow_step_starts_another_run(session: Session) -> None:
    runs = failing(session)
    graph = Graph("graph", session)
    graph.add_step(session.get_workflow("child"), retry=Retry(attempts=3, delay=0))
    session.register_workflow(graph)
    run = await session.start("graph")
    with pytest.raises(WorkflowFailed, match="try 3"):
        await within(run.wait())
    rows = session.engine.store.runs(workflow="child")
    assert sorted(runs) == sorted(row.run for row in rows)
    assert [(row.state, row.parent) for row in rows] == [("failed", run.run_id)] * 3


async def test_the_policy_of_a_workflow_applies_where_it_is_called(session: Session) -> None:
    runs = failing(session, retry=Retry(attempts=3, delay=0))

    @session.workflow
    async def parent(ctx):
        await ctx.run_workflow("child")

    with pytest.raises(WorkflowFailed, match="try 3"):
        await within((await session.start("parent")).wait())
    assert len(set(runs)) == 3


async def test_a_sleeping_child_wakes_when_its_parent_is_resumed_by_key(file: Path) -> None:
    async def nap(ctx):
        await ctx.sleep(0.1)
        return "slept"

    async def parent(ctx):
        return await ctx.run_workflow("nap")

    for part in ("leave", "take up"):
        async with Session("test", file) as session:
            session.workflow(nap), session.workflow(parent)
            run = await session.start("parent", key="k")
            if part == "leave":
                store = session.engine.store
                await until(lambda: [r.state for r in store.runs(workflow="nap")] == ["waiting"])  # noqa: B023
            else:
                assert await within(run.wait()) == "slept"


@pytest.mark.differs("the state `pausing`")
async def test_the_child_of_a_paused_parent_is_pausing_while_its_leaf_runs(session: Session) -> None:
    latch = Latch()
    FunctionNode("work", session, latch.leaf)

    @session.workflow
    async def child(ctx):
        await ctx.run("work", 1)

    @session.workflow
    async def parent(ctx):
        await ctx.run_workflow("child")
        return (await ctx.run("work", 2))["output"]

    run = await session.start("parent")
    await latch.entered.wait()
    (child_run,) = run.run_state.children.values()
    await run.pause()
    assert (run.state, run.view.state) == (WorkflowState.PAUSED, "paused")
    assert (child_run.state, child_run.view.state) == (WorkflowState.PAUSING, "pausing")
    latch.open.set()
    await run.resume()
    assert await within(run.wait()) == 2


# -- what is shown -----------------------------------------------------------------------------


@pytest.mark.local("looks at the future of a gate")
async def test_a_gate_that_is_reopened_after_a_restart_keeps_its_creation_time(file: Path) -> None:
    async with Session("test", file) as session:
        session.workflow(ask)
        run = await session.start("ask")
        await at_gate(run)
        await run.pause()
    async with Session("test", file) as session:
        session.workflow(ask)
        (run,) = await session.recover()
        await run.resume()
        await until(lambda: run.pending_gate and run.pending_gate.future is not None)
        (opened,) = [event for event in run.events if event.event_type == "gate_waiting"]
        assert run.pending_gate.created_at == opened.timestamp
        assert data_of(run, "gate_waiting")[0]["gate_id"] == run.pending_gate.gate_id


async def test_tasks_started_by_a_sink_run_to_completion(session: Session) -> None:
    counted(session, "work")
    ended = asyncio.Event()
    tasks: list[asyncio.Task[str]] = []

    async def send(event):
        await ended.wait()
        return event.event_type

    @session.workflow
    async def body(ctx):
        await ctx.run("work")
        ctx.emit("told")
        await ctx.run("work")

    run = await session.start("body", event_sink=lambda event: tasks.append(asyncio.create_task(send(event))))
    await within(run.wait())
    ended.set()
    assert await within(asyncio.gather(*tasks)) == types(run)


async def test_a_leaf_that_ran_beside_an_open_gate_runs_again_after_a_restart(tmp_path):
    begun, hold = [], asyncio.Event()

    def register(session):
        async def slow(context):
            begun.append(1)
            await hold.wait()
            return "done"

        FunctionNode("slow", session, slow)

        @session.workflow
        async def both(ctx):
            return await asyncio.gather(ctx.run("slow"), ctx.gate("ok?"))

    async with Session(store=tmp_path / "n.db") as session:
        register(session)
        run = await session.start("both")
        await run.next_gate()
        await until(lambda: begun == [1])
    hold.set()
    async with Session(store=tmp_path / "n.db") as session:
        register(session)
        [run] = await session.recover()
        await until(lambda: any(event.event_type == "node_completed" for event in run.events))
        assert begun == [1, 1]
        await run.answer("yes")
        result, answer = await run.wait()
        assert (result["output"], answer) == ("done", "yes")


async def test_a_step_whose_retry_function_raises_is_settled_and_does_not_run_after_a_restart(tmp_path):
    paid = []

    def register(session):
        async def pay(context):
            paid.append(1)
            return {"success": False, "error": "card refused", "attributes": {"code": None}}

        FunctionNode("pay", session, pay)

        @session.workflow
        async def body(ctx):
            reported = await ctx.run("pay", retry=Retry(3, delay=0, on=lambda r: r.attributes["code"] > 500))
            return [reported.error.split(";")[0], await ctx.gate("Go?")]

    async with Session(store=tmp_path / "n.db") as session:
        register(session)
        await at_gate(await session.start("body"))
    async with Session(store=tmp_path / "n.db") as session:
        register(session)
        [run] = await session.recover()
        await run.answer("yes")
        assert await within(run.wait()) == ["card refused", "yes"]
    assert paid == [1]
