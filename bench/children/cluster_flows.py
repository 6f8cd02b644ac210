"""The workflows whose costs in a cluster are measured."""

from __future__ import annotations

from typing import Any

from nerve import FunctionNode, Session, WorkflowContext


def register(session: Session) -> None:
    async def echo(context: Any) -> Any:
        return context.input

    FunctionNode("echo", session, echo)

    @session.workflow
    async def steps(ctx: WorkflowContext) -> None:
        for number in range(ctx.input):
            await ctx.run("echo", number)

    @session.workflow
    async def park(ctx: WorkflowContext) -> Any:
        for number in range(ctx.input):
            await ctx.run("echo", number)
        return await ctx.gate("Continue?")
