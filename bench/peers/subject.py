"""The workloads, run on one library; `run_<library>.py WORKLOAD FOLDER` prints the figures as JSON.

Only the standard library is imported, because each program runs in the environment of its library.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from statistics import median
from typing import Any, Protocol

STEPS = 1000
RUNS, CONCURRENCY, STEPS_PER_RUN = 300, 100, 5
PARKED_RUNS = 2000
SETTLE_S = 0.5
"""Seconds after which libraries that evict waiting runs have evicted them."""


class Subject(Protocol):
    """One library: how to run steps, and how to start and answer a run that asks a person."""

    durability: str
    """What the library promises with the settings in use, in one line."""
    gate_runs: int
    """How many runs W3 measures: fewer for a library that polls for answers."""

    def open(self, folder: Path) -> AbstractAsyncContextManager[None]:
        """Open the library with its SQLite file in the folder."""
        ...

    async def run_steps(self, steps: int) -> None:
        """Run a workflow of sequential steps, each on disk before the next one starts."""
        ...

    async def start_gate(self) -> Any:
        """Start a run that asks a question; return it when it waits for the answer."""
        ...

    async def answer_gate(self, run: Any) -> None:
        """Answer the question and return when the run has finished."""
        ...


def main(subject: Subject) -> None:
    workload, folder = sys.argv[1:]
    if workload == "durability":
        print(json.dumps(subject.durability))
    else:
        asyncio.run(print_figures(subject, workload, Path(folder)))


async def print_figures(subject: Subject, workload: str, folder: Path) -> None:
    async with subject.open(folder):
        # Imports and tables that the first run needs are not measured.
        await subject.run_steps(1)
        if workload in ("W3", "W5"):
            await subject.answer_gate(await subject.start_gate())
        gc.collect()
        print(json.dumps(await MEASUREMENTS[workload](subject)), flush=True)
        # Exit without closing the library: some wait there for runs that are still open.
        os._exit(0)


async def measure_sequence(subject: Subject) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    await subject.run_steps(STEPS)
    return {
        "wall": (time.perf_counter() - wall) / STEPS * 1e6,
        "cpu": (time.process_time() - cpu) / STEPS * 1e6,
    }


async def measure_crowd(subject: Subject) -> dict[str, float]:
    remaining = iter(range(RUNS))

    async def run_until_empty(remaining: Iterator[int]) -> None:
        for _ in remaining:
            await subject.run_steps(STEPS_PER_RUN)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(run_until_empty(remaining) for _ in range(CONCURRENCY)))
    return {
        "wall": (time.perf_counter() - wall) / RUNS * 1e6,
        "cpu": (time.process_time() - cpu) / RUNS * 1e6,
    }


async def measure_gates(subject: Subject) -> dict[str, float]:
    starts, finishes = [], []
    cpu = time.process_time()
    for _ in range(subject.gate_runs):
        began = time.perf_counter()
        run = await subject.start_gate()
        answered = time.perf_counter()
        await subject.answer_gate(run)
        starts.append(answered - began)
        finishes.append(time.perf_counter() - answered)
    cpu = time.process_time() - cpu
    return {
        "start": median(starts) * 1e6,
        "finish": median(finishes) * 1e6,
        "cpu": cpu / subject.gate_runs * 1e6,
    }


async def measure_parked(subject: Subject) -> dict[str, float]:
    before = resident_kib()
    for _ in range(PARKED_RUNS // CONCURRENCY):
        await asyncio.gather(*(subject.start_gate() for _ in range(CONCURRENCY)))
    await asyncio.sleep(SETTLE_S)
    return {"memory": (resident_kib() - before) / PARKED_RUNS}


def resident_kib() -> float:
    """Return the resident memory in KiB, after freeing what can be freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1024


MEASUREMENTS = {
    "W1": measure_sequence,
    "W2": measure_crowd,
    "W3": measure_gates,
    "W5": measure_parked,
}
