"""Temporal: the CPU of runs of Nerve beside the same workflow written by hand with temporalio."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.cpu import cpu_seconds
from bench.measure import Line, at_most, measure_pair, run_child
from postgresql_server import PostgresqlServer
from temporal_server import TemporalServer

RUNS = 6
STEPS = 20


def measure_cpu_ms(run: Callable[[], str], pids: list[int]) -> list[float]:
    """Return the CPU milliseconds of each step: of the program with the workers, and of some servers."""
    before = [cpu_seconds(pid) for pid in pids]
    worker = float(run().splitlines()[-1])
    servers = [cpu_seconds(pid) - then for pid, then in zip(pids, before, strict=True)]
    return [seconds * 1000 / (RUNS * STEPS) for seconds in (worker, *servers)]


def measure(rounds: int, directory: Path) -> list[Line]:
    with TemporalServer() as server, PostgresqlServer(fsync="on") as postgresql:
        namespace, url = server.create_namespace(), postgresql.create_database()
        pids = [server.pid, postgresql.pid]
        parts: list[list[float]] = []

        def run_by_hand(runs: int = RUNS) -> str:
            return run_child("temporal_by_hand", server.address, namespace, runs, STEPS)

        def run_with_nerve(runs: int = RUNS) -> str:
            return run_child("temporal_runs", server.address, namespace, url, runs, STEPS)

        def measure_nerve() -> float:
            parts.append(measure_cpu_ms(run_with_nerve, pids))
            return sum(parts[-1])

        run_by_hand(1)
        run_with_nerve(1)
        pair = measure_pair(rounds, measure_nerve, lambda: sum(measure_cpu_ms(run_by_hand, pids)))
    ours, limit = pair.medians
    what = f"CPU of {RUNS} runs of {STEPS} steps, a timer and an answer; by hand with temporalio"
    total = Line("temporal", what, "ms a step", ours, limit, pair.ratio, at_most(pair.ratios, 2))
    names = "of these, the workers", "of these, the Temporal server", "of these, PostgreSQL"
    medians = [sorted(figures)[len(figures) // 2] for figures in zip(*parts, strict=True)]
    return [total, *(Line("", name, "ms a step", ms) for name, ms in zip(names, medians, strict=True))]
