"""Home: the server of a project, found where it runs, or started in the background."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from nerve.client import Client, Where, about_server, server_of
from nerve.errors import NerveError
from nerve.places import Places

LOG = Path(".nerve/server.log")
HERE = ("127.0.0.1", "localhost", "::1")
IDLE = 300.0
"""Seconds after which a server that nobody talks to, and in which nothing moves, ends by itself."""
PATIENCE = 20.0
"""Seconds in which a server must be there."""
LOOK = 0.05
LARGEST = 1_000_000
"""Bytes of a log that is gone on with; a larger one is begun anew."""
SHOWN = 5
"""Lines of the log that are told when a server does not start."""
TAKEN = re.compile("already|is in use by process")
"""What a server says that comes second."""


class NotStarted(NerveError):
    """The server of the project could not be started; the message has the end of its log."""


class Home:
    """One project's server. Whoever started it does not have to stay: it is a process of its own."""

    def __init__(self, folder: str | os.PathLike[str] = ".", idle: float = IDLE) -> None:
        self.folder, self.idle = Path(folder).absolute(), idle
        self._child: int | None = None
        self._lock = asyncio.Lock()

    @property
    def where(self) -> Where | None:
        """How the server is reached, if it is there."""
        return server_of(self.folder)

    def client(self) -> Client:
        """A client of the server, whichever it is at the time."""
        return Client(lambda: self.where, via="commander")

    async def ensure(self) -> None:
        """Return when a server is there; NotStarted if none can be."""
        async with self._lock:
            if self.where is None:
                await self._started(self._start())

    def _start(self) -> subprocess.Popen[bytes]:
        if self._child is not None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._child, os.WNOHANG)  # one that has ended is taken leave of
        log = self.folder / LOG
        log.parent.mkdir(exist_ok=True)
        if log.is_file() and log.stat().st_size > LARGEST:
            log.unlink()
        # -P, since modules of the project are not ours.
        command = [sys.executable, "-P", "-m", "nerve", "serve", "--quiet", f"--idle={self.idle:g}"]
        # Quiet, since a log is no place for the code that signs a browser in.
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as out:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._child = process.pid
        return process

    async def _started(self, process: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE
        try:
            while self.where is None:
                ended = process.poll() is not None
                if (ended and not TAKEN.search(self._said())) or loop.time() > end:
                    raise NotStarted(f"The server of this project did not start. {self._said()}".strip())
                await asyncio.sleep(LOOK)
        finally:
            process.returncode = process.poll() or 0  # from here on it needs nobody

    def _said(self) -> str:
        """The end of the log, in one line."""
        try:
            text = (self.folder / LOG).read_text(encoding="utf-8", errors="replace")
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
