"""A wait settles once, whether by a person, a fact, the clock, or the body that abandons it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import copy_store, types, until, within
from nerve import FunctionNode, Session, WorkflowRun, WorkflowState
from nerve.engine import group_commit
from nerve.errors import StoreFull
from nerve.store.sqlite import SqliteStore

pytestmark = pytest.mark.local("breaks the disk of the store")

# -- abandoned after the answer -----------------------------------------------------------------


async def asks_beside(ctx):
    """A gate that is abandoned when the step beside it completes."""
    asking = asyncio.create_task(ctx.gate("Cancel the check?"))
    checked = await ctx.run("check")
    asking.cancel()
    await asyncio.wait([asking])
    return [checked.output, (await ctx.run("check")).output]


async def hears_beside(ctx):
    """The same with a signal."""
    hearing = asyncio.create_task(ctx.wait_signal("stop"))
    checked = await ctx.run("check")
    hearing.cancel()
    await asyncio.wait([hearing])
    return [checked.output, (await ctx.run("check")).output]


def opened(file: Path, *workflows: Any) -> tuple[Session, list[str]]:
    session = Session("test", file)
    done: list[str] = []

    async def check(context: Any) -> str:
        done.append(context.path)
        return "fine"

    FunctionNode("check", session, check)
    for workflow in workflows:
        session.workflow(workflow)
    return session, done


async def crashed(file: Path, place: Path, after: str, workflow: Any) -> Path:
    """The file as it was when the first event of a type had been written."""
    copies: list[Path] = []
    session, _ = opened(file, workflow)

    def crash(_: WorkflowRun, rows: Any) -> None:
        if not copies and any(row.type == after for row in rows):
            copies.append(copy_store(file, place))

    async with session:
        session.engine.watchers.append(crash)
        await within((await session.start(workflow.__name__)).wait())
    return copies[0]


async def settle_early(run: WorkflowRun) -> None:
    if run.workflow_id == "asks_beside":
        await run.answer("no")
    else:
        assert await run.signal("stop", "now") == 1


@pytest.mark.parametrize("workflow", [asks_beside, hears_beside])
async def test_a_wait_that_is_settled_after_a_restart_and_then_abandoned_does_not_hold_the_run(
    file: Path, tmp_path: Path, workflow: Any
) -> None:
    copy = await crashed(file, tmp_path / "copy", "node_completed", workflow)
    session, done = opened(copy, workflow)
    async with session:
        (run,) = await session.recover()
        await settle_early(run)
        assert await within(run.wait()) == ["fine", "fine"]
        assert done == ["/check[2]"]


@pytest.mark.parametrize("workflow", [asks_beside, hears_beside])
async def test_a_wait_that_was_settled_but_not_abandoned_when_the_process_ended_is_abandoned(
    file: Path, tmp_path: Path, workflow: Any
) -> None:
    copy = await crashed(file, tmp_path / "copy", "node_completed", workflow)
    session, _ = opened(copy, workflow)
    copies: list[Path] = []

    def crash(_: WorkflowRun, rows: Any) -> None:
        if any(row.type in ("gate_answered", "signal_received") for row in rows):
            copies.append(copy_store(copy, tmp_path / "again"))

    async with session:
        session.engine.watchers.append(crash)
        (run,) = await session.recover()
        await settle_early(run)
        await within(run.wait())
    for _ in range(2):
        session, done = opened(copies[0], workflow)
        async with session:
            for again in await session.recover():
                assert await within(again.wait()) == ["fine", "fine"]
                assert done == ["/check[2]"]


# -- settled during recovery ------------------------------------------------------------------

TURNS = 12
"""Number of loop turns after which a resumed run has been replayed."""


async def work_then_listen(ctx):
    await ctx.run("check")
    return await ctx.wait_signal("go", key=ctx.input)


async def paused(file: Path, workflow: Any, number: int) -> None:
    """Leave a number of waiting, paused runs."""
    session, _ = opened(file, workflow)
    async with session:
        for each in range(number):
            run = await session.start(workflow.__name__, str(each), key=str(each))
            await until(lambda run=run: run.state is WorkflowState.WAITING)
            await run.pause()


async def after(turns: int, command: Any, *args: Any) -> Any:
    for _ in range(turns):
        await asyncio.sleep(0)
    return await command(*args)


@pytest.mark.parametrize("first", range(0, TURNS, 2))
async def test_a_signal_settles_a_wait_once_at_any_point_of_recovery(file: Path, first: int) -> None:
    await paused(file, work_then_listen, TURNS)
    session, _ = opened(file, work_then_listen)
    async with session:
        await session.recover()
        for second in range(TURNS):
            run = await session.start("work_then_listen", str(second), key=str(second))
            resumed = after(first, run.resume)
            await asyncio.gather(resumed, after(second, session.signal, "go", str(second), "v"))
            assert (second, types(run).count("signal_received")) == (second, 1)
            assert await within(run.wait()) == "v"


async def work_then_ask(ctx):
    await ctx.run("check")
    return await ctx.gate("Which?", timeout=60)


@pytest.mark.parametrize("first", range(0, TURNS, 3))
async def test_of_answers_during_recovery_one_counts_and_the_others_raise(file: Path, first: int) -> None:
    await paused(file, work_then_ask, TURNS)
    session, _ = opened(file, work_then_ask)
    async with session:
        await session.recover()
        for second in range(TURNS):
            run = await session.start("work_then_ask", str(second), key=str(second))
            said = [after(turns, run.answer, str(turns)) for turns in (first, second, second + 2, second + 4)]
            outcomes = await asyncio.gather(run.resume(), *said, return_exceptions=True)
            refused = [outcome for outcome in outcomes if outcome is not None]
            assert all(isinstance(outcome, RuntimeError) for outcome in refused), refused
            assert (len(refused), types(run).count("gate_answered")) == (3, 1)
            assert int(await within(run.wait())) in (first, second, second + 2, second + 4)


class Disk(SqliteStore):
    """Writes of facts wait until they are released, or fail when there is no room."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.begun, self.go, self.room = threading.Event(), threading.Event(), True

    def append(self, batch: Any, patience: float = 30.0) -> Any:
        if not any(part.facts for part in batch):
            return super().append(batch, patience)
        self.begun.set()
        assert self.go.wait(5)
        return super().append(batch, patience) if self.room else [StoreFull("no room")] * len(batch)


async def looked_too_early(disk: Disk) -> tuple[Session, WorkflowRun, asyncio.Task[None]]:
    """A run that waits for a signal which is applied but not on disk."""
    ready = asyncio.Event()

    async def listen(ctx):
        await ready.wait()
        return await ctx.wait_signal("go")

    session = Session("test", disk)
    session.workflow(listen)
    run = await session.start("listen")
    asserting = asyncio.create_task(session.signal("go", None, "v"))
    await until(disk.begun.is_set)
    ready.set()
    await until(lambda: run.state is WorkflowState.WAITING)
    return session, run, asserting


@pytest.fixture
def disk(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    monkeypatch.setattr(group_commit, "MAX_INLINE_SYNC_S", 0.0)
    disk = Disk(file)
    yield disk
    disk.go.set()


async def test_a_pending_fact_settles_a_wait_once_it_is_on_disk(disk: Disk) -> None:
    session, run, asserting = await looked_too_early(disk)
    async with session:
        disk.go.set()
        await within(asserting)
        assert types(run).count("signal_received") == 1
        assert await within(run.wait()) == "v"


async def test_a_fact_that_could_not_be_written_settles_no_wait(disk: Disk) -> None:
    session, run, asserting = await looked_too_early(disk)
    async with session:
        disk.room = False
        disk.go.set()
        with pytest.raises(StoreFull):
            await within(asserting)
        disk.room = True
        await session.signal("go", None, "w")
        assert await within(run.wait()) == "w"


# -- settled before replay reaches them --------------------------------------------------------


async def test_answers_before_replay_reaches_their_gates_are_delivered_in_order(
    file: Path,
) -> None:
    ready, heard = asyncio.Event(), list[list[str]]()

    async def asks_three(ctx):
        heard.append([])
        await ready.wait()

        async def ask(name: str) -> None:
            heard[-1].append(await ctx.gate(name))

        await asyncio.gather(*map(ask, "abc"))
        await ctx.gate("last")

    session, _ = opened(file, asks_three)
    async with session:
        ready.set()
        run = await session.start("asks_three")
        await until(lambda: len(run.view.gates) == 3)
        await run.pause()
    for times in (2, 3):
        ready.clear()
        session, _ = opened(file, asks_three)
        async with session:
            await session.recover()
            run = session.get_workflow_run(run.run_id)
            await run.resume()
            gates = {gate.prompt: gate.gate_id for gate in run.pending_gates}
            for name in [name for name in "bac" if name in gates]:
                await run.answer(name, gates[name])
            ready.set()
            await until(lambda times=times: len(heard) == times and len(heard[-1]) == 3)
            await until(lambda run=run: run.pending_gate and run.pending_gate.prompt == "last")
            await run.pause()
    assert heard == [[], ["b", "a", "c"], ["b", "a", "c"]]
