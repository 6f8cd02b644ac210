"""W3: start, gate, answer, finish, beside the same bytes in two bare commits."""

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


def join_parts(parts: list[Append]) -> list[list[Append]]:
    """Return two batches of one run, the fewest possible: up to its gate, and the rest."""
    gate = next(at for at, part in enumerate(parts) if any(row.type == "gate_waiting" for row in part.rows))
    return [[join_writes(parts[: gate + 1])], [join_writes(parts[gate + 1 :])]]


def join_writes(parts: list[Append]) -> Append:
    """Return one write with the events of several of one run."""
    rows = [row for part in parts for row in part.rows]
    return parts[-1]._replace(after=parts[0].after, rows=rows, definition=parts[0].definition)


def measure(rounds: int, directory: Path) -> list[Line]:
    ours_times: list[RunTimes] = []
    bare_times: list[RunTimes] = []
    commits: list[bare.Commit] = []

    def ours() -> float:
        ours_times.append(times := RunTimes())
        with temporary_folder(directory) as run_directory:
            store = bare.RecordingStore(run_directory / "ours.db")
            runs = asyncio.run(time_runs(store, times))
            parts: dict[str, list[Append]] = {run: [] for run in runs}
            for batch in store.batches:
                for part in batch:
                    parts[part.run].append(part)
            batches = [batch for run in runs for batch in join_parts(parts[run])]
            commits[:] = bare.build_commits(run_directory / "again.db", batches)
        return median(times.total)

    def limit() -> float:
        bare_times.append(times := RunTimes())
        with temporary_folder(directory) as run_directory:
            durations = bare.time_commits(run_directory / "bare.db", commits)
        times.total = [sum(durations[at : at + 2]) for at in range(0, len(durations), 2)]
        times.after_answer = durations[1::2]
        return median(times.total)

    measure_in_turns(rounds, ours, limit)
    return [
        make_line("start to finished, p50; two bare commits", "total", 0.5, 3.0, ours_times, bare_times),
        make_line("start to finished, p99", "total", 0.99, None, ours_times, bare_times),
        make_line(
            "answer to finished, p50; the last of the two",
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
