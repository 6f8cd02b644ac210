"""hello.py FILE: a durable run that exits in its first step."""

import asyncio
import os
import sys

from nerve import ExecutionContext, FunctionNode, Session, Workflow, WorkflowContext


async def hello(context: ExecutionContext) -> str:
    os._exit(0)


async def greet(ctx: WorkflowContext) -> None:
    await ctx.run("hello", "world")


async def main() -> None:
    session = Session("hello", sys.argv[1])
    FunctionNode("hello", session, hello)
    Workflow("greet", session, greet)
    async with session:
        run = await session.start("greet")
        await run.wait()


asyncio.run(main())
