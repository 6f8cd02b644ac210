"""W2: many short concurrent runs, beside the bare store with the same rows in the same batches."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench import bare
from bench.measure import Line, Pair, at_least, measure_pair, temporary_folder
from bench.workflows import make_session
from nerve import Session
from nerve.store.port import Append, Store
from nerve.store.sqlite import SqliteStore

RUNS, CONCURRENCY, STEPS = 1000, 100, 5


class Stopwatch:
    """Seconds since its creation, and those in which the process used a CPU."""

    def __init__(self) -> None:
        self._began, self._cpu_began = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._began, time.process_time() - self._cpu_began


async def run_crowd(store: Store) -> tuple[float, float]:
    """Return the seconds, and the CPU seconds, of all runs."""
    async with make_session(store) as opened:
        remaining = iter(range(RUNS))
        stopwatch = Stopwatch()
        await asyncio.gather(*(run_until_empty(opened, remaining) for _ in range(CONCURRENCY)))
        return stopwatch.read()


async def run_until_empty(opened: Session, remaining: Iterator[int]) -> None:
    for _ in remaining:
        run = await opened.start("steps", STEPS)
        await run.wait()


def record_batches(file: Path) -> list[Sequence[Append]]:
    """Return the batches of untimed runs, because recording them takes time."""
    store = bare.RecordingStore(file)
    asyncio.run(run_crowd(store))
    return store.batches


def measure(rounds: int, directory: Path) -> list[Line]:
    sizes: list[int] = []
    cpu = Pair([], [])

    def ours() -> float:
        with temporary_folder(directory) as run_directory:
            seconds, cpu_seconds = asyncio.run(run_crowd(SqliteStore(run_directory / "ours.db")))
            cpu.ours.append(cpu_seconds / RUNS)
        return RUNS / seconds

    def limit() -> float:
        with temporary_folder(directory) as run_directory:
            batches = record_batches(run_directory / "again.db")
            store = SqliteStore(run_directory / "bare.db")
            gc.collect()
            stopwatch = Stopwatch()
            for batch in batches:
                store.append(batch)
            seconds, cpu_seconds = stopwatch.read()
            store.close()
            cpu.limit.append(cpu_seconds / RUNS)
            sizes[:] = map(len, batches)
        return RUNS / seconds

    pair = measure_pair(rounds, ours, limit)
    ours_rate, limit_rate = pair.medians
    what = (
        f"{RUNS} runs of {STEPS} steps, {CONCURRENCY} at a time; "
        f"bare store, same batches (of {median(sizes):g})"
    )
    ours_cpu, limit_cpu = (figure * 1e6 for figure in cpu.medians)
    return [
        Line("W2", what, "runs a second", ours_rate, limit_rate, pair.ratio, at_least(pair.ratios, 0.6)),
        Line("W2", "CPU time of both", "µs a run", ours_cpu, limit_cpu, cpu.ratio),
    ]
