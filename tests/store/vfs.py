"""Disks for SQLite that record, fail and lose power."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import apsw

_numbers = count()


class Disk(apsw.VFS):
    """The real disk, with every change recorded and a `before` that may raise to prevent it."""

    def __init__(self) -> None:
        self.name = f"disk-{next(_numbers)}"
        self.operations: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda operation, file: None
        super().__init__(self.name, base="")

    def note(self, operation: str, file: str) -> None:
        self.operations.append((operation, file))
        self.before(operation, file)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _File:  # noqa: N802
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self.note("delete", filename)
        super().xDelete(filename, syncdir)
        self.deleted(filename)

    def written(self, file: str, data: bytes, offset: int) -> None: ...
    def truncated(self, file: str, size: int) -> None: ...
    def synced(self, file: str) -> None: ...
    def deleted(self, file: str) -> None: ...


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self.disk = disk
        self.file = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self.disk.note("write", self.file)
        super().xWrite(data, offset)
        self.disk.written(self.file, bytes(data), offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self.disk.note("truncate", self.file)
        super().xTruncate(newsize)
        self.disk.truncated(self.file, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self.disk.note("sync", self.file)
        super().xSync(flags)
        self.disk.synced(self.file)


class VolatileDisk(Disk):
    """Separates synced data from data that a power loss may take."""

    def __init__(self) -> None:
        super().__init__()
        self._safe: dict[str, bytearray] = defaultdict(bytearray)
        self._pending: dict[str, list[tuple[bytes, int]]] = defaultdict(list)

    def written(self, file: str, data: bytes, offset: int) -> None:
        self._pending[file].append((data, offset))

    def truncated(self, file: str, size: int) -> None:
        self._pending[file].append((b"", size))

    def synced(self, file: str) -> None:
        for change in self._pending.pop(file, ()):
            _apply(self._safe[file], *change)

    def deleted(self, file: str) -> None:
        self._pending.pop(file, None)
        self._safe.pop(file, None)

    def lose_power(self, onto: Path, random: Random) -> None:
        """Write what survives to another directory: all synced data, and any part of the rest."""
        luck = random.choice((0.0, 0.5, 1.0))
        for file in {*self._safe, *self._pending}:
            content = bytearray(self._safe.get(file, b""))
            for change in self._pending.get(file, ()):
                if random.random() < luck:
                    _apply(content, *change)
            (onto / Path(file).name).write_bytes(content)


def _apply(content: bytearray, data: bytes, offset: int) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if data:
        content[offset : offset + len(data)] = data
    else:
        del content[offset:]


def io_error(operation: str) -> apsw.Error:
    return apsw.exception_for(
        {
            "write": apsw.SQLITE_IOERR_WRITE,
            "sync": apsw.SQLITE_IOERR_FSYNC,
            "truncate": apsw.SQLITE_IOERR_TRUNCATE,
            "delete": apsw.SQLITE_IOERR_DELETE,
        }[operation]
    )
