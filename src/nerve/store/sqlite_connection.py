"""Open the SQLite file of the store, and translate SQLite's errors."""

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
from nerve.store.owner_lock import make_open_error

FILE_CHECK_INTERVAL_S = 1.0
"""Seconds between two checks that the file still exists."""

MAX_WAL_BYTES = 16 * 1024 * 1024
"""Size of the write-ahead log after a checkpoint, however large a slow reader let it grow."""

INCREMENTAL_VACUUM = 2
"""The mode in which unused pages are given back to the file system when the store asks for it."""


def create_store_file(file: Path) -> None:
    """Create an empty file that only its owner can read, signed as this user's.

    SQLite gives the files beside it the same mode.
    """
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if file.stat().st_size:  # an empty file is left by a process killed before it signed it
            return
    except OSError as error:
        raise make_open_error("create", file, error) from None
    # Where the user cannot have a secret, commands ask before they resume these runs.
    with suppress(OSError):
        sign_store(file)


def open_writer(
    file: Path, vfs: str | None, inspect: Callable[[apsw.Connection], None] = lambda db: None
) -> apsw.Connection:
    """Return a writing connection; `inspect` sees the file before anything in it changes."""
    db = _open_connection(file, vfs, apsw.SQLITE_OPEN_READWRITE)
    try:
        migrations.check_store_version(db, file)
        if db.pragma("page_count") == 0:
            db.pragma("auto_vacuum", INCREMENTAL_VACUUM)
        if db.pragma("journal_mode", "wal") != "wal":
            raise StoreFailed(f"{file} does not support a write-ahead log. Use a local disk.")
        db.pragma("journal_size_limit", MAX_WAL_BYTES)
        db.pragma("schema_version")  # the first read creates the log, which is empty until the first commit
        with suppress(OSError):  # as for the store itself
            sign_log(file)
        inspect(db)
        migrations.migrate(db)
        if db.pragma("auto_vacuum") != INCREMENTAL_VACUUM:
            rebuild_file(db)
    except BaseException:
        close_connection(db)
        raise
    return db


def rebuild_file(db: apsw.Connection) -> None:
    """Rewrite a file of an earlier version so that deletions can give space back, if the disk has room."""
    with suppress(apsw.FullError):
        db.pragma("auto_vacuum", INCREMENTAL_VACUUM)
        db.execute("VACUUM")


def open_reader(file: Path, vfs: str | None) -> apsw.Connection:
    """Return a read-only connection."""
    db = _open_connection(file, vfs, apsw.SQLITE_OPEN_READONLY)
    db.set_busy_timeout(1000)
    return db


class FileIdentity:
    """Raises if a file was replaced: SQLite would keep writing to the unlinked file."""

    def __init__(self, file: Path) -> None:
        self._file, self._checked_at = file, 0.0
        self._identity = self._current_identity()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._checked_at < FILE_CHECK_INTERVAL_S:
            return
        if self._current_identity() != self._identity:
            raise StoreFailed(
                f"{self._file} was deleted or replaced while it was open, so writing to it has stopped. "
                "Restore it if possible, then restart."
            )
        self._checked_at = now

    def _current_identity(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._file)
        except OSError:
            return None
        return status.st_dev, status.st_ino


def close_connection(db: apsw.Connection) -> None:
    """Close a connection; errors of the checkpoint are harmless, since the next process repeats it."""
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
    """Translate SQLite's errors into store errors with the name of the file."""
    try:
        yield
    except apsw.Error as error:
        raise to_store_error(file, error) from error
    except UnicodeDecodeError as error:
        raise StoreFailed(f"{file} has an unreadable row: {error}") from error


def error_code(error: apsw.Error) -> int | None:
    """Return the extended result code of SQLite, if the error has one."""
    return getattr(error, "extendedresult", None)


def to_store_error(file: Path, error: apsw.Error) -> StoreError:
    """Return the store error for an error of SQLite."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy(f"{file} is locked by another connection")
    if isinstance(error, apsw.FullError) or error_code(error) == apsw.SQLITE_IOERR_SHMSIZE:
        return StoreFull(f"{file} cannot grow: the disk is full")
    return StoreFailed(f"{file}: {error or type(error).__name__}")
