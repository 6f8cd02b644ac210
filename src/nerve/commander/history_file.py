"""The history of a project in a file that only its owner reads, an entry a line, as JSON."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from nerve.commander.core.history import MOST
from nerve.places import opened

FILE = Path(".nerve/commander_history")


class HistoryFile:
    """Several Commanders may write it at once. One that cannot be written is no reason to fail."""

    def __init__(self, path: str | os.PathLike[str] = FILE) -> None:
        self.path = Path(path)

    def load(self) -> list[str]:
        try:
            with os.fdopen(opened(self.path, os.O_RDONLY), "rb") as file:
                entries = entries_in(file.read())
        except OSError:
            return []
        if len(entries) > 2 * MOST:
            self._shorten()
        return entries[-MOST:]

    def append(self, entry: str) -> None:
        with contextlib.suppress(OSError), self._locked() as file:
            # In one write, so that what others write at the same time is not mixed with it.
            os.write(file, written(entry))

    def _shorten(self) -> None:
        with contextlib.suppress(OSError), self._locked() as file:
            kept = entries_in(os.pread(file, os.fstat(file).st_size, 0))[-MOST:]
            os.truncate(file, 0)
            os.write(file, b"".join(map(written, kept)))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        file = opened(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.fchmod(file, 0o600)
            yield file
        finally:
            os.close(file)


def entries_in(text: bytes) -> list[str]:
    lines = text.decode("utf-8", "replace").split("\n")
    return [entry for line in lines if (entry := read(line)) is not None]


def written(entry: str) -> bytes:
    return (json.dumps(entry) + "\n").encode()


def read(line: str) -> str | None:
    """An entry; None for a line that is none, as a machine that went down may leave one."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, str) else None
