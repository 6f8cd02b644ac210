"""restart.py FILE STEPS MANNER BEGAN: run STEPS steps and die in the next, or go on behind them.

Says the milliseconds from BEGAN (when the parent started this process) to the step behind STEPS,
without the time that the imports took. With the manner `read`, the journal is only read and decoded.
"""

import time

began_import = time.perf_counter()

import asyncio  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402

import apsw  # noqa: E402

import nerve.engine.local_engine  # noqa: E402
import nerve.store.sqlite  # noqa: E402, F401
from nerve import ExecutionContext, FunctionNode, Session, Workflow, WorkflowContext  # noqa: E402

IMPORTS = time.perf_counter() - began_import
FILE, STEPS, MANNER, BEGAN = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])


def say_and_leave() -> None:
    print(f"{(time.time() - BEGAN - IMPORTS) * 1000:.3f}", flush=True)
    os._exit(0)


async def step(context: ExecutionContext) -> int:
    number = int(context.input)
    if number == STEPS and MANNER == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if MANNER == "go-on":
        say_and_leave()
    return number


async def steps(ctx: WorkflowContext) -> None:
    for number in range(STEPS + 1):
        await ctx.run("step", number)


async def go_on() -> None:
    session = Session("bench", FILE)
    FunctionNode("step", session, step)
    Workflow("steps", session, steps)
    async with session:
        runs = [await session.start("steps")] if MANNER == "die" else await session.recover()
        await runs[0].wait()


def read() -> None:
    for (data,) in apsw.Connection(FILE).execute("SELECT data FROM events ORDER BY run, seq"):
        json.loads(data)
    say_and_leave()


if MANNER == "read":
    read()
asyncio.run(go_on())
