"""Who has started a run, also through other runs: the people who cannot approve it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nerve.journal.events import RunStarted
from nerve.journal.index import read_start
from nerve.store.port import EventReader

EARLIER_STARTERS = "before"
"""In the caller of a start: the identities that have started the runs that it was forked from."""


def starters_of(start: RunStarted) -> frozenset[str]:
    """Return the identities that a start names: its caller, and those of the runs it was forked from."""
    caller = start.caller or {}
    by = caller.get("by")
    return frozenset([*caller.get(EARLIER_STARTERS, ()), *([by] if by else ())])


def add_earlier_starters(caller: Mapping[str, Any] | None, source: RunStarted) -> dict[str, Any] | None:
    """Return what the start of a fork records of its caller: also who has started its source.

    It is recorded because the source can be deleted.
    """
    earlier = starters_of(source) - {(caller or {}).get("by", "")}
    if not earlier:
        return None if caller is None else dict(caller)
    return {**(caller or {}), EARLIER_STARTERS: sorted(earlier)}


def find_starters(store: EventReader, run_id: str) -> frozenset[str]:
    """Return the identities that have started a run, or a run from which it comes.

    These are the runs around it, those that it was forked from, and one that started it as its own run.
    """
    starters: set[str] = set()
    pending, seen = [run_id], set[str]()
    while pending:
        run = pending.pop()
        if run not in seen:
            seen.add(run)
            start = read_start(store, run)
            starters |= starters_of(start)
            pending += find_origins(start)
    return frozenset(starters)


def find_origins(start: RunStarted) -> Iterator[str]:
    """Yield the runs from which a run comes directly."""
    started_by = (start.started_by or {}).get("run")
    for run in (start.parent, start.source_run, start.previous_run, started_by):
        if run:
            yield run
