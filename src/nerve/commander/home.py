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

from nerve.client import Client, Where, about_server, server_of
from nerve.errors import NerveError
from nerve.notations.discovery import FOLDERS
from nerve.places import Places, hold_lock, opened

HERE = ("127.0.0.1", "localhost", "::1")
LOG = Path(".nerve/server.log")
IDLE = 300.0
"""Seconds after which a server that nobody talks to, and in which nothing moves, ends by itself."""
PATIENCE = 20.0
"""Seconds in which a server must be there."""
LOOK = 0.05
AGAIN = 0.3
"""Seconds until a server is started again, where one that is about to end was in its way."""
LARGEST = 1_000_000
"""Bytes of a log that is gone on with; a larger one is begun anew."""
SHOWN = 5
"""Lines of the log that are told when a server does not start."""
TAKEN = re.compile("already|is in use by process")
"""What a server says that comes second."""


class NotStarted(NerveError):
    """The server of the project could not be started; the message has the end of its log."""


class EmptyFolder(NotStarted):
    """There is no project in the folder: a server would only make one that nobody asked for."""


class Home:
    """One project's server. Whoever started it does not have to stay: it is a process of its own."""

    def __init__(
        self, folder: str | os.PathLike[str] = ".", idle: float = IDLE, modules: Iterable[Path] = ()
    ) -> None:
        """`modules` are files with code that the server is given when it is started."""
        self.folder, self.idle = Path(folder).absolute(), idle
        self.modules = [str(file.absolute()) for file in modules]
        self._places = Places.of(self.folder)
        self._lock = asyncio.Lock()

    @property
    def where(self) -> Where | None:
        """How the server is reached, if it is there."""
        return server_of(self.folder)

    def client(self) -> Client:
        """A client of the server, whichever it is at the time."""
        return Client(self._join, via="commander")

    @property
    def is_empty(self) -> bool:
        """Whether nothing in the folder is a project, and no code for one is given."""
        return not self.modules and not any(os.path.lexists(self.folder / name) for name in FOLDERS)

    async def ensure(self) -> None:
        """Return when a server is there; NotStarted if none can be, EmptyFolder if none is needed."""
        async with self._lock:
            end = asyncio.get_running_loop().time() + PATIENCE
            while self.where is None:
                await self._act_alone(end, partial(self._launch, end))
            self._remember()

    async def replace(self, stop: Callable[[], object]) -> None:
        """Stop the server that is there by `stop`, and start one; no other process starts one between."""

        loop = asyncio.get_running_loop()

        async def stop_and_launch() -> None:
            stop()
            await self._launch(loop.time() + PATIENCE)

        end = loop.time() + PATIENCE
        while not await self._act_alone(end, stop_and_launch):
            pass

    async def _act_alone(self, end: float, act: Callable[[], Awaitable[None]]) -> bool:
        """Act unless another process is starting the server now; gives False, after a pause, if one is."""
        if self.is_empty:
            raise EmptyFolder("There is no project in this folder. Make one with: nerve init")
        try:
            if links := self._places.links:
                raise OSError(f"{links[0]} is a link")
            self._places.folder.mkdir(exist_ok=True)
            with hold_lock(self._places.start_lock) as is_free:
                if is_free:
                    await act()
                    return True
        except OSError as error:
            raise NotStarted(f"The server of this project cannot be started: {error}.") from None
        if asyncio.get_running_loop().time() >= end:
            raise NotStarted("Another process has been starting the server of this project for too long.")
        await asyncio.sleep(AGAIN)
        return False

    def _join(self) -> Where | None:
        where = self.where
        if where is not None:
            self._remember()
        return where

    def _remember(self) -> None:
        """What the server that runs was given is given to the next one, if that has to be started here."""
        told = (about_server(self._places) or {}).get("modules")
        if isinstance(told, list) and all(isinstance(each, str) for each in told):
            self.modules = told

    async def _launch(self, end: float) -> None:
        while self.where is None:
            await self._attempt(end)

    async def _attempt(self, end: float) -> None:
        """Start a server; return when one is there, or when another that must end first was in its way."""
        loop = asyncio.get_running_loop()
        begun, process = self._begun(), self._start()
        while self.where is None and process.poll() is None and loop.time() < end:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(LOOK)
        if self.where is not None:
            return
        said = self._said(begun)
        if loop.time() >= end or not TAKEN.search(said):
            raise NotStarted(f"The server of this project did not start. {said}".strip())
        await asyncio.sleep(AGAIN)

    def _begun(self) -> int:
        """The bytes of the log that the next server goes on with."""
        log = self.folder / LOG
        size = log.lstat().st_size if log.exists() else 0
        if size > LARGEST:
            log.unlink()
        return size if size <= LARGEST else 0

    def _start(self) -> subprocess.Popen[bytes]:
        # -P, since modules of the project are not ours.
        command = [sys.executable, "-P", "-m", "nerve", "serve", "--quiet", f"--idle={self.idle:g}"]
        command += [f"--with={file}" for file in self.modules]
        # Quiet, since a log is no place for the code that signs a browser in.
        with os.fdopen(opened(self.folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as out:
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

    def _said(self, begun: int) -> str:
        """The end of what was logged behind so many bytes, in one line."""
        try:
            with os.fdopen(opened(self.folder / LOG, os.O_RDONLY), "rb") as log:
                log.seek(begun)
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return " ".join(text.splitlines()[-SHOWN:])


def elsewhere(url: str, folder: str | os.PathLike[str] = ".") -> Client:
    """A client of a server that is started by others, with the token of the environment.

    The token of the project is shown to the server of the project, and to nobody else.
    """
    token = os.environ.get("NERVE_TOKEN")
    if not token and is_own(url, Path(folder)) and (where := server_of(Path(folder))) is not None:
        token = where.token
    return Client(url.rstrip("/"), token=token, via="commander")


def is_own(url: str, folder: Path) -> bool:
    """Whether an address is that of the project's server, by whichever name of this machine."""
    told = (about_server(Places.of(folder)) or {}).get("url")
    try:
        asked, own = urlsplit(url), urlsplit(str(told))
        names = HERE if own.hostname in HERE else (own.hostname,)
        return asked.hostname in names and (asked.scheme, asked.port) == (own.scheme, own.port)
    except ValueError:  # no port is as high
        return False
