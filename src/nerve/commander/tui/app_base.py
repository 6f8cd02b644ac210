"""Base class of the app: the widgets that the mixins use."""

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
    """The widgets and state of the app; `CommanderApp` composes them."""

    controller: WorkflowController
    state: CommanderState
    input_history: InputHistory
    keymap: dict[str, str]
    pending_question: tuple[str, str | None, float] | None
    """The question that the next key answers: kind, run id and expiry time."""
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
        """Run a coroutine in the background; errors become blocks instead of ending the app."""

        async def report_errors() -> None:
            try:
                await work
            except Exception as error:
                self.state.add_block("error", f"Unexpected error: {type(error).__name__}: {error}")

        self.run_worker(report_errors(), group="background")
