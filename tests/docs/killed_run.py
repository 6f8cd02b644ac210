"""killed_run.py FILE: a run whose process is killed in its second step."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from nerve import ExecutionContext, FunctionNode, Session, Workflow, WorkflowContext


def make_session(file: Path) -> Session:
    session = Session("paths", file)

    async def step(context: ExecutionContext) -> Any:
        if context.input == 2 and __name__ == "__main__":
            os.kill(os.getpid(), signal.SIGKILL)
        return context.input

    async def steps(ctx: WorkflowContext) -> None:
        await ctx.run("step", 1)
        await ctx.run("step", 2)

    FunctionNode("step", session, step)
    Workflow("steps", session, steps)
    return session


async def run_until_killed(file: Path) -> None:
    async with make_session(file) as session:
        run = await session.start("steps")
        await run.wait()


if __name__ == "__main__":
    asyncio.run(run_until_killed(Path(sys.argv[1])))
