"""W1: one run of sequential steps, beside the same rows in as many bare commits."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench import bare
from bench.measure import Line, Pair, at_most, folder, paired
from bench.workflows import session

STEPS = 1000


async def run(store: bare.RecordingStore, steps: int) -> float:
    async with session(store) as opened:
        began = time.perf_counter()
        started = await opened.start("steps", steps)
        await started.wait()
        return time.perf_counter() - began


def compare(rounds: int, place: Path, steps: int) -> Pair:
    """Seconds a step: ours, and the bare commits of what ours wrote just before."""
    commits: list[bare.Commit] = []

    def ours() -> float:
        with folder(place) as here:
            store = bare.RecordingStore(here / "ours.db")
            seconds = asyncio.run(run(store, steps))
            known = bare.hashes(here / "ours.db")
            commits[:] = [bare.commit_of(batch, known) for batch in store.batches]
        return seconds / steps

    def limit() -> float:
        with folder(place) as here:
            return sum(bare.each_commit(here / "bare.db", commits)) / steps

    return paired(rounds, ours, limit)


def measure(rounds: int, place: Path) -> list[Line]:
    pair = compare(rounds, place, STEPS)
    ours, limit = pair.medians
    what = f"{STEPS} steps in one run; bare commits"
    return [
        Line("W1", what, "µs a step", ours * 1e6, limit * 1e6, pair.ratio, at_most(pair.ratios, 1.5)),
    ]
