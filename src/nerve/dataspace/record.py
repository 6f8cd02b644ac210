"""Records: a label, positional fields and named fields; what facts are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from nerve.core.values import digest
from nerve.dataspace.errors import NotARecord
from nerve.dataspace.identity import DEFAULTS, Field, first_field, identity_fields, spelled
from nerve.dataspace.plain import Json, canonical, plain

SHAPE = 'A record is a list with a label first: ["agent-response", {"request-id": "r", "text": "t"}].'


@dataclass(frozen=True, eq=False)
class Record:
    """Equal to another record when both have the same canonical JSON; its values are not to be changed."""

    label: str
    fields: tuple[Json, ...] = ()
    named: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.label, str) or not self.label:
            raise NotARecord(f"the label of a record must be text, not {self.label!r}. {SHAPE}")
        label, fields, named = parts(plain([self.label, *self.fields, self.named]))
        label, named = spelled(label, named)
        put = object.__setattr__
        put(self, "label", label)
        put(self, "fields", fields)
        put(self, "named", MappingProxyType({**DEFAULTS.get(label, {}), **named}))

    @classmethod
    def of(cls, source: Record | str | Sequence[Json]) -> Record:
        """A record from a record, its text, or its JSON form."""
        if isinstance(source, Record):
            return source
        return cls.parse(source) if isinstance(source, str) else cls.from_json(source)

    @classmethod
    def from_json(cls, value: Sequence[Json]) -> Record:
        """The record of a list; an object at its end holds the named fields."""
        if not isinstance(value, list | tuple) or not value:
            raise NotARecord(f"{value!r} is no record. {SHAPE}")
        label, fields, named = parts(value)
        return cls(label, fields, named)

    def to_json(self) -> list[Json]:
        """The list; it ends in an object if there are named fields, or if it would seem so."""
        return joined(self.label, self.fields, self.named)

    @classmethod
    def parse(cls, text: str, file: str = "<fact>") -> Record:
        """The record of an S-expression."""
        from nerve.dataspace.text import read_record

        return read_record(text, file)

    def __str__(self) -> str:
        from nerve.dataspace.text import print_record

        return print_record(self)

    def get(self, place: Field) -> Json:
        """A named or positional field; None if there is none."""
        if isinstance(place, str):
            return self.named.get(place)
        return self.fields[place] if place < len(self.fields) else None

    def identity(self) -> list[Json]:
        """The part by which a newer record replaces an older one."""
        places = identity_fields(self.label, self.named)
        return self.to_json() if places is None else [self.label, *map(self.get, places)]

    @cached_property
    def canonical(self) -> str:
        """The JSON text that is the same for equal records."""
        return canonical(self.to_json())

    @cached_property
    def id(self) -> str:
        """The hash of the identity."""
        return identity_id(self.identity())

    @cached_property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """Where it can be looked up: everywhere, by its label, by its first field, by its identity."""
        label = self.label
        first = canonical(self.get(first_field(label)))
        return (), (label,), (label, "first", first), (label, "id", self.id)

    def __eq__(self, other: object) -> bool:
        return self.canonical == other.canonical if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __reduce__(self) -> tuple[Any, ...]:
        return Record, (self.label, self.fields, dict(self.named))


def parts(value: Sequence[Json]) -> tuple[Any, tuple[Json, ...], Mapping[str, Json]]:
    """Label, positional and named fields of the JSON form of a record or a pattern."""
    label, *rest = value
    named = rest.pop() if rest and isinstance(rest[-1], Mapping) else {}
    return label, tuple(rest), named


def joined(label: Json, fields: Sequence[Json], named: Mapping[str, Json]) -> list[Json]:
    """The JSON form: a last field that is an object is followed by the object of the named ones."""
    ambiguous = bool(fields) and isinstance(fields[-1], Mapping)
    return [label, *fields, *([dict(named)] if named or ambiguous else [])]


def identity_id(identity: list[Json]) -> str:
    return digest(canonical(identity))
