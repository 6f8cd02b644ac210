"""How the store opens its SQLite file, and what it makes of SQLite's errors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from nerve.errors import StoreBusy, StoreError, StoreFailed, StoreFull
from nerve.project.ownership import sign_log, sign_store
from nerve.store import migrations

FILE_CHECK_INTERVAL_S = 1.0
"""Seconds after which it is looked again whether the file is still there."""

MAX_WAL_BYTES = 16 * 1024 * 1024
"""What is kept of the write-ahead log after a checkpoint, however large it grew behind a slow reader."""


def create_store_file(file: Path) -> None:
    """An empty file that only its owner can read, and which is signed as this user's.

    SQLite gives the files beside it the same mode.
    """
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if file.stat().st_size:  # an empty one was left by a process that was killed before it signed it
            return
    except OSError as error:
        raise StoreFailed(f"{file} cannot be made: {error.strerror}") from None
    with suppress(
        OSError
    ):  # where the user can have no secret, commands ask before they go on with these runs
        sign_store(file)


def open_writer(
    file: Path, vfs: str | None, inspect: Callable[[apsw.Connection], None] = lambda db: None
) -> apsw.Connection:
    """A connection that writes; `inspect` sees the file before anything in it is changed."""
    db = _open_connection(file, vfs, apsw.SQLITE_OPEN_READWRITE)
    try:
        migrations.check_store_version(db, file)
        if db.pragma("journal_mode", "wal") != "wal":
            raise StoreFailed(f"{file} cannot have a write-ahead log. Use a local disk.")
        db.pragma("journal_size_limit", MAX_WAL_BYTES)
        db.pragma("schema_version")  # the first look makes the log, which is empty until the first commit
        with suppress(OSError):  # as for the store itself
            sign_log(file)
        inspect(db)
        migrations.migrate(db)
    except BaseException:
        close_connection(db)
        raise
    return db


def open_reader(file: Path, vfs: str | None) -> apsw.Connection:
    db = _open_connection(file, vfs, apsw.SQLITE_OPEN_READONLY)
    db.set_busy_timeout(1000)
    return db


class FileIdentity:
    """Raises when a file is not the one that was there: SQLite would write on into one that nobody finds."""

    def __init__(self, file: Path) -> None:
        self._file, self._checked_at = file, 0.0
        self._identity = self._current_identity()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._checked_at < FILE_CHECK_INTERVAL_S:
            return
        if self._current_identity() != self._identity:
            raise StoreFailed(
                f"{self._file} was deleted or replaced while it was open, so nothing more is written to it. "
                "Put it back if you can, then start again."
            )
        self._checked_at = now

    def _current_identity(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._file)
        except OSError:
            return None
        return status.st_dev, status.st_ino


def close_connection(db: apsw.Connection) -> None:
    """Leave; trouble with moving the log costs nothing, since the next to open the file moves it."""
    with suppress(apsw.Error):
        db.close(True)


def _open_connection(file: Path, vfs: str | None, flags: int) -> apsw.Connection:
    db = apsw.Connection(str(file), flags=flags, vfs=vfs)
    db.pragma("synchronous", "full")
    db.pragma("fullfsync", True)
    db.pragma("checkpoint_fullfsync", True)
    db.pragma("foreign_keys", True)
    db.pragma("trusted_schema", False)
    db.pragma("mmap_size", 0)
    return db


@contextmanager
def translate_sqlite_errors(file: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours, with the name of the file."""
    try:
        yield
    except apsw.Error as error:
        raise to_store_error(file, error) from error
    except UnicodeDecodeError as error:
        raise StoreFailed(f"{file} holds a row that cannot be read: {error}") from error


def to_store_error(file: Path, error: apsw.Error) -> StoreError:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy(f"{file} is locked by another connection")
    if isinstance(error, apsw.FullError):
        return StoreFull(f"{file} cannot grow, the disk is full. Free some space, then resume the held runs.")
    return StoreFailed(f"{file}: {error or type(error).__name__}")
