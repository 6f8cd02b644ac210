"""A Temporal server for the tests: where its program is, and how it is started, killed and started again.

Run as a program, it prints the version of the server that this machine has, or why it has none.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from postgresql_server import ServerMissing, choose_port, stop_with_parent

PROGRAM_VARIABLE = "NERVE_TEST_TEMPORAL"
"""The environment variable that selects the program `temporal`."""

NOT_FOUND = (
    "No Temporal server was found. Run `make temporal`,"
    f" or set {PROGRAM_VARIABLE} to the path of the program temporal."
)

START_TIMEOUT_S = 60.0
POLL_S = 0.02
SPARE_NAMESPACES = 24

SETTINGS = {
    "history.maxInFlightUpdates": "200",
    "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute": "3",
}
"""Dynamic configuration that production needs, too: how many people can answer the gates of one run at once,
and after how many failed tasks a run is shown as stuck."""

TEST_SETTINGS = {
    "history.transferProcessorUpdateAckInterval": '"1s"',
    "history.visibilityProcessorUpdateAckInterval": '"1s"',
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
}
"""Dynamic configuration of the tests only. The history of a workflow that has ended is deleted after the
queues of the server have noted its end, which they do every 30 seconds otherwise. A task of a queue with four
partitions is often where no worker polls, and is passed on: that takes a third of the time of all."""


def find_program() -> Path:
    """Return the program `temporal` of this machine, or raise ServerMissing."""
    if chosen := os.environ.get(PROGRAM_VARIABLE):
        candidates = [Path(chosen)]
    else:
        candidates = [Path(sys.executable).with_name("temporal")]
        if found := shutil.which("temporal"):
            candidates.append(Path(found))
    for program in candidates:
        if read_version(program):
            return program
    raise ServerMissing(NOT_FOUND)


def read_version(program: Path) -> str | None:
    """Return the version of a program; None if it cannot be executed."""
    try:
        command = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    return command.stdout.strip() if command.returncode == 0 else None


class TemporalServer:
    """A server on the loopback interface with a history of its own, until the end of the `with` statement."""

    def __init__(self, **settings: str) -> None:
        self._program = find_program()
        self._settings = {**SETTINGS, **TEST_SETTINGS, **settings}
        self._namespaces = 0
        self._spare = self._name_spare_namespaces()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = self._choose_port()

    def __enter__(self) -> TemporalServer:
        self.folder = Path(tempfile.mkdtemp(prefix="nerve-temporal-"))
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _choose_port(self) -> int:
        return choose_port()

    def _name_spare_namespaces(self) -> list[str]:
        """Return the namespaces that the server creates at its start, which is faster than one by one."""
        return [f"spare-{number}" for number in range(SPARE_NAMESPACES)]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, namespace: str) -> str:
        """Return the URL of a namespace."""
        return f"temporal://{self.address}/{namespace}"

    def _environment(self) -> dict[str, str]:
        """Return an environment in which the server reads no file of the user and calls no other host."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "TEMPORAL_VERSION_CHECK_DISABLED": "1",
        }

    def start(self) -> None:
        """Start the server, also after a kill, and wait until it accepts requests."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._try_to_start(deadline):
            if time.monotonic() > deadline:
                raise TimeoutError(f"Temporal did not start: {self.read_log()[-1000:]}")
            time.sleep(POLL_S)

    def _try_to_start(self, deadline: float) -> bool:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._write_command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._environment(),
                preexec_fn=functools.partial(stop_with_parent, signal.SIGKILL),
            )
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._is_ready():
                return True
            time.sleep(POLL_S)
        self.kill()
        if not self._namespaces and "address already in use" in self.read_log():
            self.port = self._choose_port()
        return False

    def _write_command(self) -> list[str]:
        """Write the files that the server needs, and return its command line."""
        arguments = f"server start-dev --ip 127.0.0.1 --port {self.port} --headless --log-level error"
        settings = [f"--dynamic-config-value={name}={value}" for name, value in self._settings.items()]
        namespaces = [f"--namespace={name}" for name in self._spare]
        return [str(self._program), *arguments.split(), "--db-filename", "history.db", *settings, *namespaces]

    def _is_ready(self) -> bool:
        return self._ask("operator", "cluster", "health").returncode == 0

    def _ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, *arguments, "--address", self.address],
            capture_output=True,
            text=True,
            env=self._environment(),
            timeout=START_TIMEOUT_S,
        )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server with a signal, and wait for its end."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(START_TIMEOUT_S)
            self._process = None

    def keep_running(self) -> None:
        """Start the server again if a test has left it stopped."""
        if self._process is None:
            self.start()

    def kill(self) -> None:
        """End the server without a chance to write anything."""
        self.stop(signal.SIGKILL)

    def read_log(self) -> str:
        return (self.folder / "log").read_text()

    def wait_for_namespace(self, name: str) -> None:
        """Return when all services know a namespace and can read their database."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for question in ("operator namespace describe", "workflow count"):
            while (command := self._ask(*question.split(), "--namespace", name)).returncode:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"Namespace {name} was not found: {command.stderr.strip()}")
                time.sleep(POLL_S)

    def create_namespace(self) -> str:
        """Return the name of an empty namespace."""
        self._namespaces += 1
        if self._spare:
            return self._spare.pop()
        name = f"test-{self._namespaces}"
        command = self._ask("operator", "namespace", "create", "--namespace", name)
        if command.returncode:
            raise RuntimeError(f"Namespace {name} could not be created: {command.stderr.strip()}")
        return name


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{read_version(find_program())}\n")
    except ServerMissing as error:
        sys.exit(str(error))
