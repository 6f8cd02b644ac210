"""Facts, their changes, and an index that avoids matching a pattern against every fact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Generic, Literal, TypeVar

from nerve.dataspace.record import Json, Record
from nerve.lazy_dataclass import dataclass

T = TypeVar("T")
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """An asserted record with its author, time and version."""

    record: Record
    id: str
    """The hash of the record's identity: a newer fact with the same id replaces this one."""
    asserted_by: str
    at: float
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    """The assertion of a fact, which may replace another, or its retraction."""

    kind: Literal["asserted", "retracted"]
    fact: Fact
    version: int
    """The number of the change in the dataspace."""
    captures: dict[str, Json] = field(default_factory=dict)
    """The captures of the observer's pattern."""
    replaced: Fact | None = None
    """The older fact with the same id that this one replaces."""
    present: bool = False
    """Whether the fact existed before the observer started."""
    by: str = ""
    """The author of the change."""


class KeyIndex(Generic[T]):
    """Values in insertion order, each under several keys."""

    def __init__(self) -> None:
        self._values_by_key: dict[Key, dict[str, T]] = {}

    def put(self, keys: Iterable[Key], name: str, value: T) -> None:
        for key in keys:
            self._values_by_key.setdefault(key, {})[name] = value

    def drop(self, keys: Iterable[Key], name: str) -> None:
        for key in keys:
            values = self._values_by_key[key]
            del values[name]
            if not values:
                del self._values_by_key[key]

    def fewest_values(self, keys: Iterable[Key]) -> Iterator[T]:
        """Return the values under the key that has fewest."""
        return iter(min((self._values_by_key.get(key, {}) for key in keys), key=len).values())

    def values_under(self, key: Key) -> Iterator[T]:
        return iter(self._values_by_key.get(key, {}).values())
