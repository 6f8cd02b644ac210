"""parked.py FILE RUNS dropped|kept: start RUNS runs that wait at a gate; prints the growth in KiB per run."""

import asyncio
import ctypes
import gc
import os
import sys

from nerve import Session, Workflow, WorkflowContext

FILE, RUNS, KEPT = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "kept"
CONCURRENCY = 100
SETTLE_S = 0.5
"""Seconds in which the last runs reach their gates, which is checked at the end."""


async def ask(ctx: WorkflowContext) -> str:
    return str(await ctx.gate("Continue?", choices=["yes", "no"]))


def resident_kib() -> float:
    """Return the resident memory in KiB, after freeing what can be freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1024


async def start_runs(session: Session, runs: int) -> list[object]:
    handles: list[object] = []
    for _ in range(runs // CONCURRENCY):
        started = await asyncio.gather(*(session.start("ask") for _ in range(CONCURRENCY)))
        handles += started if KEPT else ()
    await asyncio.sleep(SETTLE_S)
    return handles


async def main() -> None:
    session = Session("bench", FILE)
    Workflow("ask", session, ask)
    async with session:
        first = await session.start("ask")
        await asyncio.sleep(SETTLE_S)
        await first.answer("yes")
        await first.wait()
        idle = resident_kib()
        handles = await start_runs(session, RUNS)
        print(f"{(resident_kib() - idle) / RUNS:.3f}", flush=True)
        waiting = len(session.engine.store.runs(states=["waiting"]))
        os._exit(0 if waiting == RUNS and len(handles) == RUNS * KEPT else 1)


asyncio.run(main())
