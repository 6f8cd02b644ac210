"""What a Temporal cluster needs for many runs: measured for each step and each open run, then multiplied.

`python -m bench capacity` measures on this machine what one step and one open run cost in each component, and
calculates what `OPEN_RUNS` and `STEPS_PER_S` need. Real worker processes, PostgreSQL with synced commits, and
the Temporal server of production with its history in PostgreSQL, if it was built; without it, the development
server, whose database is not measured. The costs of a step are the difference between short and long runs.

The second part has, in the column "limit", what one component is assumed to have (HOST_…, DATABASE_…) or was
measured to have (a session), and as ratio how many of them the load needs.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg

from bench.cluster_driver import execute_runs
from bench.cpu import cpu_seconds
from bench.measure import CHILDREN, Line, temporary_folder
from nerve.journal.events import RunStarted
from nerve.store.port import Append, EventRow, RunRow
from nerve.store.postgres_projection import PostgresProjection
from postgresql_server import PostgresqlServer, ServerMissing
from temporal_cluster import TemporalCluster
from temporal_server import TemporalServer

OPEN_RUNS = 1_000_000
STEPS_PER_S = 10_000
CACHED_SHARE = 0.01
"""The share of the open runs that is in the memory of a worker: those that wait for people are not."""
RUNS = 6
FEW_STEPS, MANY_STEPS = 5, 35
PARKED_RUNS = 200
WRITERS = 8
APPENDS = 400
MIB, GIB = 1 << 20, 1 << 30
HOST_CORES, HOST_GIB = 64, 256
"""What one large machine is assumed to have."""
DATABASE_COMMITS, DATABASE_LOG_MIB = 30_000, 500
"""What one large database server is assumed to write in a second: transactions in groups, and its log."""
FLOWS = CHILDREN / "cluster_flows.py"


class Usage(NamedTuple):
    """What the components have used so far, or between two times."""

    body_cpu: float
    leaf_cpu: float
    temporal_cpu: float
    temporal_database_cpu: float
    database_cpu: float
    temporal_commits: float
    temporal_bytes: float
    commits: float
    bytes: float
    events: float = 0.0

    def minus(self, other: Usage) -> Usage:
        return Usage(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))

    def divided_by(self, number: float) -> Usage:
        return Usage(*(value / number for value in self))


class Cluster:
    """The processes of a cluster on this machine."""

    def __init__(self, temporal: TemporalServer, database: PostgresqlServer, folder: Path) -> None:
        self.temporal, self.database = temporal, database
        self.history = temporal.postgresql if isinstance(temporal, TemporalCluster) else None
        self._namespace, self.url = temporal.create_namespace(), database.create_database()
        self._folder = folder

    @contextmanager
    def open_workers(self) -> Iterator[None]:
        with ExitStack() as stack:
            self.bodies = stack.enter_context(self._open_worker("--bodies"))
            self.leaves = stack.enter_context(self._open_worker("--leaves", "bash", "--place", "shared"))
            yield

    @contextmanager
    def _open_worker(self, *options: str) -> Iterator[int]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NERVE_")}
        engine = {"NERVE_ENGINE": self.temporal.url(self._namespace), "NERVE_STORE": self.url}
        command = [
            sys.executable,
            "-m",
            "nerve",
            "worker",
            *options,
            "--with",
            str(FLOWS),
            "--json",
            "--quiet",
        ]
        process = subprocess.Popen(
            command, cwd=self._folder, env={**kept, **engine}, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError(f"{' '.join(command)} did not start")
            yield process.pid
        finally:
            process.terminate()
            process.communicate()

    def execute(self, workflow: str, runs: int, steps: int) -> Usage:
        """Return what runs use in all components."""
        before = self._read_usage()
        address = self.temporal.address
        events = asyncio.run(execute_runs(address, self._namespace, self.url, workflow, runs, steps))
        return self._read_usage().minus(before)._replace(events=float(events))

    def _read_usage(self) -> Usage:
        history = self.history
        commits, size = count_writes(history.url("postgres")) if history is not None else (0.0, 0.0)
        return Usage(
            cpu_seconds(self.bodies),
            cpu_seconds(self.leaves),
            cpu_seconds(self.temporal.pid),
            cpu_seconds(history.pid) if history is not None else 0.0,
            cpu_seconds(self.database.pid),
            commits,
            size,
            *count_writes(self.url),
        )


def count_writes(url: str) -> tuple[float, float]:
    """Return the transactions that a server has written, and the bytes of its log."""
    with psycopg.connect(url, autocommit=True) as db:
        query = "SELECT pg_current_xact_id()::text::bigint, pg_current_wal_lsn() - '0/0'"
        commits, size = db.execute(query).fetchone() or (0, 0)
    return float(commits), float(size)


def memory_bytes(pid: int) -> int:
    """Return the memory of a process that is its own."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    fields = (line.split() for line in text.splitlines())
    return sum(int(field[1]) * 1024 for field in fields if field[0] in ("Private_Clean:", "Private_Dirty:"))


def measure_appends(url: str, engine: str) -> float:
    """Return how many transactions a second one session takes from several writers."""

    def append(projection: PostgresProjection, writer: int) -> None:
        run, at = f"append-{writer}", time.time()
        start = RunStarted(run, "steps", [], 0, {}, "appends", "h", run)
        row = RunRow(run, "appends", "steps", "running", at)
        for number in range(1, APPENDS // WRITERS + 1):
            event = EventRow(number, at, start.type, "", None, start.encode())
            projection.append(run, [Append(run, number - 1, [event], row if number == 1 else None)])

    with (
        closing(PostgresProjection(url, "appends", engine)) as projection,
        ThreadPoolExecutor(WRITERS) as pool,
    ):
        began = time.perf_counter()
        for done in [pool.submit(append, projection, writer) for writer in range(WRITERS)]:
            done.result()
        return APPENDS / (time.perf_counter() - began)


def measure(rounds: int, directory: Path) -> list[Line]:
    """Measure once: the differences of counters do not depend on the load of the machine as times do."""
    try:
        temporal: TemporalServer = TemporalCluster()
    except ServerMissing:
        temporal = TemporalServer()
    with temporal, PostgresqlServer(fsync="on") as database, temporary_folder(directory) as folder:
        cluster = Cluster(temporal, database, folder)
        with cluster.open_workers():
            cluster.execute("steps", 2, FEW_STEPS)
            few, many = (cluster.execute("steps", RUNS, steps) for steps in (FEW_STEPS, MANY_STEPS))
            before = memory_bytes(cluster.bodies)
            cluster.execute("park", PARKED_RUNS, 2)
            memory = (memory_bytes(cluster.bodies) - before) / PARKED_RUNS
        appends = measure_appends(cluster.url, "temporal://capacity/bench")
        has_history = cluster.history is not None
    step = many.minus(few).divided_by(RUNS * (MANY_STEPS - FEW_STEPS))
    return [
        *describe_step(step, memory, appends, has_history),
        *calculate(step, memory, appends, has_history),
    ]


def describe_step(step: Usage, memory: float, appends: float, has_history: bool) -> list[Line]:
    figures = [
        ("events of the history", "a step", step.events),
        ("CPU of body workers", "ms a step", step.body_cpu * 1000),
        ("CPU of leaf workers, without that of the step itself", "ms a step", step.leaf_cpu * 1000),
        ("CPU of Temporal", "ms a step", step.temporal_cpu * 1000),
        ("CPU of Nerve's PostgreSQL", "ms a step", step.database_cpu * 1000),
        ("transactions of Nerve's PostgreSQL", "a step", step.commits),
        ("log of Nerve's PostgreSQL", "KiB a step", step.bytes / 1024),
    ]
    if has_history:
        figures += [
            ("CPU of Temporal's PostgreSQL", "ms a step", step.temporal_database_cpu * 1000),
            ("transactions of Temporal's PostgreSQL", "a step", step.temporal_commits),
            ("log of Temporal's PostgreSQL", "KiB a step", step.temporal_bytes / 1024),
        ]
    figures += [
        ("memory of a body worker for a run in its cache", "KiB", memory / 1024),
        (f"transactions of one session, {WRITERS} writers", "a second", appends),
    ]
    return [Line("capacity", what, unit, value) for what, unit, value in figures]


def calculate(step: Usage, memory: float, appends: float, has_history: bool) -> list[Line]:
    """Return what the load needs, and how many of one component that is; what saturates first is first."""
    runs_memory = OPEN_RUNS * CACHED_SHARE * memory / GIB
    needs = [
        ("transactions of one session", "commits/s", step.commits, appends),
        ("body workers", "cores", step.body_cpu, HOST_CORES),
        ("leaf workers, without what their steps use", "cores", step.leaf_cpu, HOST_CORES),
        ("Temporal", "cores", step.temporal_cpu, HOST_CORES),
        ("Nerve's PostgreSQL", "cores", step.database_cpu, HOST_CORES),
        ("Nerve's PostgreSQL", "commits/s", step.commits, DATABASE_COMMITS),
        ("Nerve's PostgreSQL, log", "MiB/s", step.bytes / MIB, DATABASE_LOG_MIB),
    ]
    if has_history:
        needs += [
            ("Temporal's PostgreSQL", "cores", step.temporal_database_cpu, HOST_CORES),
            ("Temporal's PostgreSQL", "commits/s", step.temporal_commits, DATABASE_COMMITS),
            ("Temporal's PostgreSQL, log", "MiB/s", step.temporal_bytes / MIB, DATABASE_LOG_MIB),
        ]
    lines = [
        make_need(f"{STEPS_PER_S:,} steps/s: {what}", unit, STEPS_PER_S * of_step, limit)
        for what, unit, of_step, limit in needs
    ]
    share = f"{OPEN_RUNS:,} open runs, {CACHED_SHARE:.0%} in memory: body workers"
    lines.append(make_need(share, "GiB", runs_memory, HOST_GIB))
    return sorted(lines, key=lambda line: -(line.ratio or 0))


def make_need(what: str, unit: str, need: float, limit: float) -> Line:
    return Line("", what, unit, need, limit, need / limit)
