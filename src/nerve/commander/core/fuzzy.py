"""Fuzzy search: how well a few typed letters fit a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def fit(typed: str, name: str) -> float | None:
    """How well it fits, more is better; None if the letters do not stand in the name in their order.

    In this order: the whole name, its beginning, the beginning of a word in it, somewhere in it, scattered.
    """
    typed, name = typed.casefold(), name.casefold()
    if typed == name or not typed:
        return 100.0
    at = name.find(typed)
    if at == 0:
        return 80.0 - len(name) / 1000
    if at > 0:
        words = not name[at - 1].isalnum()
        return (60.0 if words else 40.0) - at / 1000
    gaps = scattered(typed, name)
    return None if gaps is None else 20.0 - min(gaps, 19_000) / 1000


def scattered(typed: str, name: str) -> int | None:
    """How many letters stand between those that were typed; None if one is missing."""
    at, gaps = -1, 0
    for letter in typed:
        found = name.find(letter, at + 1)
        if found < 0:
            return None
        gaps, at = gaps + found - at - 1, found
    return gaps


def best(typed: str, things: Iterable[T], name: Callable[[T], str], most: int | None = None) -> list[T]:
    """The things that fit, the best first, otherwise in their order."""
    fits = [(score, thing) for thing in things if (score := fit(typed, name(thing))) is not None]
    fits.sort(key=lambda pair: -pair[0])
    return [thing for _, thing in fits[:most]]
