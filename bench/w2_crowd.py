"""W2: many short runs at a time, beside the bare store with the same rows in the same groups."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench import bare
from bench.measure import Line, at_least, folder, paired
from bench.workflows import session
from nerve import Session
from nerve.store.port import Append, Store
from nerve.store.sqlite import SqliteStore

RUNS, AT_A_TIME, STEPS = 1000, 100, 5


async def crowd(store: Store) -> float:
    async with session(store) as opened:
        left = iter(range(RUNS))
        began = time.perf_counter()
        await asyncio.gather(*(one_after_the_other(opened, left) for _ in range(AT_A_TIME)))
        return time.perf_counter() - began


async def one_after_the_other(opened: Session, left: Iterator[int]) -> None:
    for _ in left:
        run = await opened.start("steps", STEPS)
        await run.wait()


def recorded(file: Path) -> list[Sequence[Append]]:
    """The groups that a crowd writes; not from the one that is timed, since keeping them all is work too."""
    store = bare.RecordingStore(file)
    asyncio.run(crowd(store))
    return store.batches


def measure(rounds: int, place: Path) -> list[Line]:
    sizes: list[int] = []

    def ours() -> float:
        with folder(place) as here:
            return RUNS / asyncio.run(crowd(SqliteStore(here / "ours.db")))

    def limit() -> float:
        with folder(place) as here:
            groups = recorded(here / "again.db")
            store = SqliteStore(here / "bare.db")
            gc.collect()
            began = time.perf_counter()
            for group in groups:
                store.append(group)
            seconds = time.perf_counter() - began
            store.close()
            sizes[:] = map(len, groups)
        return RUNS / seconds

    pair = paired(rounds, ours, limit)
    many, most = pair.medians
    what = (
        f"{RUNS} runs of {STEPS} steps, {AT_A_TIME} at a time; bare store, same groups (of {median(sizes):g})"
    )
    return [Line("W2", what, "runs a second", many, most, pair.ratio, at_least(pair.ratios, 0.6))]
