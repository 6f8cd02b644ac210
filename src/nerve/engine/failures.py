"""Failures: what a run has failed at, and is run again when somebody tries it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nerve.core.event import OF_THE_RUN
from nerve.core.result import CHILD_REJECTED, REJECTED
from nerve.core.values import decode
from nerve.core.workflow.replay import ASKS, CONTROL, DROPS, Row, ancestors, below, without_reset
from nerve.engine.records import step_of

LATE = frozenset({"gate_timeout", "signal_timeout", "timer_fired"})


def failures(past: Iterable[Row]) -> dict[str, Row]:
    """What has failed, by its paths, and how it ended; the first one first.

    It is what failed itself, and not what is around it. What failed inside of something that succeeded, or
    was made good by another attempt or a fallback, counts for nothing; so does a rejection, which a person
    has decided. A time that ran out is a failure where it made something fail: what is around it, or the run.
    """
    rows = without_reset(list(past))
    asks = {row.path: row for row in rows if row.type in ASKS}
    ends = ends_of_the_body(rows, asks)
    calls = failed_steps({path: row for path, row in ends.items() if row.type not in LATE})
    whole = any(row.type == "workflow_failed" and is_late(decode(row.data)) for row in rows)
    late = {path: row for path, row in ends.items() if ran_out(row, asks[path])}
    failed = calls | {path: row for path, row in late.items() if whole or below(path, calls)}
    good = ends.keys() - failed.keys()
    failed = {path: row for path, row in failed.items() if not below(path, good)}
    around = {place for path in failed for place in ancestors(path)}
    return {path: row for path, row in failed.items() if path not in around}


def left_behind(past: Iterable[Row]) -> set[str]:
    """The paths that a body gave up, without those inside of what succeeded."""
    rows = without_reset(list(past))
    good = {row.path for row in rows if row.settles and row.type not in DROPS and not has_failed(row)}
    return {row.path for row in rows if row.type in DROPS and not below(row.path, good)}


def ends_of_the_body(rows: Iterable[Row], asks: dict[str, Row]) -> dict[str, Row]:
    """How everything ended that the body asked for, without what leaves and child runs asked for."""
    solid = {path for path, row in asks.items() if not row.data.startswith(CONTROL)}
    settling = (row for row in rows if row.settles and row.type not in DROPS | OF_THE_RUN)
    return {row.path: row for row in settling if row.path in asks and not below(row.path, solid)}


def failed_steps(ends: dict[str, Row]) -> dict[str, Row]:
    """The steps that failed in the end: their checks and further attempts stand beside them."""
    last = {step_of(path): row for path, row in ends.items()}
    failed = {path: row for path, row in last.items() if has_failed(row)}
    return {path: row for path, row in failed.items() if not is_good(last.get(f"{path}[fallback]"))}


def is_good(row: Row | None) -> bool:
    return row is not None and not has_failed(row)


def has_failed(row: Row) -> bool:
    if '"success":false' not in row.data:
        return False
    data = decode(row.data)
    return data.get("success") is False and data.get("error_type") not in (REJECTED, CHILD_REJECTED)


def ran_out(row: Row, ask: Row) -> bool:
    """Whether a row says that a time ran out; a look that does not wait and a mere sleep are none."""
    if row.type not in LATE:
        return False
    return bool(
        decode(ask.data).get("guard") if row.type == "timer_fired" else decode(row.data).get("timeout")
    )


def is_late(data: dict[str, Any]) -> bool:
    return data.get("error_type") == "TimeoutError"
