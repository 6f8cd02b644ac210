"""A run that waits in one task and works in another is resumed as a working run."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

from engine.conftest import until
from nerve import FunctionNode, Session, WorkflowContext


async def test_a_body_with_open_work_is_resumed_although_it_also_waits(tmp_path: Path) -> None:
    """The process dies after one of two tasks has its result and before it requests the next step."""
    done: list[int] = []

    def register(session: Session) -> None:
        def work(context: Any) -> Any:
            done.append(context.input)
            if context.input == 2:
                shutil.copyfile(tmp_path / "nerve.db", tmp_path / "dead.db")
                shutil.copyfile(tmp_path / "nerve.db-wal", tmp_path / "dead.db-wal")
            return context.input

        FunctionNode("work", session, work)

        @session.workflow
        async def main(ctx: WorkflowContext) -> Any:
            async def several() -> None:
                for n in (1, 2, 3):
                    await ctx.run("work", n)

            task = asyncio.ensure_future(several())
            answer = await ctx.gate("Go on?")
            await task
            return answer

    async with Session("s", tmp_path / "nerve.db") as session:
        register(session)
        run = await session.start("main")
        await until(lambda: done == [1, 2, 3])
    done.clear()
    async with Session("s", tmp_path / "dead.db") as session:
        register(session)
        (run,) = await session.recover()
        await until(lambda: done == [2, 3])
        await run.answer("yes")
        assert await run.wait() == "yes"
