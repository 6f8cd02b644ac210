"""The commit mark of a store: how far it was written, kept outside the write-ahead log.

SQLite ends the log at its first damaged frame and treats every later commit as if it never happened. The mark
is written after each commit, once the commit is on disk. The mark itself is not synced: a killed process
leaves it exact, and after a power loss it may be older than the log, but never newer. So a store that lacks
what its mark names has lost acknowledged writes.
"""

from __future__ import annotations

import json
import logging
import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import apsw

from nerve.store.statements import SQL

_log = logging.getLogger(__name__)

_MAGIC = b"NRV1"
_HEAD = struct.Struct("<4sI8sIq32s")
"""Magic, length of the run id at the end, salts and frames of the log, event number and hash."""
_NO_SALTS = bytes(8)

_LOG_HEADER, _FRAME_HEADER = 32, 24
_LITTLE_ENDIAN_LOG = 0x377F0682


class LastEvent(NamedTuple):
    """The event that was committed last."""

    run: str
    seq: int
    hash: bytes


_NO_EVENT = LastEvent("", 0, b"")


class MarkedCommit(NamedTuple):
    """What was on disk: a number of frames of the log with these salts, and an event."""

    salts: bytes
    frames: int
    event: LastEvent | None


class CommitMark:
    """The mark of one store file, for the process that owns the file."""

    def __init__(self, file: Path) -> None:
        self._file, self._path, self._wal = file, Path(f"{file}.mark"), Path(f"{file}-wal")
        self.claim = _read_claim(self._path)
        """What the previous process knew to be on disk."""
        self.loss: str | None = None
        self._salts: bytes | None = None
        self._is_inspected = False
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._descriptor: int | None = os.open(self._path, flags, 0o600)

    def inspect(self, db: apsw.Connection) -> None:
        """Compare the store with its mark, once, before this process changes anything."""
        if self._is_inspected:
            return
        self._is_inspected = True
        if (missing := _find_loss(db, self._wal, self.claim)) is None:
            return
        self.claim = None
        self.loss = _report_loss(self._file, self._wal, missing)
        self.write(0, None)

    def write(self, frames: int, event: LastEvent | None) -> None:
        """Record what is on disk now: the frames of the log, and the last event."""
        if self._descriptor is None:
            return
        if self._salts is None:
            self._salts = _read_header(self._wal)[16:24] or _NO_SALTS
        run, seq, hash = event or _NO_EVENT
        name = run.encode()
        content = _HEAD.pack(_MAGIC, len(name), self._salts, frames, seq, hash) + name
        try:
            os.pwrite(self._descriptor, content + crc32(content).to_bytes(4), 0)
        except OSError as error:
            # A stale mark would claim runs that may be deleted by then.
            _log.warning("cannot write %s; lost commits will not be detected: %s", self._path, error)
            self.remove()
            self.release()

    def forget_salts(self) -> None:
        """Read the salts of the log again at the next commit: after a checkpoint SQLite chooses new ones."""
        self._salts = None

    def remove(self) -> None:
        """Remove the mark: the store is closed properly, and may be replaced by a backup."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_losses(file: Path) -> list[dict[str, Any]]:
    """Return the losses found so far: `at`, `message`, and the path of the damaged `log`."""
    try:
        lines = losses_file(file).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def losses_file(file: Path) -> Path:
    """Return the file that lists the losses of a store."""
    return Path(f"{file}.losses")


def _read_claim(path: Path) -> MarkedCommit | None:
    try:
        content = path.read_bytes()
        magic, length, salts, frames, seq, hash = _HEAD.unpack_from(content)
        end = _HEAD.size + length
        if magic != _MAGIC or content[end : end + 4] != crc32(content[:end]).to_bytes(4):
            return None
        event = LastEvent(content[_HEAD.size : end].decode(), seq, hash) if seq else None
        return MarkedCommit(salts, frames, event)
    except (OSError, struct.error, UnicodeDecodeError):
        return None


def _find_loss(db: apsw.Connection, wal: Path, claim: MarkedCommit | None) -> str | None:
    """Return what a store lacks that was on disk, as text; None if nothing is missing."""
    accepted = max(0, db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0])
    header = _read_header(wal)
    if claim is not None and claim.frames and header and not _is_header_sound(header):
        return "the header of its write-ahead log is damaged"
    if claim is not None and claim.salts == header[16:24]:
        if accepted < claim.frames:
            last = (
                f", but event {claim.event.seq} of run {claim.event.run} was written" if claim.event else ""
            )
            return f"{accepted} of {claim.frames} frames of its write-ahead log can be read{last}"
    elif claim is not None and claim.event is not None and not _has_event(db, claim.event):
        # The log was checkpointed or is gone, so the database file itself must have the event.
        return f"event {claim.event.seq} of run {claim.event.run} was written but is missing"
    return (
        "its write-ahead log has a damaged frame before later commits"
        if _has_torn_commit(wal, accepted)
        else None
    )


def _has_event(db: apsw.Connection, event: LastEvent) -> bool:
    try:
        # The mark is compared before the file is migrated.
        is_old = 0 < db.execute(SQL["user_version"]).get < 7
        statement = SQL["select_hash_before_version_7" if is_old else "select_hash"]
        return bool(db.execute(statement, (event.run, event.seq)).get == event.hash)
    except apsw.Error:
        return False  # also if the table is missing: the log that contained it is gone


def _has_torn_commit(wal: Path, accepted: int) -> bool:
    """Whether a commit followed by another one comes after the first damaged frame of the log.

    A commit is written once the previous one is on disk. So a power loss can tear only the last commit in the
    log, not those before it. The checksum ties the two together, since frames of an older torn commit may be
    left between them.
    """
    commit: tuple[int, int] | None = None
    order = _byte_order(_read_header(wal))
    for head, page in _frames_after(wal, accepted):
        if commit is not None and _checksum(order, commit, head[:8] + page) == struct.unpack(
            ">II", head[16:]
        ):
            return True
        commit = struct.unpack(">II", head[16:]) if any(head[4:8]) else None
    return False


def _frames_after(wal: Path, accepted: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the frames that belong to the log by their salts, after those SQLite has accepted."""
    header = _read_header(wal)
    size = int.from_bytes(header[8:12])
    if not 512 <= size <= 65536:
        return
    first, step = _LOG_HEADER + accepted * (_FRAME_HEADER + size), _FRAME_HEADER + size
    salts = header[16:24]
    with wal.open("rb") as log:
        descriptor = log.fileno()
        ends = range(first + step, os.fstat(descriptor).st_size + 1, step)
        # Without their pages: a log that was used before has many frames that do not belong to it.
        for at in [end - step for end in ends if os.pread(descriptor, 8, end - step + 8) == salts]:
            frame = os.pread(descriptor, step, at)
            yield frame[:_FRAME_HEADER], frame[_FRAME_HEADER:]


def _byte_order(header: bytes) -> str:
    """Return the byte order of the log's checksums, which its first number encodes."""
    return "<" if int.from_bytes(header[:4]) == _LITTLE_ENDIAN_LOG else ">"


def _is_header_sound(header: bytes) -> bool:
    return _checksum(_byte_order(header), (0, 0), header[:24]) == struct.unpack(">II", header[24:])


def _checksum(order: str, previous: tuple[int, int], content: bytes) -> tuple[int, int]:
    """Return the checksum of a frame, as defined by SQLite's file format."""
    first, second = previous
    for one, two in struct.iter_unpack(f"{order}II", content):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second


def _read_header(wal: Path) -> bytes:
    """Return the header of the log; empty without a log."""
    try:
        with wal.open("rb") as log:
            header = log.read(_LOG_HEADER)
    except OSError:
        return b""
    return header if len(header) == _LOG_HEADER else b""


def _report_loss(file: Path, wal: Path, missing: str) -> str:
    """Copy the damaged log, record what is missing, and return the message."""
    log_copy = _copy_damaged_log(wal)
    message = (
        f"{file} has lost writes that were acknowledged: {missing}. Restore a backup, or check its runs."
    )
    if log_copy is not None:
        message += f" The damaged log is kept as {log_copy}."
    _log.error("%s", message)
    entry = {"at": time.time(), "message": message, "log": None if log_copy is None else str(log_copy)}
    try:
        with open(losses_file(file), "a", encoding="utf-8", opener=_open_private) as losses:
            losses.write(json.dumps(entry) + "\n")
    except OSError as error:
        _log.error("cannot write %s: %s", losses_file(file), error)
    return message


def _copy_damaged_log(wal: Path) -> Path | None:
    import shutil  # with its compressors it takes longer to load than the store; few logs are damaged

    log_copy = wal.with_name(f"{wal.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    try:
        with wal.open("rb") as source, open(log_copy, "xb", opener=_open_private) as target:
            shutil.copyfileobj(source, target)
    except OSError:
        return None
    return log_copy


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
