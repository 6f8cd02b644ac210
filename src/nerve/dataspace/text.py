"""Records and patterns as S-expressions: the JSON form, with the named fields written as keywords."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence

from nerve.dataspace.errors import NotAPattern, NotARecord
from nerve.dataspace.pattern import Pattern
from nerve.dataspace.plain import Json
from nerve.dataspace.record import Record, joined, parts
from nerve.dataspace.shapes import ANY, MORE, escaped, unescaped
from nerve.errors import NotJson
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
    read_one,
)
from nerve.notations.sexpr.forms import key_text
from nerve.spec.source import Problem, Unreadable

BARE = re.compile(r"[A-Za-z][\w/.-]{0,63}", re.ASCII)
"""Names that are written without quotes."""
CONSTANTS = ("true", "false", "nil")
SHAPE = "A record is written (label field … :name value …)."


def read_record(text: str, file: str) -> Record:
    """The record that an S-expression stands for."""
    form = read_one(text, file)
    value = Reading(file, holes=False).record(form)
    try:
        return Record.from_json(value)
    except (NotARecord, NotJson) as error:
        raise Unreadable([Problem(file, form.place, str(error))]) from None


def read_pattern(text: str, file: str) -> Pattern:
    """The pattern that an S-expression stands for; a label alone is every record with that label."""
    form, reading = read_one(text, file), Reading(file, holes=True)
    try:
        if isinstance(form, Symbol | String):
            return Pattern((reading.value(form), MORE))
        return Pattern(tuple(reading.record(form)))
    except (NotAPattern, NotJson) as error:
        raise Unreadable([Problem(file, form.place, str(error))]) from None


class Reading:
    """Forms to JSON; with `holes`, symbols like `?name` are kept and what is quoted is escaped."""

    def __init__(self, file: str, holes: bool) -> None:
        self.file, self.holes = file, holes

    def record(self, form: Form) -> list[Json]:
        if not isinstance(form, ListForm) or not form.items:
            raise self.wrong(form, "this is no record.", SHAPE)
        if not isinstance(form.items[0], Symbol | String):
            raise self.wrong(form.items[0], "the label must be a name.", SHAPE)
        return self.fields(form)

    def fields(self, form: ListForm) -> list[Json]:
        """The positional fields, and behind them the object of those with a name."""
        items = list(form.items)
        start = next((at for at, item in enumerate(items) if isinstance(item, Keyword)), len(items))
        values = [self.value(item) for item in items[:start]]
        return joined(values[0], values[1:], self.named(items[start:])) if start < len(items) else values

    def named(self, items: Sequence[Form]) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for key, value in zip(items[::2], [*items[1::2], None], strict=False):
            if not isinstance(key, Keyword):
                raise self.wrong(key, "a field without a name stands behind one with a name.", SHAPE)
            if value is None or isinstance(value, Keyword):
                raise self.wrong(key, f"':{key.name}' has no value.", "Text belongs in double quotes.")
            if (name := key.name) in found:
                raise self.wrong(key, f"':{key.name}' is there twice.", "Remove one.")
            found[name] = self.value(value)
        return found

    def value(self, form: Form) -> Json:
        match form:
            case Symbol():
                return self.symbol(form)
            case String(text):
                return escaped(text) if self.holes else text
            case Number(value) | Constant(value):
                return value
            case VectorForm(items):
                return [self.value(item) for item in items]
            case MapForm(items):
                return {key_text(key): self.value(value) for key, value in items}
            case ListForm(items) if items and not isinstance(items[0], Keyword):
                return self.fields(form)
        raise self.wrong(form, "expected a value.", "A list is written [a b], an object {:a 1}.")

    def symbol(self, form: Symbol) -> str:
        hole = form.name in (ANY, MORE) or form.name.startswith("?")
        if hole and not self.holes:
            raise self.wrong(
                form, f"'{form.name}' belongs in a pattern.", "For the text itself use double quotes."
            )
        return form.name

    def wrong(self, form: Form, message: str, fix: str) -> Unreadable:
        return Unreadable([Problem(self.file, form.place, message, fix)])


def print_record(record: Record) -> str:
    """The S-expression on one line."""
    return written(record.to_json(), String)


def print_pattern(pattern: Pattern) -> str:
    """The S-expression on one line."""
    return written(pattern.to_json(), pattern_text)


Texts = Callable[[str], Form]


def written(value: Sequence[Json], text: Texts) -> str:
    label, fields, named = parts(value)
    values = [form_of(item, text) for item in fields]
    names = [(key_form(name), form_of(item, text)) for name, item in named.items()]
    head = [named_alone(form) for form in (form_of(label, text), *values)]
    if not all(isinstance(name, Keyword) for name, _ in names) or (not names and len(value) > len(head)):
        head.append(MapForm(tuple(names)))
        names = []
    return print_form(ListForm((*head, *(form for pair in names for form in pair))), sys.maxsize)


def named_alone(form: Form) -> Form:
    """A name without quotes, if it reads as one."""
    if isinstance(form, String) and BARE.fullmatch(form.value) and form.value not in CONSTANTS:
        return Symbol(form.value)
    return form


def form_of(value: Json, text: Texts) -> Form:
    if isinstance(value, str):
        return text(value)
    if value is None or isinstance(value, bool):
        return Constant(value)
    if isinstance(value, list):
        return VectorForm(tuple(form_of(item, text) for item in value))
    if isinstance(value, Mapping):
        return MapForm(tuple((key_form(name), form_of(item, text)) for name, item in value.items()))
    return Number(value)


def key_form(name: str) -> Keyword | String:
    return Keyword(name) if name == MORE or BARE.fullmatch(name) else String(name)


def pattern_text(text: str) -> Form:
    hole = text in (ANY, MORE) or text.startswith("?")
    return Symbol(text) if hole else String(unescaped(text))
