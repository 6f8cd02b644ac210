"""Fuzzy matching of typed letters against names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def fuzzy_score(typed: str, name: str) -> float | None:
    """Return the score of a match, higher is better; None if the name lacks the letters in this order.

    Ranking: exact name, prefix, start of a word, substring, scattered letters.
    """
    typed, name = typed.casefold(), name.casefold()
    if typed == name or not typed:
        return 100.0
    position = name.find(typed)
    if position == 0:
        return 80.0 - len(name) / 1000
    if position > 0:
        is_word_start = not name[position - 1].isalnum()
        return (60.0 if is_word_start else 40.0) - position / 1000
    gaps = count_gaps(typed, name)
    return None if gaps is None else 20.0 - min(gaps, 19_000) / 1000


def count_gaps(typed: str, name: str) -> int | None:
    """Count the letters between the typed ones; None if one is missing."""
    last_position, gaps = -1, 0
    for letter in typed:
        position = name.find(letter, last_position + 1)
        if position < 0:
            return None
        gaps, last_position = gaps + position - last_position - 1, position
    return gaps


def best_matches(typed: str, items: Iterable[T], name: Callable[[T], str]) -> list[T]:
    """Return the matching items, best first; equal scores keep their order."""
    scored = [(score, item) for item in items if (score := fuzzy_score(typed, name(item))) is not None]
    scored.sort(key=lambda pair: -pair[0])
    return [item for _, item in scored]
