"""Records, the content of facts: a label, positional fields and named fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from nerve.core.json_codec import short_sha256
from nerve.dataspace.canonical_json import Json, encode_canonical, normalize_json
from nerve.dataspace.errors import NotARecord
from nerve.dataspace.record_identity import (
    DEFAULT_FIELDS,
    Field,
    first_field,
    identity_fields,
    normalize_spelling,
)
from nerve.lazy_dataclass import dataclass

RECORD_SYNTAX = 'A record is a list with a label first: ["agent-response", {"request-id": "r", "text": "t"}].'

MAX_INDEXED_CHARS = 100
"""The longest text of a named field that facts are indexed by."""


@dataclass(frozen=True, eq=False)
class Record:
    """An immutable record; records with the same canonical JSON are equal."""

    label: str
    fields: tuple[Json, ...] = ()
    named: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.label, str) or not self.label:
            raise NotARecord(f"The label of a record must be a string, got {self.label!r}. {RECORD_SYNTAX}")
        label, fields, named_fields = split_record(normalize_json([self.label, *self.fields, self.named]))
        label, named_fields = normalize_spelling(label, named_fields)
        set_field = object.__setattr__
        set_field(self, "label", label)
        set_field(self, "fields", fields)
        set_field(self, "named", MappingProxyType({**DEFAULT_FIELDS.get(label, {}), **named_fields}))

    @classmethod
    def of(cls, source: Record | str | Sequence[Json]) -> Record:
        """Return a record from a record, its text, or its JSON form."""
        if isinstance(source, Record):
            return source
        return cls.parse(source) if isinstance(source, str) else cls.from_json(source)

    @classmethod
    def from_json(cls, value: Sequence[Json]) -> Record:
        """Return the record of a list; an object at its end contains the named fields."""
        if not isinstance(value, list | tuple) or not value:
            raise NotARecord(f"{value!r} is not a record. {RECORD_SYNTAX}")
        label, fields, named_fields = split_record(value)
        return cls(label, fields, named_fields)

    def to_json(self) -> list[Json]:
        """Return the list; it ends with an object if there are named fields, or to avoid ambiguity."""
        return join_record(self.label, self.fields, self.named)

    @classmethod
    def parse(cls, text: str, file: str = "<fact>") -> Record:
        """Parse the record of an S-expression."""
        from nerve.dataspace.sexpr_syntax import read_record

        return read_record(text, file)

    def __str__(self) -> str:
        from nerve.dataspace.sexpr_syntax import print_record

        return print_record(self)

    def get(self, field_name: Field) -> Json:
        """Return a named or positional field, or None."""
        if isinstance(field_name, str):
            return self.named.get(field_name)
        return self.fields[field_name] if field_name < len(self.fields) else None

    def identity(self) -> list[Json]:
        """Return the part that identifies the record: a newer record with the same identity replaces it."""
        field_names = identity_fields(self.label, self.named)
        return self.to_json() if field_names is None else [self.label, *map(self.get, field_names)]

    @cached_property
    def canonical(self) -> str:
        """The canonical JSON text."""
        return encode_canonical(self.to_json())

    @cached_property
    def id(self) -> str:
        """The hash of the identity."""
        return hash_identity(self.identity())

    @cached_property
    def index_keys(self) -> tuple[tuple[str, ...], ...]:
        """The index keys: all records, by label, by first field, by identity, by each short named field."""
        label = self.label
        first = encode_canonical(self.get(first_field(label)))
        named = [named_field_key(label, name, value) for name, value in self.named.items()]
        keys = (), (label,), (label, "first", first), (label, "id", self.id)
        return *keys, *(key for key in named if key is not None)

    def __eq__(self, other: object) -> bool:
        return self.canonical == other.canonical if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __reduce__(self) -> tuple[Any, ...]:
        return Record, (self.label, self.fields, dict(self.named))


def split_record(value: Sequence[Json]) -> tuple[Any, tuple[Json, ...], Mapping[str, Json]]:
    """Return the label, positional and named fields of the JSON form of a record or pattern."""
    label, *rest = value
    named_fields = rest.pop() if rest and isinstance(rest[-1], Mapping) else {}
    return label, tuple(rest), named_fields


def join_record(label: Json, fields: Sequence[Json], named_fields: Mapping[str, Json]) -> list[Json]:
    """Return the JSON form; after a last positional field that is an object, named fields always follow."""
    ambiguous = bool(fields) and isinstance(fields[-1], Mapping)
    return [label, *fields, *([dict(named_fields)] if named_fields or ambiguous else [])]


def named_field_key(label: str, name: str, value: Json) -> tuple[str, ...] | None:
    """Return the index key of a named field; None for a value that is not indexed."""
    if isinstance(value, int | float):
        return label, "named", name, encode_canonical(value)
    is_short_text = isinstance(value, str) and len(value) <= MAX_INDEXED_CHARS
    return (label, "named", name, value) if is_short_text else None


def hash_identity(identity: list[Json]) -> str:
    return short_sha256(encode_canonical(identity))
