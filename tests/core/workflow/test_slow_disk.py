"""A slow disk: a thread writes, and neither runs nor sessions nor the event loop are blocked."""

import asyncio
import threading

import pytest

from core.workflow.support import Latch, SlowCleanup, at_gate, copy_store, counted, types, until, within
from nerve import FunctionNode, Session
from nerve.core.workflow import WorkflowState
from nerve.engine import group_commit
from nerve.store.sqlite import SqliteStore


class SlowDisk(SqliteStore):
    """A store whose appends start only when they are released."""

    def __init__(self, file):
        super().__init__(file)
        self.begun, self.go = threading.Event(), threading.Event()
        self.go.set()

    def append(self, batch, patience=30.0):
        self.begun.set()
        assert self.go.wait(20)
        return super().append(batch, patience)

    def hold(self):
        self.begun.clear()
        self.go.clear()


@pytest.fixture(autouse=True)
def written_by_a_thread(monkeypatch):
    monkeypatch.setattr(group_commit, "MAX_INLINE_SYNC_S", 0.0)


class Progress:
    """A leaf that starts, emits an event when it is told to, and never ends."""

    def __init__(self):
        self.entered, self.go = asyncio.Event(), asyncio.Event()

    async def leaf(self, context):
        self.entered.set()
        await self.go.wait()
        context.emit("progress", {})
        await asyncio.Event().wait()


async def work(ctx):
    return (await ctx.run("leaf", 1))["output"]


async def ask(ctx):
    return await ctx.gate("Continue?")


async def test_closing_a_session_waits_for_a_pending_write(file):
    disk, progress = SlowDisk(file), Progress()
    async with Session("test", disk) as session:
        FunctionNode("leaf", session, progress.leaf)
        session.workflow(work)
        run = await session.start("work")
        await progress.entered.wait()
        disk.hold()
        progress.go.set()
        await until(disk.begun.is_set)  # the event of the leaf is being written, and no caller waits for it
        asyncio.get_running_loop().call_later(0.05, disk.go.set)
    async with Session("test", file) as session:
        session.workflow(work)
        assert types(session.get_workflow_run(run.run_id)) == ["workflow_started", "node_started", "progress"]


async def test_the_event_loop_is_not_blocked_by_a_write(file):
    disk = SlowDisk(file)
    async with Session("test", disk) as session:
        session.workflow(ask)
        run = await session.start("ask")
        await at_gate(run)
        disk.hold()
        answer = asyncio.ensure_future(run.answer("yes"))
        await until(disk.begun.is_set)
        assert not answer.done()
        assert not run.is_complete
        disk.go.set()
        await within(answer)
        assert await within(run.wait()) == "yes"


async def test_an_answer_is_neither_acknowledged_nor_acted_on_before_it_is_on_disk(file):
    disk = SlowDisk(file)

    async def act(ctx):
        return (await ctx.run("leaf", await ctx.gate("Continue?")))["output"]

    async with Session("test", disk) as session:
        leaf = counted(session, "leaf")
        session.workflow(act)
        run = await session.start("act")
        await at_gate(run)
        disk.hold()
        answer = asyncio.ensure_future(run.answer("yes"))
        await until(disk.begun.is_set)
        assert not answer.done()
        assert leaf == []
        disk.go.set()
        await within(answer)
        assert await within(run.wait()) == "yes"
        assert leaf == ["yes"]


async def test_a_result_is_not_used_by_the_next_leaf_before_it_is_on_disk(file):
    disk, latch = SlowDisk(file), Latch()

    async def pair(ctx):
        return (await ctx.run("second", (await ctx.run("first", 1))["output"]))["output"]

    async with Session("test", disk) as session:
        FunctionNode("first", session, latch.leaf)
        second = counted(session, "second")
        session.workflow(pair)
        run = await session.start("pair")
        await latch.entered.wait()
        disk.hold()
        latch.open.set()
        await until(disk.begun.is_set)
        assert (second, run.is_complete) == ([], False)
        disk.go.set()
        assert await within(run.wait()) == 1
        assert second == [1]


async def test_a_gate_is_not_shown_before_it_is_on_disk(file):
    disk = SlowDisk(file)
    disk.hold()
    async with Session("test", disk) as session:
        session.workflow(ask)
        start = asyncio.ensure_future(session.start("ask"))
        await until(disk.begun.is_set)
        (handle,) = session.engine.run_handles.values()
        assert handle.pending_gates == []
        disk.go.set()
        run = await within(start)
        assert (await within(run.next_gate())).prompt == "Continue?"


async def test_a_body_and_its_start_share_commits(file):
    """Two commits for a run with a gate: its start with the gate, and the answer with the end."""
    batches = []

    class CountedDisk(SqliteStore):
        def append(self, batch, patience=30.0):
            batches.append([row.type for part in batch for row in part.rows])
            return super().append(batch, patience)

    async with Session("test", CountedDisk(file)) as session:
        session.workflow(ask)
        run = await session.start("ask")
        await at_gate(run)
        await run.answer("yes")
        await within(run.wait())
    assert batches == [["workflow_started", "gate_waiting"], ["gate_answered", "workflow_completed"]]


async def test_writes_of_many_runs_are_batched(file):
    disk = SlowDisk(file)
    async with Session("test", disk) as session:
        counted(session, "leaf")
        session.workflow(work)
        disk.hold()
        starts = [asyncio.ensure_future(session.start("work")) for _ in range(20)]
        await until(disk.begun.is_set)
        disk.go.set()
        runs = await within(asyncio.gather(*starts))
        assert await within(asyncio.gather(*(run.wait() for run in runs))) == [1] * 20


async def test_a_child_that_is_starting_when_its_parent_stops_is_stopped_too(file):
    tidying = SlowCleanup()

    async def parent(ctx):
        async def second():
            await ctx.gate("Another?")
            await ctx.run_workflow("ask")

        await asyncio.gather(ctx.run_workflow("work"), second())

    disk = SlowDisk(file)
    async with Session("test", disk) as session:
        FunctionNode("leaf", session, tidying.leaf)
        session.workflow(work), session.workflow(ask), session.workflow(parent)
        run = await session.start("parent")
        await within(tidying.entered.wait())
        await at_gate(run)
        await run.answer("yes")
        disk.hold()
        await until(disk.begun.is_set)  # the call of the second child is being written
        stopping = asyncio.ensure_future(run.stop())
        await until(lambda: run.run_state.children["/work"].state is WorkflowState.STOPPING)
        disk.go.set()
        await until(lambda: len(disk.runs()) == 3)
        tidying.tidied.set()
        await within(stopping)
        assert {row.state for row in disk.runs()} == {"cancelled"}


@pytest.mark.parametrize("paused", [False, True])
async def test_a_stop_interrupted_by_a_crash_leaves_the_run_as_it_was(file, tmp_path, paused):
    tidying = SlowCleanup()

    async def several(ctx):
        return await asyncio.gather(ctx.gate("One?"), ctx.gate("Two?"), ctx.run("leaf"))

    disk = SlowDisk(file)
    async with Session("test", disk) as session:
        FunctionNode("leaf", session, tidying.leaf)
        session.workflow(several)
        run = await session.start("several")
        await until(lambda: len(run.pending_gates) == 2 and len(types(run)) == 4)
        if paused:
            await run.pause()
        disk.hold()
        one, two = run.pending_gates
        run.answer_gate("1", one.gate_id)
        await until(disk.begun.is_set)
        run.answer_gate("2", two.gate_id)
        stopping = asyncio.ensure_future(run.stop())
        await until(lambda: run.state is WorkflowState.STOPPING)
        disk.go.set()
        await until(lambda: types(run).count("gate_answered") == 2)
        photo = copy_store(file, tmp_path / "photo")
        tidying.tidied.set()
        await within(stopping)
    async with Session("test", photo) as session:
        counted(session, "leaf")
        session.workflow(several)
        (run,) = await session.recover()
        if paused:
            assert run.state is WorkflowState.PAUSED
            await run.resume()
        assert (await within(run.wait()))[:2] == ["1", "2"]


@pytest.mark.filterwarnings("error")
def test_an_event_loop_that_ends_during_a_write_leaves_no_broken_thread(file):
    disk = SlowDisk(file)

    async def left_open():
        session = Session("test", disk)
        progress = Progress()
        FunctionNode("leaf", session, progress.leaf)
        session.workflow(work)
        await session.start("work")
        await progress.entered.wait()
        disk.hold()
        progress.go.set()
        await until(disk.begun.is_set)

    asyncio.run(left_open())
    threads = [thread for thread in threading.enumerate() if thread.name == "nerve-writer"]
    disk.go.set()
    for thread in threads:
        thread.join(0.2)
    disk.close()
