"""Conversations with a model, each kept as one file, so that any of them can be gone on with."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

THREAD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class ThreadFiles:
    """A folder of files `<thread>.json`, readable by their owner only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, thread: str) -> Path:
        if not THREAD_NAME.fullmatch(thread):
            raise ValueError(f"the name of a thread is of letters, digits and '._-', not {thread!r:.200}")
        return self.folder / f"{thread}.json"

    def read(self, thread: str) -> bytes | None:
        """What was written last; None for a thread that does not exist."""
        try:
            return self.path(thread).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, thread: str, data: bytes) -> None:
        """Replace the file: after a crash it is the old one or the new one, and never a part of it."""
        path = self.path(thread)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
        self._sync_folder()

    def _sync_folder(self) -> None:
        """Make the new name last through a loss of power."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
