"""What keys and clicks do."""

from __future__ import annotations

from typing import Any

from textual import on
from textual.actions import SkipAction

from nerve.commander.core.choosing import next_gate
from nerve.commander.tui.gates import GateCard
from nerve.commander.tui.leaving import Leaving
from nerve.commander.tui.prompt import Prompt
from nerve.commander.tui.runs import RunList
from nerve.commander.tui.stream import Stream

ALONE = (
    "keys",
    "runs",
    "gates",
    "blocks",
    "search",
    "editor",
    "details",
    "mode",
    "page",
    "to_end",
    "next_run",
    "cancel",
    "interrupt",
    "leave",
)
"""Actions that are not for another screen, such as the palette, while it lies over this one."""


SHOWN_BELOW = ("logs", "retry")
"""What is done with a run of the list and shown in the conversation."""


class Acting(Leaving):
    """The actions of the app; how it looks is told by the app itself."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Over another screen, such as the palette, only that screen's keys count."""
        return len(self.screen_stack) <= 1 or action not in ALONE

    # -- what is entered ---------------------------------------------------------------------------------

    def do(self, text: str, opened: str | None = None) -> None:
        """Enter a line, for the gate that it was typed for."""
        self.stream.to_end()
        self.background(self.controller.enter(text, opened))

    def begin(self, text: str) -> None:
        """Put the beginning of a line into the prompt."""
        self.prompt.write(f"{text} ")
        self.screen.set_focus(self.prompt)
        self.prompt.offer()

    @on(Prompt.Entered)
    def entered(self, event: Prompt.Entered) -> None:
        self.past.add(event.text)
        self.ask(None)
        self.draw_frame()
        if event.text in ("/gates", "/gate") and self.desk.gates:
            self.action_gates()
        else:
            self.do(event.text, event.opened)

    @on(Prompt.Edited)
    def edited(self) -> None:
        if self.asking is not None and self.prompt.text:
            self.ask(None)
        self.place_popup()

    def place_popup(self) -> None:
        """Put the popup right above the prompt."""
        self.popup.styles.margin = (0, 1, self.box.outer_size.height + 1, 1)

    @on(Prompt.Sheet)
    def sheet_asked(self) -> None:
        self.action_keys()

    @on(Prompt.Unqueue)
    def unqueue(self) -> None:
        if text := self.controller.unqueue():
            self.prompt.write(text)

    def action_take(self, index: int) -> None:
        """Take what was clicked in the popup."""
        if index < len(self.popup.items):
            self.prompt.take(self.popup.items[index])
            self.screen.set_focus(self.prompt)

    # -- gates -------------------------------------------------------------------------------------------

    def action_gates(self) -> None:
        """Open a gate, first of the run in focus; if one is open, the next."""
        if (gate := next_gate(self.desk)) is None:
            self.notify("Nothing waits for you.", timeout=2)
            return
        self.desk.open_gate(gate.gate_id)
        self.draw_gate(opened=True)  # now, so that a key that follows at once is for the card
        self.draw_frame()

    @on(GateCard.Answered)
    def answered(self, event: GateCard.Answered) -> None:
        self.background(self.answer(event.gate, event.answer))

    async def answer(self, gate: Any, answer: Any) -> None:
        why = await self.controller.answer(gate, answer)
        if why and self.card.gate is not None and self.card.gate.gate_id == gate.gate_id:
            self.card.refuse(why)
        elif not why and self.desk.opened == gate.gate_id:
            self.desk.open_gate(None)

    def type_into(self, text: str) -> None:
        """Go on in the prompt with what was typed elsewhere; in a form, with its fields."""
        if not self.box.display and self.card.form is not None:
            self.card.form.begin()
            return
        self.screen.set_focus(self.prompt)
        if text:
            self.prompt.insert(text)

    def action_answer(self, index: int) -> None:
        """Give the answer that was clicked."""
        if index < len(self.card.answers):
            self.card.give(self.card.answers[index])

    def on_form_filled(self, event: Any) -> None:
        self.card.give(event.values)

    def on_form_wrong(self, event: Any) -> None:
        self.card.refuse(event.why)

    # -- runs --------------------------------------------------------------------------------------------

    def action_runs(self) -> None:
        if self.screen.has_class("-runs") or self.runs.has_focus:
            self.screen.set_focus(self.prompt)
            return
        if self.screen.has_class("-narrow"):
            self.screen.add_class("-runs")
        self.runs.take()
        self.screen.set_focus(self.runs)

    @on(RunList.Looked)
    def looked(self, event: RunList.Looked) -> None:
        if not self.confirm_stop(event.run_id):
            self.action_look(event.run_id)

    def action_look(self, run_id: str) -> None:
        """Look at a run: in its block, which it gets if it has none."""
        self.screen.set_focus(self.prompt)
        self.background(self.controller.follow(run_id))

    def action_next_run(self, by: int) -> None:
        order = [card.run_id for card in self.desk.runs.values() if not card.ended] or list(self.desk.runs)
        if order:
            now = order.index(self.desk.focus) if self.desk.focus in order else -1
            self.action_look(order[(now + by) % len(order)])

    @on(RunList.Asked)
    def run_asked(self, event: RunList.Asked) -> None:
        card = self.desk.runs.get(event.run_id)
        if event.what == "stop" and card is not None and card.ended:
            self.notify(f"{card.name} {card.short_id} has ended.", timeout=2)
        elif event.what == "stop":
            self.ask("stop", event.run_id)
        else:
            if self.screen.has_class("-runs") and event.what in SHOWN_BELOW:
                self.screen.set_focus(self.prompt)  # the list covers what is shown
            self.do(f"/{event.what} {event.run_id}")

    # -- blocks ------------------------------------------------------------------------------------------

    def action_blocks(self) -> None:
        if self.stream.has_focus:
            self.screen.set_focus(self.prompt)
        else:
            self.screen.set_focus(self.stream)

    @on(Stream.Refer)
    def refer(self, event: Stream.Refer) -> None:
        self.screen.set_focus(self.prompt)
        if event.block.number:
            self.prompt.insert(f"::{event.block.number} ")
        elif event.block.kind == "input":
            self.prompt.insert(event.block.text)
        else:
            self.notify("Only a result can be referred to.", timeout=2)

    @on(Stream.Open)
    def open_block(self, event: Stream.Open) -> None:
        if (asked := event.block.gate) is not None and self.desk.gate(asked.gate_id) is not None:
            self.screen.set_focus(self.prompt)
            self.desk.open_gate(asked.gate_id)

    def action_details(self) -> None:
        if self.card.unfold():
            return
        self.stream.show_details(not self.stream.details)
        self.notify("Everything is shown." if self.stream.details else "Folded.", timeout=1.5)

    def action_page(self, direction: int) -> None:
        if self.card.display:
            self.card.body.scroll_relative(
                y=direction * max(1, self.card.body.size.height - 1), animate=False
            )
        else:
            self.stream.page(direction)

    def action_to_end(self) -> None:
        self.stream.to_end()

    # -- the prompt --------------------------------------------------------------------------------------

    def action_keys(self) -> None:
        from nerve.commander.tui.sheet import Sheet

        self.push_screen(Sheet(self.keymap))

    def action_search(self) -> None:
        self.screen.set_focus(self.prompt)
        self.prompt.search()
        self.draw_frame()

    def action_mode(self) -> None:
        if not self.prompt.has_focus:
            if self.card.form is not None and self.card.has_focus_within:
                raise SkipAction
            self.screen.set_focus(self.prompt)
            return
        self.desk.opens_gates = not self.desk.opens_gates
        self.desk.attend_gate()
        self.draw_frame()

    async def action_editor(self) -> None:
        """Write the prompt in the editor of the environment."""
        from nerve.commander.tui.editor import Unedited, edited

        try:
            self.prompt.write(await edited(self, self.prompt.pastes.expand(self.prompt.text)))
        except Unedited as error:
            self.desk.say("error", str(error))
        self.refresh(layout=True)
