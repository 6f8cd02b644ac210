"""W3: start, gate, answer, finish, beside the same bytes in three bare commits."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

from bench import bare
from bench.measure import Line, Pair, at_most, folder, in_turns, quantile
from bench.workflows import session
from nerve import Session, WorkflowEvent
from nerve.store.port import Append

RUNS = 200


class Times:
    """Seconds for each run, of one round."""

    def __init__(self) -> None:
        self.whole: list[float] = []
        self.last: list[float] = []


async def one_run(opened: Session, times: Times) -> str:
    """The answer comes from somebody who was shown the gate, so the gate is on disk by then."""
    shown = asyncio.Event()

    def sink(event: WorkflowEvent) -> None:
        if event.event_type == "gate_waiting":
            shown.set()

    began = time.perf_counter()
    run = await opened.start("ask", event_sink=sink)
    await shown.wait()
    answered = time.perf_counter()
    await run.answer("yes")
    await run.wait()
    ended = time.perf_counter()
    times.whole.append(ended - began)
    times.last.append(ended - answered)
    return run.run_id


async def in_sequence(store: bare.RecordingStore, times: Times) -> list[str]:
    async with session(store) as opened:
        return [await one_run(opened, times) for _ in range(RUNS)]


def three_commits(parts: list[Append], known: dict[tuple[str, int], bytes]) -> list[bare.Commit]:
    """The start, the gate, and the rest of one run."""
    rest = parts[-1]._replace(rows=[row for part in parts[2:] for row in part.rows])
    return [bare.commit_of([part], known) for part in (parts[0], parts[1], rest)]


def measure(rounds: int, place: Path) -> list[Line]:
    ours_times: list[Times] = []
    bare_times: list[Times] = []
    commits: list[bare.Commit] = []

    def ours() -> float:
        ours_times.append(times := Times())
        with folder(place) as here:
            store = bare.RecordingStore(here / "ours.db")
            runs = asyncio.run(in_sequence(store, times))
            known = bare.hashes(here / "ours.db")
        parts: dict[str, list[Append]] = {run: [] for run in runs}
        for batch in store.batches:
            for part in batch:
                parts[part.run].append(part)
        commits[:] = [commit for run in runs for commit in three_commits(parts[run], known)]
        return median(times.whole)

    def limit() -> float:
        bare_times.append(times := Times())
        with folder(place) as here:
            taken = bare.each_commit(here / "bare.db", commits)
        times.whole = [sum(taken[at : at + 3]) for at in range(0, len(taken), 3)]
        times.last = taken[2::3]
        return median(times.whole)

    in_turns(rounds, ours, limit)
    return [
        line("start to finished, p50; three bare commits", "whole", 0.5, 3.0, ours_times, bare_times),
        line("start to finished, p99", "whole", 0.99, None, ours_times, bare_times),
        line("answer to finished, p50; the last of the three", "last", 0.5, None, ours_times, bare_times),
        line("answer to finished, p99", "last", 0.99, None, ours_times, bare_times),
    ]


def line(what: str, part: str, share: float, bound: float | None, *sides: list[Times]) -> Line:
    pair = Pair(*([quantile(getattr(times, part), share) for times in side] for side in sides))
    ours, limit = pair.medians
    target = None if bound is None else at_most(pair.ratios, bound)
    return Line("W3", what, "ms", ours * 1e3, limit * 1e3, pair.ratio, target)
