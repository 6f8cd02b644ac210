"""The file that `nerve serve --with` loads in the benchmark: one workflow, as small as possible."""

from nerve import Session, WorkflowContext


def register(session: Session) -> None:
    @session.workflow
    async def hello(ctx: WorkflowContext) -> str:
        return f"hello {ctx.input}"
