"""W1: one run of sequential steps, beside the same rows in as many bare commits."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench import bare
from bench.measure import Line, Pair, at_most, folder, paired
from bench.workflows import session
from nerve.store.port import Store
from nerve.store.sqlite import SqliteStore

STEPS = 1000


async def run(store: Store, steps: int) -> float:
    async with session(store) as opened:
        began = time.perf_counter()
        started = await opened.start("steps", steps)
        await started.wait()
        return time.perf_counter() - began


def compare(rounds: int, place: Path, steps: int) -> Pair:
    """Seconds a step: ours, and the bare commits of what such a run writes."""
    commits = recorded(place, steps)

    def ours() -> float:
        with folder(place) as here:
            return asyncio.run(run(SqliteStore(here / "ours.db"), steps)) / steps

    def limit() -> float:
        with folder(place) as here:
            return sum(bare.each_commit(here / "bare.db", commits)) / steps

    return paired(rounds, ours, limit)


def recorded(place: Path, steps: int) -> list[bare.Commit]:
    """What a run commits; not from the one that is timed, since keeping it all is work too."""
    with folder(place) as here:
        store = bare.RecordingStore(here / "recorded.db")
        asyncio.run(run(store, steps))
        known = bare.hashes(here / "recorded.db")
        return [bare.commit_of(batch, known) for batch in store.batches]


def measure(rounds: int, place: Path) -> list[Line]:
    pair = compare(rounds, place, STEPS)
    ours, limit = pair.medians
    what = f"{STEPS} steps in one run; bare commits"
    return [
        Line("W1", what, "µs a step", ours * 1e6, limit * 1e6, pair.ratio, at_most(pair.ratios, 1.5)),
    ]
