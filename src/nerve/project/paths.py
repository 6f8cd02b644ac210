"""Where the files of a project's server are. A project may come from anywhere: no link in it is followed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MAX_SOCKET_PATH_BYTES = 100
"""Bytes in the path of a Unix socket; the kernel takes 107."""


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
        """Tokens and the socket: nobody else looks in there."""
        return self.folder / "private"

    @property
    def socket(self) -> Path:
        return socket_path(self.private)

    @property
    def server(self) -> Path:
        """Says where the running server is; it is there as long as the server."""
        return self.folder / "server.json"

    @property
    def start_lock(self) -> Path:
        """Held by the process that starts the server, so that no other one does at the same time."""
        return self.folder / "server.lock"

    @property
    def symlinks(self) -> list[Path]:
        """Those that are links: nothing is read or written by way of them."""
        return [path for path in (self.folder, self.private, self.store) if path.is_symlink()]

    @property
    def symlink_problem(self) -> str:
        """What is wrong with a project that has links there, and what to do; empty if it has none."""
        return next((f"{path} is a link, and leads elsewhere. Remove it" for path in self.symlinks), "")

    @property
    def token(self) -> Path:
        """The token that may do everything."""
        return token_file(self.private, "admin")


def token_file(folder: Path, scope: str) -> Path:
    return folder / f"{scope}.token"


def socket_path(folder: Path) -> Path:
    """The socket in a private folder, or, where its path would be too long, in one for temporary files."""
    path = folder.absolute() / "socket"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    name = f"nerve-{os.getuid()}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"
    return temporary_folder() / name / "socket"


def temporary_folder() -> Path:
    """Where files are kept that need not survive a restart of the machine."""
    if runtime_directory := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime_directory)
    import tempfile  # which takes long

    return Path(tempfile.gettempdir())


def open_private_file(path: Path, flags: int) -> int:
    """Open a plain file that only its owner reads; OSError if it, or its folder, is anything else."""
    if path.parent.is_symlink():
        raise OSError(f"{path.parent} is a link")
    # Whoever opens a pipe would wait for its other end.
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is not a plain file")
    return file


@contextmanager
def hold_lock(path: Path) -> Iterator[bool]:
    """Hold a lock file inside the block; the block is given False where another process holds it."""
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
    """What is in a file that is ours alone; OSError if others could have written it."""
    with os.fdopen(open_private_file(path, os.O_RDONLY), encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise OSError(f"others can read or change {path}")
        return file.read()
