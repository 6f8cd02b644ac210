"""Lines of standard input without line editing: a pipe, a file, or a dumb terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading


class StdinLines:
    """Reads lines from a file descriptor without blocking the event loop."""

    def __init__(self, file: int = 0) -> None:
        self._file = file
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        # A thread, because not every descriptor supports polling. It reads the descriptor directly, so
        # that the interpreter can exit while the read blocks.
        threading.Thread(target=self._read_loop, daemon=True, name="nerve-stdin").start()

    async def read_line(self) -> str | None:
        """Return the next line; None at end of input."""
        return await self._lines.get()

    def _read_loop(self) -> None:
        rest = b""
        while True:
            try:
                data = os.read(self._file, 65536)
            except OSError:
                data = b""
            *lines, rest = (rest + data).split(b"\n")
            for line in [*lines, *([rest] if rest and not data else [])]:
                self._enqueue(line.decode(errors="replace").rstrip("\r"))
            if not data:
                self._enqueue(None)
                return

    def _enqueue(self, line: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
