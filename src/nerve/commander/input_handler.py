"""The handler of typed lines under the name that the design documents import."""

from nerve.commander.workflow_controller import WorkflowController

__all__ = ["InputHandler"]


class InputHandler:
    """Pass each typed line to a controller: an open gate takes it, otherwise its prefix decides."""

    def __init__(self, workflow_controller: WorkflowController) -> None:
        self.workflow_controller = workflow_controller

    async def handle(self, raw_input: str) -> None:
        """Handle one line as if the user had typed it."""
        await self.workflow_controller.submit(raw_input.strip())
