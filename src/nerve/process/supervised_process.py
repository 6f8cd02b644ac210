"""A program under the supervisor script; none of its descendants outlives the context."""

from __future__ import annotations

import asyncio
import errno
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nerve.process.environment import child_env

SUPERVISOR_SCRIPT = Path(__file__).with_name("supervisor_script.py")
LOADER_VARIABLES = ("LD_LIBRARY_PATH",)  # some Python builds do not start without it


class SupervisedProcess:
    """The pipes of a program, and the reports of its supervisor."""

    def __init__(self, shim: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._shim, self._control = shim, control
        self._reports = b""
        self._has_order = False
        self._exit_code = -9  # a killed supervisor cannot report it: the kernel killed the program as well
        self._exited: asyncio.Task[int] | None = None
        self._transports: list[asyncio.BaseTransport] = []
        self.pid = 0
        self.stdin: asyncio.WriteTransport | None = None

    async def connect(self, stdout: asyncio.BaseProtocol, stderr: asyncio.BaseProtocol) -> None:
        loop = asyncio.get_running_loop()
        for protocol, pipe in ((stdout, self._shim.stdout), (stderr, self._shim.stderr)):
            transport, _ = await loop.connect_read_pipe(_protocol_factory(protocol), pipe)
            self._transports.append(transport)
        if self._shim.stdin is not None:
            # No flow control: the input of a program is short, or in memory anyway.
            self.stdin, _ = await loop.connect_write_pipe(asyncio.Protocol, self._shim.stdin)

    async def start(self, order: bytes, argv: Sequence[str], cwd: str | os.PathLike[str] | None) -> None:
        """Start the program; an OSError means that it did not run."""
        await asyncio.get_running_loop().sock_sendall(self._control, order)
        self._has_order = True
        has_begun = False
        while self.pid == 0:
            match await self._read_report():
                case [b"starting"]:
                    has_begun = True
                case [b"started", pid]:
                    self.pid = int(pid)
                case [b"failed", number, culprit]:
                    path = os.fspath(cwd) if cwd is not None and culprit == b"directory" else argv[0]
                    raise OSError(int(number), os.strerror(int(number)), path)
                case []:
                    if has_begun:
                        break  # the supervisor was killed, and the program may have run
                    assert self._shim.stderr is not None
                    output = self._shim.stderr.read()[-2000:].decode(errors="replace")
                    message = f"The supervisor of the command did not start: {output}"
                    raise OSError(errno.ECHILD, message, argv[0])

    @property
    def exited(self) -> asyncio.Task[int]:
        """The task that ends, with the exit code, when no process of the tree is left."""
        if self._exited is None:
            self._exited = asyncio.create_task(self._follow_reports())
        return self._exited

    async def _follow_reports(self) -> int:
        while report := await self._read_report():
            if report[0] == b"ended":
                self._exit_code = int(report[1])
        while self._shim.poll() is None:  # noqa: ASYNC110 - the end of a process sets no event
            await asyncio.sleep(0.001)
        return self._exit_code

    async def _read_report(self) -> list[bytes]:
        """Return the words of the next report; empty when the supervisor has ended."""
        while b"\n" not in self._reports:
            try:
                data = await asyncio.get_running_loop().sock_recv(self._control, 4096)
            except OSError:
                data = b""
            if not data:
                return []
            self._reports += data
        line, _, self._reports = self._reports.partition(b"\n")
        return line.split()

    async def stop(self) -> None:
        """End the whole tree: TERM, then KILL after the grace period; return only when it is gone."""
        try:
            if self._has_order:
                self._control.send(b"T")
            else:
                self._control.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended
        try:
            await finish_uncancelled(self.exited)
        finally:
            self._control.close()

    def close(self) -> None:
        if self.stdin is not None and not self.stdin.is_closing():
            self.stdin.abort()
        for transport in self._transports:
            transport.close()
        for pipe in (self._shim.stdin, self._shim.stdout, self._shim.stderr):
            if pipe is not None:
                pipe.close()  # if no transport owns it


@asynccontextmanager
async def open_process(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    grace: float,
    stdout: asyncio.BaseProtocol,
    stderr: asyncio.BaseProtocol,
    has_stdin: bool = True,
) -> AsyncIterator[SupervisedProcess]:
    """Start `argv` in a new session; leaving the context ends its whole tree and waits until it is gone.

    An OSError means that the program could not be started. `env` is the complete environment. The protocols
    receive its output until the tree is gone, so that a program with a last word is not blocked. On Linux
    this applies to every descendant; elsewhere only to those in the process group of the program.
    """
    order = _encode_order(argv, cwd, child_env({}) if env is None else env, grace)
    process = SupervisedProcess(*_start_shim(piped=has_stdin))
    try:
        await process.start(order, argv, cwd)
        # A partially connected pipe could not be released.
        await finish_uncancelled(process.connect(stdout, stderr))
        yield process
    finally:
        try:
            await process.stop()
        finally:
            process.close()


async def finish_uncancelled(work: Coroutine[Any, Any, None] | asyncio.Task[Any]) -> None:
    """Wait for the end of the work even if cancelled; raise the cancellation afterwards."""
    task = work if isinstance(work, asyncio.Task) else asyncio.create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


def _protocol_factory(protocol: asyncio.BaseProtocol) -> Callable[[], asyncio.BaseProtocol]:
    return lambda: protocol


def _start_shim(*, piped: bool) -> tuple[subprocess.Popen[bytes], socket.socket]:
    control, child_control = socket.socketpair()
    control.setblocking(False)
    try:
        with child_control:
            shim = subprocess.Popen(
                [sys.executable, "-I", "-S", SUPERVISOR_SCRIPT, str(child_control.fileno())],
                bufsize=0,
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[child_control.fileno()],
                env={name: os.environ[name] for name in LOADER_VARIABLES if name in os.environ},
                start_new_session=True,
            )
    except BaseException:
        control.close()
        raise
    return shim, control


def _encode_order(
    argv: Sequence[str], cwd: str | os.PathLike[str] | None, env: Mapping[str, str], grace: float
) -> bytes:
    if not argv:
        raise OSError(errno.EINVAL, "The command is empty; it needs at least a program")
    if any(not name or "=" in name for name in env):
        raise OSError(errno.EINVAL, "The name of an environment variable is empty or contains an equals sign")
    order = (
        [_encode_argument(word) for word in argv],
        [(_encode_argument(name), _encode_argument(value)) for name, value in env.items()],
        None if cwd is None else _encode_argument(cwd),
        float(grace),
        os.getpid(),
    )
    data = marshal.dumps(order)
    return len(data).to_bytes(8, "big") + data


def _encode_argument(text: str | os.PathLike[str]) -> bytes:
    try:
        data = os.fsencode(text)
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, f"A command argument cannot be encoded: {error}") from error
    if b"\0" in data:
        raise OSError(errno.EINVAL, "A command argument contains a NUL character", os.fsdecode(data))
    return data
