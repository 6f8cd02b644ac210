"""Descriptions of gate forms: the fields of a JSON Schema, and an example answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.core.json_schema import FORMAT_EXAMPLES, reduce_field_schema
from nerve.ui.formatting import format_value
from nerve.ui.sanitize import sanitize_text

JsonSchema = Mapping[str, Any]
TYPE_LABELS = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "object",
    "null": "null",
}
TYPE_EXAMPLES: dict[str, Any] = {
    "string": "…",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


def form_fields(form: JsonSchema) -> list[tuple[str, JsonSchema, bool]]:
    """Return name, schema and required flag of each field, in order."""
    form = reduce_field_schema(form)
    properties = form.get("properties")
    required = set(form.get("required") or ())
    fields = properties.items() if isinstance(properties, Mapping) else ()
    return [
        (str(name), field_schema if isinstance(field_schema, Mapping) else {}, name in required)
        for name, field_schema in fields
    ]


def form_field_lines(form: JsonSchema) -> list[str]:
    """Return a line for each field: name, type, required, default and description."""
    fields = form_fields(form)
    name_width = max((len(name) for name, _, _ in fields), default=0)
    return [
        sanitize_text(
            f"{name:<{name_width}}  {describe_field_type(field_schema)}{', required' if is_required else ''}"
            f"{describe_field(field_schema)}"
        )
        for name, field_schema, is_required in fields
    ]


def describe_field_type(field: JsonSchema) -> str:
    """Describe the type of a field."""
    field = reduce_field_schema(field)
    if "const" in field:
        return format_value(field["const"])
    if isinstance(choices := field.get("enum"), list) and choices:
        return " or ".join(map(format_value, choices))
    if isinstance(format := field.get("format"), str) and format:
        return format
    types = field.get("type")
    type_names = types if isinstance(types, list) else [types]
    return " or ".join(TYPE_LABELS.get(str(type_name), "any JSON") for type_name in type_names)


def describe_field(field: JsonSchema) -> str:
    default = f", default {format_value(field['default'])}" if field.get("default") is not None else ""
    text = " ".join(str(field.get("description") or field.get("title") or "").split())
    return default + (f": {text}" if text else "")


def format_example_answer(form: JsonSchema) -> str:
    """Return an example answer in the shape of the form, as typed."""
    return format_value(example_value(form))


def example_value(form: JsonSchema) -> Any:
    form = reduce_field_schema(form)
    for name in ("const", "default"):
        if name in form:
            return form[name]
    if (example := FORMAT_EXAMPLES.get(str(form.get("format")))) is not None:
        return example
    if isinstance(choices := form.get("enum"), list) and choices:
        return choices[0]
    if fields := form_fields(form):
        included_fields = [field for field in fields if field[2]] or fields[:1]
        return {name: example_value(field) for name, field, _ in included_fields}
    types = form.get("type")
    first = next(iter(types), None) if isinstance(types, list) else types
    return TYPE_EXAMPLES.get(str(first), {})


def format_form_hint(form: JsonSchema | None) -> str:
    """Return an example answer in parentheses, to append to the question; "" without a form."""
    return f" (such as {sanitize_text(format_example_answer(form))})" if form is not None else ""
