"""Patterns: records with wildcards and captures that match facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from nerve.dataspace.errors import NotAPattern
from nerve.dataspace.matchers import (
    ESCAPE,
    MORE,
    NO_LITERAL,
    ListMatcher,
    Matcher,
    ObjectMatcher,
    compile_list_matcher,
    compile_matcher,
    compile_object_matcher,
    escape_pattern_text,
    literal,
)
from nerve.dataspace.record import (
    Field,
    Json,
    Record,
    encode_canonical,
    first_field,
    hash_identity,
    identity_fields,
    join_record,
    named_field_key,
    normalize_json,
    normalize_spelling,
    split_record,
)
from nerve.lazy_dataclass import dataclass

PATTERN_SYNTAX = 'A pattern is a list with a label first: ["agent-response", {"request-id": "?id"}].'


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """`?name` captures, `_` matches anything, everything else must be equal.

    Other named fields are allowed; other positional fields only if the pattern ends with `...`.
    """

    json: tuple[Json, ...]
    canonical: str = field(init=False, repr=False)
    label: Matcher = field(init=False, repr=False)
    fields: ListMatcher = field(init=False, repr=False)
    named: ObjectMatcher = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.json, list | tuple) or not self.json:
            raise NotAPattern(f"{self.json!r} is not a pattern. {PATTERN_SYNTAX}")
        label, fields, named_fields = split_record(normalize_json(self.json))
        if not isinstance(label, str) or label in ("", ESCAPE, MORE):
            raise NotAPattern(
                f'The label of a pattern must be a string, "?name" or "_", got {label!r}. {PATTERN_SYNTAX}'
            )
        label, named_fields = normalize_spelling(label, named_fields)
        set_field = object.__setattr__
        set_field(self, "json", tuple(join_record(label, fields, named_fields)))
        set_field(self, "canonical", encode_canonical(list(self.json)))
        set_field(self, "label", compile_matcher(label))
        set_field(self, "fields", compile_list_matcher(fields))
        set_field(self, "named", compile_object_matcher(named_fields))

    @classmethod
    def of(cls, source: Pattern | Record | str | Sequence[Json]) -> Pattern:
        """Return a pattern from a pattern, a record (matched exactly), its text, or its JSON form."""
        if isinstance(source, Pattern):
            return source
        if isinstance(source, Record):
            return exactly(source)
        if isinstance(source, str):
            return cls.parse(source)
        if not isinstance(source, list | tuple):
            raise NotAPattern(f"{source!r} is not a pattern. {PATTERN_SYNTAX}")
        return cls(tuple(source))

    @classmethod
    def parse(cls, text: str, file: str = "<pattern>") -> Pattern:
        """Parse the pattern of an S-expression, or of a label alone."""
        from nerve.dataspace.sexpr_syntax import read_pattern

        return read_pattern(text, file)

    def to_json(self) -> list[Json]:
        """Return the JSON form of the pattern."""
        return list(self.json)

    def __str__(self) -> str:
        from nerve.dataspace.sexpr_syntax import print_pattern

        return print_pattern(self)

    def match(self, record: Record) -> dict[str, Json] | None:
        """Return the captures of a record that matches, or None."""
        captures: dict[str, Json] = {}
        is_match = (
            self.label.matches(record.label, captures)
            and self.fields.matches(record.fields, captures)
            and self.named.matches(record.named, captures)
        )
        # Observers share the record, so each gets its own copy of the captures.
        return {name: normalize_json(value) for name, value in captures.items()} if is_match else None

    def field_literal(self, field_name: Field) -> Json:
        """Return the only value that a field can have, or NO_LITERAL."""
        if isinstance(field_name, str):
            matcher = self.named.matchers.get(field_name)
        else:
            matcher = self.fields.matchers[field_name] if field_name < len(self.fields.matchers) else None
        return NO_LITERAL if matcher is None else matcher.literal_value()

    def index_keys(self) -> list[tuple[str, ...]]:
        """Return index keys that all matching records share, usually the most specific one first."""
        label = self.label.literal_value()
        if label is NO_LITERAL:
            return [()]
        if (record_id := self._literal_id(label)) is not None:
            return [(label, "id", record_id)]
        first = self.field_literal(first_field(label))
        keys: list[tuple[str, ...]] = []
        if first is not NO_LITERAL:
            keys.append((label, "first", encode_canonical(first)))
        literals = ((name, matcher.literal_value()) for name, matcher in self.named.matchers.items())
        keys += [key for name, value in literals if (key := named_field_key(label, name, value)) is not None]
        return [*keys, (label,)]

    def _literal_id(self, label: str) -> str | None:
        """Return the id that all matching records share, or None."""
        fields, named_fields = self.fields.literal_value(), self.named.literal_value()
        if fields is not NO_LITERAL and named_fields is not NO_LITERAL:
            return Record(label, tuple(fields), named_fields).id
        literals = {key: matcher.literal_value() for key, matcher in self.named.matchers.items()}
        field_names = identity_fields(
            label, {key: value for key, value in literals.items() if value is not NO_LITERAL}
        )
        values = [self.field_literal(field_name) for field_name in field_names or ()]
        return hash_identity([label, *values]) if values and NO_LITERAL not in values else None

    def __eq__(self, other: object) -> bool:
        return self.canonical == other.canonical if isinstance(other, Pattern) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.canonical)


def exactly(record: Record) -> Pattern:
    """Return a pattern that matches only this record."""
    named_fields = literal(record.named)
    return Pattern((escape_pattern_text(record.label), *map(literal, record.fields), named_fields))


def match(pattern: Pattern | Record | str | Sequence[Json], record: Record) -> dict[str, Json] | None:
    """Return the captures of a record that matches a pattern, or None."""
    return Pattern.of(pattern).match(record)
