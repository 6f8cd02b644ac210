"""Gate cards: the question, the exact action that will run, and the answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.text import Text
from textual.containers import Vertical
from textual.geometry import Region
from textual.markup import escape
from textual.message import Message
from textual.widgets import Static

from nerve.api.models import GateResponse
from nerve.commander.tui.block_rendering import render_diff_excerpt
from nerve.commander.tui.line_view import LineView, render_strips
from nerve.lazy_dataclass import dataclass
from nerve.ui.diffs import diff_file_name, format_diff_counts, is_diff, tool_input_diff
from nerve.ui.formatting import format_value
from nerve.ui.gate_names import (
    APPROVE_WORDS,
    REJECT_WORDS,
    AmbiguousAnswer,
    gate_display_name,
    gate_preview,
    match_choice,
    split_gate_question,
)
from nerve.ui.gate_votes import gate_vote_lines
from nerve.ui.json_forms import form_fields
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Resize

    from nerve.commander.tui.gate_form import Form

FOLDED_DIFF_LINES = 12
MIN_QUESTION_LINES = 4
"""Minimum lines for the question, if the screen has room."""
RESERVED_LINES = 8
"""Lines for the prompt, its frame, the footer, and two of the conversation."""


class GateBody(LineView):
    """The question of a gate."""

    DEFAULT_CSS = "GateBody { height: 1; width: 1fr; scrollbar-size-vertical: 1; }"


class GateCard(Vertical):
    """One open gate. The user answers in the prompt, so that no single key is an answer by accident."""

    DEFAULT_CSS = """
    GateCard { height: auto; display: none; border: round $warning; padding: 0 1; overflow-y: auto;
               scrollbar-size-vertical: 1;
               border-title-color: $warning; border-title-style: bold; border-subtitle-color: $text-muted; }
    GateCard:ansi { border-subtitle-color: ansi_default; }
    GateCard > #choices { height: auto; }
    GateCard > #refused { height: auto; color: $error; display: none; }
    """

    @dataclass
    class Answered(Message):
        """The user answered the gate."""

        gate: GateResponse
        answer: Any

    def __init__(self) -> None:
        super().__init__(id="gate")
        self.gate: GateResponse | None = None
        self.body = GateBody(id="body")
        self.choices = Static(id="choices", markup=False)
        self.choices.auto_links = False
        self.refusal = Static(id="refused", markup=False)
        self.forms: dict[str, Form] = {}
        """Forms by gate id."""
        self.marked_index = 0
        self.shows_all = False
        """Whether diffs are shown in full."""
        self.has_mark = False
        """Whether the user selected an answer."""

    def compose(self) -> ComposeResult:
        yield self.body
        yield self.choices
        yield self.refusal

    # -- content -----------------------------------------------------------------------------------------

    def show_gate(self, gate: GateResponse, run_label: str, position: str = "") -> None:
        """Show a gate and the label of its run."""
        self.border_title = escape(sanitize_text(f"⏸ {gate_display_name(gate)} · {run_label}"))
        if self.gate is None or gate.gate_id != self.gate.gate_id:
            self.gate, self.marked_index, self.shows_all, self.has_mark = gate, 0, False, False
            self.show_refusal("")
            self._show_form()
        deadline = ""
        if gate.deadline is not None:
            deadline = f"until {datetime.fromtimestamp(gate.deadline, UTC).astimezone():%H:%M}"
        self.border_subtitle = " · ".join(part for part in (deadline, position, self.key_hints()) if part)
        self.display = True
        self.redraw()

    def close(self) -> None:
        self.gate, self.display = None, False
        self._show_form()

    @property
    def form(self) -> Form | None:
        """The form of the gate, if it has one."""
        return self.forms.get(self.gate.gate_id) if self.gate is not None else None

    def _show_form(self) -> None:
        """Show the form of the gate; forms of other gates keep their values."""
        gate = self.gate
        if gate is not None and gate.form is not None and self.form is None and form_fields(gate.form):
            from nerve.commander.tui.gate_form import Form

            self.forms[gate.gate_id] = new_form = Form(gate.form)
            self.mount(new_form, before=self.refusal)
        for form in self.forms.values():
            form.display = form is self.form

    def forget_forms(self, open_gate_ids: set[str]) -> None:
        """Remove the forms of closed gates."""
        for gate_id in self.forms.keys() - open_gate_ids:
            self.forms.pop(gate_id).remove()

    @property
    def answers(self) -> list[str]:
        """The answers that can be chosen by number."""
        return [] if self.gate is None else list(self.gate.choices or self.gate.options or [])

    def key_hints(self) -> str:
        if self.form is not None:
            return "Tab next field · Ctrl-S send · Esc later"
        count = len(self.answers)
        keys = ["1" if count == 1 else f"1-{count}"] if count else []
        keys += [
            letter
            for letter, words in (("y", APPROVE_WORDS), ("n", REJECT_WORDS))
            if self._matching_choice(words)
        ]
        return f"{' '.join([*keys, '↑↓'])} Enter · Esc later" if count else "type an answer · Esc later"

    def _matching_choice(self, words: tuple[str, ...]) -> str:
        try:
            return match_choice(self.gate, words) if self.gate is not None else ""
        except AmbiguousAnswer:
            return ""

    def redraw(self) -> None:
        width = self.body.size.width or self.app.size.width - 4
        if self.gate is None or width <= 0:
            return
        votes = (Text(sanitize_text(line), "dim") for line in gate_vote_lines(self.gate))
        question = Group(*render_gate_question(self.gate, self.shows_all), *votes)
        lines = render_strips(self.app, question, width - 1)
        self.body.styles.height = max(1, min(len(lines), self.question_height))
        self.body.set_lines(lines)
        self.choices.update(self.render_choices())
        self.choices.display = bool(self.answers) and self.form is None

    @property
    def question_height(self) -> int:
        """Maximum lines of the question; the answers and some of the conversation stay visible.

        The action of an agent gets all available lines; other questions get a third of the screen until
        Ctrl-O shows more.
        """
        fields = min(14, 2 * len(self.form.properties)) if self.form is not None else len(self.answers)
        hint = bool(self.answers) and not (self.gate and self.gate.choices)
        room = self.app.size.height - fields - hint - bool(self.refusal.display) - RESERVED_LINES
        exact = self.shows_all or (self.gate is not None and self.gate.action is not None)
        return room if exact else min(room, max(MIN_QUESTION_LINES, self.app.size.height // 3))

    def render_choices(self) -> Text:
        strict = bool(self.gate and self.gate.choices)
        rows = []
        for index, choice in enumerate(self.answers):
            is_marked = self.has_mark and index == self.marked_index
            row = Text.assemble(
                ("❯ " if is_marked else "  ", "bold yellow"),
                (f"{index + 1}  ", "yellow"),
                (sanitize_text(choice), "bold" if is_marked else ""),
            )
            row.stylize(Style(meta={"@click": f"app.answer({index})"}))
            rows.append(row)
        if rows and not strict:
            rows.append(Text("     or type your own answer", "dim"))
        return Text("\n").join(rows)

    def show_refusal(self, message: str) -> None:
        """Show why an answer was rejected."""
        self.refusal.update(Text(sanitize_text(message), "red"))
        self.refusal.display = bool(message)

    def on_resize(self, event: Resize) -> None:
        self.redraw()

    # -- answers -----------------------------------------------------------------------------------------

    def submit(self, answer: Any) -> None:
        if self.gate is not None:
            self.post_message(self.Answered(self.gate, answer))

    def move_mark(self, by: int) -> bool:
        """Select the answer above or below; return False without answers."""
        if not self.display or not self.answers or self.form is not None:
            return False
        self.marked_index = max(0, min(len(self.answers) - 1, self.marked_index + by)) if self.has_mark else 0
        self.has_mark = True
        self.redraw()
        marked_line = self.choices.virtual_region.y + self.marked_index
        self.scroll_to_region(Region(0, marked_line, 1, 1), animate=False, force=True)
        return True

    def submit_marked(self) -> bool:
        """Submit the selected answer; return False if none is selected."""
        if not self.display or not self.has_mark:
            return False
        self.submit(self.answers[self.marked_index])
        return True

    def toggle_details(self) -> bool:
        """Show the diff in full or folded; return whether the card is visible."""
        if self.display:
            self.shows_all = not self.shows_all
            self.redraw()
        return bool(self.display)


def render_gate_question(gate: GateResponse, show_all: bool = False) -> Iterator[RenderableType]:
    """Render the question and the complete action that would run."""
    from nerve.commander.tui.incremental_markdown import render_markdown_if_marked

    action = gate.action or {}
    if action:
        head, rest = split_gate_question(gate)
        yield Text(sanitize_text(head), "bold")
        for paragraph in rest.split("\n\n") if rest else ():
            yield Text(sanitize_text(paragraph), "italic")
    else:
        yield render_markdown_if_marked(gate.prompt.strip())
    if gate.note:
        yield Text(sanitize_text(gate.note), "dim")
    if preview := gate_preview(gate.input_preview):
        yield Text()
        text = Text(sanitize_text(preview))
        if is_diff(preview):
            text = render_diff_excerpt(preview, 0 if show_all else FOLDED_DIFF_LINES)
        yield Padding(text, (0, 0, 0, 2))
    if action:
        yield Text()
        yield from render_gate_action(action, show_all)
    yield Text()


def render_gate_action(action: dict[str, Any], show_all: bool) -> Iterator[RenderableType]:
    """Render the action that will run, field by field."""
    tool_input = action.get("input")
    directory = f"  in {sanitize_text(str(action['cwd']))}" if action.get("cwd") else ""
    yield Text.assemble(
        ("Will run ", "dim"), (sanitize_text(str(action.get("tool", ""))), "bold cyan"), (directory, "dim")
    )
    if (diff := tool_input_diff(tool_input)) or is_diff(diff := str(action.get("diff") or "")):
        yield Text.assemble(
            "  ± ", (sanitize_text(diff_file_name(diff)), "bold"), (f"  {format_diff_counts(diff)}", "dim")
        )
        yield Padding(render_diff_excerpt(diff, 0 if show_all else FOLDED_DIFF_LINES), (0, 0, 0, 4))
        return
    for name, value in tool_input.items() if isinstance(tool_input, dict) else ():
        text = format_value(value)
        head = Text.assemble(
            ("  ", ""), (f"{sanitize_text(str(name))}: ", "dim"), sanitize_text(text.split("\n")[0])
        )
        yield head
        if "\n" in text:
            yield Padding(Text(sanitize_text(text.split("\n", 1)[1])), (0, 0, 0, 4))
