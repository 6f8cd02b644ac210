"""Non-blocking writers for pipes and sockets of a process."""

from __future__ import annotations

import asyncio
import os
from typing import IO, Protocol


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class DescriptorWriter:
    """Write `data` to a non-blocking descriptor; stop if the reader closes it."""

    def __init__(self, sink: HasFileno, data: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = sink.fileno()
        self._remaining = memoryview(data)
        self.is_done = False
        os.set_blocking(self._fd, False)
        self._loop.add_writer(self._fd, self._write)

    def _write(self) -> None:
        try:
            self._remaining = self._remaining[os.write(self._fd, self._remaining) :]
        except BlockingIOError:
            return
        except OSError:
            self._remaining = self._remaining[:0]
        if not self._remaining:
            self.stop()

    def stop(self) -> None:
        if not self.is_done:
            self.is_done = True
            self._loop.remove_writer(self._fd)


class StdinWriter(DescriptorWriter):
    """Write the complete standard input of a command, then close it."""

    def __init__(self, pipe: IO[bytes], data: bytes) -> None:
        self._pipe = pipe
        super().__init__(pipe, data)

    def stop(self) -> None:
        super().stop()
        self._pipe.close()
