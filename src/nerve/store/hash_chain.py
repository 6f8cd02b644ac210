"""The hash chain that links each event of a journal to all events before it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import TypeAlias

from nerve.errors import JournalBroken
from nerve.store.port import EMPTIABLE_TYPE, EMPTIED_DATA, EventRow

FIRST_HASH = bytes(32)
"""The hash that precedes the first event of a journal."""

EMPTIED_MARK = b"\0"
"""Precedes the digest that replaces the data of an emptied event."""

StoredEvent: TypeAlias = tuple[int, float, str, str, str | None, str | bytes, bytes]

_frame = struct.Struct("<32sqdIIIi").pack


def hash_data(data: bytes) -> bytes:
    return sha256(data).digest()


def hash_row(previous: bytes, run: str, row: EventRow, data: bytes) -> bytes:
    """Return the hash of a row from the previous hash and the digest of its own data.

    Data counts by its digest, so that a journal can be verified without the data itself. The lengths in front
    make the encoding unambiguous: no two different rows give the same bytes.
    """
    seq, at, type, path, settles, _ = row
    settles_length = -1 if settles is None else len(settles)
    # Adding 0.0 turns -0.0 into 0.0, which is what SQLite gives back for it.
    head = _frame(previous, seq, at + 0.0, len(run), len(type), len(path), settles_length)
    return sha256(head + f"{run}{type}{path}{settles or ''}".encode() + data).digest()


def list_verified_rows(
    run: str, after: int, stored: Iterable[StoredEvent], blob: Callable[[bytes], bytes | None], reach: int = 0
) -> list[EventRow]:
    """Return the rows after `after` from those stored from `after` on, or raise `JournalBroken`."""
    return list(verify_rows(run, after, stored, blob, reach))


def verify_rows(
    run: str, after: int, stored: Iterable[StoredEvent], blob: Callable[[bytes], bytes | None], reach: int = 0
) -> Iterator[EventRow]:
    """Yield the rows after `after`, each verified; raise `JournalBroken` at the first damaged one.

    The chain cannot show that its end is missing; `reach` is an event the journal is known to hold.
    """
    expected, previous = after or 1, FIRST_HASH
    try:
        for seq, at, type, path, settles, stored_data, hash in stored:
            if seq != expected:
                raise JournalBroken(run, expected)
            if seq != after:
                if (
                    type == EMPTIABLE_TYPE
                    and isinstance(stored_data, bytes)
                    and len(stored_data) == len(EMPTIED_MARK + FIRST_HASH)
                ):
                    text, data_digest = EMPTIED_DATA, stored_data[len(EMPTIED_MARK) :]
                else:
                    data = stored_data.encode() if isinstance(stored_data, str) else blob(stored_data)
                    if data is None:
                        raise JournalBroken(run, seq)
                    text, data_digest = data.decode(), hash_data(data)
                row = EventRow(seq, at, type, path, settles, text)
                if hash_row(previous, run, row, data_digest) != hash:
                    raise JournalBroken(run, seq)
                yield row
            expected, previous = seq + 1, hash
    except (UnicodeDecodeError, TypeError, struct.error):
        raise JournalBroken(run, expected) from None
    if expected <= reach:
        raise JournalBroken(run, expected)
