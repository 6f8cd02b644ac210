"""Continue as new: a loop of 5,000 iterations, 250 of them in the journal of each run of its chain.

Run it with `python examples/patterns/long_loop.py`. Kill it at any time and run it again: it reads
only the journal of the current run, however long the loop has been running.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from nerve import Session, WorkflowContext

session = Session(store="long_loop.db")
BATCH = 250


@dataclass
class Meter:
    """What the loop knows so far; it is the input of the next run."""

    readings: int = 0
    total: int = 0


@session.step
def read_meter(number: int) -> int:
    with Path("long_loop.log").open("a") as file:
        file.write(f"reading {number}\n")
    return number % 10


@session.workflow
async def watch_meter(ctx: WorkflowContext, meter: Meter, readings: int) -> str:
    for _ in range(BATCH):
        if meter.readings == readings:
            return f"{meter.readings} readings, {meter.total} in total"
        meter.total += await read_meter(meter.readings)
        meter.readings += 1
    ctx.continue_as_new(meter)


async def main() -> None:
    async with session:
        await session.recover()
        run = await session.start(watch_meter, Meter(), {"readings": 5000}, key="meter")
        print(await run.wait())


if __name__ == "__main__":
    asyncio.run(main())
