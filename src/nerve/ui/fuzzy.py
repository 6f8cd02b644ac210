"""Fuzzy search: how well a few typed letters fit a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def fuzzy_score(typed: str, name: str) -> float | None:
    """How well it fits, more is better; None if the letters do not stand in the name in their order.

    In this order: the whole name, its beginning, the beginning of a word in it, somewhere in it, scattered.
    """
    typed, name = typed.casefold(), name.casefold()
    if typed == name or not typed:
        return 100.0
    position = name.find(typed)
    if position == 0:
        return 80.0 - len(name) / 1000
    if position > 0:
        words = not name[position - 1].isalnum()
        return (60.0 if words else 40.0) - position / 1000
    gaps = count_gaps(typed, name)
    return None if gaps is None else 20.0 - min(gaps, 19_000) / 1000


def count_gaps(typed: str, name: str) -> int | None:
    """How many letters stand between those that were typed; None if one is missing."""
    last_position, gaps = -1, 0
    for letter in typed:
        position = name.find(letter, last_position + 1)
        if position < 0:
            return None
        gaps, last_position = gaps + position - last_position - 1, position
    return gaps


def best_matches(
    typed: str, things: Iterable[T], name: Callable[[T], str], most: int | None = None
) -> list[T]:
    """The things that fit, the best first, otherwise in their order."""
    scored = [(score, thing) for thing in things if (score := fuzzy_score(typed, name(thing))) is not None]
    scored.sort(key=lambda pair: -pair[0])
    return [thing for _, thing in scored[:most]]
