"""Stop ends the body and everything it started, and returns what was running."""

import asyncio
import contextlib
import os

import pytest

from core.workflow.support import Latch, at_gate, copy_store, counted, data_of, types, until, within
from nerve import BashNode, FunctionNode, Limits, Session
from nerve.core.nodes.control import LoopNode
from nerve.core.workflow import WorkflowState
from nerve.errors import RunHeld, WorkflowFailed


async def ask(ctx):
    return await ctx.gate("Continue?")


async def work(ctx):
    return (await ctx.run("leaf", 1))["output"]


@pytest.mark.requirement("S0-02")
@pytest.mark.requirement("S0-42")
async def test_stop_returns_the_running_steps_and_records_the_reason(session):
    latch = Latch()
    FunctionNode("leaf", session, latch.leaf)
    session.workflow(work)
    run = await session.start("work")
    await latch.entered.wait()
    assert await run.stop("too dear") == ["/leaf"]
    cancelled = data_of(run, "workflow_cancelled")[0]
    assert (cancelled["reason"], cancelled["killed"]) == ("too dear", ["/leaf"])
    info = run.to_info()
    assert (info.state, info.error) == (WorkflowState.CANCELLED, "too dear")
    assert info.completed_at is not None
    with pytest.raises(asyncio.CancelledError, match="too dear"):
        await run.wait()


async def test_stop_kills_the_processes_a_leaf_has_started(session, tmp_path):
    told = tmp_path / "pid"
    BashNode("shell", session, f"sleep 300 & echo $! > {told}; wait")

    @session.workflow
    async def body(ctx):
        await ctx.run("shell", None)

    run = await session.start("body")
    await until(lambda: told.exists() and told.read_text().strip())
    await within(run.stop())
    pid = int(told.read_text())
    await until(lambda: not alive(pid))


def alive(pid):
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


async def test_a_body_that_catches_the_cancellation_is_stopped_anyway(session):
    @session.workflow
    async def stubborn(ctx):
        for _ in range(3):
            try:
                await ctx.gate("Continue?")
            except asyncio.CancelledError:
                pass
        return "still here"

    run = await session.start("stubborn")
    await at_gate(run)
    await within(run.stop())
    assert run.state is WorkflowState.CANCELLED
    assert types(run)[-1] == "workflow_cancelled"


async def test_the_state_is_stopping_while_the_body_cleans_up(session):
    tidying, go = asyncio.Event(), asyncio.Event()

    @session.workflow
    async def tidy(ctx):
        try:
            await ctx.gate("Continue?")
        finally:
            tidying.set()
            await go.wait()

    run = await session.start("tidy")
    await at_gate(run)
    stop = asyncio.ensure_future(run.stop())
    await tidying.wait()
    assert run.state is WorkflowState.STOPPING
    go.set()
    await within(stop)
    assert run.state is WorkflowState.CANCELLED


async def test_stopping_a_finished_run_changes_nothing(session):
    @session.workflow
    async def quick(ctx):
        return 1

    run = await session.start("quick")
    await run.wait()
    assert await run.stop() == []
    assert (run.state, types(run)[-1]) == (WorkflowState.COMPLETED, "workflow_completed")


async def test_a_stopped_run_is_not_recovered(file):
    async with Session("test", file) as session:
        session.workflow(ask)
        run = await session.start("ask")
        await at_gate(run)
        await run.stop("enough")
    async with Session("test", file) as session:
        session.workflow(ask)
        assert await session.recover() == []
        run = session.get_workflow_run(run.run_id)
        assert (run.state, run.to_info().error, run.pending_gates) == (WorkflowState.CANCELLED, "enough", [])
        with pytest.raises(RuntimeError, match="No gate pending"):
            run.answer_gate("too late")
        with pytest.raises(asyncio.CancelledError):
            await run.wait()


async def test_a_paused_run_can_be_stopped(session):
    session.workflow(ask)
    run = await session.start("ask")
    await at_gate(run)
    await run.pause()
    await within(run.stop())
    assert run.state is WorkflowState.CANCELLED


@pytest.mark.parametrize("paused", [False, True])
async def test_a_parked_run_can_be_stopped_after_a_restart(file, paused):
    async with Session("test", file) as session:
        session.workflow(ask)
        run = await session.start("ask")
        await at_gate(run)
        if paused:
            await run.pause()
    async with Session("test", file) as session:
        session.workflow(ask)
        (run,) = await session.recover()
        waiter = asyncio.ensure_future(run.wait())
        await within(run.stop("enough"))
        assert (run.state, run.pending_gates) == (WorkflowState.CANCELLED, [])
        assert session.engine.store.run(run.run_id).state == "cancelled"
        with pytest.raises(asyncio.CancelledError):
            await within(waiter)


async def test_a_held_run_can_be_stopped(session):
    FunctionNode("leaf", session, lambda context: {"output": 1, "attributes": {"usage": {"tokens": 10}}})

    @session.workflow
    async def spend(ctx):
        await ctx.run("leaf", 1)
        await ctx.run("leaf", 2)

    run = await session.start("spend", limits=Limits(tokens=5))
    with pytest.raises(RunHeld):
        await within(run.wait())
    await within(run.stop("enough"))
    assert run.state is WorkflowState.CANCELLED


async def test_a_run_cannot_stop_itself(session):
    @session.workflow
    async def suicidal(ctx):
        await ctx._run.stop()

    run = await session.start("suicidal")
    with pytest.raises(RuntimeError, match="cannot stop itself"):
        await within(run.wait())


async def test_stopping_a_parent_returns_the_running_steps_of_its_children(session):
    latch = Latch()
    FunctionNode("leaf", session, latch.leaf)
    session.workflow(work)

    @session.workflow
    async def parent(ctx):
        return await ctx.run_workflow("work")

    run = await session.start("parent")
    await latch.entered.wait()
    killed = await within(run.stop("enough"))
    assert any(path.endswith("/leaf") for path in killed)
    assert {info.state for info in session.list_workflow_runs()} == {WorkflowState.CANCELLED}


async def test_stopping_a_parked_parent_stops_its_children_too(file):
    async def parent(ctx):
        return await ctx.run_workflow("ask")

    async with Session("test", file) as session:
        session.workflow(ask), session.workflow(parent)
        run = await session.start("parent")
        await at_gate(run)
        await run.pause()
    async with Session("test", file) as session:
        session.workflow(ask), session.workflow(parent)
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        await within(run.stop("enough"))
        assert {info.state for info in session.list_workflow_runs()} == {WorkflowState.CANCELLED}


async def test_a_stop_during_recovery_ends_the_run(file):
    latch = Latch()
    async with Session("test", file) as session:
        FunctionNode("leaf", session, latch.leaf)
        session.workflow(work)
        await session.start("work")
        await latch.entered.wait()
    async with Session("test", file) as session:
        FunctionNode("leaf", session, latch.leaf)
        session.workflow(work)
        (run,) = await session.recover()
        await within(run.stop("enough"))
        assert run.state is WorkflowState.CANCELLED


# -- a stop that is itself cancelled -----------------------------------------------------------


class Tidy:
    """A leaf that takes a while to clean up when it is cancelled."""

    def __init__(self):
        self.entered, self.cancelled, self.tidied = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def leaf(self, context):
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
            await self.tidied.wait()


async def test_a_stop_completes_when_its_caller_is_cancelled(session):
    tidy = Tidy()
    FunctionNode("slow", session, tidy.leaf)

    @session.workflow
    async def body(ctx):
        await ctx.run("slow")

    run = await session.start("body")
    await tidy.entered.wait()
    stopping = asyncio.create_task(run.stop("enough"))
    await tidy.cancelled.wait()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert run.state is WorkflowState.STOPPING
    tidy.tidied.set()
    await until(lambda: run.is_complete)
    assert (run.state, types(run)[-1]) == (WorkflowState.CANCELLED, "workflow_cancelled")
    assert await within(run.stop()) == []


async def test_a_step_that_stops_its_own_run_ends_with_it(session):
    @session.node
    async def killer(context):
        await asyncio.create_task(session.get_workflow_run(context.run_id).stop("I say so"))

    @session.workflow
    async def body(ctx):
        await ctx.run("killer")

    run = await session.start("body")
    await until(lambda: run.is_complete)
    assert (run.state, run.to_info().error) == (WorkflowState.CANCELLED, "I say so")


def giving_up(file, tidy):
    session = Session("test", file)
    FunctionNode("slow", session, tidy.leaf)
    again = counted(session, "more")

    @session.workflow
    async def child(ctx):
        await ctx.run("slow")
        await ctx.run("more")

    @session.workflow
    async def parent(ctx):
        task = asyncio.create_task(ctx.run_workflow("child"))
        await tidy.entered.wait()
        for _ in range(2):
            task.cancel()
            await tidy.cancelled.wait()
        await asyncio.wait([task])
        return await ctx.gate("Continue?")

    return session, again


def child_in(session):
    (row,) = [row for row in session.engine.store.runs() if row.parent is not None]
    return session.get_workflow_run(row.run)


async def test_a_child_that_is_cancelled_twice_is_stopped(file):
    tidy = Tidy()
    session, _ = giving_up(file, tidy)
    async with session:
        run = await session.start("parent")
        await until(lambda: run.pending_gate)
        tidy.tidied.set()
        await until(lambda: child_in(session).is_complete)
        assert child_in(session).state is WorkflowState.CANCELLED
        await run.answer("yes")
        assert await within(run.wait()) == "yes"


async def test_a_child_cancelled_before_a_crash_is_stopped_by_the_next_process(file, tmp_path):
    tidy = Tidy()
    session, _ = giving_up(file, tidy)
    async with session:
        run = await session.start("parent")
        await at_gate(run)
        copy = copy_store(file, tmp_path / "crashed")
        tidy.tidied.set()
    after = Tidy()
    after.tidied.set()
    session, again = giving_up(copy, after)
    async with session:
        await session.recover()
        await until(lambda: child_in(session).is_complete)
        assert child_in(session).state is WorkflowState.CANCELLED
        assert (after.entered.is_set(), again) == (False, [])


async def test_closing_a_session_waits_for_a_running_stop(file):
    tidy = Tidy()
    async with Session("test", file) as session:
        FunctionNode("slow", session, tidy.leaf)

        @session.workflow
        async def body(ctx):
            await ctx.run("slow")

        run = await session.start("body")
        await tidy.entered.wait()
        stopping = asyncio.create_task(run.stop("enough"))
        await tidy.cancelled.wait()
        tidy.tidied.set()
    await stopping
    async with Session("test", file) as session:
        assert session.get_workflow_run(run.run_id).state is WorkflowState.CANCELLED


async def test_a_stop_interrupted_by_a_crash_ends_the_parent_with_its_children(file, tmp_path):
    def project(file, leaf):
        session = Session("test", file)
        FunctionNode("leaf", session, leaf)
        session.workflow(work)

        @session.workflow
        async def middle(ctx):
            return await ctx.run_workflow("work")

        @session.workflow
        async def top(ctx):
            try:
                await asyncio.gather(ctx.run_workflow("middle"), ctx.run("leaf"))
            except WorkflowFailed:
                return "another way"

        return session

    entered, tidied = [], asyncio.Event()

    async def tidy(context):
        entered.append(context.path)
        try:
            await asyncio.Event().wait()
        finally:
            if context.input is None:
                await tidied.wait()

    async with project(file, tidy) as session:
        run = await session.start("top")
        await until(lambda: len(entered) == 2)
        stopping = asyncio.ensure_future(run.stop("too dear"))
        await until(lambda: [row.state for row in session.engine.store.runs()].count("cancelled") == 2)
        photo = copy_store(file, tmp_path / "crashed")
        tidied.set()
        await within(stopping)
    async with project(photo, Latch().leaf) as session:
        (run,) = await session.recover()
        with pytest.raises(asyncio.CancelledError, match="too dear"):
            await within(run.wait())
        assert {row.state for row in session.engine.store.runs()} == {"cancelled"}


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_run_that_was_held_for_a_budget_and_stopped_cannot_be_resumed(file, restarts):
    def project():
        session = Session("test", file)
        counted(session, "leaf")
        session.workflow(work)
        return session

    async with project() as session:
        run = await session.start("work", limits=Limits(tokens=0))
        with pytest.raises(RunHeld):
            await within(run.wait())
        if not restarts:
            await stopped_for_good(run)
    if restarts:
        async with project() as session:
            (run,) = await session.recover()
            await stopped_for_good(run)


async def stopped_for_good(run):
    await within(run.stop())
    assert (run.held, run.to_info().held) == (None, None)
    with pytest.raises(RuntimeError, match="Cannot resume run in state cancelled"):
        await run.resume(limits={"tokens": 100})
    assert types(run)[-1] == "workflow_cancelled"


async def waits_for_all(ctx):
    await asyncio.gather(ctx.gate("One?"), ctx.gate("Two?"), ctx.wait_signal("go"), ctx.run("group"))


OPEN = [
    ("node_cancelled", "/group/group"),
    ("node_cancelled", "/group"),
    ("signal_cancelled", "/go"),
    ("gate_cancelled", "/gate[2]"),
    ("gate_cancelled", "/gate"),
]


@pytest.mark.requirement("S0-28")
@pytest.mark.parametrize("driven", [True, False])
async def test_stop_records_all_open_calls_as_cancelled(file, driven):
    latch = Latch()

    def opened():
        session = Session("test", file)
        FunctionNode("leaf", session, latch.leaf)
        LoopNode("group", session, session.get_node("leaf"), times=2)
        session.workflow(waits_for_all)
        return session

    async with contextlib.AsyncExitStack() as sessions:
        session = await sessions.enter_async_context(opened())
        run = await session.start("waits_for_all")
        await latch.entered.wait()
        await until(lambda: len(run.view.gates) == 2)
        if not driven:
            await run.pause()
            await session.close()
            session = await sessions.enter_async_context(opened())
            (run,) = await session.recover()
            assert run.run_id not in session.engine.executors
        await within(run.stop("too late"))
        ends = [event for event in run.events if event.event_type.endswith("_cancelled")]
        assert [(event.event_type, event.path) for event in ends] == [*OPEN, ("workflow_cancelled", "")]
        gates = [data["gate_id"] for data in data_of(run, "gate_cancelled")]
        assert gates == [data["gate_id"] for data in data_of(run, "gate_waiting")[::-1]]
        assert {node.state for node in run.view.nodes.values()} == {"cancelled"}
        assert [event.seq for event in run.events] == list(range(1, len(run.events) + 1))


async def test_the_fork_of_a_stopped_run_reopens_open_gates_and_keeps_completed_steps(session):
    done = counted(session, "leaf")
    session.workflow(works_and_asks)
    run = await session.start("works_and_asks")
    await at_gate(run)
    await within(run.stop())
    forked = await session.fork(run.run_id)
    await at_gate(forked)
    await forked.answer("yes")
    assert await within(forked.wait()) == [1, "yes"]
    assert done == [1]
    assert "path_reset" not in types(forked)


async def works_and_asks(ctx):
    return (await ctx.run("leaf", 1))["output"], await ctx.gate("Continue?")


async def test_a_stop_just_after_the_end_of_a_run_records_nothing() -> None:
    session = Session()

    @session.workflow
    async def quick(ctx):
        return "done"

    run = await session.start("quick")
    await run.wait()
    events = len(run.events)
    run.run_state.status = WorkflowState.RUNNING  # a handle that has not noticed the end yet
    assert await run.stop() == []
    assert len(run.events) == events
