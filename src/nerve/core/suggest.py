"""What somebody may have meant."""

from __future__ import annotations

from collections.abc import Iterable

CLOSE = 0.65
"""How alike two names are from which on one may be meant by the other."""


def closest(name: str, names: Iterable[str]) -> str | None:
    """The name that was likely meant."""
    import difflib

    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=CLOSE)), None)


def suggest(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that names the closest of the names; nothing if none is close."""
    close = closest(name, names)
    return f". Did you mean '{close}'?" if close else ""
