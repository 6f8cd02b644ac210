"""Forms from JSON Schemas: the fields of a form, and the value that a submitted form stands for.

A form is a list of texts by field name, as browsers send it. `encode_value` returns the texts of a value,
`show_form` the fields with such texts in them, and `parse_form` the value of the texts. The name of a field
is the path of its part of the value; a part that has no field of its own is JSON, in a field whose name ends
with `#json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from nerve.core.json_schema import (
    FORMAT_EXAMPLES,
    inline_references,
    iterate_validation_errors,
    reduce_field_schema,
)
from nerve.lazy_dataclass import dataclass
from nerve.text import clip_text
from nerve.ui.formatting import format_value
from nerve.ui.json_forms import describe_field_type
from nerve.ui.typed_options import OPTION_PARSERS, TYPE_DESCRIPTIONS, parse_finite_json, parse_json_or_text

FieldKind = Literal[
    "text", "number", "checkbox", "choice", "choices", "lines", "rows", "object", "any", "json"
]
JSON_MARK, CHECKBOX_MARK, CHOICES_MARK, ROWS_MARK = "#json", "#checkbox", "#choices", "#rows"
MAX_DEPTH = 4
"""Nesting of objects and lists with fields; deeper ones are JSON."""
MAX_RADIO_CHOICES, MAX_RADIO_CHARS = 5, 90
"""Choices that are all visible; more of them are a list that opens."""
MAX_ROWS = 200
LONG_TEXT_CHARS = 160
"""A text that may be longer than this has a field with several lines."""
ABSENT: Any = object()
"""Stands for a part that the value does not have."""

Texts = list[tuple[str, str]]


class FieldChoice(NamedTuple):
    """One of the values that a field accepts."""

    text: str
    value: str
    """The value as JSON."""
    is_chosen: bool


@dataclass(slots=True)
class FormField:
    """A field as a template shows it."""

    name: str
    label: str
    kind: FieldKind
    is_required: bool = False
    description: str = ""
    hint: str = ""
    """What the field accepts, in a few words."""
    text: str = ""
    is_long: bool = False
    """Whether a text has several lines."""
    is_checked: bool = False
    input_mode: str = ""
    is_date: bool = False
    choices: list[FieldChoice] = field(default_factory=list)
    has_radios: bool = False
    fields: list[FormField] = field(default_factory=list)
    """The fields of an object, or the items of a list."""
    error: str = ""

    @property
    def input_name(self) -> str:
        """The name of the field in a submitted form."""
        return self.name + JSON_MARK if self.kind == "json" else self.name

    @property
    def first_error(self) -> FormField | None:
        """The first field with an error: this one, or one in it."""
        if self.error:
            return self
        return next((found for part in self.fields if (found := part.first_error)), None)


class SubmittedTexts:
    """The texts of a form by field name."""

    def __init__(self, texts: Texts) -> None:
        self.by_name: dict[str, list[str]] = {}
        for name, text in texts:
            self.by_name.setdefault(name, []).append(text.replace("\r\n", "\n"))

    def get(self, name: str) -> str:
        """Return the last text of a field; "" if it is not in the form."""
        return self.by_name.get(name, [""])[-1]

    def get_all(self, name: str) -> list[str]:
        return self.by_name.get(name, [])

    def count_rows(self, name: str) -> int:
        """Return the number of items that a list has."""
        text = self.get(name + ROWS_MARK)
        return min(int(text), MAX_ROWS) if text.isdecimal() and len(text) < 6 else 0

    def has_text_in(self, name: str) -> bool:
        """Return whether a field of an object is not empty."""
        return any(
            any(text.strip() for text in texts)
            for field, texts in self.by_name.items()
            if field.startswith(f"{name}/") and not field.endswith(ROWS_MARK)
        )

    def __contains__(self, name: str) -> bool:
        return name in self.by_name


@dataclass(frozen=True, slots=True)
class SchemaPart:
    """The schema of one part of a value, and the name of its field."""

    schema: Mapping[str, Any]
    name: str
    is_required: bool = True
    depth: int = 0

    @property
    def kind(self) -> FieldKind:
        schema, type = self.schema, self.schema.get("type")
        if self.choice_values is not None:
            return "choice"
        if type == "boolean":
            return "checkbox"
        if type in ("integer", "number"):
            return "number"
        if type == "string":
            return "text"
        if self.depth < MAX_DEPTH:
            if type == "array" and "prefixItems" not in schema and isinstance(schema.get("items"), Mapping):
                item = self.item(0)
                if item.choice_values is not None and schema.get("uniqueItems"):
                    return "choices"
                return "lines" if item.kind in ("text", "number") and not item.is_long else "rows"
            if self.properties and type in ("object", None):
                return "object"
        is_structured = schema.keys() & {"properties", "anyOf", "oneOf", "allOf", "$ref"}
        return "any" if type is None and not is_structured else "json"

    @property
    def choice_values(self) -> list[tuple[str, Any]] | None:
        """The accepted values with their texts; None if there are too many to list."""
        schema = self.schema
        if "const" in schema:
            return [(str(schema.get("title") or format_value(schema["const"])), schema["const"])]
        if isinstance(values := schema.get("enum"), list) and values:
            return [(format_value(value), value) for value in values]
        parts = schema.get("oneOf") or schema.get("anyOf")
        if isinstance(parts, list) and parts and all(is_constant(part) for part in parts):
            return [(str(part.get("title") or format_value(part["const"])), part["const"]) for part in parts]
        if schema.get("type") == "boolean" and not isinstance(schema.get("default"), bool):
            # Without a default, an empty checkbox would be an answer that the user did not give.
            return [("Yes", True), ("No", False)]
        return None

    @property
    def properties(self) -> Mapping[str, Any]:
        properties = self.schema.get("properties")
        return properties if isinstance(properties, Mapping) else {}

    @property
    def parts(self) -> Iterator[tuple[str, SchemaPart]]:
        """The parts of an object with their names."""
        required = self.schema.get("required") or ()
        for name, schema in self.properties.items():
            yield name, self.inner(name, schema, name in required)

    def item(self, index: int) -> SchemaPart:
        return self.inner(str(index), self.schema["items"], True)

    def inner(self, name: str, schema: Any, is_required: bool) -> SchemaPart:
        path = f"{self.name}/{quote(name, safe='', errors='surrogatepass')}"
        return SchemaPart(remove_null(schema), path, is_required, self.depth + 1)

    @property
    def is_long(self) -> bool:
        """Whether a text is expected to have several lines."""
        schema = self.schema
        return (
            schema.get("format") in ("textarea", "markdown", "multiline")
            or "contentMediaType" in schema
            or (isinstance(length := schema.get("maxLength"), int) and length > LONG_TEXT_CHARS)
            or "\n" in str(schema.get("default") or "")
        )

    @property
    def may_be_empty(self) -> bool:
        """Whether an empty field is an empty text or list, and not the absence of one."""
        default = self.schema.get("default")
        return isinstance(default, str if self.kind == "text" else list)


def remove_null(schema: Any) -> Mapping[str, Any]:
    """Return a schema without the type null, for which the user leaves the field empty."""
    reduced: dict[str, Any] = dict(reduce_field_schema(schema)) if isinstance(schema, Mapping) else {}
    if isinstance(types := reduced.get("type"), list):
        del reduced["type"]
        others = [type for type in types if type != "null"]
        reduced |= {"type": others[0]} if len(others) == 1 else {"anyOf": [{"type": type} for type in types]}
    return reduced


def is_constant(schema: Any) -> bool:
    return isinstance(schema, Mapping) and "const" in schema


def root_part(schema: Mapping[str, Any], name: str) -> SchemaPart:
    definitions = schema.get("$defs")
    if isinstance(definitions, Mapping):
        beside = {key: part for key, part in schema.items() if key != "$defs"}
        schema = inline_references(beside, definitions)
    return SchemaPart(remove_null(schema), name)


# -- the texts of a value ------------------------------------------------------------------------------


def encode_value(schema: Mapping[str, Any], name: str, value: Any = ABSENT) -> Texts:
    """Return the texts of a form that stands for a value; without one, for the defaults of the schema."""
    part = root_part(schema, name)
    return list(encode_part(part, find_default(part) if value is ABSENT else value))


def find_default(part: SchemaPart) -> Any:
    """Return the default of a part, or else the defaults of the parts in it."""
    if "default" in part.schema:
        return part.schema["default"]
    if part.kind == "object":
        found = {name: find_default(inner) for name, inner in part.parts}
        return {name: value for name, value in found.items() if value is not ABSENT}
    return ABSENT


def encode_part(part: SchemaPart, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts of a part; a value that its field cannot show is JSON."""
    kind = part.kind
    if kind == "checkbox":
        yield part.name + CHECKBOX_MARK, ""
    elif kind == "choices":
        yield part.name + CHOICES_MARK, ""
    if value is ABSENT or (value is None and kind not in ("choice", "json")):
        return
    if kind == "text" and isinstance(value, str) and is_plain_text(value):
        yield part.name, value
    elif kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        yield part.name, json.dumps(value)
    elif kind == "checkbox" and isinstance(value, bool):
        if value:
            yield part.name, "true"
    elif kind == "choice" and is_one_of(value, part):
        yield part.name, encode_choice(value)
    elif kind == "choices" and is_list_of(value, lambda item: is_one_of(item, part.item(0))):
        yield from ((part.name, encode_choice(item)) for item in value)
    elif kind == "lines" and is_list_of(value, is_line):
        yield part.name, "\n".join(map(format_value, value))
    elif kind == "rows" and isinstance(value, list) and len(value) <= MAX_ROWS:
        yield part.name + ROWS_MARK, str(len(value))
        for index, item in enumerate(value):
            yield from encode_part(part.item(index), item)
    elif kind == "object" and isinstance(value, Mapping) and value.keys() <= part.properties.keys():
        for name, inner in part.parts:
            yield from encode_part(inner, value.get(name, ABSENT))
    elif kind == "any":
        is_text = isinstance(value, str) and is_plain_text(value) and parse_json_or_text(value) == value
        yield part.name, value if is_text and value.strip() else json.dumps(value, ensure_ascii=False)
    else:
        yield part.name + JSON_MARK, json.dumps(value, ensure_ascii=not is_plain_text(str(value)), indent=2)


def encode_choice(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def is_one_of(value: Any, part: SchemaPart) -> bool:
    text = encode_choice(value)
    return any(encode_choice(choice) == text for _, choice in part.choice_values or ())


def is_list_of(value: Any, is_item: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(is_item, value))


def is_plain_text(text: str) -> bool:
    """Return whether a browser sends a text back as it is; it changes other line ends and NUL."""
    return all(character.isprintable() or character in "\n\t" for character in text)


def is_line(value: Any) -> bool:
    """Return whether an item can be one of several lines."""
    if isinstance(value, str):
        return bool(value) and value == value.strip() and value.isprintable()
    return isinstance(value, int | float) and not isinstance(value, bool)


# -- the value of a form -------------------------------------------------------------------------------


class ParsedForm(NamedTuple):
    """The value of a submitted form, and the errors by the names of their fields."""

    value: Any
    errors: dict[str, str]


def parse_form(schema: Mapping[str, Any], name: str, texts: Texts) -> ParsedForm:
    """Return the value of a submitted form, checked by the schema as an answer of any client is."""
    part, submitted = root_part(schema, name), SubmittedTexts(texts)
    errors: dict[str, str] = {}
    value = parse_part(part, submitted, errors)
    value = None if value is ABSENT else value
    if not errors:
        for error in iterate_validation_errors(value, schema, check_formats=True):
            errors.setdefault(find_field_name(part, error.path, submitted), f"{error.message}.")
    return ParsedForm(value, errors)


def find_field_name(part: SchemaPart, path: tuple[str | int, ...], submitted: SubmittedTexts) -> str:
    """Return the name of the field that shows the part of a value."""
    for step in path:
        if part.name + JSON_MARK in submitted:
            break
        if part.kind == "object" and step in part.properties:
            part = dict(part.parts)[str(step)]
        elif part.kind == "rows":
            part = part.item(int(step))
        else:
            break
    return part.name


def parse_part(part: SchemaPart, submitted: SubmittedTexts, errors: dict[str, str]) -> Any:
    """Return the value of a part, or ABSENT; add the errors of its fields."""
    kind, name = part.kind, part.name
    if name + JSON_MARK in submitted or kind == "json":
        return parse_text(part, submitted.get(name + JSON_MARK), parse_finite_json, "valid JSON", errors)
    if kind == "object":
        if not part.is_required and not submitted.has_text_in(name):
            return ABSENT
        found = {key: parse_part(inner, submitted, errors) for key, inner in part.parts}
        return {key: value for key, value in found.items() if value is not ABSENT}
    if kind == "rows":
        indexes = range(submitted.count_rows(name))
        items = [parse_part(part.item(index), submitted, errors) for index in indexes]
        return absent_if_empty(part, [None if item is ABSENT else item for item in items])
    if kind == "lines":
        lines = [line.strip() for line in submitted.get(name).split("\n") if line.strip()]
        return absent_if_empty(part, [parse_scalar(part.item(0), line, errors, name) for line in lines])
    if kind == "choices":
        return absent_if_empty(part, [parse_choice(part.item(0), text) for text in submitted.get_all(name)])
    if kind == "checkbox":
        if name in submitted:
            return True
        return False if name + CHECKBOX_MARK in submitted else ABSENT
    if kind == "choice":
        if text := submitted.get(name):
            return parse_choice(part, text)
        return refuse_empty(part, errors)
    return parse_scalar(part, submitted.get(name), errors, name)


def parse_scalar(part: SchemaPart, text: str, errors: dict[str, str], name: str) -> Any:
    """Return a text as the type of its part, in the same way as the options of the command line."""
    if part.kind == "text" and (text.strip() or part.may_be_empty):
        return text
    type = "any" if part.kind == "any" else str(part.schema.get("type"))
    return parse_text(part, text, OPTION_PARSERS[type], TYPE_DESCRIPTIONS[type], errors, name)


def parse_text(
    part: SchemaPart, text: str, parse: Any, expected: str, errors: dict[str, str], name: str = ""
) -> Any:
    if not text.strip():
        return refuse_empty(part, errors)
    try:
        return parse(text.strip() if part.kind == "number" else text)
    except (ValueError, OverflowError):
        errors.setdefault(name or part.name, f"Must be {expected}, got '{clip_text(text, 60)}'.")
        return ABSENT


def parse_choice(part: SchemaPart, text: str) -> Any:
    """Return the chosen value; a text that is not one of them, which the schema does not accept."""
    values = [value for _, value in part.choice_values or () if encode_choice(value) == text]
    return values[0] if values else text


def refuse_empty(part: SchemaPart, errors: dict[str, str]) -> Any:
    if part.is_required:
        errors.setdefault(part.name, "This field is required.")
    return ABSENT


def absent_if_empty(part: SchemaPart, items: list[Any]) -> Any:
    return items if items or part.is_required or part.may_be_empty else ABSENT


# -- fields --------------------------------------------------------------------------------------------


def show_form(
    schema: Mapping[str, Any], name: str, texts: Texts, errors: Mapping[str, str] | None = None
) -> FormField:
    """Return the root field of a form with the texts in its fields and the errors beside them."""
    return show_part(root_part(schema, name), "", SubmittedTexts(texts), errors or {})


def show_part(
    part: SchemaPart, label: str, submitted: SubmittedTexts, errors: Mapping[str, str]
) -> FormField:
    schema, kind = part.schema, part.kind
    if part.name + JSON_MARK in submitted:
        kind = "json"
    shown = FormField(
        part.name,
        str(schema.get("title") or label),
        kind,
        part.is_required,
        str(schema.get("description") or ""),
        describe_hint(part, kind),
        error=errors.get(part.name, ""),
    )
    if kind == "object":
        shown.fields = [show_part(inner, name, submitted, errors) for name, inner in part.parts]
    elif kind == "rows":
        is_new = part.is_required and part.name + ROWS_MARK not in submitted
        indexes = range(1 if is_new else submitted.count_rows(part.name))
        shown.fields = [show_part(part.item(index), str(index + 1), submitted, errors) for index in indexes]
    elif kind in ("choice", "choices"):
        chosen = set(submitted.get_all(part.name))
        source = part if kind == "choice" else part.item(0)
        shown.choices = [
            FieldChoice(text, encode_choice(value), encode_choice(value) in chosen)
            for text, value in source.choice_values or ()
        ]
        chars = sum(len(choice.text) for choice in shown.choices)
        shown.has_radios = len(shown.choices) <= MAX_RADIO_CHOICES and chars <= MAX_RADIO_CHARS
    elif kind == "checkbox":
        shown.is_checked = part.name in submitted
    else:
        shown.text = submitted.get(shown.input_name)
        is_block = kind in ("json", "lines", "any")
        shown.is_long = is_block or (kind == "text" and part.is_long) or "\n" in shown.text
        if kind == "number":
            shown.input_mode = "numeric" if schema.get("type") == "integer" else "decimal"
        shown.is_date = kind == "text" and schema.get("format") == "date" and not shown.is_long
    return shown


def describe_hint(part: SchemaPart, kind: FieldKind) -> str:
    """Return what a field accepts, where its appearance does not show it."""
    schema = part.schema
    if kind == "lines":
        return f"One {describe_field_type(part.schema['items'])} per line"
    if kind == "json":
        return "JSON"
    if kind == "any":
        return "Text or JSON"
    words = []
    if kind == "number":
        words.append(str(schema["type"]))
        low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
        words += [f"from {low}"] if low is not None else []
        words += [f"up to {high}"] if high is not None else []
    if kind == "text" and (example := FORMAT_EXAMPLES.get(str(schema.get("format")))) is not None:
        words.append(f"{schema['format']}, such as {example}")
    if kind == "text" and isinstance(length := schema.get("maxLength"), int):
        words.append(f"at most {length:,} characters")
    return " ".join(words)


# -- lists ---------------------------------------------------------------------------------------------


def change_rows(texts: Texts, added: str = "", removed: str = "") -> Texts:
    """Return the texts with another item at the end of the list `added`, or without the item `removed`."""
    list_name, _, number = removed.rpartition("/")
    name = added or list_name
    mark, count = name + ROWS_MARK, SubmittedTexts(texts).count_rows(name)
    others = [(key, text) for key, text in texts if key != mark]
    if added:
        return [*others, (mark, str(min(count + 1, MAX_ROWS)))]
    if not number.isdecimal() or int(number) >= count:
        return texts
    item_name = re.compile(rf"{re.escape(name)}/(\d{{1,5}})(.*)", re.DOTALL)
    changed = [(mark, str(count - 1))]
    for key, text in others:
        match = item_name.fullmatch(key)
        if match is None or int(match[1]) < int(number):
            changed.append((key, text))
        elif int(match[1]) > int(number):
            changed.append((f"{name}/{int(match[1]) - 1}{match[2]}", text))
    return changed
