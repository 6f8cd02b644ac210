"""Plan, implement, review: each is told what the one before has said."""

from typing import Any

from nerve import Session, WorkflowContext


async def chain(ctx: WorkflowContext) -> Any:
    plan = (await ctx.run("planner", f"Plan this: {ctx.input}")).output
    patch = (await ctx.run("coder", f"Do {plan} for {ctx.input}.")).output
    return (await ctx.run("reviewer", f"Review {patch}.")).output


def register(session: Session) -> None:
    session.workflow(chain)
