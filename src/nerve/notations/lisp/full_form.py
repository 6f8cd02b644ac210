"""The full form: JSON values as Lisp literals, `(spec {:name "x" :body {…}})`."""

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
"""The template of a form that is a name in sight or is computed; None of any other."""


def literal_value(
    diagnostics: LispDiagnostics, form: Form, resolve_name: NameResolver = lambda form: None
) -> Any:
    """The JSON value of a literal, with the places of all its parts."""
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
            fix = "A list of values is written [a b c], an object {:key value}."
            diagnostics.add(form, f"expected a value, found {preview_form(form)}", fix)
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
    """The full form of a spec."""
    return print_form(ListForm((Symbol("spec"), literal_form(data)))) + "\n"


def literal_form(value: Any, depth: int = 1) -> Form:
    """The literal of a JSON value."""
    if depth > MAX_SEXPR_DEPTH + 1:
        raise ValueError(f"a value nested more than {MAX_SEXPR_DEPTH} deep cannot be written")
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
    raise ValueError(f"a {type(value).__name__} cannot be written as a literal")


def literal_key(key: object) -> Keyword | String:
    if not isinstance(key, str):
        raise ValueError(f"the key {key!r} is not a string")
    return Keyword(key) if PLAIN_KEY.fullmatch(key) else String(key)
