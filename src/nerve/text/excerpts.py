"""Excerpts: the beginning of a text or of a list, for a line of a message."""

from collections.abc import Sequence


def clip_text(text: str, max_chars: int) -> str:
    """Return a text of at most that many characters; a longer one ends in `…`."""
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def clip_names(names: Sequence[str], max_names: int) -> str:
    """Return the first names separated by commas; `…` stands for the others."""
    return ", ".join(names[:max_names]) + (", …" if len(names) > max_names else "")


def take_first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
