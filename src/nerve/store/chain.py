"""The hash chain that ties each event of a journal to all before it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import TypeAlias

from nerve.errors import JournalBroken
from nerve.store.port import EMPTIABLE, EMPTIED, Row

START = bytes(32)
"""What the first event of a journal is tied to."""

MARK = b"\0"
"""Stands before the digest of data that was forgotten, in the place of the data of an `EMPTIABLE` event."""

Stored: TypeAlias = tuple[int, float, str, str, str | None, str | bytes, bytes]

_frame = struct.Struct("<32sqdIIIi").pack


def digest(data: bytes) -> bytes:
    return sha256(data).digest()


def link(previous: bytes, run: str, row: Row, data: bytes) -> bytes:
    """The hash of a row, given the hash of the row before it and the digest of its own data.

    Data counts by its digest, so that a journal can be checked without the data itself. The lengths in
    front make the encoding unambiguous: no two different rows give the same bytes.
    """
    seq, at, type, path, settles, _ = row
    behind = -1 if settles is None else len(settles)
    # Adding 0.0 turns -0.0 into 0.0, which is what SQLite gives back for it.
    head = _frame(previous, seq, at + 0.0, len(run), len(type), len(path), behind)
    return sha256(head + f"{run}{type}{path}{settles or ''}".encode() + data).digest()


def verified(
    run: str, after: int, stored: Iterable[Stored], blob: Callable[[bytes], bytes | None], reach: int = 0
) -> list[Row]:
    """The rows behind `after`, given what is stored from `after` on, or `JournalBroken`."""
    return list(verify(run, after, stored, blob, reach))


def verify(
    run: str, after: int, stored: Iterable[Stored], blob: Callable[[bytes], bytes | None], reach: int = 0
) -> Iterator[Row]:
    """Yield the rows after `after`, each checked; raises `JournalBroken` at the first that is damaged.

    The chain cannot show that its end is missing; `reach` is an event the journal is known to hold.
    """
    expected, previous = after or 1, START
    try:
        for seq, at, type, path, settles, kept, hash in stored:
            if seq != expected:
                raise JournalBroken(run, expected)
            if seq != after:
                if type == EMPTIABLE and isinstance(kept, bytes) and len(kept) == len(MARK + START):
                    text, own = EMPTIED, kept[len(MARK) :]
                else:
                    data = kept.encode() if isinstance(kept, str) else blob(kept)
                    if data is None:
                        raise JournalBroken(run, seq)
                    text, own = data.decode(), digest(data)
                row = Row(seq, at, type, path, settles, text)
                if link(previous, run, row, own) != hash:
                    raise JournalBroken(run, seq)
                yield row
            expected, previous = seq + 1, hash
    except (UnicodeDecodeError, TypeError, struct.error):
        raise JournalBroken(run, expected) from None
    if expected <= reach:
        raise JournalBroken(run, expected)
