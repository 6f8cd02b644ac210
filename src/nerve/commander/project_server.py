"""The server of a project: find it, or start it in the background."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from nerve.client import Client, ServerAddress, find_server
from nerve.client.server_address import read_server_info
from nerve.errors import NerveError
from nerve.project.paths import PROJECT_FOLDER_NAMES, ProjectPaths, hold_lock, open_private_file

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
SERVER_LOG_PATH = Path(".nerve/server.log")
IDLE_TIMEOUT_S = 300.0
"""Seconds after which a server without clients and active runs exits."""
START_TIMEOUT_S = 20.0
"""Seconds to wait for a server to start."""
POLL_INTERVAL_S = 0.05
RESTART_DELAY_S = 0.3
"""Seconds until the next start attempt when a server that is shutting down blocked the last one."""
MAX_LOG_BYTES = 1_000_000
"""Maximum size of a log to append to; a larger one is deleted first."""
LOG_TAIL_LINES = 5
"""Log lines in the error when a server does not start."""
ALREADY_RUNNING_PATTERN = re.compile("already|is in use by process")
"""Matches the log of a server that found another one: messages of `nerve.server.bind` and `nerve.errors`."""


class ServerNotStarted(NerveError):
    """The server of the project could not be started; the message has the end of its log."""


class EmptyFolder(ServerNotStarted):
    """The directory has no project; starting a server would create one unasked."""


class ProjectServer:
    """The server of one project, a separate process that outlives its starter."""

    def __init__(
        self,
        folder: str | os.PathLike[str] = ".",
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        modules: Iterable[Path] = (),
    ) -> None:
        """`modules` are code files that a started server loads."""
        self.folder, self.idle_timeout_s = Path(folder).absolute(), idle_timeout_s
        self.modules = [str(file.absolute()) for file in modules]
        self._paths = ProjectPaths.of(self.folder)
        self._lock = asyncio.Lock()

    @property
    def endpoint(self) -> ServerAddress | None:
        """The address of the running server, if any."""
        return find_server(self.folder)

    def client(self, via: str = "commander") -> Client:
        """Return a client that always connects to the current server; `via` is the user interface."""
        return Client(self._find_server, via=via)

    @property
    def is_empty(self) -> bool:
        """Whether the directory has no project and no modules were given."""
        return not self.modules and not any(
            os.path.lexists(self.folder / name) for name in PROJECT_FOLDER_NAMES
        )

    async def start_if_needed(self) -> None:
        """Return when a server runs; raise ServerNotStarted if none can, EmptyFolder without a project."""
        async with self._lock:
            deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
            while self.endpoint is None:
                await self._run_exclusively(deadline, partial(self._launch, deadline))
            self._remember_modules()

    async def replace(self, stop: Callable[[], object]) -> None:
        """Stop the running server with `stop` and start a new one, under the start lock."""

        loop = asyncio.get_running_loop()

        async def stop_and_launch() -> None:
            stop()
            await self._launch(loop.time() + START_TIMEOUT_S)

        deadline = loop.time() + START_TIMEOUT_S
        while not await self._run_exclusively(deadline, stop_and_launch):
            pass

    async def _run_exclusively(self, deadline: float, act: Callable[[], Awaitable[None]]) -> bool:
        """Run `act` under the start lock; return False, after a pause, if another process holds it."""
        if self.is_empty:
            raise EmptyFolder("No project in this directory. Create one with: nerve init")
        try:
            if links := self._paths.symlinks:
                raise OSError(f"{links[0]} is a symbolic link")
            self._paths.folder.mkdir(exist_ok=True)
            with hold_lock(self._paths.start_lock) as is_free:
                if is_free:
                    await act()
                    return True
        except OSError as error:
            raise ServerNotStarted(f"Cannot start the project server: {error}.") from None
        if asyncio.get_running_loop().time() >= deadline:
            raise ServerNotStarted("Timed out waiting for another process to start the project server.")
        await asyncio.sleep(RESTART_DELAY_S)
        return False

    def _find_server(self) -> ServerAddress | None:
        address = self.endpoint
        if address is not None:
            self._remember_modules()
        return address

    def _remember_modules(self) -> None:
        """Adopt the modules of the running server, so that a restart from here loads the same code."""
        modules = (read_server_info(self._paths) or {}).get("modules")
        if isinstance(modules, list) and all(isinstance(module, str) for module in modules):
            self.modules = modules

    async def _launch(self, deadline: float) -> None:
        while self.endpoint is None:
            await self._attempt_start(deadline)

    async def _attempt_start(self, deadline: float) -> None:
        """Start a server; return when one runs, or when one that is shutting down blocked it."""
        loop = asyncio.get_running_loop()
        log_start, process = self._prepare_log(), self._spawn_process()
        while self.endpoint is None and process.poll() is None and loop.time() < deadline:  # noqa: ASYNC110 - the process sends no event
            await asyncio.sleep(POLL_INTERVAL_S)
        if self.endpoint is not None:
            return
        log_tail = self._log_tail(log_start)
        if loop.time() >= deadline or not ALREADY_RUNNING_PATTERN.search(log_tail):
            raise ServerNotStarted(f"The project server did not start. {log_tail}".strip())
        await asyncio.sleep(RESTART_DELAY_S)

    def _prepare_log(self) -> int:
        """Delete a log that is too large; return the size to which the next server appends."""
        log = self.folder / SERVER_LOG_PATH
        size = log.lstat().st_size if log.exists() else 0
        if size > MAX_LOG_BYTES:
            log.unlink()
        return size if size <= MAX_LOG_BYTES else 0

    def _spawn_process(self) -> subprocess.Popen[bytes]:
        # -P keeps modules of the project from shadowing nerve and the standard library.
        command = [sys.executable, "-P", "-m", "nerve", "serve", "--quiet", f"--idle={self.idle_timeout_s:g}"]
        command += [f"--with={file}" for file in self.modules]
        # --quiet, because the sign-in code for browsers must not be logged.
        with os.fdopen(
            open_private_file(self.folder / SERVER_LOG_PATH, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab"
        ) as out:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        # Reap the process whenever it exits, so that it does not become a zombie.
        threading.Thread(target=process.wait, name="nerve-home", daemon=True).start()
        return process

    def _log_tail(self, log_start: int) -> str:
        """Return the last log lines after `log_start`, joined into one line."""
        try:
            with os.fdopen(open_private_file(self.folder / SERVER_LOG_PATH, os.O_RDONLY), "rb") as log:
                log.seek(log_start)
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return " ".join(text.splitlines()[-LOG_TAIL_LINES:])


def client_for_url(url: str, folder: str | os.PathLike[str] = ".", via: str = "commander") -> Client:
    """Return a client of a server at a URL, with the token of the environment.

    The token of the project is sent only to the server of the project.
    """
    token = os.environ.get("NERVE_TOKEN")
    if (
        not token
        and is_project_server_url(url, Path(folder))
        and (address := find_server(Path(folder))) is not None
    ):
        token = address.token
    return Client(url.rstrip("/"), token=token, via=via)


def is_project_server_url(url: str, folder: Path) -> bool:
    """Return whether a URL is that of the project's server, by any loopback name."""
    server_url = (read_server_info(ProjectPaths.of(folder)) or {}).get("url")
    try:
        requested, project = urlsplit(url), urlsplit(str(server_url))
        names = LOOPBACK_HOSTS if project.hostname in LOOPBACK_HOSTS else (project.hostname,)
        return requested.hostname in names and (requested.scheme, requested.port) == (
            project.scheme,
            project.port,
        )
    except ValueError:  # invalid port
        return False
