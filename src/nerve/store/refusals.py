"""What every store refuses, said in the same words."""

from __future__ import annotations

from nerve.errors import Conflict
from nerve.store.port import EMPTIABLE, VALUE_LIMIT, Append, RunRow


def sequence_taken(part: Append, head: int) -> Conflict:
    if head > part.after:
        return Conflict(part.run, f"event {part.after + 1} is taken, the journal has {head} events already")
    return Conflict(part.run, f"the journal has {head} events, nothing can follow event {part.after} yet")


def being_deleted(run: str) -> Conflict:
    return Conflict(run, "the run is being deleted")


def path_settled(run: str, path: str, seq: int) -> Conflict:
    return Conflict(run, f"{path} is settled already, by event {seq}")


def key_taken(row: RunRow, owner: str) -> Conflict:
    return Conflict(row.run, f"key {row.key!r} of session {row.session} is taken, by run {owner}")


def out_of_order(run: str, expected: int, found: int) -> ValueError:
    return ValueError(f"run {run}: event {expected} must come next, found event {found}")


def too_large(size: int, *what: object) -> ValueError:
    thing = " ".join(map(str, what))
    return ValueError(f"{thing} holds {size:,} bytes, more than the limit of {VALUE_LIMIT:,}")


def not_emptiable(run: str, seq: int, type: str) -> ValueError:
    return ValueError(f"run {run}: event {seq} is {type!r}; only the data of {EMPTIABLE!r} can be forgotten")


def check_size(text: str, *what: object) -> None:
    # A character takes four bytes at most, so short text need not be encoded to know its size.
    if len(text) > VALUE_LIMIT // 4 and (size := len(text.encode())) > VALUE_LIMIT:
        raise too_large(size, *what)
