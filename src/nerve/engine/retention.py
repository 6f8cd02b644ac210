"""Retention: delete old finished runs, and empty old agent output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from nerve.core.workflow.state import FINAL_STATE_VALUES
from nerve.engine.run_chain import find_current_row
from nerve.store.port import EMPTIABLE_TYPE, RunRow, Store

MAX_BATCH_RUNS, MAX_BATCH_EVENTS = 50, 2000
"""Maximum size of one delete transaction; a single run may be larger."""


class DeletionTotals(NamedTuple):
    """What was deleted, or would be."""

    runs: int = 0
    events: int = 0
    bytes: int = 0
    chunks: int = 0
    """Output chunks emptied in runs that stay."""
    chunk_bytes: int = 0


async def delete_expired_runs(
    store: Store,
    older_than: float,
    dry_run: bool = True,
    *,
    chunks_older_than: float | None = None,
    session: str | None = None,
    is_busy: Callable[[str], bool] = lambda run: False,
    expired: Sequence[RunRow] | None = None,
    on_delete: Callable[[Sequence[str]], None] = lambda runs: None,
) -> DeletionTotals:
    """Delete runs that ended before a time, in small transactions; a dry run only reports them.

    Open runs stay, and so do runs whose parents stay, runs for which `is_busy` is true, and the run whose
    key started a chain that stays. Keys of deleted runs become free. Output before `chunks_older_than` is
    emptied in the runs that stay. `expired` is the result of `find_expired_runs`, if the caller has it.
    `on_delete` is called in a thread before runs are deleted.
    """
    rows = (
        expired
        if expired is not None
        else find_expired_runs(store, older_than, session=session, is_busy=is_busy)
    )
    deleted_ids = {row.run for row in rows}
    total = DeletionTotals()
    for batch in deletion_batches(store, [row.run for row in rows]):
        total = add_totals(total, batch.size)
        if not dry_run:
            # In threads and in small batches: a commit of another run waits for one batch at most.
            await asyncio.to_thread(on_delete, batch.runs)
            await asyncio.to_thread(store.delete_runs, batch.runs)
        await asyncio.sleep(0)
    if not dry_run:
        await asyncio.to_thread(store.delete_runs, [])  # finishes interrupted deletions
    if chunks_older_than is not None:
        for row in store.runs(session=session):
            if row.run not in deleted_ids and row.started < chunks_older_than:
                total = add_totals(total, await empty_old_chunks(store, row.run, chunks_older_than, dry_run))
                await asyncio.sleep(0)
    return total


def find_expired_runs(
    store: Store,
    older_than: float,
    *,
    session: str | None = None,
    is_busy: Callable[[str], bool] = lambda run: False,
) -> list[RunRow]:
    """Return the runs that `delete_expired_runs` would delete, oldest first."""
    rows = store.runs(session=session)
    expired = [row for row in runs_ended_before(rows, older_than) if not is_busy(row.run)]
    expired_ids = {row.run for row in expired}
    kept_ids = {row.run for row in expired if row.key is not None and is_chain_kept(store, row, expired_ids)}
    # A second time, because the runs that they called stay, too.
    ended = runs_ended_before(rows, older_than, kept_ids) if kept_ids else expired
    return [row for row in ended if row.run in expired_ids]


def is_chain_kept(store: Store, row: RunRow, expired_ids: Collection[str]) -> bool:
    """Return whether a run has continued as new, and the current run of its chain stays.

    Then its key must still name the chain: a repeated start is compared with the start of this run.
    """
    current = find_current_row(store, row)
    return current.run != row.run and current.run not in expired_ids


def runs_ended_before(
    rows: Iterable[RunRow], older_than: float, kept_ids: Collection[str] = ()
) -> Iterator[RunRow]:
    """Yield the runs that ended before a time together with all their ancestors, without those kept."""
    rows_by_id = {row.run: row for row in rows}

    def is_expired(row: RunRow) -> bool:
        has_ended = row.state in FINAL_STATE_VALUES and row.ended is not None and row.ended < older_than
        return has_ended and row.run not in kept_ids

    for row in rows_by_id.values():
        ancestor: RunRow | None = row
        # A child of an open parent stays: the parent's replay still reads the result of the child.
        while ancestor is not None and is_expired(ancestor):
            ancestor = rows_by_id.get(ancestor.parent) if ancestor.parent is not None else None
        if ancestor is None:
            yield row


class DeletionBatch(NamedTuple):
    """Runs that are deleted in one transaction, and their size."""

    runs: list[str]
    size: DeletionTotals


def deletion_batches(store: Store, runs: Iterable[str]) -> Iterator[DeletionBatch]:
    """Yield runs in groups that are quick to delete."""
    batch, size = list[str](), DeletionTotals()
    for run in runs:
        events, data = store.journal_size(run)
        if batch and (len(batch) >= MAX_BATCH_RUNS or size.events + events > MAX_BATCH_EVENTS):
            yield DeletionBatch(batch, size)
            batch, size = [], DeletionTotals()
        batch.append(run)
        size = add_totals(size, DeletionTotals(1, events, data))
    if batch:
        yield DeletionBatch(batch, size)


async def empty_old_chunks(store: Store, run: str, older_than: float, dry_run: bool) -> DeletionTotals:
    """Empty the old output chunks of a run."""
    total, after = DeletionTotals(), 0
    while old_events := store.old_events(run, EMPTIABLE_TYPE, older_than, after, MAX_BATCH_EVENTS):
        after = old_events[-1][0]
        total = add_totals(
            total, DeletionTotals(chunks=len(old_events), chunk_bytes=sum(size for _, size in old_events))
        )
        if not dry_run:
            await asyncio.to_thread(store.empty_events, run, [seq for seq, _ in old_events])
        await asyncio.sleep(0)
    return total


def add_totals(one: DeletionTotals, other: DeletionTotals) -> DeletionTotals:
    return DeletionTotals(*(a + b for a, b in zip(one, other, strict=True)))
