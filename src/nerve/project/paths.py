"""Paths of the files of a project server. Projects are untrusted, so symbolic links are not followed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nerve.lazy_dataclass import dataclass

PROJECT_FOLDER_NAMES = (".nerve", ".archon", ".claude", ".agents", ".openagents")
"""Folders with workflows; a file shadows files of the same name in later folders."""
MAX_SOCKET_PATH_BYTES = 100
"""Maximum length of a Unix socket path in bytes; the kernel allows 107."""


@dataclass(frozen=True, slots=True)
class ProjectPaths:
    """The files of a project's server."""

    folder: Path

    @classmethod
    def of(cls, project: str | os.PathLike[str]) -> ProjectPaths:
        return cls(Path(project).absolute() / ".nerve")

    @property
    def store(self) -> Path:
        return self.folder / "nerve.db"

    @property
    def private(self) -> Path:
        """The folder of the tokens and the socket, which only its owner can read."""
        return self.folder / "private"

    @property
    def socket(self) -> Path:
        return socket_path(self.private)

    @property
    def server(self) -> Path:
        """The address file of the running server, which exists as long as the server runs."""
        return self.folder / "server.json"

    @property
    def start_lock(self) -> Path:
        """Lock of the process that starts the server, so that only one process starts it."""
        return self.folder / "server.lock"

    @property
    def symlinks(self) -> list[Path]:
        """The paths that are symbolic links; Nerve does not read or write through them."""
        return [path for path in (self.folder, self.private, self.store) if path.is_symlink()]

    @property
    def symlink_problem(self) -> str:
        """A message about a symbolic link among the paths; empty if there are none."""
        return next((f"{path} is a symbolic link. Remove it" for path in self.symlinks), "")

    @property
    def token(self) -> Path:
        """The admin token."""
        return token_file(self.private, "admin")


def token_file(folder: Path, scope: str) -> Path:
    return folder / f"{scope}.token"


def socket_path(folder: Path) -> Path:
    """Return the socket path in a private folder, or in a temporary folder if that path is too long."""
    path = folder.absolute() / "socket"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    name = f"nerve-{os.getuid()}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"
    return temporary_folder() / name / "socket"


def temporary_folder() -> Path:
    """Return the folder for files that need not survive a reboot."""
    if runtime_directory := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime_directory)
    import tempfile  # slow to import

    return Path(tempfile.gettempdir())


def open_private_file(path: Path, flags: int) -> int:
    """Open a private regular file; raises OSError if it is something else or its folder is a link."""
    if path.parent.is_symlink():
        raise OSError(f"{path.parent} is a symbolic link")
    # O_NONBLOCK: opening a named pipe would wait for its other end.
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is not a regular file")
    return file


@contextmanager
def hold_lock(path: Path) -> Iterator[bool]:
    """Hold a lock file inside the block; yields False if another process holds it."""
    file = open_private_file(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(file)


def read_private_file(path: Path) -> str:
    """Return the content of a private file; raises OSError if other users can access it."""
    with os.fdopen(open_private_file(path, os.O_RDONLY), encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise OSError(f"other users can read or change {path}")
        return file.read()
