"""The layout of the full screen: run list, conversation, gate card and prompt, drawn from the state."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from rich.theme import Theme
from textual.app import App
from textual.binding import BindingsMap
from textual.containers import Horizontal, Vertical
from textual.filter import NoColor
from textual.widgets import Static

from nerve.commander.controller import CommanderController
from nerve.commander.core.name_resolution import gate_run_label
from nerve.commander.core.run_cards import TARGET_PREFIXES
from nerve.commander.history import InputHistory
from nerve.commander.tui.completion_popup import CompletionPopup
from nerve.commander.tui.conversation_view import ConversationView
from nerve.commander.tui.gate_card import GateCard
from nerve.commander.tui.keymap import keymap_paths, read_keymap, textual_bindings
from nerve.commander.tui.prompt import PROMPT_PLACEHOLDER, PROMPT_SIGN, PromptArea, PromptBox
from nerve.commander.tui.run_list import RunLine, RunList
from nerve.commander.tui.status_bar import StatusBar
from nerve.commander.typeahead import TypedLines
from nerve.ui.gate_names import describe_gate_answers
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.command import Provider
    from textual.events import DescendantFocus, Key, Resize

MARKDOWN_THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.h1": "bold",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.link": "blue",
        "markdown.link_url": "dim",
        "markdown.block_quote": "italic dim",
        "markdown.item.number": "dim",
        "markdown.item.bullet": "dim",
        "markdown.table.header": "bold",
        "markdown.table.border": "dim",
    }
)
"""Markdown styles with colours that every theme defines."""
FRAME_INTERVAL_S = 0.1
"""Minimum seconds between two frames."""
FRAME_COST_FACTOR = 5
"""The interval between frames is at least this multiple of the time that a frame takes."""
MIN_RUN_LIST_COLUMNS = 90
"""Minimum columns for the run list beside the conversation."""
MIN_RUN_LINE_ROWS = 12
"""Minimum rows for the run line of a narrow screen; on a lower one a gate needs its row."""
ROWS_BESIDE_GATE = 5
"""Rows of the prompt with its frame, of the status bar, and one of the conversation."""
FRAMES_PER_CLOCK_UPDATE = 5
"""Frames between two updates of elapsed times."""
DEFAULT_THEME = "ansi-dark"
"""Uses the colours of the terminal."""
THEMES = (
    "ansi-dark",
    "ansi-light",
    "textual-dark",
    "textual-light",
    "nord",
    "gruvbox",
    "dracula",
    "tokyo-night",
    "monokai",
    "catppuccin-mocha",
    "catppuccin-latte",
    "solarized-light",
    "rose-pine",
)


def palette_provider() -> type[Provider]:
    from nerve.commander.tui.palette import Palette

    return Palette


class CommanderLayout(App[str]):
    """Composes the widgets and draws the state, ten times a second at most; `CommanderApp` adds actions."""

    TITLE = "nerve"
    CSS = """
    Screen { layers: base popup; layout: vertical; }
    #middle { height: 1fr; }
    #right { width: 1fr; height: 1fr; }
    #queue { height: auto; max-height: 4; padding: 0 1; color: $text-muted; display: none; }
    Screen.-narrow #runs { display: none; }
    Screen.-narrow #runline { display: block; }
    Screen.-low #runline { display: none; }
    Screen.-narrow.-runs #runs { display: block; width: 1fr; border-right: none; }
    Screen.-narrow.-runs #right { display: none; }
    Screen.-narrow.-runs #runline { display: none; }
    CommandPalette > Vertical { margin: 1 1; max-width: 90; background: $surface; }
    CommandPalette #--input, CommandPalette #--input.--list-visible { border: round $primary; }
    CommandPalette SearchIcon { display: none; }
    CommandPalette CommandInput, CommandPalette CommandInput:focus { padding: 0 1; border: none; height: 1; }
    CommandPalette CommandList, CommandPalette CommandList:focus { border: round $primary;
        background: $surface; scrollbar-size-vertical: 1; max-height: 60vh; }
    CommandPalette CommandList > .option-list--option { padding: 0 1; }
    """
    BINDINGS = textual_bindings("app")
    AUTO_FOCUS = "#prompt"
    COMMANDS: ClassVar[Any] = {palette_provider}

    def __init__(
        self,
        controller: CommanderController,
        history: InputHistory | None = None,
        clock: Callable[[], datetime] | None = None,
        typeahead: TypedLines | None = None,
    ) -> None:
        super().__init__()
        self._bindings = BindingsMap(textual_bindings("app"))  # without the default keys of Textual
        self.controller, self.state = controller, controller.state
        self.input_history = history or InputHistory()
        self.clock = clock or (lambda: datetime.now(UTC))
        self._typeahead = typeahead
        for name in set(self.available_themes) - set(THEMES):
            self.unregister_theme(name)
        self.theme = preferred_theme()
        self.controller.themes = THEMES
        self.console.push_theme(MARKDOWN_THEME)
        if self.no_color:  # Textual decides by its initial theme and would keep greys
            self._filters[-1:] = [NoColor()]
        self.keymap: dict[str, str] = {}
        self._frame_count, self._next_frame_at, self._is_frame_requested = 0, 0.0, False

    def compose(self) -> ComposeResult:
        self.stream = ConversationView(self.state, self.clock)
        self.runs, self.run_line = RunList(self.state, self.clock), RunLine(self.state, self.clock)
        self.gate_card, self.popup = GateCard(), CompletionPopup()
        self.status = StatusBar(self.state, self.clock)
        self.prompt = PromptArea(self.controller.complete, self.input_history, self.popup)
        self.prompt_box, self.queue = PromptBox(self.prompt), Static(id="queue", markup=False)
        self.prompt.move_mark, self.prompt.submit_marked = self.gate_card.move_mark, self.submit_marked
        self.prompt.has_queued = lambda: bool(self.state.queue)
        self.prompt.report_typing = self.state.set_typing
        self.prompt.get_open_gate_id = lambda: self.state.open_gate_id
        yield self.run_line
        with Horizontal(id="middle"):
            yield self.runs
            with Vertical(id="right"):
                yield self.stream
        yield self.gate_card
        yield self.queue
        yield self.prompt_box
        yield self.status
        yield self.popup

    def on_mount(self) -> None:
        self.keymap, problems = read_keymap(keymap_paths(self.state.project))
        if self.keymap:
            self.set_keymap(self.keymap)
            self.status.keymap = self.keymap
        for problem in problems:
            self.state.add_block("error", problem)
        self.prompt.focus()
        self.state.on_change = self.request_frame
        self.draw_all()
        self.set_interval(FRAME_INTERVAL_S, self.maybe_draw_frame)
        # After the first frame, which the import of the HTTP client would delay by a third.
        self.call_after_refresh(self.open_controller)
        if self._typeahead is not None:
            self.prompt.enter_lines(self._typeahead)

    def open_controller(self) -> None:
        self.run_in_background(self.controller.open())

    # -- frames ------------------------------------------------------------------------------------------

    def request_frame(self) -> None:
        """Schedule a frame now, unless the last one is too recent; the timer draws it then."""
        if monotonic() >= self._next_frame_at and not self._is_frame_requested:
            self._is_frame_requested = True
            self.call_later(self.maybe_draw_frame)

    def maybe_draw_frame(self) -> None:
        """Draw a frame unless the last one is too recent; slow frames lower the rate."""
        started_at, self._is_frame_requested = monotonic(), False
        if started_at >= self._next_frame_at:
            self.draw_changes()
            self._next_frame_at = started_at + FRAME_INTERVAL_S * 0.9
            self.call_after_refresh(self.delay_next_frame, started_at)

    def delay_next_frame(self, started_at: float) -> None:
        duration = monotonic() - started_at
        self._next_frame_at = max(self._next_frame_at, started_at + FRAME_COST_FACTOR * duration)

    def draw_changes(self) -> None:
        """Draw the changes since the last frame; repeated changes are drawn once."""
        self._frame_count += 1
        if self.state.changes:
            changes = self.state.changes.drain()
            run_positions = {
                block.position for run in changes.runs if (block := self.state.block_of_run(run)) is not None
            }
            self.stream.draw_changes(changes.blocks | run_positions, everything="cleared" in changes.flags)
            if changes.flags & {"focus", "gates", "connected"} or (changes.runs and self.runs.is_stale()):
                self.draw_runs()
            self.apply_flags(changes.flags)
            self.status.redraw()
        else:
            self.stream.draw_overdue()
            if self._frame_count % FRAMES_PER_CLOCK_UPDATE == 0:
                self.status.redraw()
            else:
                self.status.tick()
        if self._frame_count % FRAMES_PER_CLOCK_UPDATE == 0:
            self.stream.tick()
            self.draw_time()

    def draw_all(self) -> None:
        self.draw_runs()
        self.stream.draw_changes((), everything=True)
        self.apply_flags({"target", "queue", "gates"})
        self.status.redraw()

    def draw_runs(self) -> None:
        if self.run_line.display:
            self.run_line.redraw()
        if self.runs.display:
            self.runs.reload_runs()

    def draw_time(self) -> None:
        if self.runs.display:
            self.runs.tick()
        if self.run_line.display and any(not card.has_ended for card in self.state.runs.values()):
            self.run_line.redraw()

    def apply_flags(self, flags: set[str]) -> None:
        """Update the widgets that the change flags name."""
        if flags & {"opened", "gates"}:
            self.state.select_prompt_gate()
            # A gate that opens automatically does not take the focus from the run list or conversation.
            self.draw_gate(opened="opened" in flags and not (self.runs.has_focus or self.stream.has_focus))
        if flags & {"target", "opened", "gates"}:
            self.draw_prompt_frame()
        if "queue" in flags:
            self.draw_queue()
        if flags & {"connected", "workflows"} and not self.state.blocks:
            self.stream.measure_blocks()
        if "workflows" in flags and self.prompt.text in TARGET_PREFIXES:
            self.prompt.offer_completions()
        if "focus" in flags and (block := self.state.block_of_run(self.state.focused_run_id)) is not None:
            self.stream.scroll_to_block(block.position)
        self.handle_screen_requests()

    def draw_gate(self, opened: bool) -> None:
        """Show the open gate, or close the card."""
        gate = self.state.find_gate(self.state.open_gate_id)
        self.gate_card.forget_forms({open_gate.gate_id for open_gate in self.state.gates})
        if gate is None:
            focused = self.gate_card.has_focus_within
            self.gate_card.close()
            self.prompt_box.display = True
            if focused:
                self.screen.set_focus(self.prompt)
            return
        position = [open_gate.gate_id for open_gate in self.state.gates].index(gate.gate_id) + 1
        count = len(self.state.gates)
        self.gate_card.show_gate(
            gate, gate_run_label(self.state, gate), f"{position} of {count}" if count > 1 else ""
        )
        self.prompt_box.display = (
            self.gate_card.form is None or not self.is_prompt_empty
        )  # with a form, the user types into its fields
        if opened and self.is_prompt_empty:
            if self.gate_card.form is None:
                self.screen.set_focus(self.prompt)
            else:
                self.gate_card.form.focus_first_field()

    @property
    def is_prompt_empty(self) -> bool:
        """Whether the prompt has no text and no history search is active."""
        return not self.prompt.text and self.prompt.search_draft is None

    def draw_prompt_frame(self) -> None:
        """Show on the frame of the prompt where its text goes."""
        gate = self.state.find_gate(self.state.open_gate_id)
        self.prompt_box.set_class(self.state.open_gate_id is not None, "-gate")
        name = (
            sanitize_text(self.state.gate_name(self.state.open_gate_id))
            if self.state.open_gate_id is not None
            else ""
        )
        self.prompt_box.sign.update(f"{name} ▸" if name else PROMPT_SIGN)
        self.prompt.placeholder = PROMPT_PLACEHOLDER if gate is None else describe_gate_answers(gate)
        if self.prompt.search_draft is not None:
            title, hint = "search", "Enter take · Ctrl-R next · Esc back"
        elif gate is not None:
            title = f"answer to {sanitize_text(gate_run_label(self.state, gate))}"
            hint = "Enter answer · / @ # % work too, \\ sends them as text · Esc later"
        elif self.state.open_gate_id is not None:
            title, hint = "gate closed", "Esc keeps the text for other use"
        else:
            title, hint = f"to {self.state.target}" if self.state.target is not None else "", ""
        self.prompt_box.border_title = title
        self.prompt_box.border_subtitle = "" if self.state.auto_opens_gates else "gates open on F3 only"
        self.status.hint = hint
        self.status.redraw()

    def draw_queue(self) -> None:
        rows = [
            Text(f"↳ {sanitize_text(' '.join(text.split()))}", no_wrap=True) for text in self.state.queue[-3:]
        ]
        if rows:
            rows[-1].append("   queued · Up edits it", "dim")
        for row in rows:
            row.truncate(max(10, self.size.width - 3), overflow="ellipsis")
        self.queue.update(Text("\n").join(rows))
        self.queue.display = bool(rows)

    # -- size and focus ----------------------------------------------------------------------------------

    def on_resize(self, event: Resize) -> None:
        self.apply_screen_size(event.size.width, event.size.height)

    def apply_screen_size(self, width: int, height: int) -> None:
        self.screen.set_class(width < MIN_RUN_LIST_COLUMNS, "-narrow")
        self.screen.set_class(height < MIN_RUN_LINE_ROWS, "-low")
        has_run_line = width < MIN_RUN_LIST_COLUMNS and height >= MIN_RUN_LINE_ROWS
        # Answers that do not fit scroll within the card, so that prompt and status bar stay on the screen.
        self.gate_card.styles.max_height = max(3, height - ROWS_BESIDE_GATE - has_run_line)
        if width >= MIN_RUN_LIST_COLUMNS:
            self.screen.remove_class("-runs")
        self.call_after_refresh(self.draw_runs)
        self.call_after_refresh(self.draw_queue)
        self.call_after_refresh(self.status.redraw)

    async def _on_key(self, event: Key) -> None:
        """Send a printable key without a binding to the prompt."""
        event.prevent_default()
        is_bound = await self._check_bindings(event.key)
        is_main_screen = len(self.screen_stack) == 1
        if not is_bound and event.is_printable and is_main_screen and not self.gate_card.has_focus_within:
            self.type_into_prompt(event.character or "")

    def type_into_prompt(self, text: str) -> None:
        """Move typed text to the prompt; with an open form, focus its first field."""
        if not self.prompt_box.display and self.gate_card.form is not None:
            self.gate_card.form.focus_first_field()
            return
        self.screen.set_focus(self.prompt)
        if text:
            self.prompt.insert(text)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        id = event.widget.id or ""
        default_scope = "gate" if self.gate_card.has_focus_within else "prompt"
        self.status.scope = id if id in ("stream", "runs") else default_scope
        if self.screen.focused is not self.runs:  # the event may be older than the last change
            self.screen.remove_class("-runs")
        self.status.redraw()

    # -- work and requests of the controller -------------------------------------------------------------

    def submit_marked(self) -> bool:
        """Stop the run of a pending question, or send the marked answer; return whether there was one."""
        return self.confirm_stop() or self.gate_card.submit_marked()

    def confirm_stop(self, run_id: str | None = None) -> bool:
        """Stop the run of the pending question if it matches; return whether it did."""
        question = self.status.question
        if question is None or question.kind != "stop" or run_id not in (None, question.run_id):
            return False
        self.status.ask(None)
        self.run_in_background(self.controller.stop_run(question.run_id))
        return True

    def run_in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine in the background; errors become blocks instead of ending the app."""

        async def report_errors() -> None:
            try:
                await work
            except Exception as error:
                self.state.add_block("error", f"Unexpected error: {type(error).__name__}: {error}")

        self.run_worker(report_errors(), group="background")

    def handle_screen_requests(self) -> None:
        """Do what commands request of the screen."""
        requests = self.controller.screen_requests
        for request in [*requests]:
            value = requests.pop(request)
            if request == "quit":
                self.exit("quit")
            elif request == "tui" and value == "plain":
                self.exit("plain")
            elif request == "tui":
                self.state.add_block("note", "The full screen is already active.")
            elif request == "theme" and value:
                self.theme = value
            elif request == "theme":
                self.action_change_theme()


def preferred_theme() -> str:
    """Return the theme from NERVE_THEME, or by the terminal background in COLORFGBG."""
    if (theme_name := os.environ.get("NERVE_THEME", "")) in THEMES:
        return theme_name
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "ansi-light" if background in ("7", "15") else DEFAULT_THEME
