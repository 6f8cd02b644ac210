"""What `nerve serve --with` is given to be measured: one workflow, as small as there can be."""

from nerve import Session, WorkflowContext


def register(session: Session) -> None:
    @session.workflow
    async def hello(ctx: WorkflowContext) -> str:
        return f"hello {ctx.input}"
