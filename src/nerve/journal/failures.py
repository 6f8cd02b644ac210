"""Find the steps at which a run failed, which a retry runs again."""

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
    """Return the failed steps by path, with the events that settled them, first failure first.

    Only the innermost failures are returned. Failures inside a step that succeeded, or that another attempt
    or a fallback recovered, are not; nor is a rejection, which a person has decided. A timeout counts if it
    failed an enclosing step or the run.
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
    # A step that succeeded around a failure has handled it; retrying the failure would change nothing.
    succeeded = ends.keys() - failed.keys()
    failed = {path: row for path, row in failed.items() if not is_below_leaf(path, succeeded)}
    # An enclosing step failed because of what is inside it, and runs again anyway when that does.
    around = {ancestor for path in failed for ancestor in ancestor_paths(path)}
    return {path: row for path, row in failed.items() if path not in around}


def abandoned_paths(journal_rows: Iterable[JournalRow]) -> set[str]:
    """Return the paths that a body abandoned, except inside steps that succeeded."""
    rows = drop_reset_rows(list(journal_rows))
    succeeded = {
        row.path for row in rows if row.settles and row.type not in ABANDON_EVENTS and not has_failed(row)
    }
    return {row.path for row in rows if row.type in ABANDON_EVENTS and not is_below_leaf(row.path, succeeded)}


def body_outcomes(rows: Iterable[JournalRow], asks: dict[str, JournalRow]) -> dict[str, JournalRow]:
    """Return the outcomes of the body's own requests, without those of leaves and child runs."""
    leaf_paths = {path for path, row in asks.items() if not row.data.startswith(CONTROL_PREFIX)}
    settling = (row for row in rows if row.settles and row.type not in ABANDON_EVENTS | RUN_LEVEL_EVENTS)
    return {row.path: row for row in settling if row.path in asks and not is_below_leaf(row.path, leaf_paths)}


def failed_steps(ends: dict[str, JournalRow]) -> dict[str, JournalRow]:
    """Return the steps whose last attempt failed; attempts and checks have paths beside the step's."""
    # Rows are in journal order, so the last attempt of a step overwrites the earlier ones.
    last = {step_of_attempt(path): row for path, row in ends.items()}
    failed = {path: row for path, row in last.items() if has_failed(row)}
    return {path: row for path, row in failed.items() if not has_succeeded(last.get(f"{path}[fallback]"))}


def has_succeeded(row: JournalRow | None) -> bool:
    return row is not None and not has_failed(row)


def has_failed(row: JournalRow) -> bool:
    """Whether a row records a failure; a rejection is not one."""
    # A cheap filter: the substring can also occur inside an output, so the decoded value decides.
    if '"success":false' not in row.data:
        return False
    data = decode_json(row.data)
    return data.get("success") is False and data.get("error_type") not in (
        REJECTED_ERROR_TYPE,
        CHILD_REJECTED_ERROR_TYPE,
    )


def has_timed_out(row: JournalRow, ask: JournalRow) -> bool:
    """Whether a row is a timeout; a poll without waiting and a plain sleep are not."""
    if row.type not in TIMEOUT_EVENTS:
        return False
    return bool(
        decode_json(ask.data).get("guard")
        if row.type == "timer_fired"
        else decode_json(row.data).get("timeout")
    )


def is_timeout_error(data: dict[str, Any]) -> bool:
    return data.get("error_type") == "TimeoutError"
