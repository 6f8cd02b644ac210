"""Processes of `nerve …`: real ones, forked from one that has done the imports and does nothing else."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

PATIENCE = 60

WAITING = """
import atexit, ctypes, gc, importlib, json, os, runpy, select, signal, socket, sys, tempfile

import nerve.cli
from nerve.__main__ import GARBAGE_THRESHOLD
from nerve.cli.command_table import CLI_COMMANDS

# What the command line imports when it is needed; with it, a server takes a quarter of the time to start.
PR_SET_PDEATHSIG = 1
MODULES = '''
    nerve.api nerve.cli.parser nerve.client nerve.engine.local_engine nerve.server.serve
    nerve.store.sqlite nerve.telemetry.prometheus_text nerve.web.run_stream
    nerve.store.postgres nerve.store.postgres_projection nerve.store.projected_store
    nerve.engine.temporal.api_engine nerve.engine.temporal.body_worker nerve.engine.temporal.leaf_worker
    anyio._backends._asyncio jinja2 rich.live uvicorn.lifespan.off
'''
for module in (*MODULES.split(), *(verb.import_path.partition(":")[0] for verb in CLI_COMMANDS.values())):
    importlib.import_module(module)

# Neither searched for garbage nor copied by those searches: a process takes a sixth of the time with it.
gc.freeze()
gc.set_threshold(GARBAGE_THRESHOLD)


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


def end_with_parent():
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def begin(connection):
    end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    child = os.fork()
    if child:
        connection.sendall(f"{child}\\n".encode())
        _, status = os.waitpid(child, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\\n".encode())
        os._exit(0)
    end_with_parent()
    connection.close()
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    asked = json.loads(message)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    tempfile.tempdir = None
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", 1 if os.isatty(1) else -1, encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    if asked["module"] is None:
        nerve.cli.main(asked["arguments"])
    sys.argv[1:] = asked["arguments"]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


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

    Without any, its input is empty, `stdout` and `stderr` can be read, and errors can go to another file.
    `environment` is set instead of that of this process, `variables` in addition. `module` is another one
    that executes the command line.
    """

    def __init__(
        self,
        *arguments: str,
        streams: tuple[int, int, int] | None = None,
        stderr: IO[Any] | None = None,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        module: str | None = None,
        **variables: str,
    ) -> None:
        self.returncode: int | None = None
        self.stdout: IO[str]
        self.stderr: IO[str]
        self._outputs: list[IO[str]] = []
        own: list[int] = []
        if streams is None:
            own = [os.open(os.devnull, os.O_RDONLY)]
            self.stdout, told = self._open_pipe()
            own.append(told)
            if stderr is None:
                self.stderr, said = self._open_pipe()
                own.append(said)
            streams = own[0], told, said if stderr is None else stderr.fileno()
        env = {**(os.environ if environment is None else environment), **variables}
        asked = {"arguments": arguments, "cwd": str(cwd or Path.cwd()), "env": env, "module": module}
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
        if self.poll() is None:
            os.kill(self.pid, how)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

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

        streams = [stream for stream in self._outputs if not stream.closed]
        # A thread that hangs must not keep the tests from ending; a stream that it reads cannot be closed.
        readers = [threading.Thread(target=read, args=[stream], daemon=True) for stream in streams]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout)
        if len(said) < len(readers):
            raise TimeoutError(f"the streams of process {self.pid} are open after {timeout:g} s")
        for stream in streams:
            stream.close()
        self.wait(timeout)
        out, err, *_ = *(said.get(stream, "") for stream in self._outputs), "", ""
        return out, err

    def _open_pipe(self) -> tuple[IO[str], int]:
        """Return an output of the process and where it writes it."""
        reading, writing = os.pipe()
        self._outputs.append(os.fdopen(reading, encoding="utf-8"))
        return self._outputs[-1], writing


def done(*arguments: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[Any]":
    """A command, when it has ended."""
    process = Process(*arguments, cwd=cwd)
    out, err = process.communicate()
    return subprocess.CompletedProcess(arguments, process.wait(), out, err)
