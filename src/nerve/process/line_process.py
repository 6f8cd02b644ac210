"""A program with line-based input and output; none of its descendants outlives the context."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import IO, Any

from nerve.process.command_runner import _encode_order
from nerve.process.environment import child_env
from nerve.process.process_tree import _start_shim

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Bytes of the longest line; a program that is two such buffers ahead has to wait."""
STDERR_TAIL_BYTES = 16 * 1024
"""The last bytes of the error stream that are kept."""


class LineProcess:
    """The pipes of a running program."""

    def __init__(self, shim: subprocess.Popen[bytes], limit: int) -> None:
        self._shim = shim
        self._stderr_tail = b""
        self._stdout_reader = asyncio.StreamReader(limit)
        self._stderr_reader = asyncio.StreamReader(STDERR_TAIL_BYTES)
        self._stdin: asyncio.WriteTransport | None = None
        self._pipes: list[asyncio.BaseTransport] = []
        self._stderr_task: asyncio.Task[None] | None = None
        self.pid = 0

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        for reader, pipe in (
            (self._stdout_reader, self._shim.stdout),
            (self._stderr_reader, self._shim.stderr),
        ):
            self._pipes.append(await _connect_reader(loop, reader, pipe))
        self._stdin, _ = await loop.connect_write_pipe(_StdinProtocol, self._shim.stdin)
        self._stderr_task = asyncio.create_task(self._collect_stderr())

    async def _collect_stderr(self) -> None:
        while data := await self._stderr_reader.read(STDERR_TAIL_BYTES):
            self._stderr_tail = (self._stderr_tail + data)[-STDERR_TAIL_BYTES:]

    @property
    def stderr(self) -> str:
        """The last output on the error stream."""
        return self._stderr_tail.decode(errors="replace")

    async def read_line(self) -> bytes:
        """Return the next line; empty at the end of the output."""
        try:
            return await self._stdout_reader.readline()
        except ValueError as error:
            raise OSError("The program wrote a line that exceeds the size limit") from error

    def send(self, line: bytes) -> None:
        """Write a line; it is dropped if the program has ended."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(line + b"\n")

    async def wait_for_stderr(self) -> str:
        """Wait for the end of the error stream, and return its last output."""
        if self._stderr_task is not None:
            await asyncio.wait([self._stderr_task], timeout=1)
        return self.stderr

    async def close(self) -> None:
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.abort()
        for pipe in self._pipes:
            pipe.close()
        if self._stderr_task is not None:
            self._stderr_task.cancel()
            await asyncio.wait([self._stderr_task])


class _StdinProtocol(asyncio.Protocol):
    """A protocol without flow control: the lines for a program are short."""


async def _connect_reader(
    loop: asyncio.AbstractEventLoop, reader: asyncio.StreamReader, pipe: IO[bytes] | None
) -> asyncio.BaseTransport:
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return transport


@asynccontextmanager
async def open_line_process(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    grace: float = 2.0,
    limit: int = MAX_LINE_BYTES,
) -> AsyncIterator[LineProcess]:
    """Start `argv` under the shim; leaving the context ends its whole tree and waits until it is gone.

    An OSError means that the program could not be started. `env` is the complete environment.
    """
    order = _encode_order(argv, cwd, child_env({}) if env is None else env, grace)
    shim, control = _start_shim(piped=True)
    supervisor = ShimProcess(shim, control)
    program = LineProcess(shim, limit)
    try:
        await _finish_uncancelled(program.connect())
        program.pid = await supervisor.start(order, argv, cwd)
        yield program
    finally:
        try:
            await supervisor.stop()
        finally:
            await program.close()


async def _finish_uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Finish the coroutine even if cancelled: a partially connected pipe cannot be released."""
    task = asyncio.create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


class ShimProcess:
    """The engine side of the shim of one program."""

    def __init__(self, shim: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._shim, self._control = shim, control
        self._buffer = b""
        self._has_order = False

    async def start(self, order: bytes, argv: Sequence[str], cwd: str | os.PathLike[str] | None) -> int:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._control, order)
        self._has_order = True
        while True:
            match (await self._read_report(loop)).split():
                case [b"started", pid]:
                    return int(pid)
                case [b"failed", errno, culprit]:
                    culprit_path = os.fspath(cwd) if cwd and culprit == b"directory" else argv[0]
                    raise OSError(int(errno), os.strerror(int(errno)), culprit_path)
                case []:
                    raise OSError(f"The supervisor of {argv[0]} did not start")

    async def _read_report(self, loop: asyncio.AbstractEventLoop) -> bytes:
        while b"\n" not in self._buffer:
            data = await loop.sock_recv(self._control, 4096)
            if not data:
                return b""
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    async def stop(self) -> None:
        """Request the end of the tree; return only when it is gone, even if cancelled."""
        self._request_end()
        try:
            await _finish_uncancelled(self._wait_for_exit())
        finally:
            self._control.close()

    async def _wait_for_exit(self) -> None:
        while self._shim.poll() is None:  # noqa: ASYNC110 - the end of a process sets no event
            await asyncio.sleep(0.002)

    def _request_end(self) -> None:
        try:
            if self._has_order:
                self._control.send(b"T")
            else:
                self._control.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended
