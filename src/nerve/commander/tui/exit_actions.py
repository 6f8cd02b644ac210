"""Esc and Ctrl-C: close, copy, clear, stop after confirmation, and quit; and screen requests of commands."""

from __future__ import annotations

from time import monotonic

from textual.actions import SkipAction

from nerve.commander.tui.app_base import CommanderAppBase

QUESTION_TIMEOUT_S = 3.0
"""Seconds until a question expires."""


class ExitActionsMixin(CommanderAppBase):
    """Actions that close, clear and quit; stopping a run needs confirmation."""

    def ask_confirmation(self, question: str | None, run_id: str | None = None) -> None:
        """Ask a question that the next key answers, for a short time; None withdraws it."""
        self.pending_question = (
            None if question is None else (question, run_id, monotonic() + QUESTION_TIMEOUT_S)
        )
        card = self.state.runs.get(run_id or "")
        if question == "stop" and card is not None:
            name = f"{card.name} {card.short_id}"
            self.status.question = f"Stop {name}? Enter stops it · Esc keeps it"
        elif question == "clear":
            self.status.question = "Press Esc again to clear the text"
        elif question == "leave":
            self.status.question = "Press Ctrl-C again to quit; runs continue"
        else:
            self.status.question = ""
        self.status.redraw()

    def confirm_stop(self, run_id: str | None = None) -> bool:
        """Stop the run of the pending question if it matches; return whether it did."""
        question = self.pending_question
        if question is None or question[0] != "stop" or run_id not in (None, question[1]):
            return False
        self.ask_confirmation(None)
        self.run_in_background(self.controller.stop_run(question[1]))
        return True

    def action_cancel(self) -> None:
        """Close what is open, go back, clear the text, or offer to stop the focused run."""
        question = self.pending_question[0] if self.pending_question is not None else ""
        self.ask_confirmation(None)
        if question == "clear" and self.prompt.text and self.prompt.has_focus:
            self.clear_prompt()
        elif self.prompt.cancel_search():
            self.draw_prompt_frame()
            self.ask_confirmation("clear" if self.prompt.text else None)
        elif self.screen.get_selected_text():
            self.screen.clear_selection()
        elif self.state.open_gate_id is not None:
            self.state.defer_gate()
            self.draw_gate(opened=False)  # draw now: a hidden prompt cannot take the focus
            self.screen.set_focus(self.prompt)
        elif question == "stop":
            pass  # the run is kept
        elif not self.prompt.has_focus:
            self.screen.set_focus(self.prompt)
        elif self.prompt.text:
            self.ask_confirmation("clear")
        elif (card := self.state.focused_run) is not None and not card.has_ended:
            self.ask_confirmation("stop", card.run_id)

    def clear_prompt(self) -> None:
        """Clear the text and add it to the history."""
        self.input_history.add(self.prompt.text)
        self.prompt.clear_all()

    def action_interrupt(self) -> None:
        """Copy the selection; or clear the prompt and offer to quit; pressed again, quit."""
        if selected := self.screen.get_selected_text() or self.prompt.selected_text:
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
            self.notify("Copied.", timeout=1.5)
            return
        if self.pending_question is not None and self.pending_question[0] == "leave":
            self.exit("quit")
            return
        if self.prompt.text:
            self.clear_prompt()
        self.screen.set_focus(self.prompt)
        self.ask_confirmation("leave")

    def action_leave(self) -> None:
        if self.prompt.text:
            raise SkipAction
        self.exit("quit")

    # -- screen requests of commands ---------------------------------------------------------------------

    def handle_screen_requests(self) -> None:
        requests = self.controller.screen_requests
        for request in [*requests]:
            value = requests.pop(request)
            if request == "quit":
                self.exit("quit")
            elif request == "tui" and value == "plain":
                self.exit("plain")
            elif request == "tui":
                self.state.add_block("note", "The full screen is already active.")
            elif request == "theme":
                self.choose_theme(value)

    def choose_theme(self, name: str) -> None:
        if name:
            self.theme = name
        else:
            self.action_change_theme()
