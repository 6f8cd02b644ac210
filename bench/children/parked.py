"""parked.py FILE RUNS dropped|kept: park RUNS runs at a gate; says by how many KiB each the process grew."""

import asyncio
import ctypes
import gc
import os
import sys

from nerve import Session, Workflow, WorkflowContext

FILE, RUNS, KEPT = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "kept"
AT_A_TIME = 100
REST = 0.5
"""Seconds in which the last runs come to their gates; that they did is checked in the end."""


async def ask(ctx: WorkflowContext) -> str:
    return str(await ctx.gate("Go on?", choices=["yes", "no"]))


def resident() -> float:
    """KiB in memory, after giving back what can be given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1024


async def park(session: Session, runs: int) -> list[object]:
    handles: list[object] = []
    for _ in range(runs // AT_A_TIME):
        started = await asyncio.gather(*(session.start("ask") for _ in range(AT_A_TIME)))
        handles += started if KEPT else ()
    await asyncio.sleep(REST)
    return handles


async def main() -> None:
    session = Session("bench", FILE)
    Workflow("ask", session, ask)
    async with session:
        first = await session.start("ask")
        await asyncio.sleep(REST)
        await first.answer("yes")
        await first.wait()
        idle = resident()
        handles = await park(session, RUNS)
        print(f"{(resident() - idle) / RUNS:.3f}", flush=True)
        waiting = len(session.engine.store.runs(states=["waiting"]))
        os._exit(0 if waiting == RUNS and len(handles) == RUNS * KEPT else 1)


asyncio.run(main())
