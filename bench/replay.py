"""Replay: the cost of a settled step when a run is resumed."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import apsw

from bench.measure import Line, measure_pair, temporary_folder
from nerve import ExecutionContext, FunctionNode, Session, Workflow, WorkflowContext
from nerve.store.stored_rows import restore_data

SIZES = 1_000, 10_000


class LastStep:
    """Whether and when the run reaches its last step."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.reached_at = 0.0


def make_session(file: Path, size: int, last_step: LastStep) -> Session:
    session = Session("bench", file)

    async def step(context: ExecutionContext) -> int:
        if context.input == size:
            last_step.reached_at = time.perf_counter()
            last_step.event.set()
            await asyncio.Event().wait()
        return int(context.input)

    async def steps(ctx: WorkflowContext) -> None:
        for number in range(size + 1):
            await ctx.run("step", number)

    FunctionNode("step", session, step)
    Workflow("steps", session, steps)
    return session


async def write_journal(file: Path, size: int) -> None:
    last_step = LastStep()
    async with make_session(file, size, last_step) as opened:
        await opened.start("steps")
        await last_step.event.wait()


async def time_recovery(file: Path, size: int) -> float:
    last_step = LastStep()
    async with make_session(file, size, last_step) as opened:
        began = time.perf_counter()
        await opened.recover()
        await last_step.event.wait()
    return (last_step.reached_at - began) / size


def time_bare_read(file: Path, size: int) -> float:
    began = time.perf_counter()
    db = apsw.Connection(str(file))
    for data, first_data in db.execute("SELECT data, first_data FROM events ORDER BY journal, seq"):
        json.loads(restore_data(data))
        json.loads(restore_data(first_data or "{}"))
    seconds = time.perf_counter() - began
    db.close()
    return seconds / size


def measure(rounds: int, directory: Path) -> list[Line]:
    return [make_line(rounds, directory, size) for size in SIZES]


def make_line(rounds: int, directory: Path, size: int) -> Line:
    with temporary_folder(directory) as run_directory:
        file = run_directory / "store.db"
        asyncio.run(write_journal(file, size))
        pair = measure_pair(
            rounds, lambda: asyncio.run(time_recovery(file, size)), lambda: time_bare_read(file, size)
        )
    ours, limit = pair.medians
    what = f"recovery after {size} settled steps; bare read and decode"
    return Line("replay", what, "µs a step", ours * 1e6, limit * 1e6, pair.ratio)
