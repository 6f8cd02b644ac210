"""Plan, then code until the tests are content, ask, publish."""

from typing import Any

from nerve import Session, WorkflowContext
from nerve.errors import Rejected


async def review_loop(ctx: WorkflowContext) -> Any:
    async def agent(name: str, **results: Any) -> Any:
        given = {"input": ctx.input, "context": results, **results}
        return (await ctx.run(name, given)).output

    plan = await agent("planner")
    tested = {"ok": False}
    while not tested["ok"]:
        code = await agent("coder", plan=plan)
        tested = await agent("tester", code=code)
    if await ctx.gate(f"Publish {code}?", choices=["approve", "reject"]) == "reject":
        raise Rejected(ctx.run_id, "rejected: reject")
    return await agent("publisher", code=code)


def register(session: Session) -> None:
    session.workflow(review_loop)
