"""The start of commands in a small project: CPU time, because other programs disturb it less."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from bench.measure import Line, Pair, at_most, measure_in_turns
from nerve import Session, Workflow, WorkflowContext

BOUNDS_MS = {"version": 80, "--help": 150, "runs": 300, "gates": 300, "check": 300}
"""The CPU time of each command beyond bare Python, in milliseconds."""


def measure(rounds: int, directory: Path) -> list[Line]:
    project = directory.resolve() / "project"
    run_python(directory, "-m", "nerve", "init", str(project), "--quiet")
    asyncio.run(park_run(project / ".nerve/nerve.db"))
    for command in BOUNDS_MS:
        run_python(project, "-m", "nerve", command)  # writes the byte code
    bare, *others = measure_in_turns(
        rounds,
        lambda: run_python(project, "-c", "pass"),
        *(lambda command=command: run_python(project, "-m", "nerve", command) for command in BOUNDS_MS),
    )
    return [
        make_line(command, Pair(total, bare), bound)
        for (command, bound), total in zip(BOUNDS_MS.items(), others, strict=True)
    ]


async def park_run(store: Path) -> None:
    """Leave a run at a gate, so that lists have something to show."""

    async def ask(ctx: WorkflowContext) -> None:
        await ctx.gate("Go on?")

    async with Session(store=store) as session:
        Workflow("ask", session, ask)
        run = await session.start("ask")
        while run.pending_gate is None:
            await run.wait_for_change()


def run_python(folder: Path, *arguments: str) -> float:
    """Return the milliseconds of CPU that a new interpreter has used."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=environment, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"python {' '.join(arguments)} ended with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1e3


def make_line(command: str, pair: Pair, bound: float) -> Line:
    beyond = [ours - bare for ours, bare in zip(pair.ours, pair.limit, strict=True)]
    what = f"nerve {command}, CPU beyond bare Python"
    return Line(
        "start", what, "ms", median(beyond), median(pair.limit), pair.ratio, at_most(beyond, bound, "ms")
    )
