"""Races: the first command counts, the other one gets an error, and nothing is left half done."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import at_gate, counted, data_of, types, until, within
from nerve import FunctionNode, Limits, Session, WorkflowRun, WorkflowState
from nerve.engine import group_commit
from nerve.store.sqlite import SqliteStore

pytestmark = pytest.mark.local("races commands with commits of this process")


class SlowDisk(SqliteStore):
    """After `hold()`, an append waits until it is released; with `only`, just those that match."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.begun, self.go = threading.Event(), threading.Event()
        self.go.set()
        self.only = lambda batch: True

    def append(self, batch: Any, patience: float = 30.0) -> Any:
        if self.only(batch):
            self.begun.set()
            assert self.go.wait(5)
        return super().append(batch, patience)

    def hold(self) -> None:
        self.begun.clear()
        self.go.clear()


@pytest.fixture
def disk(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    monkeypatch.setattr(group_commit, "MAX_INLINE_SYNC_S", 0.0)
    disk = SlowDisk(file)
    yield disk
    disk.go.set()


async def ask(ctx):
    return await ctx.gate("Continue?")


async def ask_in_time(ctx):
    return await ctx.gate("Continue?", timeout=0.5)


async def let(event: asyncio.Event | threading.Event) -> None:
    event.set()


def opened(file: Path, *workflows: Any) -> Session:
    session = Session("test", file)
    for workflow in workflows:
        session.workflow(workflow)
    return session


def is_completed(session: Session, run: WorkflowRun) -> bool:
    """Whether memory, journal and row agree that the run is completed."""
    row = session.engine.store.run(run.run_id)
    assert row is not None
    states = {run.state.value, run.view.state, row.state}
    return states == {"completed"} and run.held is None and types(run)[-1] == "workflow_completed"


# -- a command while the run ends --------------------------------------------------------------


async def tidying(session: Session) -> tuple[WorkflowRun, asyncio.Event]:
    """A run whose body has returned, while one of its leaves cleans up until it is released."""
    entered, leaving, go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def leaf(context):
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            leaving.set()
            await go.wait()

    async def leaves_a_task(ctx):
        ctx.state["task"] = asyncio.create_task(ctx.run("leaf"))
        await entered.wait()
        return "done"

    FunctionNode("leaf", session, leaf)
    session.workflow(leaves_a_task)
    run = await session.start("leaves_a_task")
    await leaving.wait()
    return run, go


async def writing_its_end(disk: SlowDisk, session: Session, **options: Any) -> WorkflowRun:
    """A run whose last event is being written."""

    async def quick(ctx):
        await ctx.run("leaf")
        disk.hold()
        return "done"

    counted(session, "leaf")
    session.workflow(quick)
    run = await session.start("quick", **options)
    await until(disk.begun.is_set)
    return run


async def test_a_run_that_is_stopped_while_its_tasks_end_is_completed(file: Path) -> None:
    async with opened(file) as session:
        run, go = await tidying(session)
        killed, _ = await within(asyncio.gather(run.stop(), let(go)))
        assert (killed, await within(run.wait())) == ([], "done")
        assert is_completed(session, run)


async def test_a_run_that_is_paused_while_its_tasks_end_is_completed(file: Path) -> None:
    async with opened(file) as session:
        run, go = await tidying(session)
        with pytest.raises(RuntimeError, match="Cannot pause run in state completed"):
            await within(asyncio.gather(run.pause(), let(go)))
        assert await within(run.wait()) == "done"
        assert is_completed(session, run)


async def test_a_run_that_is_stopped_while_its_end_is_written_is_completed(disk: SlowDisk) -> None:
    async with Session("test", disk) as session:
        run = await writing_its_end(disk, session)
        killed, _ = await within(asyncio.gather(run.stop(), let(disk.go)))
        assert (killed, await within(run.wait())) == ([], "done")
        assert is_completed(session, run)


async def test_a_run_that_is_paused_while_its_end_is_written_is_completed(disk: SlowDisk) -> None:
    async with Session("test", disk) as session:
        run = await writing_its_end(disk, session)
        with pytest.raises(RuntimeError, match="Cannot pause run in state completed"):
            await within(asyncio.gather(run.pause(), let(disk.go)))
        assert await within(run.wait()) == "done"
        assert is_completed(session, run)


async def test_a_run_that_times_out_while_its_end_is_written_is_completed(disk: SlowDisk) -> None:
    async with Session("test", disk) as session:
        began = time.monotonic()
        run = await writing_its_end(disk, session, limits=Limits(wall_time=0.1))
        await until(lambda: time.monotonic() > began + 0.2)
        disk.go.set()
        assert await within(run.wait()) == "done"
        assert is_completed(session, run)


# -- two commands ------------------------------------------------------------------------------


async def paused(file: Path) -> None:
    """Leave a paused run with an open gate in the file."""
    async with opened(file, ask) as session:
        run = await session.start("ask")
        await at_gate(run)
        await run.pause()


async def test_of_two_concurrent_resumes_of_a_recovered_run_one_succeeds(file: Path) -> None:
    await paused(file)
    async with opened(file, ask) as session:
        (run,) = await session.recover()
        outcomes = await within(asyncio.gather(run.resume(), run.resume(), return_exceptions=True))
        assert {type(outcome) for outcome in outcomes} == {type(None), RuntimeError}
        await run.answer("yes")
        assert await within(run.wait()) == "yes"
        assert is_completed(session, run)
        assert types(run).count("workflow_resumed") == 1


@pytest.mark.parametrize("first", ["resume", "answer"])
async def test_a_recovered_run_can_be_resumed_and_answered_at_once(file: Path, first: str) -> None:
    await paused(file)
    async with opened(file, ask) as session:
        (run,) = await session.recover()
        both = [run.resume(), run.answer("yes")]
        await within(asyncio.gather(*(both if first == "resume" else reversed(both))))
        assert await within(run.wait()) == "yes"
        assert is_completed(session, run)


async def test_of_two_workflows_started_under_one_key_the_second_is_rejected() -> None:
    session = Session("test")
    session.workflow(ask), session.workflow(ask_in_time)
    run, refusal = await asyncio.gather(
        session.start("ask", key="k"), session.start("ask_in_time", key="k"), return_exceptions=True
    )
    assert isinstance(run, WorkflowRun)
    assert isinstance(refusal, ValueError)
    assert "Key 'k'" in str(refusal)


# -- a cancelled start -------------------------------------------------------------------------


async def test_a_run_continues_if_its_caller_is_cancelled_while_the_start_is_written(disk: SlowDisk) -> None:
    async with Session("test", disk) as session:
        session.workflow(ask)
        disk.hold()
        start = asyncio.create_task(session.start("ask"))
        await until(disk.begun.is_set)
        start.cancel()
        disk.go.set()
        with pytest.raises(asyncio.CancelledError):
            await within(start)
        await until(disk.runs)
        await session.recover()
        run = session.get_workflow_run(disk.runs()[0].run)
        await at_gate(run)
        await run.answer("yes")
        assert await within(run.wait()) == "yes"


async def test_a_parent_that_is_stopped_while_its_child_starts_leaves_no_open_run(disk: SlowDisk) -> None:
    async def parent(ctx):
        return await ctx.run_workflow("ask")

    disk.only = lambda batch: any(part.row and part.row.parent for part in batch)
    async with Session("test", disk) as session:
        session.workflow(ask), session.workflow(parent)
        disk.hold()
        run = await session.start("parent")
        await until(disk.begun.is_set)
        await within(asyncio.gather(run.stop(), let(disk.go)))
        assert [row.state for row in disk.runs()] == ["cancelled", "cancelled"]
        assert session.engine.executors == {}


# -- a timer and something else ----------------------------------------------------------------


async def stays_completed(session: Session, run: WorkflowRun) -> bool:
    """Answer the run, and return its state after the deadline of its gate has passed."""
    deadline = run.pending_gate.deadline
    await run.answer("yes")
    assert await within(run.wait()) == "yes"
    await until(lambda: time.time() > deadline + 0.05)
    return is_completed(session, run)


async def test_a_run_started_twice_under_its_key_stays_completed_after_its_deadline(file: Path) -> None:
    async with opened(file, ask_in_time) as session:
        run = await session.start("ask_in_time", key="k")
        await at_gate(run)
        assert await session.start("ask_in_time", key="k") is run
        assert await stays_completed(session, run)


@pytest.mark.parametrize("again", ["recover", "start"])
async def test_a_run_recovered_twice_stays_completed_after_its_deadline(file: Path, again: str) -> None:
    async with opened(file, ask_in_time) as session:
        await at_gate(await session.start("ask_in_time", key="k"))
    async with opened(file, ask_in_time) as session:
        (run,) = await session.recover()
        await (session.recover() if again == "recover" else session.start("ask_in_time", key="k"))
        assert await stays_completed(session, run)


async def test_a_paused_recovered_run_with_a_due_timer_continues_only_after_resume(
    file: Path,
) -> None:
    async def nap(ctx):
        await ctx.sleep(0.5)
        return (await ctx.run("after", 1))["output"]

    async with opened(file, nap) as session:
        counted(session, "after")
        run = await session.start("nap")
        await until(lambda: "timer_started" in types(run))
    async with opened(file, nap) as session:
        after = counted(session, "after")
        (run,) = await session.recover()
        await run.pause()
        due = data_of(run, "timer_started")[0]["deadline"]
        await until(lambda: time.time() > due + 0.05)
        states = run.state.value, run.view.state, session.engine.store.run(run.run_id).state
        assert (states, after) == (("paused",) * 3, [])
        await run.resume()
        assert await within(run.wait()) == 1
        assert types(run).count("timer_fired") == 1


@pytest.mark.parametrize("what", ["pause", "stop"])
@pytest.mark.parametrize("meanwhile", ["its time comes", "it is started again"])
async def test_a_run_is_not_woken_while_its_pause_or_stop_is_written(
    disk: SlowDisk, file: Path, what: str, meanwhile: str
) -> None:
    async def ask_with_a_bound(ctx):
        return await ctx.gate("Continue?", timeout=60)

    disk.close()
    async with opened(file, ask_with_a_bound) as session:
        await at_gate(await session.start("ask_with_a_bound", key="k"))
    disk = SlowDisk(file)
    disk.only = lambda batch: any(part.rows for part in batch)
    session = Session("test", disk)
    session.workflow(ask_with_a_bound)
    async with session:
        (run,) = await session.recover()
        disk.hold()
        doing = asyncio.create_task(getattr(run, what)())
        await until(disk.begun.is_set)
        if meanwhile == "its time comes":
            session.engine.idle_runs.wake(run.run_id)
        else:
            assert await session.start("ask_with_a_bound", key="k") is run
        for _ in range(20):
            await asyncio.sleep(0)
        disk.go.set()
        await within(doing)
        state = {"pause": "paused", "stop": "cancelled"}[what]
        assert (run.state.value, run.view.state, run.held) == (state, state, None)
        executor = session.engine.executors.get(run.run_id)
        assert executor is None or executor.barrier.is_paused
        if what == "pause":
            await run.answer("yes")
            await run.resume()
            assert await within(run.wait()) == "yes"


# -- a signal ----------------------------------------------------------------------------------


async def test_signals_reach_a_run_that_is_still_replaying(file: Path) -> None:
    ready = asyncio.Event()

    async def listen(ctx):
        await ready.wait()
        return await asyncio.gather(ctx.wait_signal("a"), ctx.wait_signal("b"))

    async with opened(file, listen) as session:
        ready.set()
        run = await session.start("listen")
        await until(lambda: types(run).count("signal_waiting") == 2)
    ready.clear()
    async with opened(file, listen) as session:
        (run,) = await session.recover()
        assert [await run.signal("a", 1), await run.signal("b", 2)] == [1, 1]
        assert await run.signal("a", 3) == 0
        ready.set()
        assert await within(run.wait()) == [1, 2]


async def listen_then_work(ctx):
    return (await ctx.run("after", await ctx.wait_signal("go")))["output"]


async def test_a_signal_reaches_a_paused_run_which_continues_after_resume() -> None:
    session = opened(None, listen_then_work)
    after = counted(session, "after")
    run = await session.start("listen_then_work")
    await until(lambda: "signal_waiting" in types(run))
    await run.pause()
    assert await run.signal("go", 5) == 1
    assert (run.state, after) == (WorkflowState.PAUSED, [])
    await run.resume()
    assert await within(run.wait()) == 5


async def test_a_signal_reaches_an_inactive_paused_run(file: Path) -> None:
    async with opened(file, listen_then_work) as session:
        run = await session.start("listen_then_work")
        await until(lambda: "signal_waiting" in types(run))
        await run.pause()
    async with opened(file, listen_then_work) as session:
        after = counted(session, "after")
        (run,) = await session.recover()
        assert await run.signal("go", 5) == 1
        assert (run.state, after) == (WorkflowState.PAUSED, [])
        await run.resume()
        assert await within(run.wait()) == 5
