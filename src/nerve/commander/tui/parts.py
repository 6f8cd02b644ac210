"""What the screen is made of, for everything that acts on it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from textual.app import App

from nerve.commander.core.desk import Desk
from nerve.commander.core.history import History
from nerve.commander.tui.gates import GateCard
from nerve.commander.tui.popup import Popup
from nerve.commander.tui.prompt import Prompt, PromptBox
from nerve.commander.tui.runs import RunList
from nerve.commander.tui.status import Status
from nerve.commander.tui.stream import Stream
from nerve.commander.workflow_controller import WorkflowController


class Parts(App[str]):
    """The parts of the app; it puts them together itself."""

    controller: WorkflowController
    desk: Desk
    past: History
    keymap: dict[str, str]
    asking: tuple[str, str | None, float] | None
    """A question that the next key answers: what, about which run, and until when."""
    stream: Stream
    runs: RunList
    card: GateCard
    status: Status
    popup: Popup
    prompt: Prompt
    box: PromptBox

    def draw_frame(self) -> None:
        raise NotImplementedError

    def draw_gate(self, opened: bool) -> None:
        raise NotImplementedError

    def background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something without anybody waiting for it; what goes wrong is told, and the screen stays."""

        async def done() -> None:
            try:
                await work
            except Exception as error:
                self.desk.say("error", f"That did not work: {type(error).__name__}: {error}")

        self.run_worker(done(), group="background")
