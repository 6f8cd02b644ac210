"""Replay: what a settled step costs when a run is taken up again."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import apsw

from bench.measure import Line, folder, paired
from nerve import ExecutionContext, FunctionNode, Session, Workflow, WorkflowContext

SIZES = 1_000, 10_000


class Reached:
    """Whether the run has come to its last step, and when."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.at = 0.0


def session(file: Path, size: int, reached: Reached) -> Session:
    made = Session("bench", file)

    async def step(context: ExecutionContext) -> int:
        if context.input == size:
            reached.at = time.perf_counter()
            reached.event.set()
            await asyncio.Event().wait()
        return int(context.input)

    async def steps(ctx: WorkflowContext) -> None:
        for number in range(size + 1):
            await ctx.run("step", number)

    FunctionNode("step", made, step)
    Workflow("steps", made, steps)
    return made


async def prepare(file: Path, size: int) -> None:
    reached = Reached()
    async with session(file, size, reached) as opened:
        await opened.start("steps")
        await reached.event.wait()


async def recover(file: Path, size: int) -> float:
    reached = Reached()
    async with session(file, size, reached) as opened:
        began = time.perf_counter()
        await opened.recover()
        await reached.event.wait()
    return (reached.at - began) / size


def read(file: Path, size: int) -> float:
    began = time.perf_counter()
    db = apsw.Connection(str(file))
    for (data,) in db.execute("SELECT data FROM events ORDER BY run, seq"):
        json.loads(data)
    seconds = time.perf_counter() - began
    db.close()
    return seconds / size


def measure(rounds: int, place: Path) -> list[Line]:
    return [line(rounds, place, size) for size in SIZES]


def line(rounds: int, place: Path, size: int) -> Line:
    with folder(place) as here:
        file = here / "store.db"
        asyncio.run(prepare(file, size))
        pair = paired(rounds, lambda: asyncio.run(recover(file, size)), lambda: read(file, size))
    ours, limit = pair.medians
    what = f"recovery behind {size} settled steps; bare read and decode"
    return Line("replay", what, "µs a step", ours * 1e6, limit * 1e6, pair.ratio)
