"""Workflows of every kind that the pages show, for in-process tests and for `nerve serve --with`."""

import asyncio
from typing import Any

from nerve import FunctionNode, Session, WorkflowContext
from nerve.agents import AgentNode
from nerve.testing import ScriptedProvider
from web import gate_flows, run_flows


async def echo(context: Any) -> Any:
    return context.input


async def fail(context: Any) -> Any:
    raise ValueError("The disk of the build machine is full")


def register(session: Session) -> None:
    gate_flows.register(session)
    run_flows.register(session)
    FunctionNode("echo", session, echo)
    FunctionNode("fail", session, fail)
    usage = {"input_tokens": 11_000, "output_tokens": 1400, "cost": 0.31, "model": "large"}
    AgentNode("writer", session, ScriptedProvider(lambda query: ["A summary.", {"usage": usage}]))

    @session.workflow
    async def hello(ctx: WorkflowContext) -> str:
        """Greet a person."""
        return f"hello {ctx.input}"

    @session.workflow
    async def review(ctx: WorkflowContext) -> str:
        """Ask for a decision about a change."""
        answer = await ctx.gate("Merge the change into main?", choices=["approve", "reject"])
        return f"decided: {answer}"

    @session.workflow
    async def deploy(ctx: WorkflowContext) -> Any:
        """Wait until the build signals that it is done."""
        await ctx.run("echo", "prepare")
        return await ctx.wait_signal("built")

    @session.workflow
    async def broken(ctx: WorkflowContext) -> Any:
        """Fail in its second step."""
        await ctx.run("echo", "first")
        result = await ctx.run("fail", "second")
        raise RuntimeError(result["error"])

    @session.workflow
    async def steady(ctx: WorkflowContext) -> Any:
        """Run until it is stopped."""
        await asyncio.Event().wait()

    @session.workflow
    async def paid(ctx: WorkflowContext) -> str:
        """Let an agent work, which costs money."""
        return str((await ctx.run("writer", ctx.input or "Summarise it"))["output"])
