"""Build a store with many runs quickly: one run of each kind is executed, and its journal is copied."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench.workflows import make_session
from nerve.store.memory import MemoryStore
from nerve.store.port import TAG_KIND, Append, EventRow, TagRow, UsageRow
from nerve.store.sqlite import SqliteStore

SESSION = "bench"
LONG_RUN = "long-run"
STEPS = 5
"""Steps of a finished run."""
RUNS_PER_COMMIT = 2000
CUSTOMERS = 1000
"""Number of values of a tag of finished runs."""


@dataclass(frozen=True)
class StoreSize:
    """How many runs of each kind a store holds, and the steps of its longest run."""

    finished: int = 100_000
    running: int = 10_000
    at_gates: int = 10_000
    long_steps: int = 100_000


def build_store(file: Path, size: StoreSize) -> None:
    """Write a store file with runs that finished, runs that were executing, and runs that wait at gates."""
    finished, at_gate = asyncio.run(record_templates())
    store = SqliteStore(file)
    try:
        parts = copy_runs(size, finished, at_gate)
        while batch := list(islice(parts, RUNS_PER_COMMIT)):
            store.append(batch)
        for part in long_run(size.long_steps, finished):
            store.append([part])
    finally:
        store.close()


async def record_templates() -> tuple[Append, Append]:
    """Return the journals of a run that finished and of one that waits at a gate."""
    store = MemoryStore()
    async with make_session(store) as session:
        finished = await session.start("steps", STEPS)
        await finished.wait()
        waiting = await session.start("ask")
        while not waiting.pending_gates:
            await waiting.wait_for_change()
        return read_part(store, finished.run_id), read_part(store, waiting.run_id)


def read_part(store: MemoryStore, run: str) -> Append:
    row = store.run(run)
    assert row is not None
    assert row.definition is not None
    definition = store.definition(row.definition)
    return Append(run, 0, store.events(run), row, definition, waits=store.waits_of_run(run))


def copy_runs(size: StoreSize, finished: Append, at_gate: Append) -> Iterator[Append]:
    started = time.time() - size.finished - size.running - size.at_gates - 10
    interrupted = interrupt(finished)
    for number in range(size.finished + size.running + size.at_gates):
        kind, template = "done", finished
        if number >= size.finished:
            is_running = number < size.finished + size.running
            kind, template = ("open", interrupted) if is_running else ("gate", at_gate)
        part = copy_run(template, f"{kind}-{number:07}", started + number)
        if kind == "done":
            tags = {"customer": str(number % CUSTOMERS), "tier": "free"}
            part = part._replace(tags=[TagRow(TAG_KIND, *tag, started) for tag in tags.items()])
        if kind == "done" and number % 10 == 0:
            day = time.strftime("%Y-%m-%d")
            amounts = {"tokens": 10, "turns": 1}
            part = part._replace(usage=[UsageRow(SESSION, day, model, amounts) for model in ("", "a-model")])
        yield part


def copy_run(template: Append, run: str, started: float) -> Append:
    row = template.row
    assert row is not None
    rows = [event._replace(data=event.data.replace(template.run, run)) for event in template.rows]
    ended = None if row.ended is None else started + 1
    waits = [wait._replace(run=run, since=started) for wait in template.waits]
    new_row = row._replace(run=run, started=started, ended=ended)
    return Append(run, 0, rows, new_row, template.definition, waits=waits)


def interrupt(finished: Append) -> Append:
    """Return the journal as it is when the process dies in the third step."""
    assert finished.row is not None
    starts = [row.seq for row in finished.rows if row.type == "node_started"]
    row = finished.row._replace(state="running", ended=None)
    return finished._replace(rows=finished.rows[: starts[2]], row=row)


def long_run(steps: int, finished: Append) -> Iterator[Append]:
    """Yield the parts of a run with many steps that is still executing."""
    if not steps:
        return
    assert finished.row is not None
    start, first, end = (
        row._replace(data=row.data.replace(finished.run, LONG_RUN)) for row in finished.rows[:3]
    )
    now = time.time()
    row = finished.row._replace(run=LONG_RUN, state="paused", started=now, ended=None)
    yield Append(LONG_RUN, 0, [start], row, finished.definition)
    for number in range(0, steps, RUNS_PER_COMMIT):
        rows: list[EventRow] = []
        for step in range(number, min(steps, number + RUNS_PER_COMMIT)):
            path, seq = f"/echo[{step + 1}]", 2 + 2 * step
            rows.append(first._replace(seq=seq, at=now, path=path))
            rows.append(end._replace(seq=seq + 1, at=now, path=path, settles=path))
        yield Append(LONG_RUN, 1 + 2 * number, rows)
