"""The key bindings of the plain mode."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import get_app
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys as Key
from rich.text import Text

from nerve.commander.core.name_resolution import next_gate
from nerve.commander.core.paste_folding import Pastes
from nerve.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer

    from nerve.commander.controller import CommanderController
    from nerve.commander.plain.output_above_prompt import OutputAbovePrompt
    from nerve.commander.plain.printer import ConversationPrinter

HINT_DURATION_S = 2.0
"""Seconds that a hint is shown."""
CLEAR_HINT = "Press Esc again to clear the line."
LEAVE_HINT = "Press Ctrl-C again to quit. Runs continue."
KEY_HELP = """\
  Enter                  send; on the empty line, open the next gate
  Ctrl-J, Alt-Enter      new line
  Tab                    complete the word
  Up, Down               earlier and later input; Up takes back queued input
  Ctrl-R                 search the history
  Ctrl-G, Ctrl-X Ctrl-E  open your editor
  Ctrl-O                 show or fold tool output
  F3                     open the next gate
  Esc                    close the menu, leave a gate; twice: clear the line;
                         on the empty line: ask whether to stop the run
  Ctrl-C                 clear; twice: quit, runs continue
  Ctrl-D                 quit, when the line is empty
  ?                      show these keys; /help lists the commands"""


@dataclass(slots=True)
class KeyHint:
    """A short-lived hint; pressing the key again while it is shown confirms the action."""

    text: str = ""
    expires_at: float = 0.0
    run_id: str | None = None
    """The run that the hint offers to stop."""

    def show(self, text: str, run_id: str | None = None) -> None:
        self.text, self.run_id = text, run_id
        self.expires_at = asyncio.get_running_loop().time() + HINT_DURATION_S

    @property
    def current_text(self) -> str:
        return self.text if asyncio.get_running_loop().time() < self.expires_at else ""


@dataclass(slots=True)
class PlainKeyActions:
    """The actions of the keys and the objects they act on."""

    controller: CommanderController
    printer: ConversationPrinter
    output_above: OutputAbovePrompt
    submit_line: Callable[[tuple[str, str | None]], None]
    """Receives each entered line, with pastes expanded, and the id of the gate it answers."""
    notify_printed: Callable[[], None]
    """Called after something was printed."""
    pastes: Pastes = field(default_factory=Pastes)
    hint: KeyHint = field(default_factory=KeyHint)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def enter(self, event: KeyPressEvent) -> None:
        """Submit the line, or accept the selected completion."""
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif not buffer.text.strip() and self.hint.current_text and self.hint.run_id is not None:
            self.run_in_background(self.controller.stop_run(self.hint.run_id))
            self.hint.show("Stopping the run.")
        elif not buffer.text.strip():
            self.clear(buffer)
            self.open_gate(event)
        else:
            text, open_gate_id = self.pastes.expand(buffer.text), self.controller.state.open_gate_id
            buffer.append_to_history()
            self.clear(buffer)
            self.pastes.clear()
            self.submit_line((text, open_gate_id))

    def clear(self, buffer: Buffer) -> None:
        """Clear the line and report it: a buffer reset does not fire `on_text_changed`."""
        buffer.reset()
        self.controller.state.set_typing(False)

    def insert_newline(self, event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    def paste(self, event: KeyPressEvent) -> None:
        """Insert a paste, folded if long; pasting the same text again expands it."""
        buffer = event.current_buffer
        if (mark := self.pastes.find_mark(event.data, buffer.text)) is not None:
            position = buffer.text.index(mark)
            buffer.text = buffer.text.replace(mark, expanded := self.pastes.expand(mark), 1)
            buffer.cursor_position = position + len(expanded)
        else:
            buffer.insert_text(self.pastes.fold(event.data))

    def open_editor(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        buffer.text = self.pastes.expand(buffer.text)
        buffer.cursor_position = len(buffer.text)
        self.output_above.editor_task = buffer.open_in_editor()
        self.output_above.editor_task.add_done_callback(lambda _: self.notify_printed())

    def interrupt(self, event: KeyPressEvent) -> None:
        """Handle Ctrl-C: clear the line; twice, quit."""
        buffer = event.current_buffer
        if buffer.text:
            self.clear(buffer)
            self.hint.show("Cleared.")
        elif self.hint.current_text == LEAVE_HINT:
            event.app.exit(result=None)
        else:
            self.hint.show(LEAVE_HINT)

    def leave(self, event: KeyPressEvent) -> None:
        event.app.exit(result=None)

    def escape(self, event: KeyPressEvent) -> None:
        """Handle Esc: close menu or gate; twice, clear the line; on an empty line, offer to stop the run."""
        buffer, state = event.current_buffer, self.controller.state
        card = state.focused_run
        if buffer.text and self.hint.current_text == CLEAR_HINT:
            buffer.append_to_history()
            self.clear(buffer)
            self.hint.show("Cleared.")
        elif buffer.complete_state is not None:
            buffer.cancel_completion()
            self.hint.show(CLEAR_HINT)
        elif state.open_gate_id is not None:
            state.defer_gate()
        elif buffer.text:
            self.hint.show(CLEAR_HINT)
        elif self.hint.current_text and self.hint.run_id is not None:
            self.hint.show("The run continues.")
        elif card is not None and not card.has_ended:
            self.hint.show(f"Stop {card.name} {card.short_id}? Enter stops it, Esc keeps it.", card.run_id)

    def open_gate(self, event: KeyPressEvent) -> None:
        """Open the next gate; gates of the focused run come first."""
        state = self.controller.state
        if (gate := next_gate(state)) is not None:
            self.run_in_background(self.controller.submit(f"/gates {state.gates.index(gate) + 1}"))

    def up(self, event: KeyPressEvent) -> None:
        """Take back queued input, or move up."""
        if not event.current_buffer.text and (text := self.controller.unqueue()):
            event.current_buffer.insert_text(text)
        else:
            event.current_buffer.auto_up(count=event.arg)

    def show_key_help(self, event: KeyPressEvent) -> None:
        self.printer.print_notice(Text(KEY_HELP))
        self.notify_printed()

    def toggle_details(self, event: KeyPressEvent) -> None:
        self.printer.shows_details = not self.printer.shows_details
        mode = "shown in full" if self.printer.shows_details else "folded to one line"
        self.hint.show(f"Tool output is now {mode}.")

    def run_in_background(self, awaitable: Any) -> None:
        task = asyncio.ensure_future(awaitable)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def plain_key_bindings(keys: PlainKeyActions) -> KeyBindings:
    key_bindings = KeyBindings()
    editing = has_focus(DEFAULT_BUFFER)
    empty = Condition(lambda: not get_app().current_buffer.text)
    key_bindings.add("enter", filter=editing)(keys.enter)
    key_bindings.add("c-j", filter=editing)(keys.insert_newline)
    key_bindings.add("escape", "enter", filter=editing)(keys.insert_newline)
    key_bindings.add(Key.BracketedPaste, filter=editing)(keys.paste)
    key_bindings.add("c-g", filter=editing)(keys.open_editor)
    key_bindings.add("c-x", "c-e", filter=editing)(keys.open_editor)
    key_bindings.add("c-c", filter=editing)(keys.interrupt)
    key_bindings.add("c-d", filter=editing & empty)(keys.leave)
    key_bindings.add("escape", filter=editing)(keys.escape)
    key_bindings.add("f3", filter=editing)(keys.open_gate)
    key_bindings.add("up", filter=editing)(keys.up)
    key_bindings.add("?", filter=editing & empty)(keys.show_key_help)
    key_bindings.add("f1", filter=editing)(keys.show_key_help)
    key_bindings.add("c-o", filter=editing)(keys.toggle_details)
    return key_bindings
