"""W1: one run of sequential steps, beside the same rows in as many bare commits."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench import bare
from bench.measure import Line, Pair, at_most, measure_pair, temporary_folder
from bench.workflows import make_session
from nerve.store.port import Store
from nerve.store.sqlite import SqliteStore

STEPS = 1000


async def run_steps(store: Store, steps: int) -> float:
    async with make_session(store) as opened:
        began = time.perf_counter()
        started = await opened.start("steps", steps)
        await started.wait()
        return time.perf_counter() - began


def compare_steps(rounds: int, directory: Path, steps: int) -> Pair:
    """Return seconds per step: Nerve, and bare commits of the same rows."""
    commits = record_commits(directory, steps)

    def ours() -> float:
        with temporary_folder(directory) as run_directory:
            return asyncio.run(run_steps(SqliteStore(run_directory / "ours.db"), steps)) / steps

    def limit() -> float:
        with temporary_folder(directory) as run_directory:
            return sum(bare.time_commits(run_directory / "bare.db", commits)) / steps

    return measure_pair(rounds, ours, limit)


def record_commits(directory: Path, steps: int) -> list[bare.Commit]:
    """Return the commits of an untimed run, because recording them takes time."""
    with temporary_folder(directory) as run_directory:
        store = bare.RecordingStore(run_directory / "recorded.db")
        asyncio.run(run_steps(store, steps))
        return bare.build_commits(run_directory / "again.db", store.batches)


def measure(rounds: int, directory: Path) -> list[Line]:
    pair = compare_steps(rounds, directory, STEPS)
    ours, limit = pair.medians
    what = f"{STEPS} steps in one run; bare commits"
    return [
        Line("W1", what, "µs a step", ours * 1e6, limit * 1e6, pair.ratio, at_most(pair.ratios, 1.5)),
    ]
