"""Forms of gates as people read them: the fields of a JSON Schema, and an answer that would fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nerve.commander.core.harmless import harmless

Schema = Mapping[str, Any]
KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "object",
    "null": "nothing",
}
EXAMPLES: dict[str, Any] = {
    "string": "…",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


def fields_of(form: Schema) -> list[tuple[str, Schema, bool]]:
    """The fields of a form in their order, and whether each is needed."""
    told = form.get("properties")
    needed = set(form.get("required") or ())
    fields = told.items() if isinstance(told, Mapping) else ()
    return [(str(name), each if isinstance(each, Mapping) else {}, name in needed) for name, each in fields]


def lines(form: Schema) -> list[str]:
    """A line for each field: its name, what goes into it, whether it is needed, and what it is about."""
    fields = fields_of(form)
    wide = max((len(name) for name, _, _ in fields), default=0)
    return [
        harmless(f"{name:<{wide}}  {kind(each)}{', required' if needed else ''}{about(each)}")
        for name, each, needed in fields
    ]


def kind(field: Schema) -> str:
    """What goes into a field, in words."""
    if "const" in field:
        return written(field["const"])
    if isinstance(choices := field.get("enum"), list) and choices:
        return " or ".join(map(written, choices))
    types = field.get("type")
    named = types if isinstance(types, list) else [types]
    return " or ".join(KINDS.get(str(each), "any JSON") for each in named)


def about(field: Schema) -> str:
    default = f", else {written(field['default'])}" if field.get("default") is not None else ""
    text = " ".join(str(field.get("description") or field.get("title") or "").split())
    return default + (f": {text}" if text else "")


def example(form: Schema) -> str:
    """An answer that has the shape of the form, as it is typed."""
    value = sample(form)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def sample(form: Schema) -> Any:
    for name in ("const", "default"):
        if name in form:
            return form[name]
    if isinstance(choices := form.get("enum"), list) and choices:
        return choices[0]
    if fields := fields_of(form):
        shown = [each for each in fields if each[2]] or fields[:1]
        return {name: sample(each) for name, each, _ in shown}
    types = form.get("type")
    first = next(iter(types), None) if isinstance(types, list) else types
    return EXAMPLES.get(str(first), {})


def written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def takes(form: Schema | None) -> str:
    """What a gate with a form takes, in a few words behind its question; nothing without a form."""
    return f" (such as {harmless(example(form))})" if form is not None else ""
