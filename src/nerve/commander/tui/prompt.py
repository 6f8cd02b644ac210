"""The prompt: several lines, completed while they are typed, with what was typed before behind the arrows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from textual import on
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.containers import Horizontal
from textual.keys import Keys
from textual.message import Message
from textual.widgets import Static, TextArea

from nerve.commander.core.commands import find
from nerve.commander.core.completion import Completion
from nerve.commander.core.history import History
from nerve.commander.core.pasted import Pastes
from nerve.commander.tui.keys import bindings
from nerve.commander.tui.popup import Popup

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import Binding
    from textual.document._document import EditResult
    from textual.document._edit import Edit
    from textual.dom import DOMNode
    from textual.events import Key, Paste

SIGN = "❯"
PLACEHOLDER = "Ask anything · % workflow · @ node · / command"
SEQUENCES: Any = ANSI_SEQUENCES_KEYS
SEQUENCES.setdefault("\x1b\r", (Keys.ControlJ,))  # Alt-Enter, of which Textual knows nothing
Complete = Callable[[str, int], Sequence[Completion]]


class Prompt(TextArea):
    """What somebody types. The popup is computed in the key handler, so that it never lags the keys."""

    DEFAULT_CSS = """
    Prompt { height: auto; min-height: 1; max-height: 8; width: 1fr; border: none; padding: 0;
             background: transparent; scrollbar-size-vertical: 1; }
    Prompt:focus { border: none; }
    Prompt .text-area--placeholder { text-style: dim; }
    """
    BINDINGS = bindings("prompt")

    class Entered(Message):
        """A line is to be done."""

        def __init__(self, text: str, opened: str | None) -> None:
            super().__init__()
            self.text, self.opened = text, opened
            """What was typed, and the id of the gate that it was typed for."""

    class Edited(Message):
        """The text is another."""

    class Sheet(Message):
        """Somebody asks for the keys."""

    class Unqueue(Message):
        """Somebody wants the queued text back."""

    def __init__(self, complete: Complete, history: History, popup: Popup) -> None:
        super().__init__(id="prompt", compact=True, highlight_cursor_line=False, tab_behavior="focus")
        self.cursor_blink = False
        self.placeholder = PLACEHOLDER
        self.completes, self.past, self.popup = complete, history, popup
        self.pastes = Pastes()
        self.queued: Callable[[], bool] = lambda: False
        self.marks: Callable[[int], bool] = lambda by: False
        self.gives: Callable[[], bool] = lambda: False
        """What arrows and Enter do first while nothing is typed: mark an answer, and give it."""
        self.types: Callable[[bool], None] = lambda typing: None
        """Takes whether there is a line that is being typed, at once when that changes."""
        self.opened: Callable[[], str | None] = lambda: None
        """Gives the id of the gate that the prompt is for."""
        self.searching: str | None = None
        """The draft that was there before the search, while one goes on."""
        self._quiet = False
        self._tables: dict[DOMNode, dict[str, list[Binding]]] = {}

    # -- text --------------------------------------------------------------------------------------------

    @property
    def at(self) -> int:
        """Where the cursor is in the text."""
        row, column = self.cursor_location
        lines = self.document.lines[:row]
        return sum(map(len, lines)) + len(lines) + column

    def write(self, text: str, cursor: int | None = None) -> None:
        """Show another text, and offer nothing for it."""
        self._quiet = True
        try:
            self.load_text(text)
            before = text[: len(text) if cursor is None else cursor].split("\n")
            self.move_cursor((len(before) - 1, len(before[-1])))
        finally:
            self._quiet = False
        self.popup.offer(())
        self._changed()

    def _changed(self) -> None:
        self.note_typing()
        self.post_message(self.Edited())

    @on(TextArea.Changed)
    def note_typing(self) -> None:
        """Say whether there is a line; what is undone and redone is no edit, and says it later."""
        self.types(bool(self.text) or self.searching is not None)

    def edit(self, edit: Edit) -> EditResult:
        result = super().edit(edit)
        self.offer()
        self._changed()
        return result

    def offer(self) -> None:
        """Offer what the word at the cursor may become."""
        if self._quiet:
            return
        if self.searching is not None:
            self.popup.offer(found(self.past.search(self.text)))
        else:
            self.popup.offer(self.completes(self.text, self.at))

    def take(self, item: Completion) -> None:
        """Put what was offered into the text."""
        if self.searching is not None:
            self.searching = None
            self.write(item.text)
            return
        text, cursor = item.applied(self.text, self.at)
        if cursor == len(text) and not item.text.endswith(("/", "=")):
            text, cursor = f"{text} ", cursor + 1
        self.write(text, cursor)
        self.offer()

    def clear_all(self) -> None:
        self.searching = None
        self.pastes.clear()
        self.write("")

    # -- keys --------------------------------------------------------------------------------------------

    async def _on_key(self, event: Key) -> None:
        """Do what a key does here and now: done later, it would overtake or lag what is typed around it."""
        focused = self.screen.focused
        if focused is not None and focused is not self:
            # It was typed when the key before it, which moves the focus, was not done yet.
            focused.post_message(type(event)(event.key, event.character))
        elif event.character == "?" and not self.text:
            self.post_message(self.Sheet())
        elif not await self._bound(event.key):
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()

    async def _bound(self, key: str) -> bool:
        """Do what a key is bound to: by our table here, then in the app, then in any text; whether it is."""
        mine = self._table(self).get(key, [])
        of_app: list[Binding] = self._table(self.app).get(key, [])
        asked: list[tuple[DOMNode, Binding]] = [(self, each) for each in mine if each.id]
        asked += [(self.app, each) for each in of_app]
        asked += [(self, each) for each in mine if not each.id]
        for owner, binding in asked:
            if await self.app.run_action(binding.action, owner):
                return True
        return False

    def _table(self, owner: DOMNode) -> dict[str, list[Binding]]:
        """What keys do, the user's keymap applied."""
        if owner not in self._tables:
            bindings = owner._bindings.copy()
            bindings.apply_keymap(self.app._keymap)
            self._tables[owner] = bindings.key_to_bindings
        return self._tables[owner]

    async def _on_paste(self, event: Paste) -> None:
        event.stop()
        event.prevent_default()
        mark = self.pastes.mark_of(event.text, self.text)
        self._quiet = True
        try:
            if mark is not None:
                self.write(self.text.replace(mark, self.pastes.expand(mark), 1))
            else:
                self._replace_via_keyboard(self.pastes.fold(event.text), *self.selection)
        finally:
            self._quiet = False
        self.popup.offer(())
        self.focus()

    def action_enter(self) -> None:
        if not self.text and self.searching is None and self.gives():
            return
        item = self.popup.marked
        if item is not None and (self.searching is not None or self._takes(item)):
            submit = self.searching is None and not self.popup.moved and is_whole(item.text)
            self.take(item)
            if not submit:
                return
        if self.text.endswith("\\") and self.cursor_at_end_of_text:
            self.action_delete_left()
            self.action_newline()
            return
        text, opened = self.pastes.expand(self.text).strip(), self.opened()
        if text or self.searching is not None:
            self.clear_all()
        if text:
            self.post_message(self.Entered(text, opened))

    def _takes(self, item: Completion) -> bool:
        """Whether Enter means what is marked: somebody chose it, or it is the rest of a command's name."""
        typed = self.text[item.start : self.at]
        command = typed[:1] in ("/", ":") and item.start == 0 and self.cursor_at_end_of_text
        return self.popup.moved or (command and item.text != typed and item.text.startswith(typed))

    def action_newline(self) -> None:
        self._replace_via_keyboard("\n", *self.selection)

    def action_complete(self) -> None:
        if self.popup.marked is not None:
            self.take(self.popup.marked)
        elif not self.text:
            self.app.action_focus_next()
        else:
            self.offer()

    def action_up(self) -> None:
        if self.popup.is_open:
            self.popup.move(-1)
        elif not self.cursor_at_first_line:
            self.action_cursor_up()
        elif not self.text and self.marks(-1):
            pass
        elif not self.text and self.queued():
            self.post_message(self.Unqueue())
        elif (earlier := self.past.up(self.text)) is not None:
            self.write(earlier)

    def action_down(self) -> None:
        if self.popup.is_open:
            self.popup.move(1)
        elif not self.cursor_at_last_line:
            self.action_cursor_down()
        elif not self.text and self.marks(1):
            pass
        elif (later := self.past.down(self.text)) is not None:
            self.write(later)

    def search(self) -> None:
        """Search what was typed before; again: the next that fits."""
        if self.searching is None:
            self.searching, text = self.text, self.text
            self.write(text)
            self.offer()
        else:
            self.popup.move(1)

    def give_up(self) -> bool:
        """Close what is open above the prompt; whether there was anything."""
        if self.searching is not None:
            draft, self.searching = self.searching, None
            self.write(draft)
            return True
        if self.popup.is_open:
            self.popup.offer(())
            return True
        return False


def is_whole(command: str) -> bool:
    """Whether a command needs nothing more than its name."""
    told = find(command[1:])
    return told is not None and all(argument.optional for argument in told.arguments)


def found(lines: Sequence[str]) -> list[Completion]:
    return [Completion(line, 0, " ".join(line.split())) for line in lines]


class PromptBox(Horizontal):
    """The prompt in its frame, which says where the text goes."""

    DEFAULT_CSS = """
    PromptBox { height: auto; border: round $primary 60%; padding: 0 1; }
    PromptBox:ansi { border: round ansi_bright_black; border-title-color: ansi_default; }
    PromptBox:focus-within { border: round $primary; }
    PromptBox.-gate { border: round $warning; border-title-color: $warning; }
    PromptBox > Static { width: auto; height: 1; padding: 0 1 0 0; color: $primary; text-style: bold; }
    PromptBox.-gate > Static { color: $warning; }
    """

    def __init__(self, prompt: Prompt, **options: Any) -> None:
        super().__init__(id="promptbox", **options)
        self.prompt, self.sign = prompt, Static(SIGN, markup=False)

    def compose(self) -> ComposeResult:
        yield self.sign
        yield self.prompt
