"""The smallest workflow: two steps, a parallel pair, and a value at the end.

Run it with `python examples/workflows/basic_workflow.py`.
"""

from __future__ import annotations

import asyncio

from nerve import Session
from nerve.core.nodes import ExecutionContext, FunctionNode
from nerve.core.workflow import Workflow, WorkflowContext


async def basic_workflow(ctx: WorkflowContext) -> str:
    """Greet a person in two languages at once."""
    name = await ctx.run("tidy", ctx.input)
    greetings = await ctx.run_parallel([("english", name["output"]), ("french", name["output"])])
    ctx.emit("greeted", {"languages": len(greetings)})
    return " ".join(greeting["output"] for greeting in greetings)


def tidy(context: ExecutionContext) -> str:
    return str(context.input).strip().title()


def english(context: ExecutionContext) -> str:
    return f"Hello, {context.input}!"


async def french(context: ExecutionContext) -> str:
    return f"Bonjour, {context.input} !"


def register(session: Session) -> None:
    for function in (tidy, english, french):
        FunctionNode(function.__name__, session, function)
    Workflow(id="basic_workflow", session=session, fn=basic_workflow)


async def main() -> None:
    session = Session()
    register(session)
    run = await session.start("basic_workflow", "  ada lovelace ")
    print(await run.wait())
    for event in run.events:
        print(f"{event.seq:>3} {event.event_type:<19} {event.path}")


if __name__ == "__main__":
    asyncio.run(main())
