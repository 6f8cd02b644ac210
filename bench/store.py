"""The store: bytes and CPU of a short step, and the cost of what is finished."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import apsw

from bench import bare
from bench.measure import Line, Pair, at_most, measure_in_turns, measure_pair, temporary_folder
from nerve import ExecutionContext, FunctionNode, Session, Workflow, WorkflowContext
from nerve.store.port import Append, EventRow, RunRow
from nerve.store.sqlite import SqliteStore

RUNS, CONCURRENCY, STEPS, RESULT_BYTES = 10_000, 100, 5, 100
FINISHED = 1_000, 10_000, 100_000
OPEN_STATES = ("pending", "running", "waiting", "paused", "held")
MAX_STEP_BYTES = 500


async def give(context: ExecutionContext) -> str:
    return "r" * RESULT_BYTES


async def steps(ctx: WorkflowContext) -> int:
    for number in range(STEPS):
        await ctx.run("give", number)
    return STEPS


async def run_crowd(file: Path) -> list[Sequence[Append]]:
    """Return the batches of many runs."""
    store = bare.RecordingStore(file)
    session = Session("bench", store)
    FunctionNode("give", session, give)
    Workflow("steps", session, steps)
    remaining = iter(range(RUNS))

    async def run_until_empty() -> None:
        for _ in remaining:
            await (await session.start("steps")).wait()

    async with session:
        await asyncio.gather(*(run_until_empty() for _ in range(CONCURRENCY)))
    return store.batches


def write_data(file: Path, batches: list[Sequence[Append]]) -> int:
    """Return the size of a file with the data of the same events and nothing else."""
    with closing(apsw.Connection(str(file))) as db:
        db.execute("CREATE TABLE events (data TEXT)")
        with db:
            data = ((row.data,) for batch in batches for part in batch for row in part.rows)
            db.executemany("INSERT INTO events VALUES (?)", data)
    return file.stat().st_size


def time_appends(file: Path, batches: list[Sequence[Append]]) -> float:
    with closing(SqliteStore(file)) as store:
        began = time.process_time()
        for batch in batches:
            store.append(batch)
        return time.process_time() - began


def time_statements(file: Path, commits: list[bare.Commit]) -> float:
    with closing(bare.open_empty_store(file)) as db:
        began = time.process_time()
        for commit in commits:
            bare.execute_commit(db, commit)
        return time.process_time() - began


def measure(rounds: int, directory: Path) -> list[Line]:
    with temporary_folder(directory) as run_directory:
        batches = asyncio.run(run_crowd(run_directory / "recorded.db"))
        commits = bare.build_commits(run_directory / "again.db", batches)
        step_bytes = (run_directory / "again.db").stat().st_size / (RUNS * STEPS)
        data_bytes = write_data(run_directory / "data.db", batches) / (RUNS * STEPS)
    return [
        make_size_line(step_bytes, data_bytes),
        make_cpu_line(compare_cpu(rounds, directory, batches, commits)),
        *measure_finished(rounds, directory),
    ]


def make_size_line(step_bytes: float, data_bytes: float) -> Line:
    what = f"{RUNS} runs of {STEPS} steps with {RESULT_BYTES}-byte results; bare data"
    target = at_most([step_bytes] * 2, MAX_STEP_BYTES, "bytes")
    return Line("store", what, "bytes a step", step_bytes, data_bytes, step_bytes / data_bytes, target)


def compare_cpu(
    rounds: int, directory: Path, batches: list[Sequence[Append]], commits: list[bare.Commit]
) -> Pair:
    def ours() -> float:
        with temporary_folder(directory) as run_directory:
            return time_appends(run_directory / "ours.db", batches) / RUNS

    def limit() -> float:
        with temporary_folder(directory) as run_directory:
            return time_statements(run_directory / "bare.db", commits) / RUNS

    return measure_pair(rounds, ours, limit)


def make_cpu_line(pair: Pair) -> Line:
    ours, limit = pair.medians
    what = f"CPU of {RUNS} runs of {STEPS} steps; the same statements"
    return Line("store", what, "µs a run", ours * 1e6, limit * 1e6, pair.ratio)


# -- what is finished --------------------------------------------------------------------------


def fill_store(file: Path, count: int) -> None:
    with closing(SqliteStore(file)) as store:
        for start in range(0, count, 1000):
            store.append(list(finished_runs(start, 1000)))


def finished_runs(start: int, count: int) -> Iterator[Append]:
    for number in range(start, start + count):
        run = f"{number:036}"
        rows = [EventRow(1, number, "workflow_started", "", None, "{}")]
        rows += [EventRow(2, number + 0.5, "workflow_completed", "", "/", "{}")]
        row = RunRow(run, "bench", "steps", "completed", number, number + 0.5, definition="h")
        yield Append(run, 0, rows, row)


def read_lists(file: Path) -> None:
    """Open a store and read what a session, `nerve runs`, `nerve gates` and `nerve status` need."""
    with closing(SqliteStore(file)) as store:
        store.runs(states=OPEN_STATES)
        store.resume_counts()
        page = store.runs(session="bench", newest=50)
        store.runs(session="bench", newest=50, before=page[0])
        store.runs(session="bench", states=["failed"], newest=50)
        store.count_runs("bench")
        store.count_definitions("bench")
        store.sessions()
        store.open_waits("bench", "gate", limit=50)
        store.daily_usage("bench", "2025-11-15", "2025-11-15")


def measure_finished(rounds: int, directory: Path) -> Iterator[Line]:
    with temporary_folder(directory) as run_directory:
        for count in FINISHED:
            fill_store(run_directory / f"{count}.db", count)
        figures = measure_in_turns(
            rounds, *(make_reader(run_directory / f"{count}.db") for count in FINISHED)
        )
    for count, times in zip(FINISHED, figures, strict=True):
        pair = Pair(times, figures[0])
        ours, limit = pair.medians
        what = f"CPU to open and list with {count} finished runs; with {FINISHED[0]}"
        target = None if count == FINISHED[0] else at_most(pair.ratios, 1.25)
        yield Line("store", what, "ms", ours * 1e3, limit * 1e3, pair.ratio, target)


def make_reader(file: Path) -> Callable[[], float]:
    def time_lists() -> float:
        began = time.process_time()
        read_lists(file)
        return time.process_time() - began

    return time_lists
