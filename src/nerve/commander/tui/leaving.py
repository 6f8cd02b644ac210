"""Esc and Ctrl-C: close, copy, clear, stop after asking, and leave; and what commands ask of the screen."""

from __future__ import annotations

from time import monotonic

from textual.actions import SkipAction

from nerve.commander.tui.parts import Parts

PATIENCE = 3.0
"""Seconds for which a question is asked."""


class Leaving(Parts):
    """How one gets out of everything. Nothing stops a run unless it is asked for twice."""

    def ask(self, what: str | None, run_id: str | None = None) -> None:
        """Ask a question that the next key answers, for a short time; without anything, ask no more."""
        self.asking = None if what is None else (what, run_id, monotonic() + PATIENCE)
        card = self.desk.runs.get(run_id or "")
        if what == "stop" and card is not None:
            name = f"{card.name} {card.short_id}"
            self.status.question = f"Stop {name}? Enter stops it · Esc keeps it"
        elif what == "clear":
            self.status.question = "Esc again clears the text"
        elif what == "leave":
            self.status.question = "Ctrl-C again leaves, runs go on"
        else:
            self.status.question = ""
        self.status.redraw()

    def confirm_stop(self, run_id: str | None = None) -> bool:
        """Stop the run that the user was asked about, if that is this one; whether it was."""
        asked = self.asking
        if asked is None or asked[0] != "stop" or run_id not in (None, asked[1]):
            return False
        self.ask(None)
        self.background(self.controller.interrupt(asked[1]))
        return True

    def action_cancel(self) -> None:
        """Close what is open, go back, clear the text, or ask whether to stop the run that is looked at."""
        asked = self.asking[0] if self.asking is not None else ""
        self.ask(None)
        if asked == "clear" and self.prompt.text and self.prompt.has_focus:
            self.empty_prompt()
        elif self.prompt.give_up():
            self.draw_frame()
            self.ask("clear" if self.prompt.text else None)
        elif self.screen.get_selected_text():
            self.screen.clear_selection()
        elif self.desk.opened is not None:
            self.desk.leave_gate()
            self.draw_gate(opened=False)  # now, since a prompt that is hidden takes no focus
            self.screen.set_focus(self.prompt)
        elif asked == "stop":
            pass  # the run is kept
        elif not self.prompt.has_focus:
            self.screen.set_focus(self.prompt)
        elif self.prompt.text:
            self.ask("clear")
        elif (card := self.desk.focused) is not None and not card.ended:
            self.ask("stop", card.run_id)

    def empty_prompt(self) -> None:
        """Clear the text; Up brings it back."""
        self.past.add(self.prompt.text)
        self.prompt.clear_all()

    def action_interrupt(self) -> None:
        """Copy what is selected; clear the prompt; ask whether to leave, and leave."""
        if selected := self.screen.get_selected_text() or self.prompt.selected_text:
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
            self.notify("Copied.", timeout=1.5)
            return
        if self.asking is not None and self.asking[0] == "leave":
            self.exit("quit")
            return
        if self.prompt.text:
            self.empty_prompt()
        self.screen.set_focus(self.prompt)
        self.ask("leave")

    def action_leave(self) -> None:
        if self.prompt.text:
            raise SkipAction
        self.exit("quit")

    # -- what commands ask of the screen -----------------------------------------------------------------

    def heed_wants(self) -> None:
        wants = self.controller.wants
        for what in [*wants]:
            how = wants.pop(what)
            if what == "quit":
                self.exit("quit")
            elif what == "tui" and how == "plain":
                self.exit("plain")
            elif what == "tui":
                self.desk.say("note", "This is the full screen already.")
            elif what == "theme":
                self.choose_theme(how)

    def choose_theme(self, name: str) -> None:
        if name:
            self.theme = name
        else:
            self.action_change_theme()
