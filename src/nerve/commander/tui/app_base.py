"""What the screen is made of, for everything that acts on it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from textual.app import App

from nerve.commander.core.history import InputHistory
from nerve.commander.core.state import CommanderState
from nerve.commander.tui.completion_popup import CompletionPopup
from nerve.commander.tui.conversation_view import ConversationView
from nerve.commander.tui.gate_card import GateCard
from nerve.commander.tui.prompt import PromptArea, PromptBox
from nerve.commander.tui.run_list import RunList
from nerve.commander.tui.status_bar import StatusBar
from nerve.commander.workflow_controller import WorkflowController


class CommanderAppBase(App[str]):
    """The parts of the app; it puts them together itself."""

    controller: WorkflowController
    state: CommanderState
    input_history: InputHistory
    keymap: dict[str, str]
    pending_question: tuple[str, str | None, float] | None
    """A question that the next key answers: what, about which run, and until when."""
    stream: ConversationView
    runs: RunList
    gate_card: GateCard
    status: StatusBar
    popup: CompletionPopup
    prompt: PromptArea
    prompt_box: PromptBox

    def draw_prompt_frame(self) -> None:
        raise NotImplementedError

    def draw_gate(self, opened: bool) -> None:
        raise NotImplementedError

    def run_in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something without anybody waiting for it; what goes wrong is told, and the screen stays."""

        async def done() -> None:
            try:
                await work
            except Exception as error:
                self.state.add_block("error", f"That did not work: {type(error).__name__}: {error}")

        self.run_worker(done(), group="background")
