"""A program that is talked with line by line; nothing it started outlives the talk."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import IO, Any

from nerve.process.command import _order
from nerve.process.environment import child_env
from nerve.process.tree import _start_shim

LINE = 16 * 1024 * 1024
"""Bytes of the longest line that is taken; a program that is twice as far ahead of us has to wait."""
TAIL = 16 * 1024
"""Bytes of the error stream that are kept."""


class Talk:
    """The two ends of the pipes of a running program."""

    def __init__(self, shim: subprocess.Popen[bytes], limit: int) -> None:
        self._shim = shim
        self._tail = b""
        self._lines = asyncio.StreamReader(limit)
        self._errors = asyncio.StreamReader(TAIL)
        self._input: asyncio.WriteTransport | None = None
        self._pipes: list[asyncio.BaseTransport] = []
        self._kept: asyncio.Task[None] | None = None
        self.pid = 0

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        for reader, pipe in ((self._lines, self._shim.stdout), (self._errors, self._shim.stderr)):
            self._pipes.append(await _read(loop, reader, pipe))
        self._input, _ = await loop.connect_write_pipe(_Input, self._shim.stdin)
        self._kept = asyncio.create_task(self._keep_errors())

    async def _keep_errors(self) -> None:
        while data := await self._errors.read(TAIL):
            self._tail = (self._tail + data)[-TAIL:]

    @property
    def stderr(self) -> str:
        """The end of what it said on the error stream."""
        return self._tail.decode(errors="replace")

    async def line(self) -> bytes:
        """The next line; empty when the program says nothing more."""
        try:
            return await self._lines.readline()
        except ValueError as error:
            raise OSError("a line of the program is longer than can be taken") from error

    def send(self, line: bytes) -> None:
        """Write a line; one for a program that has gone is lost."""
        if self._input is not None and not self._input.is_closing():
            self._input.write(line + b"\n")

    async def ended(self) -> str:
        """Wait for the end of the error stream, and give what is kept of it."""
        if self._kept is not None:
            await asyncio.wait([self._kept], timeout=1)
        return self.stderr

    async def close(self) -> None:
        if self._input is not None and not self._input.is_closing():
            self._input.abort()
        for pipe in self._pipes:
            pipe.close()
        if self._kept is not None:
            self._kept.cancel()
            await asyncio.wait([self._kept])


class _Input(asyncio.Protocol):
    """Nobody waits for the input to be taken: what is said to a program is short."""


async def _read(
    loop: asyncio.AbstractEventLoop, reader: asyncio.StreamReader, pipe: IO[bytes] | None
) -> asyncio.BaseTransport:
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return transport


@asynccontextmanager
async def talk(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    grace: float = 2.0,
    limit: int = LINE,
) -> AsyncIterator[Talk]:
    """Start `argv` under the shim and talk with it; leaving ends its whole tree and waits until it is gone.

    An OSError says that the program could not be started. `env` is the whole environment of the program.
    """
    packed = _order(argv, cwd, child_env({}) if env is None else env, grace)
    shim, control = _start_shim(piped=True)
    supervisor = Supervisor(shim, control)
    program = Talk(shim, limit)
    try:
        await _whole(program.connect())
        program.pid = await supervisor.start(packed, argv, cwd)
        yield program
    finally:
        try:
            await supervisor.end()
        finally:
            await program.close()


async def _whole(work: Coroutine[Any, Any, None]) -> None:
    """Finish it even if cancelled meanwhile: a pipe that is connected by half cannot be let go."""
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


class Supervisor:
    """The shim of one program, as the engine speaks with it."""

    def __init__(self, shim: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._shim, self._control = shim, control
        self._heard = b""
        self._ordered = False

    async def start(self, packed: bytes, argv: Sequence[str], cwd: str | os.PathLike[str] | None) -> int:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._control, packed)
        self._ordered = True
        while True:
            match (await self._line(loop)).split():
                case [b"started", pid]:
                    return int(pid)
                case [b"failed", errno, culprit]:
                    blamed = os.fspath(cwd) if cwd and culprit == b"directory" else argv[0]
                    raise OSError(int(errno), os.strerror(int(errno)), blamed)
                case []:
                    raise OSError(f"the supervisor of {argv[0]} did not start")

    async def _line(self, loop: asyncio.AbstractEventLoop) -> bytes:
        while b"\n" not in self._heard:
            data = await loop.sock_recv(self._control, 4096)
            if not data:
                return b""
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    async def end(self) -> None:
        """Ask for the end of the tree; cancelled or not, only return when it is gone."""
        self._ask()
        try:
            await _whole(self._gone())
        finally:
            self._control.close()

    async def _gone(self) -> None:
        while self._shim.poll() is None:  # noqa: ASYNC110 - a process sets no event
            await asyncio.sleep(0.002)

    def _ask(self) -> None:
        try:
            if self._ordered:
                self._control.send(b"T")
            else:
                self._control.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended
