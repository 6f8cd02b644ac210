"""A run that crashes the process on every resume is quarantined, and all other runs continue."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.conftest import until
from nerve import Session
from nerve.api import Api
from nerve.engine import recovery
from nerve.errors import RunHeld

pytestmark = pytest.mark.local("ends this process")

PROGRAM = """
import asyncio, os, sys
from nerve import Session

session = Session(store=sys.argv[1])

@session.node
async def bite(context):
    os._exit(9)

@session.node
async def work(context):
    await asyncio.Event().wait()

@session.workflow
async def poison(ctx):
    return (await ctx.run("bite")).output

@session.workflow
async def parent(ctx):
    return await ctx.run_workflow("poison")

@session.workflow
async def steady(ctx):
    first = await ctx.run("work")
    return first.output

@session.workflow
async def short(ctx):
    await ctx.sleep(0)
    return await ctx.gate("Go on?")

def deadly(run):
    return run.workflow_id in ("poison", "parent") and run.held is None

async def main():
    async with session:
        for name in sys.argv[2:]:
            await session.start(name)
        if not sys.argv[2:]:
            await session.recover()
            if (later := session.engine._recovery._suspects_task) is not None:
                await asyncio.wait([later])
        while any(deadly(executor.run) for executor in session.engine.executors.values()):
            await asyncio.sleep(0.01)
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def boot(file: Path, *workflows: str) -> bool:
    """Run the program until it dies or is ready; return whether it is ready."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(file), *workflows, stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    up = await program.stdout.readline() == b"up\n"
    if up:
        program.kill()
    await program.wait()
    return up


def opened(file: Path) -> Session:
    """The same workflows without the crash."""
    session = Session(store=file)

    @session.node
    async def bite(context: Any) -> str:
        return "tame"

    @session.node
    async def work(context: Any) -> str:
        return "done"

    @session.workflow
    async def poison(ctx: Any) -> Any:
        return (await ctx.run("bite")).output

    @session.workflow
    async def parent(ctx: Any) -> Any:
        return await ctx.run_workflow("poison")

    @session.workflow
    async def steady(ctx: Any) -> Any:
        first = await ctx.run("work")
        return first.output

    @session.workflow
    async def short(ctx: Any) -> Any:
        await ctx.sleep(0)
        return await ctx.gate("Go on?")

    return session


async def crashed(file: Path, *workflows: str) -> int:
    """Return how often the program dies before it is ready."""
    assert not await boot(file, *workflows)
    times = 0
    while not await boot(file):
        times += 1
    return times


async def test_a_run_is_quarantined_after_three_crashes_and_the_others_continue(file: Path) -> None:
    assert await crashed(file, "steady", "short", "poison") == recovery.MAX_CRASHES
    async with opened(file) as session:
        api = Api(session)
        await session.recover()
        [held] = (await api.runs(state="held")).runs
        assert (held.workflow, held.held["reason"]) == ("poison", "quarantine")
        health = await api.health()
        assert health.status == "degraded"
        assert "then retry or stop it" in health.held[held.run_id]
        [steady] = (await api.runs(workflow="steady")).runs
        assert await session.get_workflow_run(steady.run_id).wait() == "done"
        [short] = (await api.runs(workflow="short")).runs
        await api.answer(run=short.run_id, answer="yes")
        assert await session.get_workflow_run(short.run_id).wait() == "yes"
        run = session.get_workflow_run(held.run_id)
        with pytest.raises(RunHeld):
            await run.wait()
        with pytest.raises(RuntimeError, match="Cannot skip"):
            await run.skip("")
        await api.retry(run=held.run_id)
        assert await run.wait() == "tame"
        assert (await api.health()).status == "ok"


async def test_a_quarantined_child_is_held_with_its_parent_and_can_be_discarded(file: Path) -> None:
    assert await crashed(file, "parent") in (recovery.MAX_CRASHES, recovery.MAX_CRASHES + 1)
    async with opened(file) as session:
        api = Api(session)
        await session.recover()
        held = (await api.runs(state="held")).runs
        assert "poison" in [run.workflow for run in held]
        [parent] = (await api.runs(workflow="parent")).runs
        assert (await api.stop(run=parent.run_id, reason="discarded")).state == "cancelled"
        assert {run.state for run in (await api.runs()).runs} == {"cancelled"}


async def test_a_run_is_cleared_by_an_orderly_shutdown(file: Path) -> None:
    for _ in range(recovery.MAX_CRASHES + 2):
        session = Session(store=file)

        @session.node
        async def work(context: Any) -> None:
            await asyncio.Event().wait()

        @session.workflow
        async def steady(ctx: Any) -> Any:
            return await ctx.run("work")

        async with session:
            runs = await session.recover() or [await session.start("steady")]
            assert len(runs) == 1
            assert runs[0].state.value == "running"
    store = Session(store=file).engine.store
    assert store.resume_counts() == {}
    store.close()


async def test_a_run_is_cleared_when_it_makes_progress(file: Path) -> None:
    assert await boot(file, "steady", "short")
    async with opened(file) as session:
        session.engine.store.mark_resuming([row.run for row in session.engine.store.runs(states=["running"])])
        for run in await session.recover():
            if run.workflow_id == "steady":
                await run.wait()
        async with asyncio.timeout(60):
            while session.engine.store.resume_counts():  # noqa: ASYNC110 - a thread writes it
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("how", ["pause", "stop"])
async def test_a_suspect_run_that_was_paused_or_stopped_meanwhile_is_not_resumed(
    file: Path, how: str
) -> None:
    def opened(done: list[str]) -> Session:
        session = Session(store=file)

        @session.node
        async def work(context: Any) -> None:
            done.append(context.run_id)
            await asyncio.Event().wait()

        @session.workflow
        async def working(ctx: Any) -> None:
            await ctx.run("work")

        return session

    before: list[str] = []
    async with opened(before) as session:
        for _ in range(2):
            await session.start("working")
        await until(lambda: len(before) == 2)
    after: list[str] = []
    async with opened(after) as session:
        session.engine.store.mark_resuming(before)
        first, second = await session.recover()
        await until(lambda: after)
        waits = second if after == [first.run_id] else first
        await (waits.pause() if how == "pause" else waits.stop())
        suspects = session.engine._recovery._suspects_task
        assert suspects is not None
        await asyncio.wait([suspects])
        assert waits.state.value == ("paused" if how == "pause" else "cancelled")
        assert waits.run_id not in after
