"""The input history: navigation, search, and a private file with one JSON string per line."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from nerve.project.config import project_config
from nerve.project.paths import open_private_file
from nerve.text.source import InvalidDefinition
from nerve.ui.fuzzy import best_matches

HISTORY_PATH = Path(".nerve/commander_history")
MAX_HISTORY_ENTRIES = 5000
"""Maximum number of entries kept in memory; the oldest are dropped."""


def open_history(project: Path) -> InputHistory:
    """Return the history of a project; of one with encryption, it is kept in memory only."""
    try:
        is_encrypted = project_config(project).encryption is not None
    except InvalidDefinition:
        is_encrypted = True  # it may be
    return InputHistory(None if is_encrypted else HistoryFile(project / HISTORY_PATH))


class HistoryFile:
    """History file that several Commanders may write at once; write errors are ignored."""

    def __init__(self, path: str | os.PathLike[str] = HISTORY_PATH) -> None:
        self.path = Path(path)

    def load(self) -> list[str]:
        try:
            with os.fdopen(open_private_file(self.path, os.O_RDONLY), "rb") as file:
                entries = parse_history_entries(file.read())
        except OSError:
            return []
        if len(entries) > 2 * MAX_HISTORY_ENTRIES:
            self._truncate()
        return entries[-MAX_HISTORY_ENTRIES:]

    def append(self, entry: str) -> None:
        with contextlib.suppress(OSError), self._open_locked() as file:
            # One write, so that concurrent entries of other processes do not interleave.
            os.write(file, encode_history_entry(entry))

    def _truncate(self) -> None:
        with contextlib.suppress(OSError), self._open_locked() as file:
            entries = parse_history_entries(os.pread(file, os.fstat(file).st_size, 0))
            os.truncate(file, 0)
            os.write(file, b"".join(map(encode_history_entry, entries[-MAX_HISTORY_ENTRIES:])))

    @contextlib.contextmanager
    def _open_locked(self) -> Iterator[int]:
        file = open_private_file(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.fchmod(file, 0o600)
            yield file
        finally:
            os.close(file)


def parse_history_entries(text: bytes) -> list[str]:
    lines = text.decode("utf-8", "replace").split("\n")
    return [entry for line in lines if (entry := decode_history_entry(line)) is not None]


def encode_history_entry(entry: str) -> bytes:
    return (json.dumps(entry) + "\n").encode()


def decode_history_entry(line: str) -> str | None:
    """Decode an entry; None for an invalid line, which a crash may leave."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, str) else None


class InputHistory:
    """The entries, oldest first, and the current position in them.

    Entries that start with a space and consecutive duplicates are not stored.
    """

    def __init__(self, storage: HistoryFile | None = None, entries: Iterable[str] = ()) -> None:
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
        others = newest.keys() - set(exact)
        return [*exact, *best_matches(text, (entry for entry in newest if entry in others), str)][:limit]
