"""The history of what was entered: walked up and down, searched, and kept by whoever is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from nerve.commander.core.fuzzy import best

MOST = 5000
"""Entries that are known; of more, the last."""


class Keeper(Protocol):
    """Where entries outlive the program."""

    def load(self) -> list[str]: ...

    def append(self, entry: str) -> None: ...


class History:
    """The entries, oldest first, and where somebody who walks through them is.

    An entry that begins with a space is not remembered, nor is the same one twice in a row.
    """

    def __init__(self, keeper: Keeper | None = None, entries: Iterable[str] = ()) -> None:
        self._keeper = keeper
        kept: list[str] = keeper.load() if keeper is not None else []
        self.entries: list[str] = [*kept, *entries][-MOST:]
        self._at: int | None = None
        self._draft = ""

    def add(self, entry: str) -> None:
        """Remember what was entered; whoever walks begins again at the end."""
        self.leave()
        if entry[:1].isspace() or not entry.strip() or self.entries[-1:] == [entry]:
            return
        self.entries = [*self.entries[-MOST + 1 :], entry]
        if self._keeper is not None:
            self._keeper.append(entry)

    def up(self, line: str) -> str | None:
        """The entry before, instead of this line; None at the first. The line that was begun is not lost."""
        at = len(self.entries) if self._at is None else self._at
        if at == 0:
            return None
        if self._at is None:
            self._draft = line
        self._at = at - 1
        return self.entries[self._at]

    def down(self, line: str) -> str | None:
        """The entry after, and behind the last the line that was begun; None if nobody walks."""
        if self._at is None:
            return None
        self._at += 1
        if self._at >= len(self.entries):
            draft = self._draft
            self.leave()
            return draft
        return self.entries[self._at]

    def leave(self) -> None:
        """Walk no more: the line was changed, entered or thrown away."""
        self._at, self._draft = None, ""

    def search(self, text: str, most: int = 50) -> list[str]:
        """The entries that fit a text, each once: those that have it as it is first, the newest first."""
        newest = dict.fromkeys(reversed(self.entries))
        exact = [entry for entry in newest if text.casefold() in entry.casefold()]
        if not text or len(exact) >= most:
            return exact[:most]
        known = set(exact)
        return [*exact, *best(text, (each for each in newest if each not in known), str)][:most]
