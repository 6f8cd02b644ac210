"""One command with all its descendants, seen from the engine: started under a shim, followed, ended."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from nerve.process.feed import Feed, InputFeed
from nerve.process.output import Output

SHIM = Path(__file__).with_name("shim.py")
LOADER = ("LD_LIBRARY_PATH",)  # some builds of Python do not start without it


class Tree:
    """A running command. `gone` is done when no process of it is left, the shim included."""

    def __init__(
        self,
        order: bytes,
        stdin: bytes,
        keep: int,
        on_output: Callable[[str, str], None] | None,
        on_start: Callable[[int], None] | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_start = on_start
        self._shim, self._control = _start_shim(piped=bool(stdin))
        self._heard = b""
        self.code: int | None = None
        self.started = False  # it may have run; a refusal says that it did not
        self.refusal: tuple[int, str] | None = None  # errno, and whether "command" or "directory" is to blame
        self.error: Exception | None = None  # raised by a callback
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._control.fileno(), self._hear)
        self._order = Feed(self._control, order)
        self._input = InputFeed(self._shim.stdin, stdin) if self._shim.stdin else None
        assert self._shim.stdout
        assert self._shim.stderr
        self.stdout = Output(self._shim.stdout, "stdout", keep, on_output, self._failed)
        self.stderr = Output(self._shim.stderr, "stderr", keep, on_output, self._failed)

    def terminate(self) -> None:
        """Ask the shim for the end of the tree: TERM, the grace of the order, KILL."""
        try:
            if self._order.done:
                self._control.send(b"T")
            else:
                self._order.stop()
                self._control.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the shim has ended

    def close(self) -> None:
        """Let go of everything; a shim that is still there ends its tree."""
        self._order.stop()
        if self._input:
            self._input.stop()
        self.stdout.close()
        self.stderr.close()
        self._loop.remove_reader(self._control.fileno())
        self._control.close()

    def _hear(self) -> None:
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            self._note(line.decode().split())
        if self.code is not None or not data:
            self._loop.remove_reader(self._control.fileno())
            self._collect()

    def _note(self, words: list[str]) -> None:
        match words:
            case ["starting"]:
                self.started = True
            case ["started", pid]:
                self._tell_start(int(pid))
            case ["failed", errno, culprit]:
                self.started, self.refusal = False, (int(errno), culprit)
            case ["ended", code]:
                self.code = int(code)

    def _tell_start(self, pid: int) -> None:
        try:
            if self._on_start:
                self._on_start(pid)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.error = self.error or error
        self.terminate()

    def _collect(self) -> None:
        if self._shim.poll() is None:
            self._loop.call_later(0.001, self._collect)  # its last word is said: it is on its way out
        else:
            self.gone.set_result(None)


def _start_shim(*, piped: bool) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    try:
        with theirs:
            shim = subprocess.Popen(
                [sys.executable, "-I", "-S", SHIM, str(theirs.fileno())],
                bufsize=0,
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env={name: os.environ[name] for name in LOADER if name in os.environ},
                start_new_session=True,
            )
    except BaseException:
        ours.close()
        raise
    return shim, ours
