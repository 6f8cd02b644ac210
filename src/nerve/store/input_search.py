"""The search for a text in the input of a run, as the SQL of the store does it."""

from __future__ import annotations

import json

from nerve.store.port import MAX_SEARCHED_CHARS

_TO_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def lower_ascii(text: str) -> str:
    """Return a text with the letters that SQLite compares without regard to case in lower case."""
    return text.translate(_TO_LOWER)


def input_contains(first_data: str, search: str) -> bool:
    """Whether a text is in the input of a run, given the data of its first event."""
    if len(first_data) > MAX_SEARCHED_CHARS:
        return False
    value = json.loads(first_data).get("input")
    if value is None:
        return search == ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return lower_ascii(search) in lower_ascii(text)
