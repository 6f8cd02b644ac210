"""W2: many short runs at a time, beside the bare store with the same rows in the same groups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench import bare
from bench.measure import Line, at_least, folder, paired
from bench.workflows import session
from nerve import Session
from nerve.store.port import Append
from nerve.store.sqlite import SqliteStore

RUNS, AT_A_TIME, STEPS = 1000, 100, 5


async def crowd(store: bare.RecordingStore) -> float:
    async with session(store) as opened:
        left = iter(range(RUNS))
        began = time.perf_counter()
        await asyncio.gather(*(one_after_the_other(opened, left) for _ in range(AT_A_TIME)))
        return time.perf_counter() - began


async def one_after_the_other(opened: Session, left: Iterator[int]) -> None:
    for _ in left:
        run = await opened.start("steps", STEPS)
        await run.wait()


def measure(rounds: int, place: Path) -> list[Line]:
    groups: list[Sequence[Append]] = []

    def ours() -> float:
        with folder(place) as here:
            groups.clear()
            store = bare.RecordingStore(here / "ours.db")
            seconds = asyncio.run(crowd(store))
            groups.extend(store.batches)
        return RUNS / seconds

    def limit() -> float:
        with folder(place) as here:
            store = SqliteStore(here / "bare.db")
            began = time.perf_counter()
            for group in groups:
                store.append(group)
            seconds = time.perf_counter() - began
            store.close()
        return RUNS / seconds

    pair = paired(rounds, ours, limit)
    many, most = pair.medians
    size = median(map(len, groups))
    what = f"{RUNS} runs of {STEPS} steps, {AT_A_TIME} at a time; bare store, same groups (of {size:g})"
    return [Line("W2", what, "runs a second", many, most, pair.ratio, at_least(pair.ratios, 0.6))]
