"""Names as people type them: whole, in another case, only the beginning, or a part."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AmbiguousMatch:
    """Several names fit equally well, and none of them is guessed."""

    candidates: tuple[str, ...]


MATCH_TIERS: tuple[Callable[[str, str], bool], ...] = (
    lambda given, name: name == given,
    lambda given, name: name.casefold() == given.casefold(),
    lambda given, name: name.casefold().startswith(given.casefold()),
    lambda given, name: given.casefold() in name.casefold(),
)
"""The ways to mean a name, the surest first."""


def match_name(given: str, names: Iterable[str]) -> str | AmbiguousMatch | None:
    """The name that is meant, or all that may be; the first tier in which any fits decides."""
    known = list(dict.fromkeys(names))
    for fits in MATCH_TIERS if given else ():
        matches = [name for name in known if fits(given, name)]
        if matches:
            return matches[0] if len(matches) == 1 else AmbiguousMatch(tuple(matches))
    return None
