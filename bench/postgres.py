"""PostgreSQL: one run beside bare commits of its rows, and many runs beside the same runs in SQLite."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from bench import bare
from bench.measure import Line, at_least, at_most, measure_pair, temporary_folder
from bench.w1_sequence import run_steps
from bench.w2_crowd import CONCURRENCY, RUNS, run_crowd
from bench.w2_crowd import STEPS as STEPS_OF_CROWD
from nerve.store.port import Append
from nerve.store.postgres import PostgresStore
from nerve.store.sqlite import SqliteStore
from postgresql_server import PostgresqlServer

STEPS = 300

CREATE_TABLE = """
CREATE TABLE bare (run text, seq bigint, at float8, type text, path text, settles text, data text,
    PRIMARY KEY (run, seq))
"""
INSERT = "INSERT INTO bare VALUES (%s, %s, %s, %s, %s, %s, %s)"


def record_batches(directory: Path) -> list[Sequence[Append]]:
    """Return the batches of an untimed run, because recording them takes time."""
    with temporary_folder(directory) as run_directory:
        store = bare.RecordingStore(run_directory / "recorded.db")
        asyncio.run(run_steps(store, STEPS))
    return store.batches


def time_commits(url: str, batches: list[Sequence[Append]]) -> float:
    """Return the seconds of transactions that insert the events of each batch, and nothing else."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(CREATE_TABLE)
        commits: list[list[tuple[Any, ...]]] = [
            [(part.run, *row) for part in batch for row in part.rows] for batch in batches
        ]
        began = time.perf_counter()
        for rows in commits:
            if rows:
                with db.transaction():
                    db.cursor().executemany(INSERT, rows)
        return time.perf_counter() - began


def measure(rounds: int, directory: Path) -> list[Line]:
    batches = record_batches(directory)
    with PostgresqlServer(fsync="on") as server:
        pair = measure_pair(
            rounds,
            lambda: asyncio.run(run_steps(PostgresStore(server.create_database(), "bench"), STEPS)) / STEPS,
            lambda: time_commits(server.create_database(), batches) / STEPS,
        )

        def run_crowd_in_sqlite() -> float:
            with temporary_folder(directory) as run_directory:
                return RUNS / asyncio.run(run_crowd(SqliteStore(run_directory / "runs.db")))[0]

        crowd = measure_pair(
            rounds,
            lambda: RUNS / asyncio.run(run_crowd(PostgresStore(server.create_database(), "bench")))[0],
            run_crowd_in_sqlite,
        )
    ours, limit = pair.medians
    what = f"{STEPS} steps in one run; bare synced commits of its events"
    steps = Line("step", what, "µs a step", ours * 1e6, limit * 1e6, pair.ratio, at_most(pair.ratios, 4))
    ours, limit = crowd.medians
    what = f"{RUNS} runs of {STEPS_OF_CROWD} steps, {CONCURRENCY} at a time; the same in SQLite"
    return [
        steps,
        Line("crowd", what, "runs a second", ours, limit, crowd.ratio, at_least(crowd.ratios, 0.5)),
    ]
