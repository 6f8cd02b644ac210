"""An index by the keys of records, so that finding the few does not mean trying the many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
Key = tuple[str, ...]


class Index(Generic[T]):
    """Things in the order in which they were put in, each under some keys."""

    def __init__(self) -> None:
        self._under: dict[Key, dict[str, T]] = {}

    def put(self, keys: Iterable[Key], name: str, thing: T) -> None:
        for key in keys:
            self._under.setdefault(key, {})[name] = thing

    def drop(self, keys: Iterable[Key], name: str) -> None:
        for key in keys:
            things = self._under[key]
            del things[name]
            if not things:
                del self._under[key]

    def under(self, key: Key) -> Iterator[T]:
        return iter(self._under.get(key, {}).values())
