"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable

MIN_SIMILARITY = 0.65
"""The least similarity (0 to 1) of a name that is suggested."""


def closest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of some names; None if none is similar enough."""
    import difflib

    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=MIN_SIMILARITY)), None)


def did_you_mean_hint(name: str, names: Iterable[str]) -> str:
    """Return ". Did you mean '…'?" for the most similar of some names; "" if none is similar enough."""
    close = closest_name(name, names)
    return f". Did you mean '{close}'?" if close else ""
