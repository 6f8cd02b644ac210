"""An index by record keys, which avoids matching a pattern against every fact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
Key = tuple[str, ...]


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
