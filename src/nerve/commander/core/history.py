"""The history of what was entered: walked up and down, searched, and kept by whoever is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from nerve.ui.fuzzy import best_matches

MAX_HISTORY_ENTRIES = 5000
"""Entries that are known; of more, the last."""


class HistoryStorage(Protocol):
    """Where entries outlive the program."""

    def load(self) -> list[str]: ...

    def append(self, entry: str) -> None: ...


class InputHistory:
    """The entries, oldest first, and where somebody who walks through them is.

    An entry that begins with a space is not remembered, nor is the same one twice in a row.
    """

    def __init__(self, storage: HistoryStorage | None = None, entries: Iterable[str] = ()) -> None:
        self._storage = storage
        stored_entries: list[str] = storage.load() if storage is not None else []
        self.entries: list[str] = [*stored_entries, *entries][-MAX_HISTORY_ENTRIES:]
        self._position: int | None = None
        self._draft = ""

    def add(self, entry: str) -> None:
        """Remember what was entered; whoever walks begins again at the end."""
        self.reset()
        if entry[:1].isspace() or not entry.strip() or self.entries[-1:] == [entry]:
            return
        self.entries = [*self.entries[-MAX_HISTORY_ENTRIES + 1 :], entry]
        if self._storage is not None:
            self._storage.append(entry)

    def previous_entry(self, line: str) -> str | None:
        """The entry before, instead of this line; None at the first. The line that was begun is not lost."""
        position = len(self.entries) if self._position is None else self._position
        if position == 0:
            return None
        if self._position is None:
            self._draft = line
        self._position = position - 1
        return self.entries[self._position]

    def next_entry(self, line: str) -> str | None:
        """The entry after, and behind the last the line that was begun; None if nobody walks."""
        if self._position is None:
            return None
        self._position += 1
        if self._position >= len(self.entries):
            draft = self._draft
            self.reset()
            return draft
        return self.entries[self._position]

    def reset(self) -> None:
        """Walk no more: the line was changed, entered or thrown away."""
        self._position, self._draft = None, ""

    def search(self, text: str, limit: int = 50) -> list[str]:
        """The entries that fit a text, each once: those that have it as it is first, the newest first."""
        newest = dict.fromkeys(reversed(self.entries))
        exact = [entry for entry in newest if text.casefold() in entry.casefold()]
        if not text or len(exact) >= limit:
            return exact[:limit]
        known = set(exact)
        return [
            *exact,
            *best_matches(text, (candidate for candidate in newest if candidate not in known), str),
        ][:limit]
