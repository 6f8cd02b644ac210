"""Workflows whose only step writes text at a given rate: an agent that speaks, and a command that prints."""

import asyncio
from typing import Any

from nerve import BashNode, FunctionNode, Session, WorkflowContext
from nerve.core.events import WorkflowEventType

COUNT_LINES = "i=0; while [ $i -lt {count} ]; do echo line $i; i=$((i+1)); sleep {pause}; done"


async def speak(context: Any) -> str:
    rate, seconds = context.input["rate"], context.input["seconds"]
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(rate * seconds):
        context.emit(WorkflowEventType.OUTPUT_CHUNK, {"stream": "partial", "text": f"word {number} "})
        await asyncio.sleep(max(0.0, began + (number + 1) / rate - loop.time()))
    return "done"


def register(session: Session) -> None:
    FunctionNode("speak", session, speak)
    BashNode("bash", session)

    @session.workflow
    async def stream(ctx: WorkflowContext) -> Any:
        return (await ctx.run("speak", ctx.input))["output"]

    @session.workflow
    async def print_lines(ctx: WorkflowContext) -> Any:
        rate, seconds = ctx.input["rate"], ctx.input["seconds"]
        # A little faster than the rate, because the shell takes time, too.
        command = COUNT_LINES.format(count=rate * seconds, pause=0.8 / rate)
        return (await ctx.run("bash", command))["success"]
