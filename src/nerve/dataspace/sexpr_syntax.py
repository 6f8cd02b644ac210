"""Records and patterns as S-expressions: the JSON form with named fields as keywords."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence

from nerve.dataspace.errors import NotAPattern, NotARecord
from nerve.dataspace.matchers import ANY, MORE, escape_pattern_text, unescape_pattern_text
from nerve.dataspace.pattern import Pattern
from nerve.dataspace.record import Json, Record, join_record, split_record
from nerve.errors import NotJson
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
    read_single_form,
)
from nerve.text.sexpr.forms import map_key_text
from nerve.text.source import InvalidDefinition, Problem

BARE_NAME = re.compile(r"[A-Za-z][\w/.-]{0,63}", re.ASCII)
"""Names that need no quotes."""
CONSTANTS = ("true", "false", "nil")
RECORD_TEXT_SYNTAX = "A record is written (label field … :name value …)."


def read_record(text: str, file: str) -> Record:
    """Parse a record from an S-expression."""
    form = read_single_form(text, file)
    value = RecordParser(file, is_pattern=False).parse_record(form)
    try:
        return Record.from_json(value)
    except (NotARecord, NotJson) as error:
        raise InvalidDefinition([Problem(file, form.position, str(error))]) from None


def read_pattern(text: str, file: str) -> Pattern:
    """Parse a pattern from an S-expression; a label alone matches every record with that label."""
    form, parser = read_single_form(text, file), RecordParser(file, is_pattern=True)
    try:
        if isinstance(form, Symbol | String):
            return Pattern((parser.parse_value(form), MORE))
        return Pattern(tuple(parser.parse_record(form)))
    except (NotAPattern, NotJson) as error:
        raise InvalidDefinition([Problem(file, form.position, str(error))]) from None


class RecordParser:
    """Convert forms to JSON; in a pattern, symbols like `?name` are kept and strings are escaped."""

    def __init__(self, file: str, is_pattern: bool) -> None:
        self.file, self.is_pattern = file, is_pattern

    def parse_record(self, form: Form) -> list[Json]:
        if not isinstance(form, ListForm) or not form.items:
            raise self.syntax_error(form, "Not a record.", RECORD_TEXT_SYNTAX)
        if not isinstance(form.items[0], Symbol | String):
            raise self.syntax_error(form.items[0], "The label must be a name.", RECORD_TEXT_SYNTAX)
        return self.parse_fields(form)

    def parse_fields(self, form: ListForm) -> list[Json]:
        """Return the positional fields, followed by the object of the named fields."""
        items = list(form.items)
        start = next((at for at, item in enumerate(items) if isinstance(item, Keyword)), len(items))
        values = [self.parse_value(item) for item in items[:start]]
        return (
            join_record(values[0], values[1:], self.parse_named_fields(items[start:]))
            if start < len(items)
            else values
        )

    def parse_named_fields(self, items: Sequence[Form]) -> dict[str, Json]:
        fields_by_name: dict[str, Json] = {}
        for key, value in zip(items[::2], [*items[1::2], None], strict=False):
            if not isinstance(key, Keyword):
                raise self.syntax_error(
                    key, "Positional fields must come before named fields.", RECORD_TEXT_SYNTAX
                )
            if value is None or isinstance(value, Keyword):
                raise self.syntax_error(key, f"':{key.name}' has no value.", "Put text in double quotes.")
            if (name := key.name) in fields_by_name:
                raise self.syntax_error(key, f"Duplicate field ':{key.name}'.", "Remove one.")
            fields_by_name[name] = self.parse_value(value)
        return fields_by_name

    def parse_value(self, form: Form) -> Json:
        match form:
            case Symbol():
                is_hole = form.name in (ANY, MORE) or form.name.startswith("?")
                if is_hole and not self.is_pattern:
                    raise self.syntax_error(
                        form,
                        f"'{form.name}' is only allowed in a pattern.",
                        "Use double quotes for the literal string.",
                    )
                return form.name
            case String(text):
                return escape_pattern_text(text) if self.is_pattern else text
            case Number(value) | Constant(value):
                return value
            case VectorForm(items):
                return [self.parse_value(item) for item in items]
            case MapForm(items):
                return {map_key_text(key): self.parse_value(value) for key, value in items}
            case ListForm(items) if items and not isinstance(items[0], Keyword):
                return self.parse_fields(form)
        raise self.syntax_error(form, "Expected a value.", "A list is written [a b], an object {:a 1}.")

    def syntax_error(self, form: Form, message: str, fix: str) -> InvalidDefinition:
        return InvalidDefinition([Problem(self.file, form.position, message, fix)])


def print_record(record: Record) -> str:
    """Return the S-expression on one line."""
    return print_json_form(record.to_json(), String)


def print_pattern(pattern: Pattern) -> str:
    """Return the S-expression on one line."""
    return print_json_form(pattern.to_json(), pattern_text_form)


TextFormatter = Callable[[str], Form]


def print_json_form(value: Sequence[Json], text: TextFormatter) -> str:
    label, fields, named_fields = split_record(value)
    values = [json_to_form(item, text) for item in fields]
    names = [(key_to_form(name), json_to_form(item, text)) for name, item in named_fields.items()]
    head = [unquote_name(form) for form in (json_to_form(label, text), *values)]
    if not all(isinstance(name, Keyword) for name, _ in names) or (not names and len(value) > len(head)):
        head.append(MapForm(tuple(names)))
        names = []
    return print_form(ListForm((*head, *(form for pair in names for form in pair))), sys.maxsize)


def unquote_name(form: Form) -> Form:
    """Return a string as a symbol if it needs no quotes."""
    if isinstance(form, String) and BARE_NAME.fullmatch(form.value) and form.value not in CONSTANTS:
        return Symbol(form.value)
    return form


def json_to_form(value: Json, text: TextFormatter) -> Form:
    if isinstance(value, str):
        return text(value)
    if value is None or isinstance(value, bool):
        return Constant(value)
    if isinstance(value, list):
        return VectorForm(tuple(json_to_form(item, text) for item in value))
    if isinstance(value, Mapping):
        return MapForm(tuple((key_to_form(name), json_to_form(item, text)) for name, item in value.items()))
    return Number(value)


def key_to_form(name: str) -> Keyword | String:
    return Keyword(name) if name == MORE or BARE_NAME.fullmatch(name) else String(name)


def pattern_text_form(text: str) -> Form:
    is_hole = text in (ANY, MORE) or text.startswith("?")
    return Symbol(text) if is_hole else String(unescape_pattern_text(text))
