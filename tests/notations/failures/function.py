"""One step is tried again, one has another instead, one is skipped, and one is not wanted."""

from typing import Any

from nerve import Retry, Session, WorkflowContext


async def failures(ctx: WorkflowContext) -> Any:
    nothing = {"input": ctx.input, "context": {}}
    fetched = (await ctx.run("fetcher", nothing, retry=Retry(attempts=3, delay=0))).output
    if not (await ctx.run("painter", nothing)).success:
        await ctx.run("sketcher", nothing)
    await ctx.run("counter", nothing, on_error="skip")
    if fetched["pages"] > 10:
        await ctx.run("archivist", nothing)
    results = {"fetch": fetched}
    return (await ctx.run("printer", {"input": ctx.input, "context": results, **results})).output


def register(session: Session) -> None:
    session.workflow(failures)
