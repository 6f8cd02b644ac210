"""The full-screen app: the actions of keys and clicks on the layout."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

from textual import on
from textual.actions import SkipAction
from textual.app import App, SuspendNotSupported

from nerve.commander.core.name_resolution import next_gate
from nerve.commander.tui.conversation_view import ConversationView
from nerve.commander.tui.gate_card import GateCard
from nerve.commander.tui.layout import CommanderLayout
from nerve.commander.tui.prompt import PromptArea
from nerve.commander.tui.run_list import RunList

MAIN_SCREEN_ACTIONS = (
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
"""Actions that are disabled while another screen, such as the palette, is on top."""


CONVERSATION_ACTIONS = ("logs", "retry")
"""Run actions whose output appears in the conversation."""


class CommanderApp(CommanderLayout):
    """The full screen; returns `quit` or `plain`. Stopping a run needs confirmation."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable main-screen actions while another screen is on top."""
        return len(self.screen_stack) <= 1 or action not in MAIN_SCREEN_ACTIONS

    # -- input -------------------------------------------------------------------------------------------

    def submit_line(self, text: str, open_gate_id: str | None = None) -> None:
        """Submit a line, with the id of the gate it was typed for."""
        self.stream.scroll_to_end()
        self.run_in_background(self.controller.submit(text, open_gate_id))

    def prefill_prompt(self, text: str) -> None:
        """Put the start of a line into the prompt."""
        self.prompt.replace_text(f"{text} ")
        self.screen.set_focus(self.prompt)
        self.prompt.offer_completions()

    @on(PromptArea.Entered)
    def handle_prompt_entered(self, event: PromptArea.Entered) -> None:
        self.input_history.add(event.text)
        self.status.ask(None)
        self.draw_prompt_frame()
        if event.text in ("/gates", "/gate") and self.state.gates:
            self.action_gates()
        else:
            self.submit_line(event.text, event.open_gate_id)

    @on(PromptArea.Edited)
    def handle_prompt_edited(self) -> None:
        if self.status.question is not None and self.prompt.text:
            self.status.ask(None)
        self.place_popup()

    def place_popup(self) -> None:
        """Place the popup directly above the prompt."""
        self.popup.styles.margin = (0, 1, self.prompt_box.outer_size.height + 1, 1)

    @on(PromptArea.Sheet)
    def handle_key_help_request(self) -> None:
        self.action_keys()

    @on(PromptArea.Unqueue)
    def handle_unqueue_request(self) -> None:
        if text := self.controller.unqueue():
            self.prompt.replace_text(text)

    def action_take(self, index: int) -> None:
        """Accept the clicked completion."""
        if index < len(self.popup.items):
            self.prompt.accept_completion(self.popup.items[index])
            self.screen.set_focus(self.prompt)

    # -- gates -------------------------------------------------------------------------------------------

    def action_gates(self) -> None:
        """Open the next gate; gates of the focused run come first."""
        if (gate := next_gate(self.state)) is None:
            self.notify("No open gates.", timeout=2)
            return
        self.state.open_gate(gate.gate_id)
        self.draw_gate(opened=True)  # draw now, so that the next key already goes to the card
        self.draw_prompt_frame()

    @on(GateCard.Answered)
    def handle_gate_answered(self, event: GateCard.Answered) -> None:
        self.run_in_background(self.submit_answer(event.gate, event.answer))

    async def submit_answer(self, gate: Any, answer: Any) -> None:
        problem = await self.controller.answer_gate(gate, answer)
        if problem and self.gate_card.gate is not None and self.gate_card.gate.gate_id == gate.gate_id:
            self.gate_card.show_refusal(problem)
        elif not problem and self.state.open_gate_id == gate.gate_id:
            self.state.open_gate(None)

    def action_answer(self, index: int) -> None:
        """Submit the clicked answer."""
        if index < len(self.gate_card.answers):
            self.gate_card.submit(self.gate_card.answers[index])

    def on_form_filled(self, event: Any) -> None:
        self.gate_card.submit(event.values)

    def on_form_wrong(self, event: Any) -> None:
        self.gate_card.show_refusal(event.message)

    # -- runs --------------------------------------------------------------------------------------------

    def action_runs(self) -> None:
        if self.screen.has_class("-runs") or self.screen.focused is self.runs:
            self.screen.set_focus(self.prompt)
            return
        if self.screen.has_class("-narrow"):
            self.screen.add_class("-runs")
        self.runs.reload_runs()
        self.screen.set_focus(self.runs)

    @on(RunList.Looked)
    def handle_run_selected(self, event: RunList.Looked) -> None:
        if not self.confirm_stop(event.run_id):
            self.action_look(event.run_id)

    def action_look(self, run_id: str) -> None:
        """Focus a run and show its block."""
        self.screen.set_focus(self.prompt)
        self.run_in_background(self.controller.follow(run_id))

    def action_next_run(self, by: int) -> None:
        run_ids = [card.run_id for card in self.state.runs.values() if not card.has_ended] or list(
            self.state.runs
        )
        if run_ids:
            index = run_ids.index(self.state.focused_run_id) if self.state.focused_run_id in run_ids else -1
            self.action_look(run_ids[(index + by) % len(run_ids)])

    @on(RunList.Asked)
    def handle_run_action(self, event: RunList.Asked) -> None:
        card = self.state.runs.get(event.run_id)
        if event.action == "stop" and card is not None and card.has_ended:
            self.notify(f"{card.name} {card.short_id} has ended.", timeout=2)
        elif event.action == "stop":
            self.status.ask("stop", event.run_id)
        else:
            if self.screen.has_class("-runs") and event.action in CONVERSATION_ACTIONS:
                self.screen.set_focus(self.prompt)  # the list would cover the output
            self.submit_line(f"/{event.action} {event.run_id}")

    # -- blocks ------------------------------------------------------------------------------------------

    def action_blocks(self) -> None:
        if self.screen.focused is self.stream:
            self.screen.set_focus(self.prompt)
        else:
            self.screen.remove_class("-runs")  # now: a hidden conversation cannot keep the focus
            self.screen.set_focus(self.stream)

    @on(ConversationView.Refer)
    def handle_block_reference(self, event: ConversationView.Refer) -> None:
        self.screen.set_focus(self.prompt)
        if event.block.number:
            self.prompt.insert(f"::{event.block.number} ")
        elif event.block.kind == "input":
            self.prompt.insert(event.block.text)
        else:
            self.notify("Only results can be referenced.", timeout=2)

    @on(ConversationView.Open)
    def handle_block_opened(self, event: ConversationView.Open) -> None:
        if (gate := event.block.gate) is not None and self.state.find_gate(gate.gate_id) is not None:
            self.screen.set_focus(self.prompt)
            self.state.open_gate(gate.gate_id)

    def action_details(self) -> None:
        if self.gate_card.toggle_details():
            return
        self.stream.show_details(not self.stream.details)
        self.notify("Details shown." if self.stream.details else "Details folded.", timeout=1.5)

    def action_page(self, direction: int) -> None:
        if self.gate_card.display:
            self.gate_card.body.scroll_relative(
                y=direction * max(1, self.gate_card.body.size.height - 1), animate=False
            )
        else:
            self.stream.scroll_page(direction)

    def action_to_end(self) -> None:
        self.stream.scroll_to_end()

    # -- the prompt --------------------------------------------------------------------------------------

    def action_keys(self) -> None:
        from nerve.commander.tui.key_help import KeyHelpScreen

        self.push_screen(KeyHelpScreen(self.keymap))

    def action_search(self) -> None:
        self.screen.set_focus(self.prompt)
        self.prompt.search_history()
        self.draw_prompt_frame()

    def action_mode(self) -> None:
        if not self.prompt.has_focus:
            if self.gate_card.form is not None and self.gate_card.has_focus_within:
                raise SkipAction
            self.screen.set_focus(self.prompt)
            return
        self.state.auto_opens_gates = not self.state.auto_opens_gates
        self.state.select_prompt_gate()
        self.draw_prompt_frame()

    async def action_editor(self) -> None:
        """Edit the prompt in the external editor."""
        try:
            self.prompt.replace_text(
                await edit_in_external_editor(self, self.prompt.pastes.expand(self.prompt.text))
            )
        except EditorFailed as error:
            self.state.add_block("error", str(error))
        self.refresh(layout=True)

    # -- closing, clearing and quitting ------------------------------------------------------------------

    def action_cancel(self) -> None:
        """Close what is open, go back, clear the text, or offer to stop the focused run."""
        question = self.status.question.kind if self.status.question is not None else ""
        self.status.ask(None)
        if question == "clear" and self.prompt.text and self.prompt.has_focus:
            self.clear_prompt()
        elif self.prompt.cancel_search():
            self.draw_prompt_frame()
            self.status.ask("clear" if self.prompt.text else None)
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
            self.status.ask("clear")
        elif (card := self.state.focused_run) is not None and not card.has_ended:
            self.status.ask("stop", card.run_id)

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
        if self.status.question is not None and self.status.question.kind == "leave":
            self.exit("quit")
            return
        if self.prompt.text:
            self.clear_prompt()
        self.screen.set_focus(self.prompt)
        self.status.ask("leave")

    def action_leave(self) -> None:
        if self.prompt.text:
            raise SkipAction
        self.exit("quit")


# -- the external editor -------------------------------------------------------------------------------


class EditorFailed(Exception):
    """The editor could not be used; the message says why."""


async def edit_in_external_editor(app: App[Any], text: str) -> str:
    """Suspend the app, let the user edit the text in an editor, and return the result."""
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.NamedTemporaryFile("w", prefix="nerve-", suffix=".md", delete=False) as file:
        file.write(text)
    path = Path(file.name)
    try:
        with app.suspend():
            process = await asyncio.create_subprocess_exec(*editor, path)
            await process.wait()
        return (await asyncio.to_thread(path.read_text, errors="replace")).rstrip("\n")
    except SuspendNotSupported:
        raise EditorFailed("This terminal does not support suspending the app for an editor.") from None
    except OSError as error:
        message = f"Cannot start editor '{editor[0]}': {error.strerror}. Set EDITOR to another one."
        raise EditorFailed(message) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
