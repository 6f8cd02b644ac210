"""Find the steps at which a run failed, which a retry runs again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nerve.core.events import JournalRow
from nerve.core.step_names import step_path
from nerve.journal.events import (
    CallSettled,
    Event,
    GateTimeout,
    Request,
    RequestAbandoned,
    RunEnd,
    RunFailed,
    SignalTimeout,
    TimerFired,
    TimerStarted,
)
from nerve.journal.index import RecordedEvent, drop_undone, read_events
from nerve.journal.paths import RESPONSE_SUFFIX, ancestor_paths, is_below_leaf
from nerve.journal.replay import is_leaf_request

TIMEOUTS = GateTimeout | SignalTimeout | TimerFired


def find_failures(journal: Iterable[JournalRow | RecordedEvent]) -> dict[str, RecordedEvent]:
    """Return the failed steps by path, with the events that settled them, first failure first.

    Only the innermost failures are returned. Failures inside a step that succeeded, or that another attempt
    or a fallback recovered, are not; nor is a rejection, which a person has decided. A timeout counts if it
    failed an enclosing step or the run.
    """
    rows = drop_undone(read_events(journal))
    asks = {row.path: row.event for row in rows if isinstance(row.event, Request)}
    ends = body_outcomes(rows, asks)
    calls = failed_steps({path: row for path, row in ends.items() if not isinstance(row.event, TIMEOUTS)})
    has_run_timed_out = any(
        isinstance(row.event, RunFailed) and row.event.error_type == "TimeoutError" for row in rows
    )
    timed_out = {path: row for path, row in ends.items() if has_timed_out(row.event, asks[path])}
    failed = calls | {
        path: row for path, row in timed_out.items() if has_run_timed_out or is_below_leaf(path, calls)
    }
    # A step that succeeded around a failure has handled it; retrying the failure would change nothing.
    succeeded = ends.keys() - failed.keys()
    failed = {path: row for path, row in failed.items() if not is_below_leaf(path, succeeded)}
    # An enclosing step failed because of what is inside it, and runs again anyway when that does.
    around = {ancestor for path in failed for ancestor in ancestor_paths(path)}
    return {path: row for path, row in failed.items() if path not in around}


def abandoned_paths(rows: Iterable[RecordedEvent]) -> set[str]:
    """Return the paths that a body abandoned, except inside steps that succeeded."""
    kept = drop_undone(rows)
    succeeded = {row.path for row in kept if row.settles and not is_abandoned(row) and not has_failed(row)}
    return {row.path for row in kept if is_abandoned(row) and not is_below_leaf(row.path, succeeded)}


def is_abandoned(row: RecordedEvent) -> bool:
    return isinstance(row.event, RequestAbandoned)


def body_outcomes(rows: Iterable[RecordedEvent], asks: Mapping[str, Event]) -> dict[str, RecordedEvent]:
    """Return the outcomes of the body's own requests, without those of leaves and child runs."""
    leaf_paths = {path for path, event in asks.items() if is_leaf_request(event)}
    settling = (row for row in rows if row.settles and not isinstance(row.event, RequestAbandoned | RunEnd))
    return {row.path: row for row in settling if row.path in asks and not is_below_leaf(row.path, leaf_paths)}


def failed_steps(ends: Mapping[str, RecordedEvent]) -> dict[str, RecordedEvent]:
    """Return the steps whose last attempt failed; attempts and checks have paths beside the step's."""
    # Rows are in journal order, so the last attempt of a step overwrites the earlier ones. The response of a
    # detached prompt is not an attempt: it reports how its agent has ended.
    attempts = {path: row for path, row in ends.items() if RESPONSE_SUFFIX not in path or has_failed(row)}
    last = {step_path(path): row for path, row in attempts.items()}
    failed = {path: row for path, row in last.items() if has_failed(row)}
    return {path: row for path, row in failed.items() if not has_succeeded(last.get(f"{path}[fallback]"))}


def has_succeeded(row: RecordedEvent | None) -> bool:
    return row is not None and not has_failed(row)


def has_failed(row: RecordedEvent) -> bool:
    """Whether an event records a failure; a rejection is not one."""
    return isinstance(row.event, CallSettled) and row.event.has_failed


def has_timed_out(event: Event, ask: Event) -> bool:
    """Whether an event is a timeout; a poll without waiting and a plain sleep are not."""
    match event:
        case TimerFired():
            return isinstance(ask, TimerStarted) and ask.guard
        case GateTimeout(timeout=seconds) | SignalTimeout(timeout=seconds):
            return bool(seconds)
    return False
