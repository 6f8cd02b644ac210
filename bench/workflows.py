"""The measured workflows: as small as possible."""

from __future__ import annotations

import asyncio
from typing import Any

from nerve import ExecutionContext, FunctionNode, Session, Workflow, WorkflowContext


async def echo(context: ExecutionContext) -> Any:
    return context.input


async def steps(ctx: WorkflowContext) -> int:
    """`input` steps, one after the other."""
    for number in range(ctx.input):
        await ctx.run("echo", number)
    return int(ctx.input)


async def ask(ctx: WorkflowContext) -> Any:
    return await ctx.gate("Continue?", choices=["yes", "no"])


async def ask_many(ctx: WorkflowContext) -> int:
    """`input` gates at the same time."""
    return len(await asyncio.gather(*(ctx.gate("Continue?") for _ in range(ctx.input))))


def make_session(store: Any) -> Session:
    session = Session("bench", store)
    FunctionNode("echo", session, echo)
    Workflow("steps", session, steps)
    Workflow("ask", session, ask)
    Workflow("ask_many", session, ask_many)
    return session
