"""Forms: the fields of a gate's answer, made from its JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Checkbox, Input, Label, Select

from nerve.commander.core.harmless import harmless

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.content import Content
    from textual.widget import Widget

NUMBERS = {"integer": "integer", "number": "number"}


class Box(Checkbox):
    """A box that is empty unless it is ticked: a colour alone tells too little."""

    def render(self) -> Content:
        self.BUTTON_INNER = "X" if self.value else " "
        return super().render()


class Form(VerticalScroll, can_focus=False):
    """A field for each property; Ctrl-S sends them all."""

    DEFAULT_CSS = """
    Form { height: auto; max-height: 14; }
    Form Label { color: $text-muted; }
    Form Label.-required { color: $foreground; }
    Form Input { height: 1; border: none; background: $boost; padding: 0 1; margin: 0 0 0 2; }
    Form Checkbox { border: none; padding: 0; background: transparent; }
    Form Select { margin: 0 0 0 2; }
    Form:ansi Input { background: ansi_default; text-style: underline; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+s", "send", "send", priority=True)]

    class Filled(Message):
        """All fields, as the schema wants them."""

        def __init__(self, values: dict[str, Any]) -> None:
            super().__init__()
            self.values = values

    class Wrong(Message):
        """A field that cannot be read."""

        def __init__(self, why: str) -> None:
            super().__init__()
            self.why = why

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__()
        self.schema = schema
        self.required = set(schema.get("required") or ())
        self.properties: dict[str, dict[str, Any]] = {
            str(name): told if isinstance(told, dict) else {} for name, told in schema["properties"].items()
        }

    def compose(self) -> ComposeResult:
        for index, (name, told) in enumerate(self.properties.items()):
            yield from self.field(f"field-{index}", name, told)

    def field(self, id: str, name: str, told: dict[str, Any]) -> Iterator[Widget]:
        title = harmless(str(told.get("title") or name))
        about = f"  {harmless(str(told['description']))}" if told.get("description") else ""
        default = told.get("default")
        if told.get("type") == "boolean":
            yield Box(f"{title}{about}", value=bool(default), id=id, compact=True)
            return
        needed = name in self.required
        yield Label(
            f"{title}{' *' if needed else ''}{about}", classes="-required" if needed else "", markup=False
        )
        if isinstance(choices := told.get("enum"), list) and choices:
            pairs = [(harmless(written(choice)), index) for index, choice in enumerate(choices)]
            chosen = choices.index(default) if default in choices else Select.NULL
            yield Select(pairs, value=chosen, id=id, compact=True, prompt="choose")
            return
        kind: Any = NUMBERS.get(str(told.get("type")), "text")
        hint = str(told.get("type") or "text")
        yield Input(
            "" if default is None else written(default), type=kind, id=id, compact=True, placeholder=hint
        )

    def on_mount(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Go to the first field."""
        for field in self.query("Checkbox, Input, Select"):
            field.focus()
            break

    def action_send(self) -> None:
        try:
            values = {
                name: value
                for index, (name, told) in enumerate(self.properties.items())
                if (value := self.value(self.query_one(f"#field-{index}"), name, told)) is not None
            }
        except ValueError as error:
            self.post_message(self.Wrong(str(error)))
        else:
            self.post_message(self.Filled(values))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes on to the next field, and from the last one sends."""
        event.stop()
        fields = list(self.query("Checkbox, Input, Select"))
        after = fields.index(event.input) + 1
        if after < len(fields):
            fields[after].focus()
        else:
            self.action_send()

    def value(self, field: Widget, name: str, told: dict[str, Any]) -> Any:
        """What a field says; None for one that is left empty."""
        if isinstance(field, Checkbox):
            return field.value
        if isinstance(field, Select):
            given = None if field.is_blank() else told["enum"][field.value]
        else:
            assert isinstance(field, Input)
            given = (
                read(field.value, str(told.get("type") or "string"), name) if field.value.strip() else None
            )
        if given is None and name in self.required:
            raise ValueError(f"'{told.get('title') or name}' must be filled in.")
        return given


def written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read(text: str, kind: str, name: str) -> Any:
    """The text of a field as its type says."""
    if kind == "string":
        return text
    try:
        return int(text) if kind == "integer" else float(text) if kind == "number" else json.loads(text)
    except ValueError:
        wanted = {"integer": "a whole number", "number": "a number"}.get(kind, f"{kind} in JSON")
        raise ValueError(f"'{name}' must be {wanted}, not '{text}'.") from None
