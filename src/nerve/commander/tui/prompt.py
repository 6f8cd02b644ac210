"""The prompt: multi-line input with completion and history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from textual import on
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.containers import Horizontal
from textual.keys import Keys
from textual.message import Message
from textual.widgets import Static, TextArea

from nerve.commander.core.command_table import find_command
from nerve.commander.core.completion import Completion
from nerve.commander.core.paste_folding import Pastes
from nerve.commander.history import InputHistory
from nerve.commander.tui.completion_popup import CompletionPopup
from nerve.commander.tui.keymap import textual_bindings
from nerve.commander.typeahead import TypedLines
from nerve.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import Binding
    from textual.document._document import EditResult
    from textual.document._edit import Edit
    from textual.dom import DOMNode
    from textual.events import Key, Paste

PROMPT_SIGN = "❯"
PROMPT_PLACEHOLDER = "Ask anything · % workflow · @ node · / command"
KEY_SEQUENCES: Any = ANSI_SEQUENCES_KEYS
KEY_SEQUENCES.setdefault("\x1b\r", (Keys.ControlJ,))  # Alt-Enter, which Textual does not map
CompleteFunction = Callable[[str, int], Sequence[Completion]]


class PromptArea(TextArea):
    """The input area. Completions are computed in the key handler, so that they never trail the keys."""

    DEFAULT_CSS = """
    PromptArea { height: auto; min-height: 1; max-height: 8; width: 1fr; border: none; padding: 0;
             background: transparent; scrollbar-size-vertical: 1; }
    PromptArea:focus { border: none; }
    PromptArea .text-area--placeholder { text-style: dim; }
    """
    BINDINGS = textual_bindings("prompt")

    @dataclass
    class Entered(Message):
        """The user submitted a line."""

        text: str
        open_gate_id: str | None
        """The id of the gate that the line was typed for."""

    class Edited(Message):
        """The text changed."""

    class Sheet(Message):
        """The user requested the key help."""

    class Unqueue(Message):
        """The user takes back the queued text."""

    def __init__(self, complete: CompleteFunction, history: InputHistory, popup: CompletionPopup) -> None:
        super().__init__(id="prompt", compact=True, highlight_cursor_line=False, tab_behavior="focus")
        self.cursor_blink = False
        self.placeholder = PROMPT_PLACEHOLDER
        self.completer, self.input_history, self.popup = complete, history, popup
        self.pastes = Pastes()
        self.has_queued: Callable[[], bool] = lambda: False
        self.move_mark: Callable[[int], bool] = lambda by: False
        self.submit_marked: Callable[[], bool] = lambda: False
        """Called by the arrows and Enter while the prompt is empty: select and submit an answer."""
        self.report_typing: Callable[[bool], None] = lambda typing: None
        """Called with whether the prompt contains text, whenever that may have changed."""
        self.get_open_gate_id: Callable[[], str | None] = lambda: None
        """Returns the id of the gate that the prompt answers."""
        self.search_draft: str | None = None
        """The text from before the history search, while one is active."""
        self._is_offering_suppressed = False
        self._binding_tables: dict[DOMNode, dict[str, list[Binding]]] = {}

    # -- text --------------------------------------------------------------------------------------------

    @property
    def cursor_offset(self) -> int:
        """The cursor position as an offset in the text."""
        row, column = self.cursor_location
        lines = self.document.lines[:row]
        return sum(map(len, lines)) + len(lines) + column

    def replace_text(self, text: str, cursor: int | None = None) -> None:
        """Replace the text without offering completions."""
        self._is_offering_suppressed = True
        try:
            self.load_text(text)
            lines_before = text[: len(text) if cursor is None else cursor].split("\n")
            self.move_cursor((len(lines_before) - 1, len(lines_before[-1])))
        finally:
            self._is_offering_suppressed = False
        self.popup.offer(())
        self._notify_edited()

    def _notify_edited(self) -> None:
        self.note_typing()
        self.post_message(self.Edited())

    @on(TextArea.Changed)
    def note_typing(self) -> None:
        """Report whether there is text; undo and redo bypass `edit` and are reported by this event."""
        self.report_typing(bool(self.text) or self.search_draft is not None)

    def edit(self, edit: Edit) -> EditResult:
        result = super().edit(edit)
        self.offer_completions()
        self._notify_edited()
        return result

    def offer_completions(self) -> None:
        """Offer completions for the word at the cursor."""
        if self._is_offering_suppressed:
            return
        if self.search_draft is not None:
            lines = self.input_history.search(self.text)
            self.popup.offer([Completion(line, 0, " ".join(line.split())) for line in lines])
        else:
            self.popup.offer(self.completer(self.text, self.cursor_offset))

    def accept_completion(self, item: Completion) -> None:
        """Insert a completion into the text."""
        if self.search_draft is not None:
            self.search_draft = None
            self.replace_text(item.text)
            return
        text, cursor = item.apply_to(self.text, self.cursor_offset)
        if cursor == len(text) and not item.text.endswith(("/", "=")):
            text, cursor = f"{text} ", cursor + 1
        self.replace_text(text, cursor)
        self.offer_completions()

    def clear_all(self) -> None:
        self.search_draft = None
        self.pastes.clear()
        self.replace_text("")

    # -- keys --------------------------------------------------------------------------------------------

    async def _on_key(self, event: Key) -> None:
        """Run the action of a key immediately, so that it stays in order with the typed text."""
        focused = self.screen.focused
        if focused is not None and focused is not self:
            # The key was queued before an earlier key moved the focus; forward it.
            focused.post_message(type(event)(event.key, event.character))
        elif event.character == "?" and not self.text:
            self.post_message(self.Sheet())
        elif not await self._run_bound_action(event.key):
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()

    async def _run_bound_action(self, key: str) -> bool:
        """Run the bound action: prompt bindings, then the app's, then TextArea's; return whether one ran."""
        own_bindings = self._binding_table(self).get(key, [])
        app_bindings: list[Binding] = self._binding_table(self.app).get(key, [])
        candidates: list[tuple[DOMNode, Binding]] = [
            (self, binding) for binding in own_bindings if binding.id
        ]
        candidates += [(self.app, binding) for binding in app_bindings]
        candidates += [(self, binding) for binding in own_bindings if not binding.id]
        for owner, binding in candidates:
            if await self.app.run_action(binding.action, owner):
                return True
        return False

    def _binding_table(self, owner: DOMNode) -> dict[str, list[Binding]]:
        """Return the bindings by key, with the user's keymap applied."""
        if owner not in self._binding_tables:
            bindings = owner._bindings.copy()
            bindings.apply_keymap(self.app._keymap)
            self._binding_tables[owner] = bindings.key_to_bindings
        return self._binding_tables[owner]

    async def _on_paste(self, event: Paste) -> None:
        event.stop()
        event.prevent_default()
        mark = self.pastes.find_mark(event.text, self.text)
        self._is_offering_suppressed = True
        try:
            if mark is not None:
                self.replace_text(self.text.replace(mark, self.pastes.expand(mark), 1))
            else:
                self._replace_via_keyboard(self.pastes.fold(event.text), *self.selection)
        finally:
            self._is_offering_suppressed = False
        self.popup.offer(())
        self.focus()

    def enter_lines(self, typed: TypedLines) -> None:
        """Enter lines that the user typed before this prompt was there, and show the draft of the next."""
        for line in typed.lines:
            self.post_message(self.Entered(line.strip(), self.get_open_gate_id()))
        self.replace_text(typed.draft)

    def action_enter(self) -> None:
        if not self.text and self.search_draft is None and self.submit_marked():
            return
        item = self.popup.marked_item
        if item is not None and (self.search_draft is not None or self._accepts_on_enter(item)):
            submit = (
                self.search_draft is None
                and not self.popup.has_user_choice
                and is_complete_command(item.text)
            )
            self.accept_completion(item)
            if not submit:
                return
        if self.text.endswith("\\") and self.cursor_at_end_of_text:
            self.action_delete_left()
            self.action_newline()
            return
        text, open_gate_id = self.pastes.expand(self.text).strip(), self.get_open_gate_id()
        if text or self.search_draft is not None:
            self.clear_all()
        if text:
            self.post_message(self.Entered(text, open_gate_id))

    def _accepts_on_enter(self, item: Completion) -> bool:
        """Return whether Enter accepts a completion: the user selected it, or it completes a command."""
        typed = self.text[item.start : self.cursor_offset]
        is_command = typed[:1] in ("/", ":") and item.start == 0 and self.cursor_at_end_of_text
        return self.popup.has_user_choice or (
            is_command and item.text != typed and item.text.startswith(typed)
        )

    def action_newline(self) -> None:
        self._replace_via_keyboard("\n", *self.selection)

    def action_complete(self) -> None:
        if self.popup.marked_item is not None:
            self.accept_completion(self.popup.marked_item)
        elif not self.text:
            self.app.action_focus_next()
        else:
            self.offer_completions()

    def action_up(self) -> None:
        if self.popup.is_open:
            self.popup.move(-1)
        elif not self.cursor_at_first_line:
            self.action_cursor_up()
        elif not self.text and self.move_mark(-1):
            pass
        elif not self.text and self.has_queued():
            self.post_message(self.Unqueue())
        elif (earlier := self.input_history.previous_entry(self.text)) is not None:
            self.replace_text(earlier)

    def action_down(self) -> None:
        if self.popup.is_open:
            self.popup.move(1)
        elif not self.cursor_at_last_line:
            self.action_cursor_down()
        elif not self.text and self.move_mark(1):
            pass
        elif (later := self.input_history.next_entry(self.text)) is not None:
            self.replace_text(later)

    def search_history(self) -> None:
        """Start a history search, or move to the next match."""
        if self.search_draft is None:
            self.search_draft, text = self.text, self.text
            self.replace_text(text)
            self.offer_completions()
        else:
            self.popup.move(1)

    def cancel_search(self) -> bool:
        """Close the search or popup; return whether one was open."""
        if self.search_draft is not None:
            draft, self.search_draft = self.search_draft, None
            self.replace_text(draft)
            return True
        if self.popup.is_open:
            self.popup.offer(())
            return True
        return False


def is_complete_command(command: str) -> bool:
    """Return whether a command has no required arguments."""
    known_command = find_command(command[1:])
    return known_command is not None and all(argument.optional for argument in known_command.arguments)


class PromptBox(Horizontal):
    """The prompt in a frame that shows where the text goes."""

    DEFAULT_CSS = """
    PromptBox { height: auto; border: round $primary 60%; padding: 0 1; }
    PromptBox:ansi { border: round ansi_bright_black; border-title-color: ansi_default; }
    PromptBox:focus-within { border: round $primary; }
    PromptBox.-gate { border: round $warning; border-title-color: $warning; }
    PromptBox > Static { width: auto; height: 1; padding: 0 1 0 0; color: $primary; text-style: bold; }
    PromptBox.-gate > Static { color: $warning; }
    """

    def __init__(self, prompt: PromptArea, **options: Any) -> None:
        super().__init__(id="promptbox", **options)
        self.prompt, self.sign = prompt, Static(PROMPT_SIGN, markup=False)

    def compose(self) -> ComposeResult:
        yield self.sign
        yield self.prompt
