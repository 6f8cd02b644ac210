"""What somebody may have meant."""

from __future__ import annotations

from collections.abc import Iterable

MIN_SIMILARITY = 0.65
"""How alike two names are from which on one may be meant by the other."""


def closest_name(name: str, names: Iterable[str]) -> str | None:
    """The name that was likely meant."""
    import difflib

    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=MIN_SIMILARITY)), None)


def did_you_mean_hint(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that names the closest of the names; nothing if none is close."""
    close = closest_name(name, names)
    return f". Did you mean '{close}'?" if close else ""
