"""Split a subject, look into every part, let two judge the whole, and write."""

import asyncio

from nerve import Session, WorkflowContext


async def fan_out(ctx: WorkflowContext) -> str:
    topics = (await ctx.run("splitter", ctx.input)).output
    found = await asyncio.gather(*(ctx.run("researcher", topic) for topic in topics))
    whole = " + ".join(result.output for result in found)
    critic, friend = await ctx.run_parallel([("critic", whole), ("friend", whole)])
    return (await ctx.run("writer", {"critic": critic.output, "friend": friend.output})).output


def register(session: Session) -> None:
    session.workflow(fan_out)
