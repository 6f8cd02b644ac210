"""Gate cards: what is asked, what exactly will run, and the answers. Opened, never a trap."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.text import Text
from textual.containers import Vertical
from textual.markup import escape
from textual.message import Message
from textual.widgets import Static

from nerve.api.models import GateTold
from nerve.commander.core.blocks import diff_in, is_diff
from nerve.commander.core.choosing import Unsaid, meant
from nerve.commander.core.gates import NO, YES, name_of, preview_of
from nerve.commander.core.harmless import harmless
from nerve.commander.tui.change import change, counted, file_of
from nerve.commander.tui.paper import Paper, draw

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Resize

    from nerve.commander.tui.form import Form

CHANGED = 12
LEAST = 4
"""Lines of a question that are shown on any screen that has room for them."""
OTHERS = 8
"""Lines of the prompt, the frame, the footer, and two of the conversation."""


class Body(Paper):
    """What is asked."""

    DEFAULT_CSS = "Body { height: 1; width: 1fr; scrollbar-size-vertical: 1; }"


class GateCard(Vertical):
    """One open gate. It is answered in the prompt, so that no key is ever an answer by itself."""

    DEFAULT_CSS = """
    GateCard { height: auto; display: none; border: round $warning; padding: 0 1;
               border-title-color: $warning; border-title-style: bold; border-subtitle-color: $text-muted; }
    GateCard:ansi { border-subtitle-color: ansi_default; }
    GateCard > #choices { height: auto; }
    GateCard > #refused { height: auto; color: $error; display: none; }
    """

    class Answered(Message):
        """Somebody gave an answer."""

        def __init__(self, gate: GateTold, answer: Any) -> None:
            super().__init__()
            self.gate, self.answer = gate, answer

    def __init__(self) -> None:
        super().__init__(id="gate")
        self.gate: GateTold | None = None
        self.body = Body(id="body")
        self.choices = Static(id="choices", markup=False)
        self.choices.auto_links = False
        self.refused = Static(id="refused", markup=False)
        self.forms: dict[str, Form] = {}
        """By the ids of their gates."""
        self.at = 0
        self.whole = False
        """Whether the change is shown whole."""
        self.marked = False
        """Whether somebody marked an answer."""

    def compose(self) -> ComposeResult:
        yield self.body
        yield self.choices
        yield self.refused

    # -- what is shown -----------------------------------------------------------------------------------

    def show(self, gate: GateTold, whose: str, position: str = "") -> None:
        """Show a gate, as it is now, and the run that asks."""
        self.border_title = escape(harmless(f"⏸ {name_of(gate)} · {whose}"))
        if self.gate is None or gate.gate_id != self.gate.gate_id:
            self.gate, self.at, self.whole, self.marked = gate, 0, False, False
            self.refuse("")
            self._show_form()
        self.border_subtitle = " · ".join(part for part in (deadline(gate), position, self.told()) if part)
        self.display = True
        self.redraw()

    def close(self) -> None:
        self.gate, self.display = None, False
        self._show_form()

    @property
    def form(self) -> Form | None:
        """The fields of the gate, where it has any."""
        return self.forms.get(self.gate.gate_id) if self.gate is not None else None

    def _show_form(self) -> None:
        """Show the fields of the gate, and keep those of others with what was typed into them."""
        gate = self.gate
        if gate is not None and self.form is None and (schema := schema_of(gate)):
            from nerve.commander.tui.form import Form

            self.forms[gate.gate_id] = made = Form(schema)
            self.mount(made, before=self.refused)
        for form in self.forms.values():
            form.display = form is self.form

    def forget_forms(self, waiting: set[str]) -> None:
        """Remove the fields of gates that do not wait any more."""
        for gate_id in self.forms.keys() - waiting:
            self.forms.pop(gate_id).remove()

    @property
    def answers(self) -> list[str]:
        """What can be chosen by its number."""
        return [] if self.gate is None else list(self.gate.choices or self.gate.options or [])

    def told(self) -> str:
        if self.form is not None:
            return "Tab next field · Ctrl-S send · Esc later"
        count = len(self.answers)
        keys = ["1" if count == 1 else f"1-{count}"] if count else []
        keys += [letter for letter, words in (("y", YES), ("n", NO)) if self._meant(words)]
        return f"{' '.join([*keys, '↑↓'])} Enter · Esc later" if count else "type an answer · Esc later"

    def _meant(self, words: tuple[str, ...]) -> str:
        try:
            return meant(self.gate, words) if self.gate is not None else ""
        except Unsaid:
            return ""

    def redraw(self) -> None:
        width = self.body.size.width or self.app.size.width - 4
        if self.gate is None or width <= 0:
            return
        lines = draw(self.app, Group(*asked(self.gate, self.whole)), width - 1)
        self.body.styles.height = max(1, min(len(lines), self.room))
        self.body.put(lines)
        self.choices.update(self.listed())
        self.choices.display = bool(self.answers) and self.form is None

    @property
    def room(self) -> int:
        """Lines that the question may take: the answers are always seen, and some of the conversation.

        What an agent wants to do is shown as whole as it can be; of anything else a third of the screen is
        shown, and Ctrl-O shows more.
        """
        fields = min(14, 2 * len(self.form.properties)) if self.form is not None else len(self.answers)
        hint = bool(self.answers) and not (self.gate and self.gate.choices)
        room = self.app.size.height - fields - hint - bool(self.refused.display) - OTHERS
        exact = self.whole or (self.gate is not None and self.gate.action is not None)
        return room if exact else min(room, max(LEAST, self.app.size.height // 3))

    def listed(self) -> Text:
        strict = bool(self.gate and self.gate.choices)
        rows = []
        for index, choice in enumerate(self.answers):
            here = self.marked and index == self.at
            row = Text.assemble(
                ("❯ " if here else "  ", "bold yellow"),
                (f"{index + 1}  ", "yellow"),
                (harmless(choice), "bold" if here else ""),
            )
            row.stylize(Style(meta={"@click": f"app.answer({index})"}))
            rows.append(row)
        if rows and not strict:
            rows.append(Text("     or type your own answer", "dim"))
        return Text("\n").join(rows)

    def refuse(self, why: str) -> None:
        """Say why an answer was not taken."""
        self.refused.update(Text(harmless(why), "red"))
        self.refused.display = bool(why)

    def on_resize(self, event: Resize) -> None:
        self.redraw()

    # -- answers -----------------------------------------------------------------------------------------

    def give(self, answer: Any) -> None:
        if self.gate is not None:
            self.post_message(self.Answered(self.gate, answer))

    def move(self, by: int) -> bool:
        """Mark the answer above or below; whether there are any to be marked."""
        if not self.display or not self.answers or self.form is not None:
            return False
        self.at = max(0, min(len(self.answers) - 1, self.at + by)) if self.marked else 0
        self.marked = True
        self.redraw()
        return True

    def choose(self) -> bool:
        """Give the answer that somebody marked; whether one was."""
        if not self.display or not self.marked:
            return False
        self.give(self.answers[self.at])
        return True

    def unfold(self) -> bool:
        """Show the change whole, or less of it; whether there is a card."""
        if self.display:
            self.whole = not self.whole
            self.redraw()
        return bool(self.display)


def schema_of(gate: GateTold) -> dict[str, Any] | None:
    """The fields that an answer has; None where it has none, and is typed."""
    fields = (gate.form or {}).get("properties")
    return gate.form if isinstance(fields, dict) and fields else None


def deadline(gate: GateTold) -> str:
    if gate.deadline is None:
        return ""
    return f"until {datetime.fromtimestamp(gate.deadline, UTC).astimezone():%H:%M}"


def asked(gate: GateTold, whole: bool = False) -> Iterator[RenderableType]:
    """The question, then what would be done, every character of it."""
    from nerve.commander.tui.growing import prose

    prompt = gate.prompt.strip()
    action = gate.action or {}
    if action:
        # What runs is shown as it is below; the question needs to say it once only.
        head, *rest = prompt.split("\n\n")
        yield Text(harmless(head.rstrip(":")), "bold")
        for each in rest[1:]:
            yield Text(harmless(each), "italic")
    else:
        yield prose(prompt)
    if gate.note:
        yield Text(harmless(gate.note), "dim")
    if preview := preview_of(gate.input_preview):
        yield Text()
        yield Padding(shown(preview, whole), (0, 0, 0, 2))
    if action:
        yield Text()
        yield from exactly(action, whole)
    yield Text()


def exactly(action: dict[str, Any], whole: bool) -> Iterator[RenderableType]:
    """What will run, field by field."""
    given = action.get("input")
    where = f"  in {harmless(str(action['cwd']))}" if action.get("cwd") else ""
    yield Text.assemble(
        ("Will run ", "dim"), (harmless(str(action.get("tool", ""))), "bold cyan"), (where, "dim")
    )
    if (diff := diff_in(given)) or is_diff(diff := str(action.get("diff") or "")):
        yield Text.assemble("  ± ", (harmless(file_of(diff)), "bold"), (f"  {counted(diff)}", "dim"))
        yield Padding(change(diff, 0 if whole else CHANGED), (0, 0, 0, 4))
        return
    for name, value in given.items() if isinstance(given, dict) else ():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        head = Text.assemble(("  ", ""), (f"{harmless(str(name))}: ", "dim"), harmless(text.split("\n")[0]))
        yield head
        if "\n" in text:
            yield Padding(Text(harmless(text.split("\n", 1)[1])), (0, 0, 0, 4))


def shown(text: str, whole: bool) -> Text:
    if is_diff(text):
        return change(text, 0 if whole else CHANGED)
    return Text(harmless(text))
