"""Failures: what a run has failed at, and is run again when somebody tries it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nerve.core.events import RUN_LEVEL_EVENTS, JournalRow
from nerve.core.json_codec import decode_json
from nerve.core.result import CHILD_REJECTED_ERROR_TYPE, REJECTED_ERROR_TYPE
from nerve.journal.events import step_of_attempt
from nerve.journal.replay import (
    ABANDON_EVENTS,
    CONTROL_PREFIX,
    OPENING_EVENTS,
    ancestor_paths,
    drop_reset_rows,
    is_below_leaf,
)

TIMEOUT_EVENTS = frozenset({"gate_timeout", "signal_timeout", "timer_fired"})


def find_failures(journal_rows: Iterable[JournalRow]) -> dict[str, JournalRow]:
    """What has failed, by its paths, and how it ended; the first one first.

    It is what failed itself, and not what is around it. What failed inside of something that succeeded, or
    was made good by another attempt or a fallback, counts for nothing; so does a rejection, which a person
    has decided. A time that ran out is a failure where it made something fail: what is around it, or the run.
    """
    rows = drop_reset_rows(list(journal_rows))
    asks = {row.path: row for row in rows if row.type in OPENING_EVENTS}
    ends = body_outcomes(rows, asks)
    calls = failed_steps({path: row for path, row in ends.items() if row.type not in TIMEOUT_EVENTS})
    has_run_timed_out = any(
        row.type == "workflow_failed" and is_timeout_error(decode_json(row.data)) for row in rows
    )
    timed_out = {path: row for path, row in ends.items() if has_timed_out(row, asks[path])}
    failed = calls | {
        path: row for path, row in timed_out.items() if has_run_timed_out or is_below_leaf(path, calls)
    }
    good = ends.keys() - failed.keys()
    failed = {path: row for path, row in failed.items() if not is_below_leaf(path, good)}
    around = {ancestor for path in failed for ancestor in ancestor_paths(path)}
    return {path: row for path, row in failed.items() if path not in around}


def abandoned_paths(journal_rows: Iterable[JournalRow]) -> set[str]:
    """The paths that a body gave up, without those inside of what succeeded."""
    rows = drop_reset_rows(list(journal_rows))
    good = {
        row.path for row in rows if row.settles and row.type not in ABANDON_EVENTS and not has_failed(row)
    }
    return {row.path for row in rows if row.type in ABANDON_EVENTS and not is_below_leaf(row.path, good)}


def body_outcomes(rows: Iterable[JournalRow], asks: dict[str, JournalRow]) -> dict[str, JournalRow]:
    """How everything ended that the body asked for, without what leaves and child runs asked for."""
    leaf_paths = {path for path, row in asks.items() if not row.data.startswith(CONTROL_PREFIX)}
    settling = (row for row in rows if row.settles and row.type not in ABANDON_EVENTS | RUN_LEVEL_EVENTS)
    return {row.path: row for row in settling if row.path in asks and not is_below_leaf(row.path, leaf_paths)}


def failed_steps(ends: dict[str, JournalRow]) -> dict[str, JournalRow]:
    """The steps that failed in the end: their checks and further attempts stand beside them."""
    last = {step_of_attempt(path): row for path, row in ends.items()}
    failed = {path: row for path, row in last.items() if has_failed(row)}
    return {path: row for path, row in failed.items() if not has_succeeded(last.get(f"{path}[fallback]"))}


def has_succeeded(row: JournalRow | None) -> bool:
    return row is not None and not has_failed(row)


def has_failed(row: JournalRow) -> bool:
    if '"success":false' not in row.data:
        return False
    data = decode_json(row.data)
    return data.get("success") is False and data.get("error_type") not in (
        REJECTED_ERROR_TYPE,
        CHILD_REJECTED_ERROR_TYPE,
    )


def has_timed_out(row: JournalRow, ask: JournalRow) -> bool:
    """Whether a row says that a time ran out; a look that does not wait and a mere sleep are none."""
    if row.type not in TIMEOUT_EVENTS:
        return False
    return bool(
        decode_json(ask.data).get("guard")
        if row.type == "timer_fired"
        else decode_json(row.data).get("timeout")
    )


def is_timeout_error(data: dict[str, Any]) -> bool:
    return data.get("error_type") == "TimeoutError"
