"""Patterns: records with holes, by which facts are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nerve.dataspace.errors import NotAPattern
from nerve.dataspace.identity import Field, first_field, identity_fields, spelled
from nerve.dataspace.plain import Json, canonical, plain
from nerve.dataspace.record import Record, identity_id, joined, parts
from nerve.dataspace.shapes import (
    ESCAPE,
    MORE,
    NOTHING,
    Items,
    Object,
    Shape,
    escaped,
    items_of,
    literal,
    object_of,
    shape_of,
)

SHAPE = 'A pattern is a list with a label first: ["agent-response", {"request-id": "?id"}].'


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """`?name` captures, `_` fits anything, everything else must be equal.

    Named fields that it does not mention may be there; positional ones only if it ends in `...`.
    """

    json: tuple[Json, ...]
    canonical: str = field(init=False, repr=False)
    label: Shape = field(init=False, repr=False)
    fields: Items = field(init=False, repr=False)
    named: Object = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.json, list | tuple) or not self.json:
            raise NotAPattern(f"{self.json!r} is no pattern. {SHAPE}")
        label, fields, named = parts(plain(self.json))
        if not isinstance(label, str) or label in ("", ESCAPE, MORE):
            raise NotAPattern(f'the label of a pattern must be text, "?name" or "_", not {label!r}. {SHAPE}')
        label, named = spelled(label, named)
        put = object.__setattr__
        put(self, "json", tuple(joined(label, fields, named)))
        put(self, "canonical", canonical(list(self.json)))
        put(self, "label", shape_of(label))
        put(self, "fields", items_of(fields))
        put(self, "named", object_of(named))

    @classmethod
    def of(cls, source: Pattern | Record | str | Sequence[Json]) -> Pattern:
        """A pattern from a pattern, a record (which alone fits it), its text, or its JSON form."""
        if isinstance(source, Pattern):
            return source
        if isinstance(source, Record):
            return exactly(source)
        if isinstance(source, str):
            return cls.parse(source)
        if not isinstance(source, list | tuple):
            raise NotAPattern(f"{source!r} is no pattern. {SHAPE}")
        return cls(tuple(source))

    @classmethod
    def parse(cls, text: str, file: str = "<pattern>") -> Pattern:
        """The pattern of an S-expression, or of a label alone."""
        from nerve.dataspace.text import read_pattern

        return read_pattern(text, file)

    def to_json(self) -> list[Json]:
        """The pattern as JSON, which can be read again."""
        return list(self.json)

    def __str__(self) -> str:
        from nerve.dataspace.text import print_pattern

        return print_pattern(self)

    def match(self, record: Record) -> dict[str, Json] | None:
        """What is captured of a record that fits; None if it does not."""
        captures: dict[str, Json] = {}
        fits = (
            self.label.fits(record.label, captures)
            and self.fields.fits(record.fields, captures)
            and self.named.fits(record.named, captures)
        )
        # Observers share the record: what one does to its captures is no business of the others.
        return {name: plain(value) for name, value in captures.items()} if fits else None

    def only(self, place: Field) -> Json:
        """The one value that a field must have, or NOTHING if that cannot be said."""
        if isinstance(place, str):
            shape = self.named.shapes.get(place)
        else:
            shape = self.fields.shapes[place] if place < len(self.fields.shapes) else None
        return NOTHING if shape is None else shape.only()

    def key(self) -> tuple[str, ...]:
        """The narrowest of the `keys` of a record that every record that fits has."""
        label = self.label.only()
        if label is NOTHING:
            return ()
        if (found := self._id(label)) is not None:
            return label, "id", found
        first = self.only(first_field(label))
        return (label,) if first is NOTHING else (label, "first", canonical(first))

    def _id(self, label: str) -> str | None:
        """The id that every record that fits has, if there is only one."""
        if (whole := self._whole(label)) is not None:
            return whole.id
        known = {key: shape.only() for key, shape in self.named.shapes.items()}
        places = identity_fields(label, {key: value for key, value in known.items() if value is not NOTHING})
        values = [self.only(place) for place in places or ()]
        return identity_id([label, *values]) if values and NOTHING not in values else None

    def _whole(self, label: str) -> Record | None:
        fields, named = self.fields.only(), self.named.only()
        return None if fields is NOTHING or named is NOTHING else Record(label, tuple(fields), named)

    def __eq__(self, other: object) -> bool:
        return self.canonical == other.canonical if isinstance(other, Pattern) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.canonical)


def exactly(record: Record) -> Pattern:
    """The pattern that this record fits and no other."""
    named = literal(record.named)
    return Pattern((escaped(record.label), *map(literal, record.fields), named))


def match(pattern: Pattern | Record | str | Sequence[Json], record: Record) -> dict[str, Json] | None:
    """What a pattern captures of a record that fits; None if it does not."""
    return Pattern.of(pattern).match(record)
