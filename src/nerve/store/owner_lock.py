"""Ownership of a store file: one process, named in a lock file beside it."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from nerve.errors import StoreDenied, StoreError, StoreFailed, StoreFull, StoreInUse


def make_open_error(verb: str, file: Path, error: OSError) -> StoreError:
    """Return the store error for a file that the operating system refuses to open or to write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"Cannot {verb} {file}: the disk is full")
    is_denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    return (StoreDenied if is_denied else StoreFailed)(f"Cannot {verb} {file}: {error.strerror}")


def is_store_owned(file: Path) -> bool:
    """Whether a process owns a store file now."""
    try:
        descriptor = os.open(f"{file}.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class OwnerLock:
    """The lock, held until `release` or the death of the process."""

    def __init__(self, file: Path) -> None:
        try:
            self._descriptor = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise make_open_error("lock", file, error) from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._descriptor, 20, 0)
            self.release()
            raise StoreInUse(str(file), int(owner) if owner.isdigit() else None) from None
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d" % os.getpid(), 0)
        except OSError as error:
            self.release()
            raise make_open_error("lock", file, error) from None

    def release(self) -> None:
        # The file stays: if it were removed, two processes could lock two files with the same name.
        os.close(self._descriptor)
