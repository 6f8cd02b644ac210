"""Processes of `nerve …`: real ones, forked from one that has done the imports and does nothing else."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import IO, Any

PATIENCE = 60

WAITING = """
import atexit, importlib, json, os, select, signal, socket, sys, tempfile

import nerve.cli
from nerve.cli.command_table import CLI_COMMANDS
import nerve.api, nerve.client, nerve.server.serve, nerve.store.sqlite, nerve.engine.local_engine
import rich.live

for verb in CLI_COMMANDS.values():
    importlib.import_module(verb.import_path.partition(":")[0])


def wait(path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listening, sys.stdin], [], [])
            if sys.stdin in ready:
                return None  # whoever has started this is gone
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                return connection
            connection.close()


def begin(connection):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    child = os.fork()
    if child:
        connection.sendall(f"{child}\\n".encode())
        _, status = os.waitpid(child, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\\n".encode())
        os._exit(0)
    connection.close()
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    asked = json.loads(message)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    tempfile.tempdir = None
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", 1 if os.isatty(1) else -1, encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    nerve.cli.main(asked["arguments"])


if (connection := wait(sys.argv[1])) is not None:
    begin(connection)
"""


class Origin:
    """What the processes of this one are forked from."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nerve-cli-")
        self.path = str(Path(self._folder.name) / "socket")
        command = [sys.executable, "-W", "error", "-c", WAITING, self.path]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self._folder.name
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.path)
        return connection

    def end(self) -> None:
        self._process.communicate()
        self._folder.cleanup()


@cache
def origin() -> Origin:
    return Origin()


class Process:
    """`nerve …` in a process and a session of its own, with what it is given as its streams.

    Without any, its input is empty, and `stdout` and `stderr` can be read.
    """

    def __init__(self, *arguments: str, streams: tuple[int, int, int] | None = None, **env: str) -> None:
        self.returncode: int | None = None
        self.stdout: IO[str]
        self.stderr: IO[str]
        own: list[int] = []
        if streams is None:
            (out, told), (err, said) = os.pipe(), os.pipe()
            self.stdout, self.stderr = os.fdopen(out, encoding="utf-8"), os.fdopen(err, encoding="utf-8")
            own = [os.open(os.devnull, os.O_RDONLY), told, said]
            streams = own[0], own[1], own[2]
        asked = {"arguments": arguments, "cwd": os.getcwd(), "env": {**os.environ, **env}}
        self._line = origin().connect()
        socket.send_fds(self._line, [json.dumps(asked).encode()], streams)
        for stream in own:
            os.close(stream)
        self._told = self._line.makefile("r")
        self.pid = int(self._told.readline())

    def wait(self, timeout: float = PATIENCE) -> int:
        if self.returncode is None:
            self._line.settimeout(timeout)
            self.returncode = int(self._told.readline())
            self._told.close()
            self._line.close()
        return self.returncode

    def poll(self) -> int | None:
        if self.returncode is None:
            self._line.settimeout(None)
            try:
                ended = self._line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            assert ended
            self.wait()
        return self.returncode

    def send_signal(self, how: int) -> None:
        os.kill(self.pid, how)

    def kill_all(self) -> None:
        """With everything it has started."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self.wait()

    def communicate(self, timeout: float = PATIENCE) -> tuple[str, str]:
        """What is still said, until the end; TimeoutError if the streams stay open."""
        said: dict[IO[str], str] = {}

        def read(stream: IO[str]) -> None:
            said[stream] = stream.read()

        # A thread that hangs must not keep the tests from ending; a stream that it reads cannot be closed.
        readers = [
            threading.Thread(target=read, args=[stream], daemon=True) for stream in (self.stdout, self.stderr)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout)
        if len(said) < len(readers):
            raise TimeoutError(f"the streams of process {self.pid} are open after {timeout:g} s")
        self.stdout.close()
        self.stderr.close()
        self.wait(timeout)
        return said[self.stdout], said[self.stderr]


def done(*arguments: str) -> "subprocess.CompletedProcess[Any]":
    """A command, when it has ended."""
    process = Process(*arguments)
    out, err = process.communicate()
    return subprocess.CompletedProcess(arguments, process.wait(), out, err)
