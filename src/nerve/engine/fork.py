"""Fork: which part of a journal a new run starts with."""

from __future__ import annotations

from collections.abc import Iterable

from nerve.core.workflow.replay import ASKS, DROPS, ROOT, Row, without_reset
from nerve.store.port import Row as StoreRow

WAITS = frozenset({"gate_waiting", "timer_started", "signal_waiting"})


def kept(rows: Iterable[Row], at: str | None) -> list[StoreRow]:
    """The rows that a fork at the path `at` takes over, numbered from 2.

    Left out are what lies at or below the path, how the nodes around it ended, whatever was not
    settled, and every gate and timer that was opened after the path was first reached: an answer
    counts only for what was shown then.
    """
    past = [row for row in without_reset(list(rows)) if not row.type.startswith("workflow_")]
    if at is not None and not any(row.path == at and row.type in ASKS for row in past):
        known = sorted({row.path for row in past if row.type in ASKS})
        raise ValueError(f"the run has no path '{at}'. It has: {', '.join(known) or 'none yet'}")
    cut = next((row.seq for row in past if at is not None and row.path == at), float("inf"))
    ended = {row.path for row in past if row.settles and row.type not in DROPS and row.settles != ROOT}
    late = {row.path for row in past if row.type in WAITS and row.seq > cut}
    inside = ancestors(at) if at else set()
    rows_kept = [row for row in past if takes_over(row, at, ended, late, inside)]
    return [
        StoreRow(number, row.at, row.type, row.path, row.path if row.settles else None, row.data)
        for number, row in enumerate(rows_kept, 2)
    ]


def takes_over(row: Row, at: str | None, ended: set[str], late: set[str], inside: set[str]) -> bool:
    if at is not None and (row.path == at or row.path.startswith(at + "/")):
        return False
    if row.type in DROPS or row.type == "node_retrying" or row.path in late:
        return False
    if row.path in inside:
        return not row.settles
    if row.type in ASKS:
        return row.path in ended or row.data.startswith('{"control":true')
    return True


def ancestors(path: str) -> set[str]:
    found = set()
    while (cut := path.rfind("/")) > 0:
        path = path[:cut]
        found.add(path)
    return found
