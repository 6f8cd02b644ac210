"""restart.py FILE STEPS MODE BEGAN: run STEPS steps and die in the next, or resume after them.

Prints the milliseconds from BEGAN (when the parent started this process) to the step after STEPS,
without the time of the imports. In the mode `read`, the journal is only read and decoded.
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
from nerve.store.stored_rows import restore_data  # noqa: E402

IMPORT_SECONDS = time.perf_counter() - began_import
FILE, STEPS, MODE, BEGAN = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])


def print_and_exit() -> None:
    print(f"{(time.time() - BEGAN - IMPORT_SECONDS) * 1000:.3f}", flush=True)
    os._exit(0)


async def step(context: ExecutionContext) -> int:
    number = int(context.input)
    if number == STEPS and MODE == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if MODE == "resume":
        print_and_exit()
    return number


async def steps(ctx: WorkflowContext) -> None:
    for number in range(STEPS + 1):
        await ctx.run("step", number)


async def resume() -> None:
    session = Session("bench", FILE)
    FunctionNode("step", session, step)
    Workflow("steps", session, steps)
    async with session:
        runs = [await session.start("steps")] if MODE == "die" else await session.recover()
        await runs[0].wait()


def read_journal() -> None:
    statement = "SELECT data, first_data FROM events ORDER BY journal, seq"
    for data, first_data in apsw.Connection(FILE).execute(statement):
        json.loads(restore_data(data))
        json.loads(restore_data(first_data or "{}"))
    print_and_exit()


if MODE == "read":
    read_journal()
asyncio.run(resume())
