"""The input history of a project: a private file with one JSON string per line."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from nerve.commander.core.history import MAX_HISTORY_ENTRIES, InputHistory
from nerve.project.config import project_config
from nerve.project.paths import open_private_file
from nerve.text.source import InvalidDefinition

HISTORY_PATH = Path(".nerve/commander_history")


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
            newest_entries = parse_history_entries(os.pread(file, os.fstat(file).st_size, 0))[
                -MAX_HISTORY_ENTRIES:
            ]
            os.truncate(file, 0)
            os.write(file, b"".join(map(encode_history_entry, newest_entries)))

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
