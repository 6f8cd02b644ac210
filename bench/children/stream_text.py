"""A workflow whose only step emits text at a given rate."""

import asyncio
from typing import Any

from nerve import FunctionNode, Session, WorkflowContext
from nerve.core.events import WorkflowEventType


async def speak(context: Any) -> str:
    rate, seconds = context.input["rate"], context.input["seconds"]
    for number in range(rate * seconds):
        context.emit(WorkflowEventType.OUTPUT_CHUNK, {"stream": "assistant", "text": f"word {number} "})
        await asyncio.sleep(1 / rate)
    return "done"


def register(session: Session) -> None:
    FunctionNode("speak", session, speak)

    @session.workflow
    async def stream(ctx: WorkflowContext) -> Any:
        return (await ctx.run("speak", ctx.input))["output"]
