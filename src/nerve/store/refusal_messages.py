"""The errors of all stores, in the same words."""

from __future__ import annotations

from nerve.errors import Conflict
from nerve.store.port import EMPTIABLE_TYPE, MAX_VALUE_BYTES, Append, RunRow


def sequence_conflict(part: Append, head: int) -> Conflict:
    if head > part.after:
        return Conflict(part.run, f"event {part.after + 1} exists: the journal already has {head} events")
    return Conflict(part.run, f"the journal has {head} events, so nothing can follow event {part.after}")


def deletion_conflict(run: str) -> Conflict:
    return Conflict(run, "the run is being deleted")


def settled_path_conflict(run: str, path: str, seq: int) -> Conflict:
    return Conflict(run, f"{path} is already settled by event {seq}")


def needed_part_conflict(part: Append) -> Conflict:
    return Conflict(part.run, f"it is written only together with run {part.needs}, which was refused")


def run_key_conflict(row: RunRow, owner: str) -> Conflict:
    return Conflict(row.run, f"key {row.key!r} of session {row.session} is already used by run {owner}")


def out_of_order_error(run: str, expected: int, actual: int) -> ValueError:
    return ValueError(f"Run {run}: event {expected} must come next, got event {actual}")


def too_large_error(size: int, *what: object) -> ValueError:
    thing = " ".join(map(str, what))
    return ValueError(f"{thing} has {size:,} bytes, more than the limit of {MAX_VALUE_BYTES:,}")


def not_emptiable_error(run: str, seq: int, type: str) -> ValueError:
    return ValueError(f"Run {run}: event {seq} is {type!r}; only {EMPTIABLE_TYPE!r} events can be emptied")


def check_value_size(text: str, *what: object) -> None:
    """Raise ValueError if a text exceeds the maximum size of a value."""
    # A character takes four bytes at most, so short text need not be encoded to know its size.
    if len(text) > MAX_VALUE_BYTES // 4 and (size := len(text.encode())) > MAX_VALUE_BYTES:
        raise too_large_error(size, *what)
