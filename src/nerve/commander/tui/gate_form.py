"""Forms: input fields generated from the JSON Schema of a gate's answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Checkbox, Input, Label, Select

from nerve.core.json_schema import reduce_field_schema
from nerve.lazy_dataclass import dataclass
from nerve.ui.formatting import format_value
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.content import Content
    from textual.widget import Widget

NUMBER_INPUT_TYPES = {"integer": "integer", "number": "number"}


class TickBox(Checkbox):
    """A checkbox that shows its state by a mark, not only by colour."""

    def render(self) -> Content:
        self.BUTTON_INNER = "X" if self.value else " "
        return super().render()


class Form(VerticalScroll, can_focus=False):
    """One field for each property; Ctrl-S submits the form."""

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

    @dataclass
    class Filled(Message):
        """The user submitted valid values."""

        values: dict[str, Any]

    @dataclass
    class Wrong(Message):
        """The user submitted an invalid value."""

        message: str

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__()
        self.schema = reduce_field_schema(schema)
        self.required = set(self.schema.get("required") or ())
        self.properties: dict[str, Mapping[str, Any]] = {
            str(name): reduce_field_schema(field_schema) if isinstance(field_schema, dict) else {}
            for name, field_schema in self.schema["properties"].items()
        }

    def compose(self) -> ComposeResult:
        for index, (name, field_schema) in enumerate(self.properties.items()):
            yield from self.compose_field(f"field-{index}", name, field_schema)

    def compose_field(self, id: str, name: str, field_schema: Mapping[str, Any]) -> Iterator[Widget]:
        title = sanitize_text(str(field_schema.get("title") or name))
        description = (
            f"  {sanitize_text(str(field_schema['description']))}" if field_schema.get("description") else ""
        )
        default = field_schema.get("default")
        if field_schema.get("type") == "boolean":
            yield TickBox(f"{title}{description}", value=bool(default), id=id, compact=True)
            return
        is_required = name in self.required
        yield Label(
            f"{title}{' *' if is_required else ''}{description}",
            classes="-required" if is_required else "",
            markup=False,
        )
        if isinstance(choices := field_schema.get("enum"), list) and choices:
            pairs = [(sanitize_text(format_value(choice)), index) for index, choice in enumerate(choices)]
            chosen = choices.index(default) if default in choices else Select.NULL
            yield Select(pairs, value=chosen, id=id, compact=True, prompt="choose")
            return
        kind: Any = NUMBER_INPUT_TYPES.get(str(field_schema.get("type")), "text")
        hint = str(field_schema.get("format") or field_schema.get("type") or "text")
        yield Input(
            "" if default is None else format_value(default),
            type=kind,
            id=id,
            compact=True,
            placeholder=hint,
        )

    def on_mount(self) -> None:
        self.focus_first_field()

    def focus_first_field(self) -> None:
        """Focus the first field."""
        for field in self.query("Checkbox, Input, Select"):
            field.focus()
            break

    def action_send(self) -> None:
        try:
            values = {
                name: value
                for index, (name, field_schema) in enumerate(self.properties.items())
                if (value := self.read_field(self.query_one(f"#field-{index}"), name, field_schema))
                is not None
            }
        except ValueError as error:
            self.post_message(self.Wrong(str(error)))
        else:
            self.post_message(self.Filled(values))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Move to the next field on Enter; submit from the last one."""
        event.stop()
        fields = list(self.query("Checkbox, Input, Select"))
        next_index = fields.index(event.input) + 1
        if next_index < len(fields):
            fields[next_index].focus()
        else:
            self.action_send()

    def read_field(self, field: Widget, name: str, field_schema: Mapping[str, Any]) -> Any:
        """Return the value of a field; None for an empty one."""
        if isinstance(field, Checkbox):
            return field.value
        if isinstance(field, Select):
            answer = None if field.is_blank() else field_schema["enum"][field.value]
        else:
            assert isinstance(field, Input)
            answer = (
                parse_field_text(field.value, str(field_schema.get("type") or "string"), name)
                if field.value.strip()
                else None
            )
        if answer is None and name in self.required:
            raise ValueError(f"'{field_schema.get('title') or name}' is required.")
        return answer


def parse_field_text(text: str, kind: str, name: str) -> Any:
    """Parse the text of a field by its type."""
    if kind == "string":
        return text
    try:
        return int(text) if kind == "integer" else float(text) if kind == "number" else json.loads(text)
    except ValueError:
        expected = {"integer": "an integer", "number": "a number"}.get(kind, f"JSON of type {kind}")
        raise ValueError(f"'{name}' must be {expected}, got '{text}'.") from None
