"""Match a typed name exactly, without case, by prefix or by substring."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AmbiguousMatch:
    """Several names match equally well."""

    candidates: tuple[str, ...]


MATCH_TIERS: tuple[Callable[[str, str], bool], ...] = (
    lambda typed, name: name == typed,
    lambda typed, name: name.casefold() == typed.casefold(),
    lambda typed, name: name.casefold().startswith(typed.casefold()),
    lambda typed, name: typed.casefold() in name.casefold(),
)
"""Match rules, strictest first."""


def match_name(typed: str, names: Iterable[str]) -> str | AmbiguousMatch | None:
    """Return the matching name, or all matches of the first rule that matches any, or None."""
    known = list(dict.fromkeys(names))
    for matches_typed in MATCH_TIERS if typed else ():
        matches = [name for name in known if matches_typed(typed, name)]
        if matches:
            return matches[0] if len(matches) == 1 else AmbiguousMatch(tuple(matches))
    return None
