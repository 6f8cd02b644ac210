"""One command with all its descendants: start it under a shim, follow it, and end it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from nerve.process.descriptor_writer import DescriptorWriter, StdinWriter
from nerve.process.output_capture import OutputCapture

SUPERVISOR_SCRIPT = Path(__file__).with_name("supervisor_script.py")
LOADER_VARIABLES = ("LD_LIBRARY_PATH",)  # some Python builds do not start without it


class ProcessTree:
    """A running command. `exited` is done when none of its processes is left, including the shim."""

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
        self._buffer = b""
        self.exit_code: int | None = None
        self.has_started = False  # it may have run; a refusal means that it did not
        self.refusal: tuple[int, str] | None = None  # errno, and "command" or "directory" as the cause
        self.error: Exception | None = None  # raised by a callback
        self.exited: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._control.fileno(), self._on_report)
        self._order_writer = DescriptorWriter(self._control, order)
        self._stdin_writer = StdinWriter(self._shim.stdin, stdin) if self._shim.stdin else None
        assert self._shim.stdout
        assert self._shim.stderr
        self.stdout = OutputCapture(self._shim.stdout, "stdout", keep, on_output, self._on_callback_error)
        self.stderr = OutputCapture(self._shim.stderr, "stderr", keep, on_output, self._on_callback_error)

    def terminate(self) -> None:
        """Ask the shim to end the tree: TERM, then KILL after the grace period of the order."""
        try:
            if self._order_writer.is_done:
                self._control.send(b"T")
            else:
                self._order_writer.stop()
                self._control.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the shim has ended

    def close(self) -> None:
        """Release all resources; a shim that is still running ends its tree."""
        self._order_writer.stop()
        if self._stdin_writer:
            self._stdin_writer.stop()
        self.stdout.close()
        self.stderr.close()
        self._loop.remove_reader(self._control.fileno())
        self._control.close()

    def _on_report(self) -> None:
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._handle_report(line.decode().split())
        if self.exit_code is not None or not data:
            self._loop.remove_reader(self._control.fileno())
            self._poll_exit()

    def _handle_report(self, words: list[str]) -> None:
        match words:
            case ["starting"]:
                self.has_started = True
            case ["started", pid]:
                self._notify_start(int(pid))
            case ["failed", errno, culprit]:
                self.has_started, self.refusal = False, (int(errno), culprit)
            case ["ended", code]:
                self.exit_code = int(code)

    def _notify_start(self, pid: int) -> None:
        try:
            if self._on_start:
                self._on_start(pid)
        except Exception as error:
            self._on_callback_error(error)

    def _on_callback_error(self, error: Exception) -> None:
        self.error = self.error or error
        self.terminate()

    def _poll_exit(self) -> None:
        if self._shim.poll() is None:
            self._loop.call_later(0.001, self._poll_exit)  # it has sent its last report and is about to exit
        else:
            self.exited.set_result(None)


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
