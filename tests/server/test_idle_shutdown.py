"""When a server is not needed any more."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.api import Api
from nerve.server.serve import has_active_runs, wait_until_server_idle


def session_of(store: Path | None = None) -> Session:
    session = Session(store=store)

    @session.workflow
    async def ask(ctx: Any) -> Any:
        return await ctx.gate("Go on?", timeout=ctx.input)

    @session.workflow
    async def sleep(ctx: Any) -> None:
        await ctx.sleep(3600)

    @session.workflow
    async def work(ctx: Any) -> Any:
        return await ctx.run("slow")

    @session.node
    async def slow(context: Any) -> None:
        await asyncio.Event().wait()

    return session


@pytest.mark.parametrize(
    ("workflow", "input", "moving"),
    [("ask", None, False), ("ask", 3600, True), ("sleep", None, True), ("work", None, True)],
)
async def test_a_run_is_active_unless_it_waits_for_an_answer(workflow: str, input: Any, moving: bool) -> None:
    async with session_of() as session:
        assert not has_active_runs(session)
        run = await session.start(workflow, input)
        async with asyncio.timeout(60):
            while workflow != "work" and run.state.value != "waiting":  # noqa: ASYNC110 - a run tells its sinks
                await asyncio.sleep(0.01)
            await session.engine.wait_durable(run)
        assert has_active_runs(session) is moving
        await run.stop("")
        assert not has_active_runs(session)


async def test_a_run_that_is_not_resumed_is_not_active(tmp_path: Path) -> None:
    async with session_of(tmp_path / "n.db") as session:
        run = await session.start("work")
        await session.engine.wait_durable(run)
    async with Session(store=tmp_path / "n.db") as later:
        await later.recover()
        assert [left.run for left in later.engine.skipped_runs] == [run.run_id]
        assert not has_active_runs(later)


async def test_a_server_stays_up_while_a_client_is_connected() -> None:
    connected = True
    async with session_of() as session:
        ending = asyncio.create_task(
            wait_until_server_idle(0.05, Api(session), lambda: connected, asyncio.Event())
        )
        done, _ = await asyncio.wait([ending], timeout=0.2)
        assert not done
        connected = False
        async with asyncio.timeout(60):
            await ending
