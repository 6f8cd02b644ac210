"""The full form: the spec as Lisp literals, `(spec {:name "x" :body {…}})`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from nerve.notations.lisp.diagnostics import LispDiagnostics
from nerve.notations.lisp.form_parsing import preview_form
from nerve.text.sexpr import (
    Constant,
    Form,
    Keyword,
    ListForm,
    MapForm,
    Number,
    String,
    Symbol,
    VectorForm,
    print_form,
)
from nerve.text.sexpr.forms import map_key_text
from nerve.text.sexpr.limits import MAX_SEXPR_DEPTH
from nerve.text.source import LocatedList, LocatedMap

PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}", re.ASCII)


NameResolver = Callable[[Form], str | None]
"""Returns the template of a visible name or a call; None for another form."""


def literal_value(
    diagnostics: LispDiagnostics, form: Form, resolve_name: NameResolver = lambda form: None
) -> Any:
    """Return the JSON value of a literal, with positions."""
    if (template := resolve_name(form)) is not None:
        return template
    match form:
        case String(value) | Number(value) | Constant(value):
            return value
        case VectorForm(items, position):
            values = LocatedList((), position)
            for item in items:
                values.append_at(literal_value(diagnostics, item, resolve_name), item.position)
            return values
        case MapForm():
            return literal_map(diagnostics, form, resolve_name)
        case Symbol(name):
            diagnostics.add(form, f"'{name}' is not a value", "Put strings in double quotes.")
        case _:
            fix = "Write a list as [a b c] and an object as {:key value}."
            diagnostics.add(form, f"Expected a value, found {preview_form(form)}", fix)
    return None


def literal_map(
    diagnostics: LispDiagnostics, form: MapForm, resolve_name: NameResolver = lambda form: None
) -> LocatedMap:
    result = LocatedMap((), form.position)
    for key, item in form.items:
        result.set_at(map_key_text(key), literal_value(diagnostics, item, resolve_name), item.position)
        result.key_positions[map_key_text(key)] = key.position
    return result


def write_document(data: Mapping[str, Any]) -> str:
    """Return the full form of a spec."""
    return print_form(ListForm((Symbol("spec"), literal_form(data)))) + "\n"


def literal_form(value: Any, depth: int = 1) -> Form:
    """Return the literal of a JSON value."""
    if depth > MAX_SEXPR_DEPTH + 1:
        raise ValueError(f"Cannot write Lisp: nested deeper than {MAX_SEXPR_DEPTH} levels")
    match value:
        case None | bool():
            return Constant(value)
        case int() | float():
            return Number(value)
        case str():
            return String(value)
        case Mapping():
            return MapForm(
                tuple((literal_key(key), literal_form(item, depth + 1)) for key, item in value.items())
            )
        case list() | tuple():
            return VectorForm(tuple(literal_form(item, depth + 1) for item in value))
    raise ValueError(f"Cannot write Lisp: unsupported type {type(value).__name__}")


def literal_key(key: object) -> Keyword | String:
    if not isinstance(key, str):
        raise ValueError(f"Cannot write Lisp: a key must be a string, got {key!r}")
    return Keyword(key) if PLAIN_KEY.fullmatch(key) else String(key)
