from nerve import Session, WorkflowContext


def register(session: Session) -> None:
    @session.workflow
    async def page(ctx: WorkflowContext) -> str:
        draft = await ctx.run("writer", f"Write about {ctx.input}.")
        answer = await ctx.gate("Publish it?", choices=["approve", "reject"])
        if answer == "reject":
            return "kept for later"
        return (await ctx.run("editor", draft["output"]))["output"]
