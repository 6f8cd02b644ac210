"""Retention: finished runs that are old enough are deleted, and what agents said long ago is emptied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from nerve.core.workflow.state import FINAL
from nerve.store.port import EMPTIABLE, RunRow, Store

OVER = frozenset(state.value for state in FINAL)

RUNS, EVENTS = 50, 2000
"""How much is deleted in one transaction; a single run may be larger."""


class Collected(NamedTuple):
    """What was deleted, or would be."""

    runs: int = 0
    events: int = 0
    bytes: int = 0
    chunks: int = 0
    """Pieces of output that were emptied in runs that stay."""
    chunk_bytes: int = 0


async def collect(
    store: Store,
    older_than: float,
    dry_run: bool = True,
    *,
    chunks_older_than: float | None = None,
    session: str | None = None,
    busy: Callable[[str], bool] = lambda run: False,
    found: Sequence[RunRow] | None = None,
    before: Callable[[Sequence[str]], None] = lambda runs: None,
) -> Collected:
    """Delete the runs that ended before a time, in small transactions; a dry run only says which.

    Open runs stay, and so do children whose parents stay, and runs that are `busy`. Keys of deleted runs are
    free again. Output from before `chunks_older_than` is emptied in the runs that stay. `found` is what
    `due` gave, if somebody has asked already. `before` is called with runs, in a thread, before they go.
    """
    rows = found if found is not None else due(store, older_than, session=session, busy=busy)
    gone = {row.run for row in rows}
    total = Collected()
    for batch in batches(store, [row.run for row in rows]):
        total = plus(total, batch.size)
        if not dry_run:
            await asyncio.to_thread(before, batch.runs)
            await asyncio.to_thread(store.delete_runs, batch.runs)
        await asyncio.sleep(0)
    if not dry_run:
        await asyncio.to_thread(store.delete_runs, [])  # what was cut off the last time
    if chunks_older_than is not None:
        for row in store.runs(session=session):
            if row.run not in gone and row.started < chunks_older_than:
                total = plus(total, await empty(store, row.run, chunks_older_than, dry_run))
                await asyncio.sleep(0)
    return total


def due(
    store: Store,
    older_than: float,
    *,
    session: str | None = None,
    busy: Callable[[str], bool] = lambda run: False,
) -> list[RunRow]:
    """The runs that `collect` would delete, oldest first."""
    rows = store.runs(session=session)
    return [row for row in finished(rows, older_than) if not busy(row.run)]


def finished(rows: Iterable[RunRow], older_than: float) -> Iterator[RunRow]:
    """The runs that ended before a time, with all above them."""
    known = {row.run: row for row in rows}

    def old(row: RunRow) -> bool:
        return row.state in OVER and row.ended is not None and row.ended < older_than

    for row in known.values():
        above: RunRow | None = row
        while above is not None and old(above):
            above = known.get(above.parent) if above.parent is not None else None
        if above is None:
            yield row


class Batch(NamedTuple):
    runs: list[str]
    size: Collected


def batches(store: Store, runs: Iterable[str]) -> Iterator[Batch]:
    """Runs in groups that are quick to delete."""
    batch, size = list[str](), Collected()
    for run in runs:
        events, data = store.size(run)
        if batch and (len(batch) >= RUNS or size.events + events > EVENTS):
            yield Batch(batch, size)
            batch, size = [], Collected()
        batch.append(run)
        size = plus(size, Collected(1, events, data))
    if batch:
        yield Batch(batch, size)


async def empty(store: Store, run: str, older_than: float, dry_run: bool) -> Collected:
    """Empty the pieces of output of a run that are old enough."""
    total, after = Collected(), 0
    while old := store.old_events(run, EMPTIABLE, older_than, after, EVENTS):
        after = old[-1][0]
        total = plus(total, Collected(chunks=len(old), chunk_bytes=sum(size for _, size in old)))
        if not dry_run:
            await asyncio.to_thread(store.empty_events, run, [seq for seq, _ in old])
        await asyncio.sleep(0)
    return total


def plus(one: Collected, other: Collected) -> Collected:
    return Collected(*(a + b for a, b in zip(one, other, strict=True)))
