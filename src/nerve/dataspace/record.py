"""Records, the content of facts: a label, positional fields and named fields, in canonical JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from nerve.core.json_codec import MAX_EXACT_INT, check_safe_integers, encode_json, short_sha256
from nerve.dataspace.errors import NotARecord
from nerve.errors import NotJson
from nerve.lazy_dataclass import dataclass

# -- canonical JSON: equal values have equal text ------------------------------------------------

Json = Any
ARRAYS = (list, tuple)
MAX_DEPTH = 64
"""The maximum nesting depth of a value."""


def normalize_json(value: Json, depth: int = 0) -> Json:
    """Return a copy of plain JSON types, with `1.0` as `1` and unpaired surrogates replaced."""
    # The exact type first: the first look at facts copies thousands of texts.
    if type(value) is str and value.isascii():
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, int):
        check_safe_integers(value)
        return int(value)
    if isinstance(value, float):
        if value - value != 0:
            raise NotJson(f"The number {value} cannot be encoded as JSON")
        return int(value) if value.is_integer() and abs(value) <= MAX_EXACT_INT else float(value)
    if depth >= MAX_DEPTH:
        raise NotJson(f"The value is nested more than {MAX_DEPTH} levels deep; make it flatter")
    if isinstance(value, ARRAYS):
        return [normalize_json(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {normalize_key(key): normalize_json(item, depth + 1) for key, item in value.items()}
    raise NotJson(f"A value of type {type(value).__name__} cannot be encoded as JSON; use plain data instead")


def replace_lone_surrogates(text: str) -> str:
    """Replace unpaired surrogates, which neither UTF-8 nor a store can encode."""
    if text.isascii():
        return str(text)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def normalize_key(key: Any) -> str:
    if type(key) is str and key.isascii():
        return key
    if not isinstance(key, str):
        raise NotJson(f"Object keys must be strings, got {key!r}")
    return replace_lone_surrogates(key)


def encode_canonical(value: Json) -> str:
    """Return the canonical JSON text of a plain value."""
    return encode_json(value, canonical=True)


# -- identity of records -------------------------------------------------------------------------


Field = str | int
"""The name of a named field, or the index of a positional one."""

IDENTITY_FIELDS: Mapping[str, tuple[Field, ...]] = {
    "signal": (0, "key"),
    "workflow-definition": ("id",),
    "workflow-instance": ("definition", "label"),
    "workflow/state": ("run",),
    "workflow/log": ("run", "seq"),
    "agent-request": ("run", "request-id"),
    "agent-response": ("run", "request-id"),
}
"""The fields that identify a record. With any other label, the whole record is its identity."""

REQUIRED_IDENTITY_FIELD = {"workflow-instance": "label"}
"""Without this field the whole record is its identity: two instances without a label are distinct."""

LABEL_ALIASES = {"workflow/definition": "workflow-definition", "workflow/instance": "workflow-instance"}
FIELD_ALIASES = {"signal": {"scope": "key"}}
DEFAULT_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "signal": {"key": None, "value": None},
    "agent-response": {"request-id": None, "text": ""},
}


def normalize_spelling(label: str, named_fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the label and the named fields without aliases."""
    label = LABEL_ALIASES.get(label, label)
    aliases = FIELD_ALIASES.get(label, {})
    renamed_fields = {name for name, usual in aliases.items() if usual not in named_fields}
    return label, {
        aliases[name] if name in renamed_fields else name: value for name, value in named_fields.items()
    }


def identity_fields(label: str, named_fields: Mapping[str, Any]) -> tuple[Field, ...] | None:
    """Return the fields that identify a record; None for the whole record."""
    needed = REQUIRED_IDENTITY_FIELD.get(label)
    if needed is not None and named_fields.get(needed) is None:
        return None
    return IDENTITY_FIELDS.get(label)


def first_field(label: str) -> Field:
    """Return the first identity field of a label."""
    return IDENTITY_FIELDS.get(label, (0,))[0]


# -- records -------------------------------------------------------------------------------------


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
    if isinstance(value, str):
        return (label, "named", name, value) if len(value) <= MAX_INDEXED_CHARS else None
    return (label, "named", name, encode_canonical(value)) if isinstance(value, int | float) else None


def hash_identity(identity: list[Json]) -> str:
    return short_sha256(encode_canonical(identity))
