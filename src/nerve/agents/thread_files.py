"""Conversations with a model, one file each, so that they can be resumed."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from nerve.codec import Codec, decode_text, encode_text, is_encoded_with

THREAD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class ThreadFiles:
    """A folder of files `<thread>.json`, readable only by their owner, and encoded if there is a codec."""

    def __init__(self, folder: Path, codec: Codec | None = None) -> None:
        self.folder, self.codec = folder, codec

    def path(self, thread: str) -> Path:
        if not THREAD_NAME.fullmatch(thread):
            raise ValueError(f"thread must consist of letters, digits and '._-', got {thread!r:.200}")
        return self.folder / f"{thread}.json"

    def read(self, thread: str) -> bytes | None:
        """Return the stored data; None for a thread that does not exist."""
        try:
            data = self.path(thread).read_bytes()
        except FileNotFoundError:
            return None
        if self.codec is not None:
            data = decode_text(self.codec, data.decode(), "thread", thread).encode()
        return data

    def reencode(self) -> int:
        """Write the files again that are not encoded with the current key; return their number."""
        assert self.codec is not None
        threads = [
            file.stem for file in sorted(self.folder.glob("*.json")) if THREAD_NAME.fullmatch(file.stem)
        ]
        old = [
            thread
            for thread in threads
            if not is_encoded_with(self.codec, self.path(thread).read_text("utf-8"))
        ]
        for thread in old:
            if (data := self.read(thread)) is not None:
                self.write(thread, data)
        return len(old)

    def write(self, thread: str, data: bytes) -> None:
        """Replace the file atomically: after a crash it has either the old or the new content."""
        path = self.path(thread)
        if self.codec is not None:
            data = encode_text(self.codec, data.decode(), "thread", thread).encode()
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
        # Sync the folder, so that the new name survives a power failure.
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
