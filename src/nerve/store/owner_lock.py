"""Ownership of a store file: one process, named in a lock file beside it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from nerve.errors import StoreFailed, StoreInUse


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
            raise StoreFailed(f"Cannot lock {file}: {error.strerror}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._descriptor, 20, 0)
            self.release()
            raise StoreInUse(str(file), int(owner) if owner.isdigit() else None) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d" % os.getpid(), 0)

    def release(self) -> None:
        # The file stays: if it were removed, two processes could lock two files with the same name.
        os.close(self._descriptor)
