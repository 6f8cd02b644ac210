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


async def work(ctx):
    return (await ctx.run("leaf", 1))["output"]


async def ask(ctx):
    return await ctx.gate("Continue?")


async def test_closing_a_session_waits_for_a_pending_write(file):
    disk, latch = SlowDisk(file), Latch()
    async with Session("test", disk) as session:
        FunctionNode("leaf", session, latch.leaf)
        session.workflow(work)
        run = await session.start("work")
        disk.hold()
        await latch.entered.wait()
        await until(disk.begun.is_set)  # the start of the leaf is being written, and no caller waits for it
        asyncio.get_running_loop().call_later(0.05, disk.go.set)
    async with Session("test", file) as session:
        session.workflow(work)
        assert types(session.get_workflow_run(run.run_id)) == ["workflow_started", "node_started"]


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


async def test_an_answer_is_neither_acknowledged_nor_delivered_before_it_is_on_disk(file):
    disk, told = SlowDisk(file), []

    async def hear(ctx):
        told.append(await ctx.gate("Continue?"))

    async with Session("test", disk) as session:
        session.workflow(hear)
        run = await session.start("hear")
        await at_gate(run)
        disk.hold()
        run.answer_gate("yes")
        await until(disk.begun.is_set)
        assert told == []
        disk.go.set()
        await within(run.wait())
        assert told == ["yes"]


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
        await until(lambda: run._children["/work"].state is WorkflowState.STOPPING)
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
        latch = Latch()
        FunctionNode("leaf", session, latch.leaf)
        session.workflow(work)
        await session.start("work")
        disk.hold()
        await latch.entered.wait()
        await until(disk.begun.is_set)

    asyncio.run(left_open())
    threads = [thread for thread in threading.enumerate() if thread.name == "nerve-writer"]
    disk.go.set()
    for thread in threads:
        thread.join(0.2)
    disk.close()
