"""The base of the event classes, and the only code that encodes and decodes their fields.

A field whose default is None or False is left out of the JSON while it has that default, except those that
a class lists in `written_nulls`. Keys missing in older journals get their defaults. Unknown keys, and values
of another type than their field, are kept in `extra`: users can emit some of these events with any data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from functools import partial
from itertools import compress
from operator import attrgetter, is_not
from types import NoneType
from typing import Any, ClassVar, NamedTuple, Self

from nerve.core.events import WorkflowEventType
from nerve.core.json_codec import MAX_EVENT_DEPTH, decode_json, encode_json, replace_invalid_text
from nerve.errors import NotJson
from nerve.lazy_dataclass import dataclass


class FieldSpec(NamedTuple):
    """How a field of an event is read and written."""

    accepted_types: tuple[type, ...]
    """The types of its values; empty for any type."""
    default: Any
    is_optional: bool
    """Whether it is left out of the JSON while it has its default."""

    def accepts(self, value: Any) -> bool:
        return not self.accepted_types or isinstance(value, self.accepted_types)


@dataclass(frozen=True, slots=True)
class KnownEvent:
    """An event whose type the engine knows."""

    type: ClassVar[WorkflowEventType]
    max_depth: ClassVar[int | None] = MAX_EVENT_DEPTH
    """The maximum nesting of its data; None if deeper values may be written approximately."""
    written_nulls: ClassVar[tuple[str, ...]] = ()
    """The fields that are written even if they are None."""
    has_foreign_text: ClassVar[bool] = False
    """Whether its text comes from agents, commands and errors; invalid characters in it are replaced."""

    extra: dict[str, Any] = field(default_factory=dict, kw_only=True)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the event with this JSON as its data."""
        return cls.from_data(decode_json(text))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        specs = field_specs(cls)
        known: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for key, value in data.items():
            spec = specs.get(key)
            if spec is None or (spec.is_optional and value is spec.default) or not spec.accepts(value):
                extra[key] = value
            else:
                known[key] = value
        return cls(**known, extra=extra)

    def to_data(self) -> dict[str, Any]:
        """Return the data as the journal has it."""
        names, omitted_values, read_values = field_encoding(type(self))
        values = read_values(self)
        # By iterators of C: an event has up to sixteen fields, and most of them have their defaults.
        is_written = map(is_not, values, omitted_values)
        data = dict(compress(zip(names, values, strict=True), is_written))
        return data | self.extra if self.extra else data

    def encode(self) -> str:
        """Return the data as JSON; raise NotJson if it cannot be encoded."""
        return encode_event_data(self.to_data(), self.max_depth, self.has_foreign_text)


def encode_event_data(
    data: Mapping[str, Any], max_depth: int | None = MAX_EVENT_DEPTH, has_foreign_text: bool = False
) -> str:
    try:
        return encode_json(data, max_depth=max_depth)
    except NotJson:
        if not has_foreign_text:
            raise
        return encode_json(replace_invalid_text(data), max_depth=max_depth)


def field_specs(event_class: type[KnownEvent]) -> dict[str, FieldSpec]:
    """Return the fields of an event class by name, without `extra`."""
    if (specs := _FIELD_SPECS.get(event_class)) is None:
        # On first use: most processes read events of few types.
        specs = _FIELD_SPECS[event_class] = read_field_specs(event_class)
    return specs


_FIELD_SPECS: dict[type[KnownEvent], dict[str, FieldSpec]] = {}

FieldEncoding = tuple[tuple[str, ...], tuple[Any, ...], Callable[[Any], tuple[Any, ...]]]
ALWAYS_WRITTEN = object()
"""Stands for the value with which a field is left out, if it is always written."""
_FIELD_ENCODINGS: dict[type[KnownEvent], FieldEncoding] = {}


def field_encoding(event_class: type[KnownEvent]) -> FieldEncoding:
    """Return the names of the fields, the values with which they are left out, and a reader of all values."""
    if (encoding := _FIELD_ENCODINGS.get(event_class)) is None:
        specs = field_specs(event_class)
        names = tuple(specs)
        omitted = tuple(spec.default if spec.is_optional else ALWAYS_WRITTEN for spec in specs.values())
        read_values = attrgetter(*names) if len(names) > 1 else partial(read_attributes, names)
        encoding = _FIELD_ENCODINGS[event_class] = names, omitted, read_values
    return encoding


def read_attributes(names: tuple[str, ...], event: KnownEvent) -> tuple[Any, ...]:
    return tuple(getattr(event, name) for name in names)


JSON_TYPES: dict[str, type] = {
    "None": NoneType,
    "bool": bool,
    "dict": dict,
    "float": float,
    "int": int,
    "list": list,
    "str": str,
}
"""The types of JSON by their names in annotations."""


def read_field_specs(event_class: type[KnownEvent]) -> dict[str, FieldSpec]:
    specs: dict[str, FieldSpec] = {}
    for event_field in fields(event_class):
        if event_field.name == "extra":
            continue
        # From the text of the annotation: to evaluate those of one class takes longer than to load a short
        # journal.
        names = [part.partition("[")[0] for part in event_field.type.split(" | ")]
        accepted = set() if names == ["Any"] else {JSON_TYPES[name] for name in names}
        # JSON has one type of number: 5 is a valid float.
        accepted |= {int} if float in accepted else set()
        default = event_field.default
        # By identity: 0.0 == False, but a number is always written.
        is_omitted = default is None or default is False
        is_optional = is_omitted and event_field.name not in event_class.written_nulls
        specs[event_field.name] = FieldSpec(tuple(accepted), default, is_optional)
    return specs


def put_before(extra: Mapping[str, Any], text: str) -> str:
    """Return the JSON of an object with further keys; first, so that the head is not read as a usual one."""
    return f"{encode_json(dict(extra), max_depth=MAX_EVENT_DEPTH)[:-1]},{text[1:]}" if extra else text
