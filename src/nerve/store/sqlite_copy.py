"""Copies of SQLite store files: each is complete and verified before its name exists."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import cast

import apsw

from nerve.errors import StoreError, StoreFailed, StoreFull
from nerve.project.ownership import is_own_store, sign_store
from nerve.store import migrations
from nerve.store.owner_lock import OwnerLock
from nerve.store.sqlite_connection import INCREMENTAL_VACUUM, open_reader
from nerve.store.sqlite_rows import SqliteRows, damage_error, translate_read_errors
from nerve.store.statements import SQL
from nerve.store.transaction import Transaction

PARTIAL_SUFFIX = ".partial"
"""Follows the name of a file that is not complete. A killed copy leaves it, and the next one replaces it."""

COMPANIONS = ("-wal", "-journal", ".mark")
"""Suffixes of the files beside a store that belong to one store file, and not to another one in its place."""

_WRITE_ERRORS = frozenset({apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_TRUNCATE})


@contextmanager
def new_store_file(target: Path, is_own: bool = True) -> Iterator[Path]:
    """Yield the path of an empty file, which gets its name at the end if nothing failed.

    It is signed as this user's if its content `is_own`. StoreError for a target that exists.
    """
    check_target(target)
    partial = Path(f"{target}{PARTIAL_SUFFIX}")
    try:
        descriptor = lock_partial_file(partial, target)
    except OSError as error:
        raise StoreFailed(f"Cannot create {partial}: {error.strerror}.") from None
    try:
        yield partial
        os.fsync(descriptor)
        put_in_place(partial, target)
        if is_own:
            with suppress(OSError):
                sign_store(target)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        os.close(descriptor)


def check_target(target: Path) -> None:
    for path in (target, *(Path(f"{target}{suffix}") for suffix in COMPANIONS)):
        if os.path.lexists(path):
            raise StoreError(f"{path} exists already. Move it away, or use another file.")
    if not target.parent.is_dir():
        raise StoreError(f"{target.parent} is not a folder. Create it, or use another file.")


def lock_partial_file(partial: Path, target: Path) -> int:
    """Return the descriptor of an empty file that only this process writes."""
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino != partial.stat().st_ino:
            raise BlockingIOError
        os.ftruncate(descriptor, 0)
    except (BlockingIOError, FileNotFoundError):
        os.close(descriptor)
        raise StoreError(f"Another process writes {target} now. Wait for it, or use another file.") from None
    return descriptor


def put_in_place(partial: Path, target: Path) -> None:
    """Give a file its name, on disk."""
    try:
        os.link(partial, target)  # a rename would replace a file that was created meanwhile
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except FileExistsError:
        raise StoreError(f"{target} exists already. Move it away, or use another file.") from None
    except OSError as error:
        raise StoreFailed(f"Cannot create {target}: {error.strerror}.") from None


@contextmanager
def exclusive_file(file: Path) -> Iterator[None]:
    """Keep other processes from opening a store; StoreInUse if one has opened it."""
    check_source(file)
    lock = OwnerLock(file)
    try:
        yield
    finally:
        lock.release()


def copy_file(source: Path, target: Path) -> tuple[int, int]:
    """Copy a file as a whole, also while a process writes to it; return the numbers of runs and events."""
    check_source(source)
    # The runs of a store from elsewhere are from elsewhere in the copy, too.
    with new_store_file(target, is_own_store(source)) as partial:
        copy_pages(source, partial, target)
        with open_copy(partial, target) as db:
            migrations.migrate(db)
            check_pages(db, source)
            SqliteRows(db, source).verify_chains()
            counts = db.execute(SQL["count_copied"]).fetchone()
    return cast("tuple[int, int]", counts)


def copy_pages(source: Path, partial: Path, target: Path) -> None:
    """Copy the pages of a store in one snapshot; errors name the target."""
    check_source(source)
    with translate_read_errors(source), closing(open_reader(source, None)) as db:
        migrations.check_store_version(db, source)
        with closing(apsw.Connection(str(partial))) as copy, copy.backup("main", db, "main") as backup:
            try:
                while not backup.done:
                    backup.step(-1)
            except apsw.Error as error:
                if isinstance(error, apsw.FullError) or getattr(error, "extendedresult", 0) in _WRITE_ERRORS:
                    raise write_error(target, error) from None
                raise


def check_source(source: Path) -> None:
    try:
        if not source.is_file():
            raise StoreError(f"File not found: {source}.")
        if not source.stat().st_size:
            raise StoreError(f"{source} is empty. Use another file.")
    except OSError as error:
        raise StoreFailed(f"Cannot read {source}: {error.strerror}.") from None


def check_pages(db: apsw.Connection, source: Path) -> None:
    [message] = db.execute(SQL["integrity_check"].format(1)).fetchone() or ("",)
    if message != "ok":
        raise damage_error(source, str(message).splitlines()[-1])


@contextmanager
def read_file(source: Path) -> Iterator[SqliteRows]:
    """Yield the rows of a file in one snapshot; those of an earlier version as of the newest one."""
    check_source(source)
    with translate_read_errors(source), closing(open_reader(source, None)) as db:
        migrations.check_store_version(db, source)
        if db.execute(SQL["user_version"]).get == len(migrations.MIGRATIONS):
            db.execute("BEGIN")
            yield SqliteRows(db, source)
            return
    with tempfile.TemporaryDirectory(prefix="nerve-") as folder:
        newest = Path(folder, source.name)
        copy_pages(source, newest, newest)
        with translate_read_errors(source), open_copy(newest, newest) as db:
            migrations.migrate(db)
            db.execute("BEGIN")
            yield SqliteRows(db, source)


@contextmanager
def write_file(target: Path) -> Iterator[SqliteRows]:
    """Yield the rows of a new file, which gets its name at the end."""
    with new_store_file(target) as partial, open_copy(partial, target) as db:
        migrations.migrate(db)
        with Transaction(db):
            yield SqliteRows(db, target)


@contextmanager
def open_copy(partial: Path, target: Path) -> Iterator[apsw.Connection]:
    """Yield a connection to a file that is useless until it is complete, so that no change is synced."""
    with translate_target_errors(target), closing(apsw.Connection(str(partial))) as db:
        db.pragma("synchronous", "off")
        db.pragma("journal_mode", "memory")  # also the file then needs no log beside it
        if db.pragma("page_count") == 0:
            db.pragma("auto_vacuum", INCREMENTAL_VACUUM)
        yield db


@contextmanager
def translate_target_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise write_error(target, error) from None


def write_error(target: Path, error: apsw.Error) -> StoreError:
    if isinstance(error, apsw.FullError):
        return StoreFull(f"{target} cannot be written: the disk is full")
    return StoreFailed(f"{target} cannot be written: {error}.")
