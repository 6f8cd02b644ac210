"""W3: start, gate, answer, finish, beside the same bytes in three bare commits."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

from bench import bare
from bench.measure import Line, Pair, at_most, measure_in_turns, quantile, temporary_folder
from bench.workflows import make_session
from nerve import Session, WorkflowEvent
from nerve.store.port import Append

RUNS = 200


class RunTimes:
    """Seconds of each run in one round."""

    def __init__(self) -> None:
        self.total: list[float] = []
        self.after_answer: list[float] = []


async def time_run(opened: Session, times: RunTimes) -> str:
    """Answer after the gate event is published, so that the gate is durable."""
    gate_published = asyncio.Event()

    def sink(event: WorkflowEvent) -> None:
        if event.event_type == "gate_waiting":
            gate_published.set()

    began = time.perf_counter()
    run = await opened.start("ask", event_sink=sink)
    await gate_published.wait()
    answered = time.perf_counter()
    await run.answer("yes")
    await run.wait()
    ended = time.perf_counter()
    times.total.append(ended - began)
    times.after_answer.append(ended - answered)
    return run.run_id


async def time_runs(store: bare.RecordingStore, times: RunTimes) -> list[str]:
    async with make_session(store) as opened:
        return [await time_run(opened, times) for _ in range(RUNS)]


def build_three_commits(parts: list[Append], hashes: dict[tuple[str, int], bytes]) -> list[bare.Commit]:
    """Return the commits of the start, the gate and the rest of one run."""
    rest = parts[-1]._replace(rows=[row for part in parts[2:] for row in part.rows])
    return [bare.build_commit([part], hashes) for part in (parts[0], parts[1], rest)]


def measure(rounds: int, directory: Path) -> list[Line]:
    ours_times: list[RunTimes] = []
    bare_times: list[RunTimes] = []
    commits: list[bare.Commit] = []

    def ours() -> float:
        ours_times.append(times := RunTimes())
        with temporary_folder(directory) as run_directory:
            store = bare.RecordingStore(run_directory / "ours.db")
            runs = asyncio.run(time_runs(store, times))
            hashes = bare.read_hashes(run_directory / "ours.db")
        parts: dict[str, list[Append]] = {run: [] for run in runs}
        for batch in store.batches:
            for part in batch:
                parts[part.run].append(part)
        commits[:] = [commit for run in runs for commit in build_three_commits(parts[run], hashes)]
        return median(times.total)

    def limit() -> float:
        bare_times.append(times := RunTimes())
        with temporary_folder(directory) as run_directory:
            durations = bare.time_commits(run_directory / "bare.db", commits)
        times.total = [sum(durations[at : at + 3]) for at in range(0, len(durations), 3)]
        times.after_answer = durations[2::3]
        return median(times.total)

    measure_in_turns(rounds, ours, limit)
    return [
        make_line("start to finished, p50; three bare commits", "total", 0.5, 3.0, ours_times, bare_times),
        make_line("start to finished, p99", "total", 0.99, None, ours_times, bare_times),
        make_line(
            "answer to finished, p50; the last of the three",
            "after_answer",
            0.5,
            None,
            ours_times,
            bare_times,
        ),
        make_line("answer to finished, p99", "after_answer", 0.99, None, ours_times, bare_times),
    ]


def make_line(what: str, part: str, share: float, bound: float | None, *sides: list[RunTimes]) -> Line:
    pair = Pair(*([quantile(getattr(times, part), share) for times in side] for side in sides))
    ours, limit = pair.medians
    target = None if bound is None else at_most(pair.ratios, bound)
    return Line("W3", what, "ms", ours * 1e3, limit * 1e3, pair.ratio, target)
