"""The forms of an S-expression. Equality ignores positions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from nerve.text.source import Position

DEFAULT_POSITION = Position()


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name: `planner`, `plan/ready`, `@workflow-id`, `?x`."""

    name: str
    position: Position = field(default=DEFAULT_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class Keyword:
    """`:name`; the colon is not part of the name."""

    name: str
    position: Position = field(default=DEFAULT_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class String:
    """A string with its escapes resolved."""

    value: str
    position: Position = field(default=DEFAULT_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class Number:
    """An integer within ±2^53, or a finite float."""

    value: int | float
    position: Position = field(default=DEFAULT_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class Constant:
    """`true`, `false` or `nil`."""

    value: bool | None
    position: Position = field(default=DEFAULT_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class ListForm:
    """`(a b c)`."""

    items: tuple[Form, ...]
    position: Position = field(default=DEFAULT_POSITION, compare=False)

    @property
    def head(self) -> str:
        """The name of the first symbol, or an empty string."""
        first = self.items[0] if self.items else None
        return first.name if isinstance(first, Symbol) else ""


@dataclass(frozen=True, slots=True)
class VectorForm:
    """`[a b c]`."""

    items: tuple[Form, ...]
    position: Position = field(default=DEFAULT_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class MapForm:
    """`{:a 1 "b c" 2}`, in source order, with unique keys."""

    items: tuple[tuple[Keyword | String, Form], ...]
    position: Position = field(default=DEFAULT_POSITION, compare=False)


Form: TypeAlias = Symbol | Keyword | String | Number | Constant | ListForm | VectorForm | MapForm


def map_key_text(key: Keyword | String) -> str:
    """Return the text of a map key: `:a` and `"a"` are the same key."""
    return key.name if isinstance(key, Keyword) else key.value
