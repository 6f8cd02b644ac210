"""The hash chain that links each event of a journal to all events before it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import cast

from nerve.errors import JournalBroken
from nerve.store.port import EMPTIABLE_TYPE, EMPTIED_DATA, EventRow
from nerve.store.stored_rows import OWN_PATH, StoredEvent, StoredRow, restore_data, type_name

FIRST_HASH = bytes(32)
"""The hash that precedes the first event of a journal."""

EMPTIED_MARK = b"\0"
"""Precedes the digest that replaces the data of an emptied event."""

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


def verify_rows(
    run: str, after: int, stored: Iterable[StoredRow], blob: Callable[[bytes], bytes | None], reach: int = 0
) -> Iterator[EventRow]:
    """Yield the events after `after`, each verified; raise `JournalBroken` at the first damaged one.

    The rows stored must include the last one that ends at `after` or before: the chain continues from it.
    The chain cannot show that its end is missing; `reach` is an event the journal is known to hold.
    """
    expected, previous = 1, FIRST_HASH
    try:
        for seq, at, type, path, settles, data, hash, *first_columns in stored:
            if seq > after:
                is_second = first_columns[1] is not None
                if seq - is_second != expected:
                    raise JournalBroken(run, expected)
                rows: list[StoredEvent] = [(at, type, path, settles, data)]
                if is_second:
                    rows.insert(0, cast("StoredEvent", tuple(first_columns)))
                events = []
                for number, values in enumerate(rows, expected):
                    event, data_digest = restore_event(number, values, blob)
                    previous = hash_row(previous, run, event, data_digest)
                    events.append(event)
                if previous != hash:
                    raise JournalBroken(run, expected)
                yield from (event for event in events if event.seq > after)
            expected, previous = seq + 1, hash
    except (UnicodeDecodeError, TypeError, ValueError, struct.error):
        raise JournalBroken(run, expected) from None
    if expected <= reach:
        raise JournalBroken(run, expected)


def restore_event(
    seq: int, stored: StoredEvent, blob: Callable[[bytes], bytes | None]
) -> tuple[EventRow, bytes]:
    """Return an event from its stored form and the digest of its data; ValueError if the data is missing."""
    at, stored_type, path, settles, stored_data = stored
    type = type_name(stored_type)
    if isinstance(settles, int):
        settles = path if settles == OWN_PATH else None
    if isinstance(stored_data, str):
        text = restore_data(stored_data)
        data_digest = hash_data(text.encode())
    elif type == EMPTIABLE_TYPE and len(stored_data) == len(EMPTIED_MARK + FIRST_HASH):
        text, data_digest = EMPTIED_DATA, stored_data[len(EMPTIED_MARK) :]
    else:
        data = blob(stored_data)
        if data is None:
            raise ValueError("The blob is missing")
        text, data_digest = data.decode(), hash_data(data)
    return EventRow(seq, at, type, path, settles, text), data_digest


def verify_events(
    run: str, after: int, stored: Iterable[tuple[EventRow, bytes | None, bytes]], reach: int = 0
) -> Iterator[EventRow]:
    """Do as `verify_rows` with events that are stored as they were appended.

    With each event comes the digest of its data before it was emptied, and its hash.
    """
    expected, previous = 1, FIRST_HASH
    for event, emptied_digest, hash in stored:
        if event.seq > after:
            data_digest = hash_data(event.data.encode()) if emptied_digest is None else emptied_digest
            if event.seq != expected or hash_row(previous, run, event, data_digest) != hash:
                raise JournalBroken(run, expected)
            yield event
        expected, previous = event.seq + 1, hash
    if expected <= reach:
        raise JournalBroken(run, expected)
