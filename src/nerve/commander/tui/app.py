"""The full screen: runs beside the conversation, the prompt below, gates as cards between them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from rich.theme import Theme
from textual.binding import BindingsMap
from textual.containers import Horizontal, Vertical
from textual.filter import NoColor
from textual.widgets import Static

from nerve.commander.core.cards import PREFIXES
from nerve.commander.core.choosing import whose
from nerve.commander.core.gates import answers_of
from nerve.commander.core.harmless import harmless
from nerve.commander.core.history import History
from nerve.commander.tui import themes
from nerve.commander.tui.acting import Acting
from nerve.commander.tui.gates import GateCard
from nerve.commander.tui.keys import bindings, places, read_keymap
from nerve.commander.tui.popup import Popup
from nerve.commander.tui.prompt import PLACEHOLDER, SIGN, Prompt, PromptBox
from nerve.commander.tui.runs import RunLine, RunList
from nerve.commander.tui.status import Status
from nerve.commander.tui.stream import Stream
from nerve.commander.workflow_controller import WorkflowController

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.command import Provider
    from textual.events import DescendantFocus, Key, Resize

PROSE = Theme(
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
"""Markdown in the colours that every theme has."""
FRAME = 0.1
"""Seconds between two looks at what has changed."""
SHARE = 5
"""At most every so many times as long as a frame takes there is one."""
WIDE, TALL = 90, 18
"""Columns and rows from which on the list of runs has room."""
SECOND = 5
"""Frames between two looks at the time."""


def palette() -> type[Provider]:
    from nerve.commander.tui.palette import Palette

    return Palette


class CommanderApp(Acting):
    """What the desk has, drawn at most ten times a second. It gives back `quit` or `plain`."""

    TITLE = "nerve"
    CSS = """
    Screen { layers: base popup; layout: vertical; }
    #middle { height: 1fr; }
    #right { width: 1fr; height: 1fr; }
    #queue { height: auto; max-height: 4; padding: 0 1; color: $text-muted; display: none; }
    Screen.-narrow #runs { display: none; }
    Screen.-narrow #runline { display: block; }
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
    BINDINGS = bindings("app")
    AUTO_FOCUS = "#prompt"
    COMMANDS: ClassVar[Any] = {palette}

    def __init__(
        self,
        controller: WorkflowController,
        history: History | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        super().__init__()
        self._bindings = BindingsMap(bindings("app"))  # without the keys that Textual has of its own
        self.controller, self.desk = controller, controller.desk
        self.past = history or History()
        self.clock = clock or (lambda: datetime.now(UTC))
        for name in set(self.available_themes) - set(themes.THEMES):
            self.unregister_theme(name)
        self.theme = themes.preferred()
        self.controller.themes = themes.THEMES
        self.console.push_theme(PROSE)
        if self.no_color:  # Textual decides by the theme it begins with, and would leave greys
            self._filters[-1:] = [NoColor()]
        self.keymap = {}
        self.asking = None
        self._frame, self._next, self._soon = 0, 0.0, False

    def compose(self) -> ComposeResult:
        self.stream = Stream(self.desk, self.clock)
        self.runs, self.line = RunList(self.desk, self.clock), RunLine(self.desk, self.clock)
        self.card, self.status, self.popup = GateCard(), Status(self.desk, self.clock), Popup()
        self.prompt = Prompt(self.controller.complete, self.past, self.popup)
        self.box, self.queue = PromptBox(self.prompt), Static(id="queue", markup=False)
        self.prompt.marks, self.prompt.gives = (
            self.card.move,
            lambda: self.confirm_stop() or self.card.choose(),
        )
        self.prompt.queued = lambda: bool(self.desk.queue)
        self.prompt.types, self.prompt.opened = self.desk.set_typing, lambda: self.desk.opened
        yield self.line
        with Horizontal(id="middle"):
            yield self.runs
            with Vertical(id="right"):
                yield self.stream
        yield self.card
        yield self.queue
        yield self.box
        yield self.status
        yield self.popup

    def on_mount(self) -> None:
        self.keymap, problems = read_keymap(places(self.desk.project))
        if self.keymap:
            self.set_keymap(self.keymap)
            self.status.keymap = self.keymap
        for problem in problems:
            self.desk.say("error", problem)
        self.prompt.focus()
        self.desk.on_change = self.soon
        self.draw_all()
        self.set_interval(FRAME, self.beat)
        self.background(self.controller.open())

    # -- frames ------------------------------------------------------------------------------------------

    def soon(self) -> None:
        """Something has changed: look at it now, or when the last look is long enough ago."""
        if monotonic() >= self._next and not self._soon:
            self._soon = True
            self.call_later(self.beat)

    def beat(self) -> None:
        """A frame, unless the last one is too new; the longer frames take, the fewer there are."""
        began, self._soon = monotonic(), False
        if began >= self._next:
            self.frame()
            self._next = began + FRAME * 0.9
            self.call_after_refresh(self.drawn, began)

    def drawn(self, began: float) -> None:
        self._next = max(self._next, began + SHARE * (monotonic() - began))

    def frame(self) -> None:
        """Draw what has changed since the last frame; many changes of one thing are one."""
        self._frame += 1
        if self.asking is not None and self.asking[2] < monotonic():
            self.ask(None)
        if self.desk.changed:
            changed = self.desk.changed.take()
            shown = {block.place for run in changed.runs if (block := self.desk.block_of(run)) is not None}
            self.stream.take(changed.blocks | shown, everything="cleared" in changed.flags)
            if changed.flags & {"focus", "gates", "connected"} or (changed.runs and self.runs.is_stale()):
                self.draw_runs()
            self.heed(changed.flags)
            self.status.redraw()
        else:
            self.stream.catch_up()
            if self._frame % SECOND == 0:
                self.status.redraw()
            else:
                self.status.tick()
        if self._frame % SECOND == 0:
            self.stream.tick()
            self.draw_time()

    def draw_all(self) -> None:
        self.draw_runs()
        self.stream.take((), everything=True)
        self.heed({"target", "queue", "gates"})
        self.status.redraw()

    def draw_runs(self) -> None:
        if self.line.display:
            self.line.take()
        if self.runs.display:
            self.runs.take()

    def draw_time(self) -> None:
        if self.runs.display:
            self.runs.tick()
        if self.line.display and any(not card.ended for card in self.desk.runs.values()):
            self.line.take()

    def heed(self, flags: set[str]) -> None:
        """Do what the flags of the desk say."""
        if flags & {"opened", "gates"}:
            self.desk.attend_gate()
            # A gate that takes the prompt by itself leaves the focus where the user moves about.
            self.draw_gate(opened="opened" in flags and not (self.runs.has_focus or self.stream.has_focus))
        if flags & {"target", "opened", "gates"}:
            self.draw_frame()
        if "queue" in flags:
            self.draw_queue()
        if flags & {"connected", "workflows"} and not self.desk.blocks:
            self.stream.measure()
        if "workflows" in flags and self.prompt.text in PREFIXES:
            self.prompt.offer()
        if "focus" in flags and (block := self.desk.block_of(self.desk.focus)) is not None:
            self.stream.show(block.place)
        self.heed_wants()

    def draw_gate(self, opened: bool) -> None:
        """Show the gate that is open; one that was answered elsewhere closes."""
        gate = self.desk.gate(self.desk.opened)
        self.card.forget_forms({each.gate_id for each in self.desk.gates})
        if gate is None:
            focused = self.card.has_focus_within
            self.card.close()
            self.box.display = True
            if focused:
                self.screen.set_focus(self.prompt)
            return
        place = [each.gate_id for each in self.desk.gates].index(gate.gate_id) + 1
        count = len(self.desk.gates)
        self.card.show(gate, whose(self.desk, gate), f"{place} of {count}" if count > 1 else "")
        self.box.display = self.card.form is None or not self.free  # a form is the one place to type
        if opened and self.free:
            if self.card.form is None:
                self.screen.set_focus(self.prompt)
            else:
                self.card.form.begin()

    @property
    def free(self) -> bool:
        """Whether nobody is typing."""
        return not self.prompt.text and self.prompt.searching is None

    def draw_frame(self) -> None:
        """Say on the frame of the prompt where its text goes."""
        gate = self.desk.gate(self.desk.opened)
        self.box.set_class(self.desk.opened is not None, "-gate")
        name = harmless(self.desk.gate_name(self.desk.opened)) if self.desk.opened is not None else ""
        self.box.sign.update(f"{name} ▸" if name else SIGN)
        self.prompt.placeholder = PLACEHOLDER if gate is None else answers_of(gate)
        if self.prompt.searching is not None:
            title, hint = "search", "Enter take · Ctrl-R next · Esc back"
        elif gate is not None:
            title, hint = (
                f"answer to {harmless(whose(self.desk, gate))}",
                "Enter answer · / @ # % work too, \\ makes them text · Esc later",
            )
        elif self.desk.opened is not None:
            title, hint = "not open any more", "Esc keeps the text for something else"
        else:
            title, hint = f"to {self.desk.target}" if self.desk.target is not None else "", ""
        self.box.border_title = title
        self.box.border_subtitle = "" if self.desk.opens_gates else "gates open on F3 only"
        self.status.hint = hint
        self.status.redraw()

    def draw_queue(self) -> None:
        rows = [Text(f"↳ {harmless(' '.join(text.split()))}", no_wrap=True) for text in self.desk.queue[-3:]]
        if rows:
            rows[-1].append("   waits for its turn · Up edits it", "dim")
        for row in rows:
            row.truncate(max(10, self.size.width - 3), overflow="ellipsis")
        self.queue.update(Text("\n").join(rows))
        self.queue.display = bool(rows)

    # -- size and focus ----------------------------------------------------------------------------------

    def on_resize(self, event: Resize) -> None:
        self.fit(event.size.width, event.size.height)

    def fit(self, width: int, height: int) -> None:
        self.screen.set_class(width < WIDE, "-narrow")
        self.screen.set_class(height < TALL, "-low")
        if width >= WIDE:
            self.screen.remove_class("-runs")
        self.call_after_refresh(self.draw_runs)
        self.call_after_refresh(self.draw_queue)
        self.call_after_refresh(self.status.redraw)

    async def _on_key(self, event: Key) -> None:
        """A letter that means nothing where the focus is, is for the prompt."""
        event.prevent_default()
        bound = await self._check_bindings(event.key)
        if (
            not bound
            and event.is_printable
            and len(self.screen_stack) == 1
            and not self.card.has_focus_within
        ):
            self.type_into(event.character or "")

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        scopes = {"prompt": "prompt", "stream": "stream", "runs": "runs"}
        id = event.widget.id or ""
        self.status.scope = scopes.get(id, "gate" if self.card.has_focus_within else "prompt")
        if id != "runs":
            self.screen.remove_class("-runs")
        self.status.redraw()
