"""The keys of the plain mode, and what each does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import get_app
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys as Key
from rich.text import Text

from nerve.commander.core.choosing import next_gate
from nerve.commander.core.pasted import Pastes

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer

    from nerve.commander.plain.above import Above
    from nerve.commander.plain.printer import Printer
    from nerve.commander.workflow_controller import WorkflowController

MOMENT = 2.0
"""Seconds."""
CLEAR = "Press Esc again to clear the line."
LEAVE = "Press Ctrl-C again to leave. What runs goes on."
SHEET = """\
  Enter                  send; on the empty line, open the next gate
  Ctrl-J, Alt-Enter      new line
  Tab                    complete the word
  Up, Down               earlier and later input; what is queued comes back
  Ctrl-R                 search what was typed before
  Ctrl-G, Ctrl-X Ctrl-E  write in your editor
  Ctrl-O                 show what tools say, or fold it
  F3                     open the next gate
  Esc                    close, leave a gate; twice: clear the line;
                         on the empty line: ask whether to stop the run
  Ctrl-C                 clear; twice: leave, and what runs goes on
  Ctrl-D                 leave, when the line is empty
  ?                      these keys; /help lists the commands"""


@dataclass(slots=True)
class Hint:
    """Something that is said for a moment, in which a key pressed again means more."""

    text: str = ""
    ends: float = 0.0
    run_id: str | None = None
    """The run that the user is asked about."""

    def say(self, text: str, run_id: str | None = None) -> None:
        self.text, self.run_id = text, run_id
        self.ends = asyncio.get_running_loop().time() + MOMENT

    @property
    def now(self) -> str:
        return self.text if asyncio.get_running_loop().time() < self.ends else ""


@dataclass(slots=True)
class Keys:
    """What the keys act on, and what each does."""

    controller: WorkflowController
    printer: Printer
    above: Above
    entered: Callable[[tuple[str, str | None]], None]
    """Takes each line that is entered, with everything that was pasted, and the gate that it is for."""
    printed: Callable[[], None]
    """To be called when something was printed."""
    pastes: Pastes = field(default_factory=Pastes)
    hint: Hint = field(default_factory=Hint)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def enter(self, event: KeyPressEvent) -> None:
        """Send the line; of an open menu, take what is chosen."""
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif not buffer.text.strip() and self.hint.now and self.hint.run_id is not None:
            self.run(self.controller.interrupt(self.hint.run_id))
            self.hint.say("Stopping it.")
        elif not buffer.text.strip():
            self.clear(buffer)
            self.open_gate(event)
        else:
            text, opened = self.pastes.expand(buffer.text), self.controller.desk.opened
            buffer.append_to_history()
            self.clear(buffer)
            self.pastes.clear()
            self.entered((text, opened))

    def clear(self, buffer: Buffer) -> None:
        """Empty the line; a buffer that is reset does not report that its text has changed."""
        buffer.reset()
        self.controller.desk.set_typing(False)

    def newline(self, event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    def paste(self, event: KeyPressEvent) -> None:
        """A long paste is folded; the same again shows it."""
        buffer = event.current_buffer
        if (mark := self.pastes.mark_of(event.data, buffer.text)) is not None:
            at = buffer.text.index(mark)
            buffer.text = buffer.text.replace(mark, whole := self.pastes.expand(mark), 1)
            buffer.cursor_position = at + len(whole)
        else:
            buffer.insert_text(self.pastes.fold(event.data))

    def editor(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        buffer.text = self.pastes.expand(buffer.text)
        buffer.cursor_position = len(buffer.text)
        self.above.editor = buffer.open_in_editor()
        self.above.editor.add_done_callback(lambda _: self.printed())

    def interrupt(self, event: KeyPressEvent) -> None:
        """Ctrl-C: clear the line; twice, leave. What runs can be stopped instead."""
        buffer = event.current_buffer
        if buffer.text:
            self.clear(buffer)
            self.hint.say("Cleared.")
        elif self.hint.now == LEAVE:
            event.app.exit(result=None)
        else:
            self.hint.say(LEAVE)

    def leave(self, event: KeyPressEvent) -> None:
        event.app.exit(result=None)

    def escape(self, event: KeyPressEvent) -> None:
        """Esc: close what is open; twice, clear the line; on an empty line, ask whether to stop the run."""
        buffer, desk = event.current_buffer, self.controller.desk
        card = desk.focused
        if buffer.text and self.hint.now == CLEAR:
            buffer.append_to_history()
            self.clear(buffer)
            self.hint.say("Cleared.")
        elif buffer.complete_state is not None:
            buffer.cancel_completion()
            self.hint.say(CLEAR)
        elif desk.opened is not None:
            desk.leave_gate()
        elif buffer.text:
            self.hint.say(CLEAR)
        elif self.hint.now and self.hint.run_id is not None:
            self.hint.say("It goes on.")
        elif card is not None and not card.ended:
            self.hint.say(f"Stop {card.name} {card.short_id}? Enter stops it, Esc keeps it.", card.run_id)

    def open_gate(self, event: KeyPressEvent) -> None:
        """Open a gate, first of the run in focus; if one is open, the next."""
        desk = self.controller.desk
        if (gate := next_gate(desk)) is not None:
            self.run(self.controller.enter(f"/gates {desk.gates.index(gate) + 1}"))

    def up(self, event: KeyPressEvent) -> None:
        """Take back what is queued, or go up."""
        if not event.current_buffer.text and (text := self.controller.unqueue()):
            event.current_buffer.insert_text(text)
        else:
            event.current_buffer.auto_up(count=event.arg)

    def sheet(self, event: KeyPressEvent) -> None:
        self.printer.say(Text(SHEET))
        self.printed()

    def details(self, event: KeyPressEvent) -> None:
        self.printer.details = not self.printer.details
        shown = "shown whole" if self.printer.details else "folded to a line"
        self.hint.say(f"What tools say is {shown} from now on.")

    def run(self, doing: Any) -> None:
        task = asyncio.ensure_future(doing)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def bindings(keys: Keys) -> KeyBindings:
    made = KeyBindings()
    editing = has_focus(DEFAULT_BUFFER)
    empty = Condition(lambda: not get_app().current_buffer.text)
    made.add("enter", filter=editing)(keys.enter)
    made.add("c-j", filter=editing)(keys.newline)
    made.add("escape", "enter", filter=editing)(keys.newline)
    made.add(Key.BracketedPaste, filter=editing)(keys.paste)
    made.add("c-g", filter=editing)(keys.editor)
    made.add("c-x", "c-e", filter=editing)(keys.editor)
    made.add("c-c", filter=editing)(keys.interrupt)
    made.add("c-d", filter=editing & empty)(keys.leave)
    made.add("escape", filter=editing)(keys.escape)
    made.add("f3", filter=editing)(keys.open_gate)
    made.add("up", filter=editing)(keys.up)
    made.add("?", filter=editing & empty)(keys.sheet)
    made.add("f1", filter=editing)(keys.sheet)
    made.add("c-o", filter=editing)(keys.details)
    return made
