"""The full form: JSON values as Lisp literals, `(spec {:name "x" :body {…}})`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from nerve.notations.lisp.shape import glimpse
from nerve.notations.lisp.telling import Teller
from nerve.notations.sexpr import (
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
from nerve.notations.sexpr.forms import key_text
from nerve.notations.sexpr.limits import DEPTH
from nerve.spec.source import Map, Seq

PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}", re.ASCII)


Named = Callable[[Form], str | None]
"""The template of a form that is a name in sight or is computed; None of any other."""


def value_of(tell: Teller, form: Form, named: Named = lambda form: None) -> Any:
    """The JSON value of a literal, with the places of all its parts."""
    if (template := named(form)) is not None:
        return template
    match form:
        case String(value) | Number(value) | Constant(value):
            return value
        case VectorForm(items, place):
            found = Seq((), place)
            for item in items:
                found.push(value_of(tell, item, named), item.place)
            return found
        case MapForm():
            return map_of(tell, form, named)
        case Symbol(name):
            tell.tell(form, f"'{name}' is not a value", "Text belongs in double quotes.")
        case _:
            fix = "A list of values is written [a b c], an object {:key value}."
            tell.tell(form, f"expected a value, found {glimpse(form)}", fix)
    return None


def map_of(tell: Teller, form: MapForm, named: Named = lambda form: None) -> Map:
    found = Map((), form.place)
    for key, item in form.items:
        found.put(key_text(key), value_of(tell, item, named), item.place)
        found.keys_at[key_text(key)] = key.place
    return found


def write(data: Mapping[str, Any]) -> str:
    """The full form of a spec."""
    return print_form(ListForm((Symbol("spec"), form_of(data)))) + "\n"


def form_of(value: Any, depth: int = 1) -> Form:
    """The literal of a JSON value."""
    if depth > DEPTH + 1:
        raise ValueError(f"a value nested more than {DEPTH} deep cannot be written")
    match value:
        case None | bool():
            return Constant(value)
        case int() | float():
            return Number(value)
        case str():
            return String(value)
        case Mapping():
            return MapForm(tuple((key_of(key), form_of(item, depth + 1)) for key, item in value.items()))
        case list() | tuple():
            return VectorForm(tuple(form_of(item, depth + 1) for item in value))
    raise ValueError(f"a {type(value).__name__} cannot be written as a literal")


def key_of(key: object) -> Keyword | String:
    if not isinstance(key, str):
        raise ValueError(f"the key {key!r} is not a string")
    return Keyword(key) if PLAIN_KEY.fullmatch(key) else String(key)
