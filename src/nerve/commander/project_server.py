"""Home: the server of a project, found where it runs, or started in the background."""

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

from nerve.client.client import Client, ServerAddress, find_server, read_server_info
from nerve.errors import NerveError
from nerve.project.discovery import PROJECT_FOLDER_NAMES
from nerve.project.paths import ProjectPaths, hold_lock, open_private_file

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
SERVER_LOG_PATH = Path(".nerve/server.log")
IDLE_TIMEOUT_S = 300.0
"""Seconds after which a server that nobody talks to, and in which nothing moves, ends by itself."""
START_TIMEOUT_S = 20.0
"""Seconds in which a server must be there."""
POLL_INTERVAL_S = 0.05
RESTART_DELAY_S = 0.3
"""Seconds until a server is started again, where one that is about to end was in its way."""
MAX_LOG_BYTES = 1_000_000
"""Bytes of a log that is gone on with; a larger one is begun anew."""
LOG_TAIL_LINES = 5
"""Lines of the log that are told when a server does not start."""
ALREADY_RUNNING_PATTERN = re.compile("already|is in use by process")
"""What a server says that comes second."""


class ServerNotStarted(NerveError):
    """The server of the project could not be started; the message has the end of its log."""


class EmptyFolder(ServerNotStarted):
    """There is no project in the folder: a server would only make one that nobody asked for."""


class ProjectServer:
    """One project's server. Whoever started it does not have to stay: it is a process of its own."""

    def __init__(
        self,
        folder: str | os.PathLike[str] = ".",
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        modules: Iterable[Path] = (),
    ) -> None:
        """`modules` are files with code that the server is given when it is started."""
        self.folder, self.idle_timeout_s = Path(folder).absolute(), idle_timeout_s
        self.modules = [str(file.absolute()) for file in modules]
        self._paths = ProjectPaths.of(self.folder)
        self._lock = asyncio.Lock()

    @property
    def endpoint(self) -> ServerAddress | None:
        """How the server is reached, if it is there."""
        return find_server(self.folder)

    def client(self) -> Client:
        """A client of the server, whichever it is at the time."""
        return Client(self._find_server, via="commander")

    @property
    def is_empty(self) -> bool:
        """Whether nothing in the folder is a project, and no code for one is given."""
        return not self.modules and not any(
            os.path.lexists(self.folder / name) for name in PROJECT_FOLDER_NAMES
        )

    async def start_if_needed(self) -> None:
        """Return when a server is there; NotStarted if none can be, EmptyFolder if none is needed."""
        async with self._lock:
            end = asyncio.get_running_loop().time() + START_TIMEOUT_S
            while self.endpoint is None:
                await self._run_exclusively(end, partial(self._launch, end))
            self._remember_modules()

    async def replace(self, stop: Callable[[], object]) -> None:
        """Stop the server that is there by `stop`, and start one; no other process starts one between."""

        loop = asyncio.get_running_loop()

        async def stop_and_launch() -> None:
            stop()
            await self._launch(loop.time() + START_TIMEOUT_S)

        end = loop.time() + START_TIMEOUT_S
        while not await self._run_exclusively(end, stop_and_launch):
            pass

    async def _run_exclusively(self, end: float, act: Callable[[], Awaitable[None]]) -> bool:
        """Act unless another process is starting the server now; gives False, after a pause, if one is."""
        if self.is_empty:
            raise EmptyFolder("There is no project in this folder. Make one with: nerve init")
        try:
            if links := self._paths.symlinks:
                raise OSError(f"{links[0]} is a link")
            self._paths.folder.mkdir(exist_ok=True)
            with hold_lock(self._paths.start_lock) as is_free:
                if is_free:
                    await act()
                    return True
        except OSError as error:
            raise ServerNotStarted(f"The server of this project cannot be started: {error}.") from None
        if asyncio.get_running_loop().time() >= end:
            raise ServerNotStarted(
                "Another process has been starting the server of this project for too long."
            )
        await asyncio.sleep(RESTART_DELAY_S)
        return False

    def _find_server(self) -> ServerAddress | None:
        where = self.endpoint
        if where is not None:
            self._remember_modules()
        return where

    def _remember_modules(self) -> None:
        """What the server that runs was given is given to the next one, if that has to be started here."""
        modules = (read_server_info(self._paths) or {}).get("modules")
        if isinstance(modules, list) and all(isinstance(module, str) for module in modules):
            self.modules = modules

    async def _launch(self, end: float) -> None:
        while self.endpoint is None:
            await self._attempt_start(end)

    async def _attempt_start(self, end: float) -> None:
        """Start a server; return when one is there, or when another that must end first was in its way."""
        loop = asyncio.get_running_loop()
        log_start, process = self._prepare_log(), self._spawn_process()
        while self.endpoint is None and process.poll() is None and loop.time() < end:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(POLL_INTERVAL_S)
        if self.endpoint is not None:
            return
        log_tail = self._log_tail(log_start)
        if loop.time() >= end or not ALREADY_RUNNING_PATTERN.search(log_tail):
            raise ServerNotStarted(f"The server of this project did not start. {log_tail}".strip())
        await asyncio.sleep(RESTART_DELAY_S)

    def _prepare_log(self) -> int:
        """The bytes of the log that the next server goes on with."""
        log = self.folder / SERVER_LOG_PATH
        size = log.lstat().st_size if log.exists() else 0
        if size > MAX_LOG_BYTES:
            log.unlink()
        return size if size <= MAX_LOG_BYTES else 0

    def _spawn_process(self) -> subprocess.Popen[bytes]:
        # -P, since modules of the project are not ours.
        command = [sys.executable, "-P", "-m", "nerve", "serve", "--quiet", f"--idle={self.idle_timeout_s:g}"]
        command += [f"--with={file}" for file in self.modules]
        # Quiet, since a log is no place for the code that signs a browser in.
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
        # Whenever it ends, it is taken leave of.
        threading.Thread(target=process.wait, name="nerve-home", daemon=True).start()
        return process

    def _log_tail(self, log_start: int) -> str:
        """The end of what was logged behind so many bytes, in one line."""
        try:
            with os.fdopen(open_private_file(self.folder / SERVER_LOG_PATH, os.O_RDONLY), "rb") as log:
                log.seek(log_start)
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return " ".join(text.splitlines()[-LOG_TAIL_LINES:])


def client_for_url(url: str, folder: str | os.PathLike[str] = ".") -> Client:
    """A client of a server that is started by others, with the token of the environment.

    The token of the project is shown to the server of the project, and to nobody else.
    """
    token = os.environ.get("NERVE_TOKEN")
    if (
        not token
        and is_project_server_url(url, Path(folder))
        and (where := find_server(Path(folder))) is not None
    ):
        token = where.token
    return Client(url.rstrip("/"), token=token, via="commander")


def is_project_server_url(url: str, folder: Path) -> bool:
    """Whether an address is that of the project's server, by whichever name of this machine."""
    server_url = (read_server_info(ProjectPaths.of(folder)) or {}).get("url")
    try:
        requested, project = urlsplit(url), urlsplit(str(server_url))
        names = LOOPBACK_HOSTS if project.hostname in LOOPBACK_HOSTS else (project.hostname,)
        return requested.hostname in names and (requested.scheme, requested.port) == (
            project.scheme,
            project.port,
        )
    except ValueError:  # no port is as high
        return False
