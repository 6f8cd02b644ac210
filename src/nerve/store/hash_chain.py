"""The hash chain that links each event of a journal to all events before it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import sha256

from nerve.errors import JournalBroken
from nerve.store.port import EMPTIABLE_TYPE, EMPTIED_DATA, EventRow
from nerve.store.stored_rows import (
    NAMES_BY_CODE,
    OWN_PATH,
    StoredData,
    StoredPath,
    StoredRow,
    StoredType,
    restore_data,
    type_name,
)

FIRST_HASH = bytes(32)
"""The hash that precedes the first event of a journal."""

EMPTIED_MARK = b"\0"
"""Precedes the digest that replaces the data of an emptied event."""

_make_row: Callable[[tuple[object, ...]], EventRow] = partial(tuple.__new__, EventRow)
"""Build a row in C."""
_frame = struct.Struct("<32sqdIIIi").pack


def hash_data(data: bytes) -> bytes:
    return sha256(data).digest()


def hash_row(previous: bytes, run: str, row: EventRow, data: bytes) -> bytes:
    """Return the hash of a row from the previous hash and the digest of its own data.

    Data counts by its digest, so that a journal can be verified without the data itself. The lengths in front
    make the encoding unambiguous: no two different rows give the same bytes.
    """
    seq, at, type, path, settles, _ = row
    # Adding 0.0 turns -0.0 into 0.0, which is what SQLite gives back for it.
    if settles is None:
        head = _frame(previous, seq, at + 0.0, len(run), len(type), len(path), -1)
        return sha256(head + (run + type + path).encode() + data).digest()
    head = _frame(previous, seq, at + 0.0, len(run), len(type), len(path), len(settles))
    return sha256(head + (run + type + path + settles).encode() + data).digest()


def verify_rows(
    run: str, after: int, stored: Iterable[StoredRow], blob: Callable[[bytes], bytes | None], reach: int = 0
) -> Iterator[EventRow]:
    """Yield the events after `after`, each verified; raise `JournalBroken` at the first damaged one.

    The rows stored must include the last one that ends at `after` or before: the chain continues from it.
    The chain cannot show that its end is missing; `reach` is an event the journal is known to hold.
    """
    expected, previous = 1, FIRST_HASH
    try:
        # Unpacked by hand, without a list of the events of a row: loading a run spends most of its time here.
        for seq, at, type, path, settles, data, hash, at_1, type_1, path_1, settles_1, data_1 in stored:
            if seq > after:
                if seq - (type_1 is not None) != expected:
                    raise JournalBroken(run, expected)
                first = None
                if type_1 is not None:
                    first, digest = restore_event(expected, blob, at_1, type_1, path_1, settles_1, data_1)
                    previous = hash_row(previous, run, first, digest)
                event, digest = restore_event(seq, blob, at, type, path, settles, data)
                if hash_row(previous, run, event, digest) != hash:
                    raise JournalBroken(run, expected)
                if first is not None and expected > after:
                    yield first
                yield event
            expected, previous = seq + 1, hash
    except (UnicodeDecodeError, TypeError, ValueError, struct.error):
        raise JournalBroken(run, expected) from None
    if expected <= reach:
        raise JournalBroken(run, expected)


def restore_event(
    seq: int,
    blob: Callable[[bytes], bytes | None],
    at: float,
    stored_type: StoredType,
    path: str,
    settles: StoredPath,
    stored_data: StoredData,
) -> tuple[EventRow, bytes]:
    """Return an event from its stored form and the digest of its data; ValueError if the data is missing."""
    type = NAMES_BY_CODE.get(stored_type) or type_name(stored_type)
    if settles == OWN_PATH:
        settles = path
    if isinstance(stored_data, str):
        text = restore_data(stored_data)
        return _make_row((seq, at, type, path, settles, text)), sha256(text.encode()).digest()
    if type == EMPTIABLE_TYPE and len(stored_data) == len(EMPTIED_MARK + FIRST_HASH):
        return _make_row((seq, at, type, path, settles, EMPTIED_DATA)), stored_data[len(EMPTIED_MARK) :]
    data = blob(stored_data)
    if data is None:
        raise ValueError("The blob is missing")
    return _make_row((seq, at, type, path, settles, data.decode())), hash_data(data)


def verify_events(
    run: str, after: int, stored: Iterable[tuple[EventRow, bytes | None, bytes]], reach: int = 0
) -> Iterator[EventRow]:
    """Do as `verify_rows` with events that are stored as they were appended.

    With each event comes the digest of its data before it was emptied, and its hash.
    """
    expected, previous = 1, FIRST_HASH
    for event, emptied_digest, hash in stored:
        if event.seq > after:
            if emptied_digest is None:
                data_digest = hash_data(event.data.encode())
            elif event.type == EMPTIABLE_TYPE and event.data == EMPTIED_DATA:
                data_digest = emptied_digest
            else:  # a digest beside data that was changed would hide the change
                raise JournalBroken(run, expected)
            if event.seq != expected or hash_row(previous, run, event, data_digest) != hash:
                raise JournalBroken(run, expected)
            yield event
        expected, previous = event.seq + 1, hash
    if expected <= reach:
        raise JournalBroken(run, expected)
