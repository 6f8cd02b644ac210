"""What `nerve serve --with` is given in these tests: workflows, and what a test has asked to be otherwise."""

import asyncio
import gc
import json
import os
from typing import Any

from nerve import FunctionNode, Session, WorkflowContext

STEPS = 4
"""Steps behind the gate of `work`: time in which a server can be killed."""


async def echo(context: Any) -> Any:
    return context.input


async def nap(context: Any) -> Any:
    await asyncio.sleep(context.input)
    return context.input


def register(session: Session) -> None:
    FunctionNode("echo", session, echo)
    FunctionNode("nap", session, nap)

    @session.workflow
    async def hello(ctx: WorkflowContext) -> str:
        return f"hello {ctx.input}"

    @session.workflow
    async def frozen(ctx: WorkflowContext) -> int:
        return gc.get_freeze_count()

    @session.workflow
    async def ask(ctx: WorkflowContext) -> str:
        return f"you said {await ctx.gate('Go on?', choices=['yes', 'no'])}"

    @session.workflow
    async def work(ctx: WorkflowContext) -> list[Any]:
        said = await ctx.gate("Go on?")
        return [said, *[(await ctx.run("echo", number))["output"] for number in range(ctx.input or STEPS)]]

    @session.workflow
    async def chatty(ctx: WorkflowContext) -> int:
        for number in range(ctx.input["events"]):
            ctx.emit("said", {"number": number, "text": "x" * ctx.input.get("bytes", 100)})
            if number % 50 == 0:
                await asyncio.sleep(0)
        return int(ctx.input["events"])

    @session.workflow
    async def rest(ctx: WorkflowContext) -> str:
        await ctx.run("nap", ctx.input)
        return "rested"

    @session.workflow
    async def steps(ctx: WorkflowContext) -> int:
        for number in range(ctx.input):
            await ctx.run("echo", number)
        return int(ctx.input)

    @session.workflow
    async def clock(ctx: WorkflowContext) -> str:
        await ctx.sleep(ctx.input)
        return "rang"

    for place, value in json.loads(os.environ.get("NERVE_TEST_OTHERWISE", "{}")).items():
        module, _, name = place.rpartition(".")
        setattr(__import__(module, fromlist=[name]), name, value)
    if watch := os.environ.get("NERVE_TEST_WATCHED"):
        from e2e.watched import watch_into

        watch_into(watch)
