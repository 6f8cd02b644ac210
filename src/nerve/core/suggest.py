"""What somebody may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def suggest(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that names the closest of the names; nothing if none is close."""
    import difflib

    close = difflib.get_close_matches(name, list(names), n=1)
    return f". Did you mean '{close[0]}'?" if close else ""
