"""Look at a change from two sides, then ask a person, who says no."""

from typing import Any

from nerve import Session, WorkflowContext
from nerve.errors import Rejected


async def opinions(ctx: WorkflowContext) -> Any:
    read = (await ctx.run("reader", ctx.input)).output
    await ctx.run_parallel([("guard", f"Holes in {read}?"), ("stylist", f"Style of {read}?")])
    if await ctx.gate("Merge it?", choices=["approve", "reject"]) == "reject":
        raise Rejected(ctx.run_id, "rejected: reject")
    return (await ctx.run("merger", ctx.input)).output


def register(session: Session) -> None:
    session.workflow(opinions)
