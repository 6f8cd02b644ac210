"""Input history: navigation, search, and optional storage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from nerve.ui.fuzzy import best_matches

MAX_HISTORY_ENTRIES = 5000
"""Maximum number of entries kept in memory; the oldest are dropped."""


class HistoryStorage(Protocol):
    """Persistent storage of history entries."""

    def load(self) -> list[str]: ...

    def append(self, entry: str) -> None: ...


class InputHistory:
    """The entries, oldest first, and the current position in them.

    Entries that start with a space and consecutive duplicates are not stored.
    """

    def __init__(self, storage: HistoryStorage | None = None, entries: Iterable[str] = ()) -> None:
        self._storage = storage
        stored_entries: list[str] = storage.load() if storage is not None else []
        self.entries: list[str] = [*stored_entries, *entries][-MAX_HISTORY_ENTRIES:]
        self._position: int | None = None
        self._draft = ""

    def add(self, entry: str) -> None:
        """Store an entry and reset the position to the end."""
        self.reset()
        if entry[:1].isspace() or not entry.strip() or self.entries[-1:] == [entry]:
            return
        self.entries = [*self.entries[-MAX_HISTORY_ENTRIES + 1 :], entry]
        if self._storage is not None:
            self._storage.append(entry)

    def previous_entry(self, line: str) -> str | None:
        """Return the previous entry, or None at the first; the current line is kept as the draft."""
        position = len(self.entries) if self._position is None else self._position
        if position == 0:
            return None
        if self._position is None:
            self._draft = line
        self._position = position - 1
        return self.entries[self._position]

    def next_entry(self, line: str) -> str | None:
        """Return the next entry, then the draft; None outside history navigation."""
        if self._position is None:
            return None
        self._position += 1
        if self._position >= len(self.entries):
            draft = self._draft
            self.reset()
            return draft
        return self.entries[self._position]

    def reset(self) -> None:
        """Leave history navigation and drop the draft."""
        self._position, self._draft = None, ""

    def search(self, text: str, limit: int = 50) -> list[str]:
        """Return unique entries that match a text: substrings first, then fuzzy matches, newest first."""
        newest = dict.fromkeys(reversed(self.entries))
        exact = [entry for entry in newest if text.casefold() in entry.casefold()]
        if not text or len(exact) >= limit:
            return exact[:limit]
        known = set(exact)
        return [
            *exact,
            *best_matches(text, (candidate for candidate in newest if candidate not in known), str),
        ][:limit]
