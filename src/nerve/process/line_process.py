"""A program with line-based input and output; none of its descendants outlives the context."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from nerve.process.supervised_process import SupervisedProcess, open_process

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Bytes of the longest line; a program that is two such buffers ahead has to wait."""
STDERR_TAIL_BYTES = 16 * 1024
"""The last bytes of the error stream that are kept."""


class StderrTail(asyncio.Protocol):
    """The last output on the error stream; `closed` is done at its end."""

    def __init__(self) -> None:
        self.data = b""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.data = (self.data + data)[-STDERR_TAIL_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)


class LineProcess:
    """The lines of a running program."""

    def __init__(self, process: SupervisedProcess, stdout: asyncio.StreamReader, stderr: StderrTail) -> None:
        self._process, self._stdout, self._stderr = process, stdout, stderr
        self.pid = process.pid

    @property
    def stderr(self) -> str:
        """The last output on the error stream."""
        return self._stderr.data.decode(errors="replace")

    async def read_line(self) -> bytes:
        """Return the next line; empty at the end of the output."""
        try:
            return await self._stdout.readline()
        except ValueError as error:
            raise OSError("The program wrote a line that exceeds the size limit") from error

    def send(self, line: bytes) -> None:
        """Write a line; it is dropped if the program has ended."""
        if (stdin := self._process.stdin) is not None and not stdin.is_closing():
            stdin.write(line + b"\n")

    async def wait_for_stderr(self) -> str:
        """Wait for the end of the error stream, and return its last output."""
        await asyncio.wait([self._stderr.closed], timeout=1)
        return self.stderr


@asynccontextmanager
async def open_line_process(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    grace: float = 2.0,
    limit: int = MAX_LINE_BYTES,
) -> AsyncIterator[LineProcess]:
    """Start `argv` as `open_process` does, and exchange lines with it."""
    stdout, stderr = asyncio.StreamReader(limit), StderrTail()
    protocol = asyncio.StreamReaderProtocol(stdout)
    async with open_process(argv, cwd=cwd, env=env, grace=grace, stdout=protocol, stderr=stderr) as process:
        yield LineProcess(process, stdout, stderr)
