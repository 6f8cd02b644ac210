"""The workflows that are measured: as little of their own as there can be."""

from __future__ import annotations

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
    return await ctx.gate("Go on?", choices=["yes", "no"])


def session(store: Any) -> Session:
    made = Session("bench", store)
    FunctionNode("echo", made, echo)
    Workflow("steps", made, steps)
    Workflow("ask", made, ask)
    return made
